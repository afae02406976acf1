"""Optional inputs that belong together: what a branch that has no other case asks of a request, told before it runs.

branch %pixels.given { true: branch %grids.given { true: ... } }    pixels need grids
"""

from collections.abc import Iterable, Iterator

from genai_compiler.plan.ir import Branch, Op, Plan

Needs = tuple[tuple[str, ...], ...]
"""Groups of inputs, by name: of each at least one has to be given."""
_Flags = tuple[tuple[str, bool], ...]


def needs(plan: Plan) -> dict[str, Needs]:
    """Input -> what else has to be given where it is. Only of branches that every run comes to."""
    owners = {each.present_as: each.name for each in plan.inputs if each.present_as}
    found: dict[str, Needs] = {}
    for flags in _impossible(plan.body, owners, ()):
        given = [owners[flag] for flag, there in flags if there]
        lacking = tuple(owners[flag] for flag, there in flags if not there)
        if len(given) == 1 and lacking and lacking not in found.get(given[0], ()):
            found[given[0]] = (*found.get(given[0], ()), lacking)
    return found


def _impossible(ops: Iterable[Op], owners: dict[str, str], flags: _Flags) -> Iterator[_Flags]:
    """The sets of inputs, given or not, that match no case. flags: those that lead here."""
    for op in ops:
        if not isinstance(op, Branch) or op.predicate not in owners:
            continue
        known = [case == "true" for case, _ in op.cases]
        if op.default is None and len(known) == 1:
            yield (*flags, (op.predicate, not known[0]))
            yield from _impossible(op.cases[0][1], owners, flags)
            continue
        for there, (_, inside) in zip(known, op.cases, strict=True):
            yield from _impossible(inside, owners, (*flags, (op.predicate, there)))
        if len(known) == 1:
            yield from _impossible(op.default or (), owners, (*flags, (op.predicate, not known[0])))
