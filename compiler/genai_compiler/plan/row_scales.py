"""Whether rows of one run would change each other's numbers, because a graph rounds all of a tensor by one scale.

A row that is given beside others is then given a run of its own: it has the tokens that it would have alone.
"""

from collections.abc import Iterator

from genai_compiler.plan.ir import Plan
from genai_compiler.plan.on_demand import on_demand
from genai_compiler.read.graph_facts import scale_of_all
from genai_compiler.read.package import Package


def scaled_together(plan: Plan, package: Package) -> tuple[str, str] | None:
    """(component, operator) of a graph that every request for tokens runs, of a decoder that the runtime drives."""
    if plan.decoder is None:
        return None
    seldom = on_demand(plan)
    found = ((name, scale_of_all(graph.model)) for name, graph in sorted(package.graphs.items()) if name not in seldom)
    return next(((name, operator) for name, operator in found if operator), None)


def row_notes(plan: Plan, package: Package) -> Iterator[str]:
    """That rows have runs of their own, and why."""
    found = scaled_together(plan, package)
    if found is not None:
        component, operator = found
        yield f"each row has runs of its own: {operator} in '{component}' rounds all rows of a run by one scale"
