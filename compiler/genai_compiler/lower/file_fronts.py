"""Files of a medium before the stages that take tensors of it, as components and steps of the workflow.

    branch on given.request.image {
      true:    invoke image_processor(encoded); the stages on what it makes
      default: the stages on tensors that the caller gives, or nothing
    }

A stage that takes one picture a run stands in a loop over the pictures.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from genai_compiler.lower.decoder_components import SCALAR, Data
from genai_compiler.lower.stages import Medium, Stage, invoke_stage, merge_step

ONE_PICTURE, JOIN_PICTURES = "genai-compile.one-picture", "genai-compile.join-pictures"
LIMIT = 1024
"""Pictures of one request."""
ONE_FLAG = {"dtype": "bool", "rank": 1, "shape": [1]}
_ENTRIES = "entries"


@dataclass(frozen=True)
class FileFront:
    """An adapter that makes tensors of files. kind: image or audio.

    component: its name; declared: its declaration; values: its output port -> the workflow value; feeds: a stage's
    input -> the value. each: the stages take one picture a run; sizes: the output that says how much of each picture is
    its own, "" where all of it is. grid: the stage's input for the patches' grids, "" for none. merge: patches of an
    edge that a token stands for. mode: the value that tells which media a request has, "" for none. token: the id that
    stands for an entry of the medium in a prompt, None: not known. program: what `preprocessing` says of the medium.
    """

    kind: str
    component: str
    declared: Data
    values: Mapping[str, str]
    feeds: Mapping[str, str]
    each: bool = False
    sizes: str = ""
    grid: str = ""
    merge: int = 1
    mode: str = ""
    token: int | None = None
    program: Data | None = None

    @property
    def request(self) -> str:
        """The workflow input that takes the files."""
        return f"request.{self.kind}"

    @property
    def presence(self) -> str:
        """The flag that tells whether there are any."""
        return f"given.{self.request}"


def declare_front(front: FileFront, document: Data) -> None:
    """The front's input, component and program in the document."""
    workflow = document["pipeline"]["workflow"]
    workflow["inputs"][front.request] = {
        "contract": {"dtype": "uint8", "rank": 1, "shape": [f"{front.kind}_bytes"]},
        "role": {"kind": "runtime", "version": "1.0", "role": "media"},
        "source": {"kind": "request"},
        "required": False,
        "present_as": front.presence,
    }
    workflow["components"][front.component] = front.declared
    _pin(workflow, front.declared)
    if front.program is not None:
        document.setdefault("preprocessing", {})[front.kind] = front.program


def _pin(workflow: Data, component: Data) -> None:
    how = component["implementation"]
    workflow["manifest"]["adapter_abis"][how["abi"]] = how["version"]


def run_front(front: FileFront) -> Data:
    """The step that runs the front."""
    return {
        "kind": "invoke",
        "component": front.component,
        "inputs": {"encoded": front.request},
        "outputs": dict(front.values),
    }


def of_files(front: FileFront, medium: Medium, workflow: Data, before: Sequence[Data] = ()) -> tuple[Data, str]:
    """(the steps from files to what the front of the decoder takes, the value of that). before: steps to run first."""
    if front.each:
        return _one_by_one(front, medium, workflow)
    steps = [*before, run_front(front), *(invoke_stage(stage, workflow, front.feeds) for stage in medium.stages)]
    result = medium.result
    if medium.merges is not None:
        result = f"{medium.value}.files"
        steps.append(merge_step(medium, *medium.merges, workflow, result))
    return {"kind": "sequence", "steps": steps}, result


def _one_by_one(front: FileFront, medium: Medium, workflow: Data) -> tuple[Data, str]:
    """The stages once a picture, and what they make put together, in order."""
    at, more, all_of = f"{front.kind}.at", f"{front.kind}.more", f"{medium.value}.files"
    pick, slices = _picker(front, medium, workflow)
    moves = {"next": f"{at}.next", "more": f"{more}.next"}
    steps = [
        {**pick, "inputs": {**pick["inputs"], "at": at}, "outputs": {**pick["outputs"], **moves}},
        *(invoke_stage(stage, workflow, slices) for stage in medium.stages),
    ]
    result = medium.result
    if medium.merges is not None:
        result = f"{medium.value}.one"
        steps.append(merge_step(medium, *medium.merges, workflow, result))
    steps.append(_joining(medium, workflow, all_of, result))
    _cells(medium, workflow, at, more, all_of)
    loop = {
        "kind": "loop",
        "setup": [],
        "steps": steps,
        "continue_when": more,
        "max_iterations": "package.picture_limit",
        "carried": [{"cell": each, "next": f"{each}.next"} for each in (at, more, all_of)],
    }
    return {"kind": "sequence", "steps": [run_front(front), loop]}, all_of


def _picker(front: FileFront, medium: Medium, workflow: Data) -> tuple[Data, dict[str, str]]:
    """(the step that takes one picture out, input of a stage -> its value there)."""
    slices = {port: f"one.{port}" for port in front.feeds}
    ports = {each.port.name: stage for stage in medium.stages for each in stage.inputs if each.asked}
    outputs = {port: _one(ports[port], port) for port in front.feeds}
    inputs: Data = {
        port: front.declared["ports"]["outputs"][_made(front, value)] for port, value in front.feeds.items()
    }
    given = dict(front.feeds)
    if front.sizes:
        inputs["sizes"] = front.declared["ports"]["outputs"][front.sizes]
        given["sizes"] = front.values[front.sizes]
    moves = {"next": SCALAR, "more": ONE_FLAG}
    name = adapter(workflow, ONE_PICTURE, {**inputs, "at": SCALAR}, {**outputs, **moves})
    return {"kind": "invoke", "component": name, "inputs": given, "outputs": slices}, slices


def _made(front: FileFront, value: str) -> str:
    return next(port for port, each in front.values.items() if each == value)


def _one(stage: Stage, port: str) -> Data:
    """The contract of one picture for a stage's input: its first axis is 1."""
    taken = next(each.port for each in stage.inputs if each.port.name == port)
    contract = stage.contract(taken)
    inner = [each if isinstance(each, int) else f"one.{port}.{axis}" for axis, each in enumerate(contract["shape"])]
    return {"dtype": contract["dtype"], "rank": contract["rank"], "shape": [1, *inner[1:]]}


def _joining(medium: Medium, workflow: Data, all_of: str, result: str) -> Data:
    shape = list(medium.port.shape or ())
    contract = {"dtype": medium.port.dtype, "rank": len(shape)}
    inputs = {
        "so_far": {**contract, "shape": ["so_far", *shape[1:]]},
        "more": {**contract, "shape": ["more", *shape[1:]]},
    }
    name = adapter(workflow, JOIN_PICTURES, inputs, {_ENTRIES: {**contract, "shape": ["joined", *shape[1:]]}})
    given = {"so_far": all_of, "more": result}
    return {"kind": "invoke", "component": name, "inputs": given, "outputs": {_ENTRIES: f"{all_of}.next"}}


def _cells(medium: Medium, workflow: Data, at: str, more: str, all_of: str) -> None:
    """The loop's cells: which picture is next, whether there is one, and what has been made so far."""
    for name, contract, value in ((at, SCALAR, 0), (more, ONE_FLAG, True), ("picture_limit", SCALAR, LIMIT)):
        literal = {"contract": contract, "role": {"kind": "opaque"}, "source": {"kind": "literal"}, "default": value}
        workflow["inputs"][f"package.{name}"] = literal
    plain = {"scope": "invocation", "management": "workflow"}
    shape = ["all_pictures", *(medium.port.shape or ())[1:]]
    features = {"dtype": medium.port.dtype, "rank": len(shape), "shape": shape}
    invariant, rule = {"kind": "invariant"}, {"kind": "bounded", "axis": 0, "max": "package.sequence_capacity"}
    workflow["state"] |= {
        at: {"contract": SCALAR, "initializer": f"package.{at}", "recurrence": invariant, **plain},
        more: {"contract": ONE_FLAG, "initializer": f"package.{more}", "recurrence": invariant, **plain},
        all_of: {"contract": features, "initializer": medium.nothing, "recurrence": rule, **plain},
    }


def adapter(workflow: Data, abi: str, inputs: Data, outputs: Data, parameters: Data | None = None) -> str:
    """Declare an adapter of the compiler's own; its name."""
    name = abi.partition(".")[2].replace("-", "_")
    while name in workflow["components"]:
        name += "_"
    declared: Data = {
        "implementation": {"kind": "adapter", "abi": abi, "version": "1"},
        "ports": {"inputs": inputs, "outputs": outputs},
    }
    if parameters:
        declared["contract"] = {"id": abi, "version": "1", "parameters": parameters}
    workflow["components"][name] = declared
    _pin(workflow, declared)
    return name
