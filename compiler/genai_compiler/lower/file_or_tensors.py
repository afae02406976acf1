"""Steps before stages that take a medium: of files or else of a caller's tensors, and which media there are."""

from collections.abc import Sequence
from dataclasses import replace

from genai_compiler.lower.decoder_components import Data
from genai_compiler.lower.file_fronts import FileFront, declare_front, run_front
from genai_compiler.lower.stages import Medium, Stage, binding, invoke_stage


def file_or_tensors(front: FileFront, stage: Stage, document: Data) -> list[Data]:
    """A stage that always runs, on what is made of files or else on the caller's tensors; one of them must be there."""
    workflow = document["pipeline"]["workflow"]
    declare_front(front, document)
    inputs = tuple(
        replace(each, optional=True, filled=None) if each.port.name in front.feeds else each for each in stage.inputs
    )
    defaults: list[Data] = []
    outputs: Data = {}
    for asked in (each for each in inputs if each.port.name in front.feeds):
        contract, value = stage.result(asked.port), _value(front, asked.port.name)
        same = binding(f"same_{front.kind}", contract, contract, workflow, {})
        ends = {"inputs": {"entries": asked.value}, "outputs": {"entries": f"{value}.given"}}
        tensor = {"kind": "invoke", "component": same, **ends}
        defaults.append({
            "kind": "branch",
            "predicate": asked.presence,
            "cases": {"true": tensor},
            "outputs": {f"{value}.tensor": {"cases": {"true": f"{value}.given"}}},
        })  # fmt: skip
        outputs[value] = {"cases": {"true": front.feeds[asked.port.name]}, "default": f"{value}.tensor"}
    branch = {
        "kind": "branch",
        "predicate": front.presence,
        "cases": {"true": run_front(front)},
        "default": defaults[0] if len(defaults) == 1 else {"kind": "sequence", "steps": defaults},
        "outputs": outputs,
    }
    fed = {port: _value(front, port) for port in front.feeds}
    return [branch, invoke_stage(replace(stage, inputs=inputs), workflow, fed)]


def _value(front: FileFront, port: str) -> str:
    return f"{front.kind}.taken" if len(front.feeds) == 1 else f"{front.kind}.taken.{port}"


_SOUND_ALONE, _WITH_PICTURES = 2, 3
"""What the graph of a sound is told: which media the request has."""


def media_told(front: FileFront, medium: Medium, workflow: Data, shown: Sequence[str]) -> list[Data]:
    """The step that tells a sound's graph whether there are pictures too; none where no graph asks."""
    if not front.mode:
        return []
    port = next(port for port, value in front.feeds.items() if value == front.mode)
    stage, taken = next(
        (stage, each.port) for stage in medium.stages for each in stage.inputs if each.port.name == port
    )
    contract = {**stage.contract(taken), "shape": [1]}
    for value in (_SOUND_ALONE, _WITH_PICTURES):
        literal = {"contract": contract, "role": {"kind": "opaque"}, "source": {"kind": "literal"}, "default": value}
        workflow["inputs"][f"package.media_{value}"] = literal
    name = binding("same_mode", contract, contract, workflow, {})

    def same(value: int, made: str) -> Data:
        ends = {"inputs": {"entries": f"package.media_{value}"}, "outputs": {"entries": made}}
        return {"kind": "invoke", "component": name, **ends}

    made, end = f"{front.mode}.alone", same(_SOUND_ALONE, f"{front.mode}.alone")
    for at, flag in enumerate(reversed(shown)):
        whole = front.mode if at == len(shown) - 1 else f"{front.mode}.{at}"
        both = f"{front.mode}.both.{at}"
        outputs = {whole: {"cases": {"true": both}, "default": made}}
        ends = {"cases": {"true": same(_WITH_PICTURES, both)}, "default": end, "outputs": outputs}
        made, end = whole, {"kind": "branch", "predicate": flag, **ends}
    return [end if shown else same(_SOUND_ALONE, front.mode)]
