"""The def-use graph of a plan: an edge from each value to those it is made from, over all regions at once."""

from collections.abc import Iterable, Iterator

from genai_compiler.plan.ir import Branch, Copy, Invoke, Loop, Op, Plan
from genai_compiler.plan.uses import back_edge, checked_values, defines, reads, walk
from genai_compiler.read.dominators import Flow

RUN = ""
"""The node that stands for the run itself; no value has this name. Its edges go to what a run reads in any case."""


def needed_values(plan: Plan) -> set[str]:
    """Values that something needs which a run does in any case: publish, loop, choose a branch, have an effect."""
    graph = Flow(edge for op in walk(plan.body) for edge in _edges(op, plan))
    return graph.descendants(RUN) if RUN in graph else set()


def _edges(op: Op, plan: Plan) -> Iterator[tuple[str, str]]:
    match op:
        case Invoke():
            made = defines(op) if plan.component(op.component).pure else (RUN,)
            yield from _all(made, (*reads(op), *(value for check in op.after for value in checked_values(check))))
        case Copy():
            yield from ((target, source) for source, target in op.pairs)
        case Branch():
            yield from _all((RUN,), reads(op))
            for join in op.joins:
                sources = (*(value for _, value in join.cases), *((join.default,) if join.default else ()))
                yield from _all((join.name,), sources)
        case Loop():
            yield from _all((RUN,), (*reads(op), *back_edge(op)))
        case _:
            yield from _all((RUN,), reads(op))


def _all(targets: Iterable[str], sources: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Every source is needed by every target."""
    found = tuple(sources)
    return ((target, source) for target in targets for source in found)
