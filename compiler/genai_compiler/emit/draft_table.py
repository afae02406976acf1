"""The table of an executor that says how its decoder's drafts are made."""

from collections.abc import Iterator

from genai_compiler.emit.programs import program_kinds, program_literal
from genai_compiler.plan.ir import Plan


def draft_imports(plan: Plan) -> set[str]:
    """What the table needs of the runtime; empty where nothing drafts."""
    drafting = plan.speculation.drafting if plan.speculation is not None else None
    return set(program_kinds(drafting))


def decoder_class(plan: Plan) -> str:
    """The runtime's class that drives the plan's decoder."""
    return "SpeculativeDecoder" if draft_imports(plan) else "Decoder"


def draft_table(plan: Plan) -> Iterator[str]:
    """The constant DRAFTS, where the plan's decoder has a proposer."""
    if plan.speculation is not None and plan.speculation.drafting is not None:
        yield f"DRAFTS = {program_literal(plan.speculation.drafting)}"
