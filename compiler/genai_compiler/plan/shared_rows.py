"""Whether rows of one request may share runs: not where a graph would let a row's numbers depend on the others.

A row that is given beside others is then given a run of its own: it has the tokens that it would have alone.
"""

from collections.abc import Iterator

from genai_compiler.plan.ir import Fused, Invoke, Plan
from genai_compiler.plan.on_demand import on_demand
from genai_compiler.plan.uses import walk
from genai_compiler.read.graph_facts import scale_of_all
from genai_compiler.read.package import Package


def share_runs(plan: Plan, package: Package) -> bool:
    """Whether rows may stand in one run at all."""
    return plan.decoder is not None and not plan.decoder.alone and _scaled_together(plan, package) is None


def share_padded(plan: Plan) -> bool:
    """Whether rows of different length may: shorter ones are padded, and nobody takes the padding for tokens."""
    return plan.decoder is not None and plan.decoder.ragged and not _taking_padding(plan)


def row_notes(plan: Plan, package: Package) -> Iterator[str]:
    """That rows have runs of their own, and why."""
    found = _scaled_together(plan, package)
    if found is not None:
        component, operator = found
        yield f"each row has runs of its own: {operator} in '{component}' rounds all rows of a run by one scale"
    elif plan.decoder is not None and plan.decoder.ragged and (taking := _taking_padding(plan)):
        yield f"rows of different length have runs of their own: '{taking}' would take padding for tokens"


def _scaled_together(plan: Plan, package: Package) -> tuple[str, str] | None:
    """(component, operator) of a graph that every request for tokens runs, of a decoder that the runtime drives."""
    if plan.decoder is None:
        return None
    seldom = on_demand(plan)
    found = ((name, scale_of_all(graph.model)) for name, graph in sorted(package.graphs.items()) if name not in seldom)
    return next(((name, operator) for name, operator in found if operator), None)


def _taking_padding(plan: Plan) -> str:
    """A graph beside the decoder, an encoder for one, that takes the request's tokens; the decoder knows their ends."""
    prompts = {each.name for each in plan.inputs if each.role == "prompt_tokens"}
    runs = (op.run if isinstance(op, Fused) else op for op in walk(plan.body))
    takers = (op.component for op in runs if isinstance(op, Invoke) and prompts & {value for _, value in op.inputs})
    return next((each for each in takers if plan.component(each).adapter is None), "")
