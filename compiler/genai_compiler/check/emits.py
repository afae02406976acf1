"""Emits: outputs, guards, prefixes and row layouts (standard, 12.10)."""

from genai_compiler.check.fault import Path, Rule, Rules
from genai_compiler.check.scope import Scope, Value
from genai_compiler.check.tensors import described, is_flag, is_integer, is_shared, mismatch, request_axis
from genai_compiler.check.walk import Walk
from genai_compiler.read.document import EmitStep, TensorContract
from genai_compiler.read.places import format_path
from genai_compiler.read.signature import UNDEFINED
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V261": Rule("undeclared-output", "An emit names a declared output."),
    "V262": Rule("emit-guard", "An emit's `when` is a bool of rank 0 or 1."),
    "V263": Rule("emit-length", "An emit's `valid_length` is an integer of rank 0 or 1."),
    "V264": Rule("emit-rows", "A row-wise guard or length goes with a value that has a request axis."),
    "V265": Rule("emit-rows-output", "An output that is emitted with `when` or `valid_length` has a request axis."),
    "V266": Rule("type-mismatch", "An emitted value fits its output."),
    "V267": Rule("prefix-of-scalar", "An emit with `valid_length` takes a value and an output of rank 1 or more."),
    "V268": Rule("prefix-type", "An emit with `valid_length` takes a value of the output's own dtype and rank."),
    "V269": Rule("prefix-extent", "An emit with `valid_length` agrees with its output on every axis but the last."),
    "V270": Rule("emit-layouts-differ", "All values emitted into one output have the same batch layout."),
    "V271": Rule("emit-layout", "An emitted value has the batch layout of its output."),
    "V272": Rule("shared-emit", "A served workflow emits no shared value of rank 1 or more."),
    "G002": Rule("emit-axis", "An emit that appends or cuts a prefix does so on an axis that its value has."),
}


def check_emit(walk: Walk, step: EmitStep, path: Path, scope: Scope) -> None:
    """One emit."""
    value = walk.read("V235", step.value, (*path, "value"), scope)
    output = walk.workflow.outputs.get(step.output)
    if output is None:
        what = f"no output '{step.output}' is declared"
        walk.fault("V261", (*path, "output"), what, did_you_mean(step.output, walk.workflow.outputs))
    _controls(walk, step, value, path, scope)
    if output is None or value is None:
        return
    _row_output(walk, step, output.contract, path)
    if value.contract is None:
        return
    _axis(walk, step, value.contract, path)
    if step.valid_length is None:
        fault = mismatch(value.contract, output.contract)
        if fault:
            what = f"'{step.value}' can't go into output '{step.output}': {fault}"
            walk.fault("V266", (*path, "value"), what, "make the value and the output's contract agree")
    else:
        _prefix(walk, step, value.contract, output.contract, path)
    if scope.at_root(step.value):
        _layout(walk, step, value.contract, path)


def _axis(walk: Walk, step: EmitStep, value: TensorContract, path: Path) -> None:
    """The growth axis; V267 speaks of prefixes of scalars. A `replace` without a length uses no axis."""
    grows = step.mode == "append" or (step.valid_length is not None and value.rank > 0)
    if grows and value.dtype != UNDEFINED and (step.axis or 0) >= value.rank:
        named = f"axis {step.axis}" if step.axis is not None else "an axis to grow on"
        what = f"the emit needs {named}, and '{step.value}' is {described(value)}"
        walk.fault("G002", (*path, "axis"), what, "axes count from 0; name one below the value's rank")


def _controls(walk: Walk, step: EmitStep, value: Value | None, path: Path, scope: Scope) -> None:
    if step.when is not None:
        guard = walk.read("V235", step.when, (*path, "when"), scope)
        if guard is not None and guard.contract is not None and not is_flag(guard.contract):
            what = f"the guard '{step.when}' is {described(guard.contract)}, not a bool of rank 0 or 1"
            walk.fault("V262", (*path, "when"), what, "guard with a liveness of dtype bool")
        else:
            _row_control(walk, step, guard, value, (*path, "when"))
    if step.valid_length is not None:
        length = walk.read("V235", step.valid_length, (*path, "valid_length"), scope)
        if length is not None and length.contract is not None and not _is_length(length.contract):
            what = f"the length '{step.valid_length}' is {described(length.contract)}, not an integer of rank 0 or 1"
            walk.fault("V263", (*path, "valid_length"), what, "give the length as an integer for the batch or a row")
        else:
            _row_control(walk, step, length, value, (*path, "valid_length"))


def _is_length(contract: TensorContract) -> bool:
    return is_integer(contract) and contract.rank <= 1


def _row_control(walk: Walk, step: EmitStep, control: Value | None, value: Value | None, path: Path) -> None:
    """A control with an entry a row needs a value with rows. A value that only a graph describes has none (V264)."""
    contract = control.contract if control is not None else None
    if value is None or value.reported or contract is None or contract.rank != 1 or contract.shape == (1,):
        return
    if value.contract is None or request_axis(value.contract) is None:
        unknown = value.contract is None
        what = f"'{path[-1]}' has an entry a row and the value '{step.value}' "
        what += "comes from a port whose layout nothing declares" if unknown else "has no request axis"
        help = "declare the port, or emit the carried cell" if unknown else "declare batch_layout request_aligned"
        walk.fault("V264", path, what, help)


def _row_output(walk: Walk, step: EmitStep, contract: TensorContract, path: Path) -> None:
    field = "when" if step.when is not None else "valid_length" if step.valid_length is not None else ""
    if field and request_axis(contract) is None:
        what = f"'{field}' publishes by row and output '{step.output}' has no request axis"
        help = f"give outputs.{step.output}.contract a batch_layout request_aligned on axis 0"
        walk.fault("V265", (*path, field), what, help)


def _prefix(walk: Walk, step: EmitStep, value: TensorContract, output: TensorContract, path: Path) -> None:
    place, into = (*path, "value"), f"output '{step.output}'"
    if value.rank == 0 or output.rank == 0:
        what = f"valid_length cuts a prefix, and '{step.value}' or {into} has rank 0"
        walk.fault("V267", place, what, "declare at least one axis")
    elif value.dtype != output.dtype or value.rank != output.rank:
        found, wanted = f"{value.dtype} of rank {value.rank}", f"{output.dtype} of rank {output.rank}"
        what = f"a prefix of '{step.value}' ({found}) can't go into {into} ({wanted}; spelling counts here)"
        walk.fault("V268", place, what, "write the same dtype and rank on both sides")
    else:
        fault = mismatch(value, output, exempt=value.rank - 1)
        if fault:
            walk.fault("V269", place, f"a prefix of '{step.value}' can't go into {into}: {fault}", "make them agree")


def _layout(walk: Walk, step: EmitStep, value: TensorContract, path: Path) -> None:
    """Layouts of values of the root region; those of inner regions are a question of run time (standard, 14.4)."""
    place, output = (*path, "value"), walk.workflow.outputs[step.output].contract
    layout, first = walk.layouts.setdefault(step.output, (value.batch_layout, path))
    if layout != value.batch_layout:
        what = (
            f"'{step.value}' goes into '{step.output}' with another batch_layout than the emit at {format_path(first)}"
        )
        walk.fault("V270", place, what, "emit values of one layout")
    elif output.batch_layout != value.batch_layout:
        what = f"the batch_layout of '{step.value}' is not that of output '{step.output}'"
        walk.fault("V271", place, what, "write the same batch_layout on both")
    elif walk.workflow.serving is not None and is_shared(value) and value.rank > 0:
        what = f"'{step.value}' is shared by all requests, and a served workflow publishes to each its own"
        walk.fault("V272", place, what, "give the value a request axis")
