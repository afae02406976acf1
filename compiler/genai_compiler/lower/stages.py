"""Models that run once, before the decoder's loop, as components and steps of its workflow."""

from collections.abc import Iterable
from dataclasses import dataclass

from genai_compiler.lower.decoder_components import ALIGNED, Data
from genai_compiler.read.signature import Port, Signature

REQUEST_TOKENS = "request.input_ids"


@dataclass(frozen=True)
class StageInput:
    """An input of a stage. value: the workflow value that feeds it; `asked` when the caller gives that value.

    tokens: it takes the request's tokens.
    """

    port: Port
    value: str
    asked: bool = False
    tokens: bool = False


@dataclass(frozen=True)
class Stage:
    """A model that runs once. rows: the symbol of its first axes that stands for the request's rows, "" for none."""

    name: str
    artifact: str
    signature: Signature
    inputs: tuple[StageInput, ...]
    rows: str

    def contract(self, port: Port) -> Data:
        """A port's contract: the graph's own, with the rows of the request where it has them."""
        shape: list[int | str] = [
            f"{port.name}.{axis}" if extent is None else extent for axis, extent in enumerate(port.shape or ())
        ]
        contract: Data = {"dtype": port.dtype, "rank": len(shape), "shape": shape}
        if shape and self.rows and shape[0] == self.rows:
            contract |= {"shape": ["batch", *shape[1:]], "batch_layout": ALIGNED}
        return contract


def with_stages(document: Data, stages: Iterable[Stage]) -> Data:
    """The decoder's document with the stages before its loop."""
    workflow = document["pipeline"]["workflow"]
    steps: list[Data] = []
    for stage in stages:
        workflow["components"][stage.name] = _component(stage)
        workflow["inputs"] |= {each.value: _input(stage, each) for each in stage.inputs if each.asked}
        outputs = {each.name: f"{stage.name}.{each.name}" for each in stage.signature.outputs}
        inputs = {each.port.name: each.value for each in stage.inputs}
        steps.append({"kind": "invoke", "component": stage.name, "inputs": inputs, "outputs": outputs})
    workflow["steps"] = [*steps, *workflow["steps"]]
    return document


def _component(stage: Stage) -> Data:
    inputs = {each.port.name: stage.contract(each.port) for each in stage.inputs}
    outputs = {each.name: stage.contract(each) for each in stage.signature.outputs}
    return {
        "implementation": {"kind": "onnx", "artifact": stage.artifact},
        "ports": {"inputs": inputs, "outputs": outputs},
    }


def _input(stage: Stage, given: StageInput) -> Data:
    declared: Data = {"contract": stage.contract(given.port), "required": True}
    if given.tokens:
        role = {"kind": "runtime", "version": "1.0", "role": "prompt_tokens"}
        return declared | {"role": role, "source": {"kind": "request"}}
    return declared | {"role": {"kind": "opaque"}, "source": {"kind": "application", "name": given.port.name}}
