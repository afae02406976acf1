"""Models that run once, before the decoder's loop, as components and steps of its workflow."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from genai_compiler.lower.decoder_components import ALIGNED, Data, media_contract
from genai_compiler.lower.decoder_facts import component_of
from genai_compiler.lower.packed_rows import MERGE_AXES
from genai_compiler.read.signature import Port, Signature

REQUEST_TOKENS = "request.input_ids"
ENTRIES = "entries"
"""The port of a binding of one port."""


@dataclass(frozen=True)
class StageInput:
    """An input of a stage. value: the workflow value that feeds it; `asked` when the caller gives that value.

    tokens: it takes the request's tokens. optional: the caller may leave it out. filled: with what number, where the
    caller leaves it out and its extents are those of another input. shared: another stage asks for it. beside: the
    stage's graph has no such input; what orders the stage's rows reads it.
    """

    port: Port
    value: str
    asked: bool = False
    tokens: bool = False
    optional: bool = False
    filled: int | None = None
    shared: bool = False
    beside: bool = False

    @property
    def presence(self) -> str:
        """The flag that tells whether the caller gave it."""
        return f"given.{self.value}"


@dataclass(frozen=True)
class WindowOrder:
    """Rows of a picture's patches that a stage gives, put in order of windows for the next stage, or back again.

    output: the port, [..., rows, features]. grid: the request's input of (frames, height, width) in patches. edge: that
    of a window, in groups of patches; merge: of a group, in patches. back: the rows are groups by windows.
    """

    output: str
    grid: str
    edge: int
    merge: int
    back: bool


@dataclass(frozen=True)
class Stage:
    """A model that runs once. rows: the symbol of its first axes that stands for the request's rows, "" for none.

    windows: what is done to the order of its rows.
    """

    name: str
    artifact: str
    signature: Signature
    inputs: tuple[StageInput, ...]
    rows: str
    windows: WindowOrder | None = None

    @property
    def component(self) -> str:
        """Its component in the workflow."""
        return component_of(self.name)

    def result(self, port: Port) -> Data:
        """A port's contract outside the stage, where symbols that are not the request's rows are the stage's own."""
        contract = self.contract(port)
        shape = [each if isinstance(each, int) else f"{self.name}.{each}" for each in contract["shape"]]
        if "batch_layout" in contract:
            shape[0] = "batch"
        return {**contract, "shape": shape}

    def contract(self, port: Port) -> Data:
        """A port's contract: the graph's own, with the rows of the request where it has them."""
        shape: list[int | str] = [
            f"{port.name}.{axis}" if extent is None else extent for axis, extent in enumerate(port.shape or ())
        ]
        contract: Data = {"dtype": port.dtype, "rank": len(shape), "shape": shape}
        if shape and self.rows and shape[0] == self.rows:
            contract |= {"shape": ["batch", *shape[1:]], "batch_layout": ALIGNED}
        return contract


@dataclass(frozen=True)
class Medium:
    """Stages that run when the caller gives their inputs. port: what takes the result.

    result: what they make; value: that, or `nothing`, a value too. merges: the stage's output, [a, b, ...], whose first
    two axes are one for the port; None where they agree. entry: the token in whose places the graph puts entries.
    """

    stages: tuple[Stage, ...]
    port: Port
    result: str
    value: str
    nothing: str
    merges: tuple[Stage, Port] | None = None
    entry: int | None = None

    @property
    def apart(self) -> bool:
        """Whether its stages take one picture a run: patches of two would stand in one window."""
        return any(stage.windows is not None for stage in self.stages)

    @property
    def merge(self) -> int:
        """Patches of an edge of what an entry stands for, as the graphs tell; 0 where they do not."""
        return merge_of(self.stages)

    @property
    def patch(self) -> int:
        """Pixels of the edge of patches that a graph cuts whole pictures into; 0 where none does."""
        return patch_of(self.stages)


def merge_of(stages: Iterable[Stage]) -> int:
    """Patches of an edge of what an entry stands for, as the graphs tell; 0 where they do not."""
    return max(stage.signature.traits.merge for stage in stages)


def patch_of(stages: Iterable[Stage]) -> int:
    """Pixels of the edge of patches that a graph cuts whole pictures into; 0 where none does."""
    return max(stage.signature.traits.patch for stage in stages)


def with_stages(document: Data, stages: Iterable[Stage]) -> Data:
    """The decoder's document with the stages before its loop."""
    workflow = document["pipeline"]["workflow"]
    workflow["steps"] = [*(invoke_stage(stage, workflow) for stage in stages), *workflow["steps"]]
    return document


def invoke_stage(stage: Stage, workflow: Data, fed: Mapping[str, str] | None = None) -> Data:
    """Declare a stage; the step that runs it. fed: input -> the value to take in place of the caller's."""
    workflow["components"][stage.component] = _component(stage)
    workflow["inputs"] |= {each.value: _input(stage, each) for each in stage.inputs if each.asked}
    outputs = {each.name: f"{stage.component}.{each.name}" for each in stage.signature.outputs}
    values = fed or {}
    inputs = {
        each.port.name: values.get(each.port.name, each.value) if each.asked or each.shared else each.value
        for each in stage.inputs
        if not each.beside
    }
    return {"kind": "invoke", "component": stage.component, "inputs": inputs, "outputs": outputs}


def merge_step(medium: Medium, stage: Stage, output: Port, workflow: Data, value: str) -> Data:
    """The step that takes the first two axes of a result together, to `value`."""
    contract = {"id": MERGE_AXES, "version": "1.0"}
    ports = stage.contract(output), media_contract(medium.port)
    name = binding(f"merge_{medium.port.name}", *ports, workflow, {"contract": contract})
    outputs = {ENTRIES: value}
    return {"kind": "invoke", "component": name, "inputs": {ENTRIES: medium.result}, "outputs": outputs}


def binding(wish: str, taken: Data, made: Data, workflow: Data, more: Data) -> str:
    """Declare a binding of one port, or find the same one; its name, which is none of a model."""
    ports = {"inputs": {ENTRIES: taken}, "outputs": {ENTRIES: made}}
    declared = {"implementation": {"kind": "binding"}, "ports": ports, **more}
    name = "".join(each if each.isalnum() else "_" for each in wish)
    while workflow["components"].get(name, declared) != declared:
        name += "_"
    workflow["components"][name] = declared
    return name


def _component(stage: Stage) -> Data:
    inputs = {each.port.name: stage.contract(each.port) for each in stage.inputs if not each.beside}
    outputs = {each.name: stage.contract(each) for each in stage.signature.outputs}
    return {
        "implementation": {"kind": "onnx", "artifact": stage.artifact},
        "ports": {"inputs": inputs, "outputs": outputs},
    }


def _input(stage: Stage, given: StageInput) -> Data:
    declared: Data = {"contract": stage.result(given.port), "required": not given.optional}
    if given.optional:
        declared["present_as"] = given.presence
    if given.filled is not None:
        declared |= {"required": False, "default": given.filled}
    if given.tokens:
        role = {"kind": "runtime", "version": "1.0", "role": "prompt_tokens"}
        own = {"kind": "application", "name": given.port.name}
        return declared | {"role": role, "source": {"kind": "request"} if given.value == REQUEST_TOKENS else own}
    name = given.value.removeprefix("application.")  # the port's, with its model's before it where two have that name
    return declared | {"role": {"kind": "opaque"}, "source": {"kind": "application", "name": name}}
