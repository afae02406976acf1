"""The table of an executor that says how its decoder's drafts are made."""

from collections.abc import Iterator

from genai_compiler.emit.names import literal
from genai_compiler.plan.ir import Plan
from genai_compiler.plan.speculation import Budget


def draft_imports(plan: Plan) -> set[str]:
    """What the table and its user need of the runtime; empty where nothing drafts."""
    drafting = plan.speculation.drafting if plan.speculation is not None else None
    if drafting is None:
        return set()
    return {"DraftSpec", *(["Slot"] if drafting.recurrent else []), *(["BudgetSpec"] if drafting.budget else [])}


def decoder_class(plan: Plan) -> str:
    """The runtime's class that drives the plan's decoder."""
    return "SpeculativeDecoder" if draft_imports(plan) else "Decoder"


def draft_table(plan: Plan) -> Iterator[str]:
    """The constant DRAFTS, where the plan's decoder has a proposer."""
    drafting = plan.speculation.drafting if plan.speculation is not None else None
    if drafting is None:
        return
    slots = [
        f"Slot({literal(each.past)}, {literal(each.present)}, {literal(each.dtype)}, {literal(each.dims)})"
        for each in drafting.recurrent
    ]
    args = [
        f"component={literal(drafting.component)}",
        f"origin={literal(drafting.origin)}",
        f"chained={drafting.chained}",
        f"width={drafting.width}",
        f"vocabulary={drafting.vocabulary}",
        f"tokens={literal(drafting.tokens)}",
        f"fused={literal(drafting.fused)}",
        f"table={literal(drafting.table)}",
        f"context={literal(drafting.context)}",
        f"carry={literal(drafting.carry)}",
        f"seed={literal(drafting.seed)}",
        f"mask={literal(drafting.mask)}",
        f"positions={literal(drafting.positions)}",
        f"drafts={literal(drafting.drafts)}",
        f"logits={drafting.logits}",
        f"recurrent=({', '.join(slots)}{',' if slots else ''})",
        f"borrowed={literal(drafting.borrowed)}",
        f"one_position={drafting.one_position}",
        f"budget={_budget(drafting.budget)}",
    ]
    yield f"DRAFTS = DraftSpec({', '.join(args)})"


def _budget(budget: Budget | None) -> str:
    if budget is None:
        return "None"
    args = [
        f"component={literal(budget.component)}",
        f"origin={literal(budget.origin)}",
        f"inputs={literal(budget.inputs)}",
        f"outputs={literal(budget.outputs)}",
        f"estimates={literal(budget.estimates)}",
    ]
    return f"BudgetSpec({', '.join(args)})"
