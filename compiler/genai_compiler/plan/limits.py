"""Extents of a request's inputs that the graphs' own tables of positions bound, so that a run can't fail over them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from genai_compiler.plan.ir import Branch, Copy, Input, Invoke, Op, Plan
from genai_compiler.plan.uses import walk
from genai_compiler.read.package import Package


def limited(inputs: Iterable[Input], body: Iterable[Op], package: Package) -> tuple[Input, ...]:
    """The inputs with the limits of every graph that takes them as they are."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    cut: dict[str, tuple[int, int]] = {}
    ops = list(walk(tuple(body)))
    same = _same(ops)
    for op in ops:
        graph = package.graphs.get(op.component) if isinstance(op, Invoke) else None
        if not isinstance(op, Invoke) or graph is None:
            continue
        values = dict(op.inputs)
        for square in graph.signature.patches:
            for value in _origins(values.get(square.input, ""), same):
                cut[value] = (square.patch, square.count)
        for each in graph.signature.limits:
            for value in _origins(values.get(each.input, ""), same):
                axes = found.setdefault(value, {})
                least, most = axes.get(each.axis, (each.least, each.most))
                axes[each.axis] = (max(least, each.least), min(most, each.most))
    return tuple(
        replace(
            each,
            limits=tuple((axis, *bounds) for axis, bounds in sorted(found.get(each.name, {}).items())),
            patches=cut.get(each.name),
        )
        for each in inputs
    )


def _same(ops: Iterable[Op]) -> dict[str, set[str]]:
    """Value -> values that it is, or is in some case."""
    found: dict[str, set[str]] = {}
    for op in ops:
        for source, made in op.pairs if isinstance(op, Copy) else ():
            found.setdefault(made, set()).add(source)
        for join in op.joins if isinstance(op, Branch) else ():
            found.setdefault(join.name, set()).update(value for _, value in join.cases)
            found[join.name].update([join.default] if join.default else [])
    return found


def _origins(value: str, same: Mapping[str, set[str]]) -> set[str]:
    """The value and all that it may be."""
    pending, seen = [value], set[str]()
    while pending:
        each = pending.pop()
        if each not in seen:
            seen.add(each)
            pending.extend(same.get(each, ()))
    return seen


def limit_notes(plan: Plan) -> Iterator[str]:
    """What the limits are, in words."""
    for each in plan.inputs:
        if each.patches is not None:
            patch, count = each.patches
            yield f"{each.application_name or each.name}: pictures of {count} patches of {patch} x {patch} pixels"
        for axis, least, most in each.limits:
            dim = each.type.dims[axis]
            where = f"axis {axis}" + (f" ({dim})" if isinstance(dim, str) else "")
            extent = f"{most}" if least == most else f"{least} to {most}" if least else f"{most} at most"
            yield f"{each.application_name or each.name}: {where} is {extent}, for a graph's own table has no more rows"
