"""Branches: predicates, cases, merged values and session state that a case must hand out (standard, 12.10)."""

from collections.abc import Callable, Iterator
from itertools import accumulate

from genai_compiler.check.fault import Path, Rule, Rules
from genai_compiler.check.finals import Finals
from genai_compiler.check.scope import Scope, Value
from genai_compiler.check.tensors import both, described, is_integer, is_single, mismatch
from genai_compiler.check.walk import Walk, branches
from genai_compiler.read.document import BranchOutput, BranchStep, Step
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V253": Rule("branch-predicate", "A branch's predicate is one bool or integer: rank 0, or shape [1]."),
    "V254": Rule("no-cases", "A branch has at least one case."),
    "V255": Rule("join-lacks-case", "A branch output has a value for every case."),
    "V256": Rule("unknown-case", "A branch output names cases that the branch has."),
    "V257": Rule("join-default", "A branch output has a default exactly when the branch has one."),
    "V258": Rule("unknown-value", "The source of a branch output is visible in its case."),
    "V259": Rule("type-mismatch", "All sources of a branch output fit one another."),
    "V260": Rule("session-not-exported", "A case that updates a session cell hands its final value out."),
}

StepCheck = Callable[[Walk, Step, Path, Scope], Finals]
DEFAULT = ("default",)
Case = tuple[str, ...]
"""("cases", key), or ("default",)."""


def check_branch(walk: Walk, step: BranchStep, path: Path, scope: Scope, check: StepCheck) -> Finals:
    """One branch; afterwards its outputs are visible in `scope`."""
    _predicate(walk, step, path, scope)
    if not step.cases:
        walk.fault("V254", (*path, "cases"), "the branch has no cases", "give it at least one")
    scopes: dict[Case, Scope] = {}
    finals: dict[Case, Finals] = {}
    for at, case in branches(step, path):
        key = tuple(str(each) for each in at[len(path) :])
        scopes[key] = scope.inner(_present(walk, step, key))
        finals[key] = check(walk, case, at, scopes[key])
    for name, output in step.outputs.items():
        _keys(walk, name, output, step, (*path, "outputs", name))
    values = {name: _merged(walk, name, each, path, scopes) for name, each in step.outputs.items()}
    for name, value in values.items():
        walk.define(name, value, (*path, "outputs", name), scope)
    return _exported(walk, step, path, finals)


def _present(walk: Walk, step: BranchStep, case: Case) -> str | None:
    """The input whose presence this case proves."""
    if case != ("cases", "true"):
        return None
    return next((name for name, each in walk.workflow.inputs.items() if each.present_as == step.predicate), None)


def _predicate(walk: Walk, step: BranchStep, path: Path, scope: Scope) -> None:
    value = walk.read("V235", step.predicate, (*path, "predicate"), scope)
    contract = value.contract if value is not None else None
    if contract is None:
        return
    if (contract.dtype != "bool" and not is_integer(contract)) or not is_single(contract):
        what = f"the predicate '{step.predicate}' is {described(contract)}, not one bool or integer"
        walk.fault("V253", (*path, "predicate"), what, "use rank 0, or the static shape [1]")


def _keys(walk: Walk, name: str, output: BranchOutput, step: BranchStep, path: Path) -> None:
    """A source for each case and for nothing else."""
    for key in step.cases:
        if key not in output.cases:
            what = f"branch output '{name}' has no value for case '{key}'"
            walk.fault("V255", path, what, f"name the value that case '{key}' gives it")
    for key in output.cases:
        if key not in step.cases:
            help = did_you_mean(key, step.cases)
            walk.fault("V256", (*path, "cases", key), f"the branch has no case '{key}'", help)
    if output.default is None and step.default is not None:
        what = f"branch output '{name}' has no value for the branch's default"
        walk.fault("V257", path, what, "name the value that the default gives it")
    if output.default is not None and step.default is None:
        what = f"branch output '{name}' has a default and the branch has none"
        walk.fault("V257", (*path, "default"), what, "remove it, or give the branch a default")


def _sources(output: BranchOutput, scopes: dict[Case, Scope]) -> Iterator[tuple[Case, str]]:
    for key, name in output.cases.items():
        if ("cases", key) in scopes:
            yield ("cases", key), name
    if output.default is not None and DEFAULT in scopes:
        yield DEFAULT, output.default


def _merged(walk: Walk, name: str, output: BranchOutput, path: Path, scopes: dict[Case, Scope]) -> Value:
    place, found = (*path, "outputs", name), list[Value]()
    for case, source in _sources(output, scopes):
        value = _source(walk, source, case, (*place, *case), scopes[case])
        if value is not None:
            found.append(value)
    known = [each.contract for each in found if each.contract is not None]
    fault = next(filter(None, map(mismatch, known[1:], accumulate(known, both))), "")
    if fault:
        what = f"the sources of branch output '{name}' do not fit one another: {fault}"
        walk.fault("V259", place, what, "make the cases give the same dtype, rank and fixed extents")
    contract = known[0] if known and len(known) == len(found) else None
    return Value(contract, reported=len(found) < len(scopes) or any(each.reported for each in found))


def _source(walk: Walk, name: str, case: Case, path: Path, scope: Scope) -> Value | None:
    declared = walk.workflow.inputs.get(name)
    if declared is not None and declared.present_as and name not in scope.present:
        what = f"branch output source '{name}' is an input that may be absent in this case"
        walk.fault("V136", path, what, f"take it from the case \"true\" of a branch on '{declared.present_as}' only")
        return scope.find(name)
    where = f"case '{case[-1]}'" if len(case) > 1 else "the default"
    return walk.read("V258", name, path, scope, f"{where} sees no value '{name}'")


def _exported(walk: Walk, step: BranchStep, path: Path, finals: dict[Case, Finals]) -> Finals:
    """Hold the session cells that cases update against the outputs; returns the cells' values after the branch."""
    after: Finals = {}
    for case, updated in finals.items():
        for cell, value in updated.items():
            output = next((name for name, each in step.outputs.items() if _given(each, case) == value), None)
            if value is None or output is None:
                what = f"the case updates session cell '{cell}' and no branch output hands its final value out"
                held = f" ('{value}')" if value else ""
                help = f"add a branch output whose source for this case is the cell's value{held}"
                walk.fault("V260", (*path, *case), what, help)
            after[cell] = output
    return after


def _given(output: BranchOutput, case: Case) -> str | None:
    return output.default if case == DEFAULT else output.cases.get(case[-1])
