"""Stages on tensors of a medium that the caller gives, and nothing where none is given."""

from genai_compiler.lower.decoder_components import Data, media_contract
from genai_compiler.lower.one_by_one import Pictures, one_by_one
from genai_compiler.lower.stages import ENTRIES, Medium, StageInput, binding, merge_step
from genai_compiler.lower.window_order import run_stage


def of_tensors(medium: Medium, workflow: Data) -> Data:
    """The step from tensors of the caller to the medium's value, which is empty where none is given."""
    asked = [each for stage in medium.stages for each in stage.inputs if each.asked]
    if medium.apart:
        loop, whole = one_by_one(medium, workflow, _pictures(medium))
        return _when_given(asked, loop, whole, _empty(medium, workflow), medium)
    made = [each for stage in medium.stages for each in run_stage(stage, workflow)]
    whole = medium.result
    if medium.merges is not None:
        whole = f"{medium.value}.merged"
        made.append(merge_step(medium, *medium.merges, workflow, whole))
    return _when_given(asked, {"kind": "sequence", "steps": made}, whole, _empty(medium, workflow), medium)


def _pictures(medium: Medium) -> Pictures:
    """The caller's tensors as pictures of a loop."""
    asked = [(stage, each) for stage in medium.stages for each in stage.inputs if each.asked]
    values = {each.port.name: each.value for _, each in asked}
    contracts = {each.port.name: stage.result(each.port) for stage, each in asked}
    grid = next(stage.windows.grid for stage in medium.stages if stage.windows is not None)
    return Pictures("tensors", values, contracts, grid=grid)


def _when_given(asked: list[StageInput], made: Data, whole: str, empty: Data, medium: Medium) -> Data:
    """The stages where all inputs are given, nothing where none is; some without the others match no case."""
    given, result = _nested(asked[1:], "true", made, whole, f"{medium.value}.all")
    absent, none = _nested(asked[1:], "false", empty, f"{medium.value}.none", f"{medium.value}.no")
    return {
        "kind": "branch",
        "predicate": asked[0].presence,
        "cases": {"true": given},
        "default": absent,
        "outputs": {medium.value: {"cases": {"true": result}, "default": none}},
    }


def _nested(asked: list[StageInput], case: str, step: Data, result: str, name: str) -> tuple[Data, str]:
    """(the step under one branch an input, each with this case alone; the name of its result there)."""
    for at, each in reversed(list(enumerate(asked))):
        outputs = {f"{name}.{at}": {"cases": {case: result}}}
        step = {"kind": "branch", "predicate": each.presence, "cases": {case: step}, "outputs": outputs}
        result = f"{name}.{at}"
    return step, result


def _empty(medium: Medium, workflow: Data) -> Data:
    """The step that hands on nothing: a case of a branch needs one."""
    contract = media_contract(medium.port)
    name = binding(f"no_{medium.port.name}", contract, contract, workflow, {})
    outputs = {ENTRIES: f"{medium.value}.none"}
    return {"kind": "invoke", "component": name, "inputs": {ENTRIES: medium.nothing}, "outputs": outputs}
