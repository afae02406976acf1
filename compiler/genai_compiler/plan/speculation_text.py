"""The lines of a plan that say how its decoder's drafts are made (syntax: docs/ir.md)."""

from collections.abc import Iterator

from genai_compiler.plan.speculation import DraftSpec, Speculation
from genai_compiler.plan.state import GROWTH, ROWS


def speculation_lines(plan: Speculation) -> Iterator[str]:
    """The lines of a plan's speculation."""
    kind = "chained" if plan.chained else "a block"
    head = f"speculation of {plan.target} by {plan.proposer}: {kind}, at most {plan.width} drafts"
    if plan.drafting is None:
        yield f"{head}, not driven: {plan.reason}"
        return
    yield f"{head}, {'by itself' if plan.by_itself else 'on request'}"
    yield from _ports(plan.drafting, plan.target)


def _ports(drafting: DraftSpec, target: str) -> Iterator[str]:
    if drafting.tokens is not None:
        yield f"  tokens {drafting.tokens[0]} ({drafting.tokens[1]})"
    if drafting.fused is not None:
        carry = f", then the carry: {target}.{drafting.seed}, or {drafting.carry}" if drafting.carry else ""
        yield f"  fused {drafting.fused[0]} ({drafting.fused[1]}): a row of {target}.{drafting.table}{carry}"
    if drafting.context is not None:
        yield f"  context {drafting.context[0]} ({drafting.context[1]}): {target}.{drafting.seed}"
    for name, port in (("mask", drafting.mask), ("positions", drafting.positions)):
        if port is not None:
            yield f"  {name} {port[0]} ({port[1]})"
    for slot in drafting.recurrent:
        dims = ", ".join({ROWS: "rows", GROWTH: "tokens"}.get(dim, str(dim)) for dim in slot.dims)
        yield f"  {slot.past} -> {slot.present}: {slot.dtype}[{dims}]"
    for taker, past in drafting.borrowed:
        yield f"  {taker} borrows {target}.{past}"
    yield f"  drafts {drafting.drafts}, {'logits' if drafting.logits else 'ids'}"
    if drafting.budget is not None:
        yield f"  budget {drafting.budget.component}"
