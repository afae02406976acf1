"""The serving contract: liveness and accepted lengths by row (standard, 12.9)."""

from genai_compiler.check.fault import WORKFLOW, Fault, Faults, Path, Rule, Rules
from genai_compiler.check.scope import Scope
from genai_compiler.check.tensors import described, is_flag, is_integer, request_axis
from genai_compiler.read.document import TensorContract, Workflow
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V210": Rule("serving-groups", "A serving contract has at least one group."),
    "V211": Rule("serving-length", "A serving contract with groups names `accepted_len`."),
    "V212": Rule("unknown-value", "The values of a serving contract are defined at the end of the root sequence."),
    "V213": Rule("serving-type", "`active` and `done` are bools of rank 0 or 1."),
    "V214": Rule("serving-type", "`accepted_len` is an integer of rank 0 or 1."),
    "V215": Rule("serving-rows", "A serving value of rank 1 has its request axis at 0."),
}


def check_serving(workflow: Workflow, end: Scope) -> Faults:
    """The serving contract, with what is visible at the end of the root sequence."""
    serving, path = workflow.serving, (*WORKFLOW, "serving")
    if serving is None:
        return
    if not serving.state_service.groups:
        what = "a serving contract without groups serves no state"
        yield Fault("V210", path, what, "declare a group, or remove serving")
    elif serving.accepted_len is None:
        what = "the contract does not say how many positions a row has accepted"
        yield Fault("V211", path, what, "add accepted_len")
    for role, name in (("active", serving.active), ("done", serving.done), ("accepted_len", serving.accepted_len)):
        if name is not None:
            yield from _value(role, name, end, (*path, role))


def _value(role: str, name: str, end: Scope, path: Path) -> Faults:
    value = end.find(name)
    if value is None:
        what = f"'{name}' is not defined at the end of the root sequence"
        yield Fault("V212", path, what, did_you_mean(name, end.visible()))
    elif value.contract is not None:
        yield from _type(role, name, value.contract, path)


def _type(role: str, name: str, contract: TensorContract, path: Path) -> Faults:
    if role == "accepted_len" and (not is_integer(contract) or contract.rank > 1):
        what = f"'{name}' is {described(contract)}, not an integer of rank 0 or 1"
        yield Fault("V214", path, what, "count accepted positions for the batch or for each row")
    elif role != "accepted_len" and not is_flag(contract):
        what = f"'{name}' is {described(contract)}, not a bool of rank 0 or 1"
        yield Fault("V213", path, what, "say it for the batch or for each row")
    elif contract.rank == 1 and request_axis(contract) != 0:
        what = f"'{name}' has an entry a row and no request axis 0"
        yield Fault("V215", path, what, "declare batch_layout request_aligned on axis 0")
