"""The table of an executor that says how the runtime drives its decoder (standard, 4.3 and 10.3)."""

from collections.abc import Iterator

from genai_compiler.emit.draft_table import decoder_class, draft_imports
from genai_compiler.emit.names import literal
from genai_compiler.plan.ir import Decode, Plan
from genai_compiler.plan.state import Pages, StateGroup
from genai_compiler.plan.uses import walk


def open_decoder(plan: Plan) -> Iterator[str]:
    """The statement that opens the decoder, where the plan has one."""
    if plan.decoder is not None:
        drafts = ", DRAFTS" if draft_imports(plan) else ""
        yield f"self.decoder = {decoder_class(plan)}(sessions, DECODER{drafts})"


def decoder_table(plan: Plan) -> Iterator[str]:
    """The constant DECODER: what the runtime needs to drive the plan's decoder."""
    facts = plan.decoder
    if facts is None:
        return
    mask = facts.mask
    flags = () if mask is None else (literal(mask.port), literal(mask.dtype), f"columns={mask.use == 'columns'}")
    slots = ", ".join(_slots(group) for group in plan.groups)
    counts = tuple((each.port, each.dtype, each.kind) for each in facts.counts)
    args = [
        f"component={literal(facts.component)}",
        f"origin={literal(_decode_origin(plan))}",
        f"tokens={literal(facts.tokens)}",
        f"token_dtype={literal(facts.token_dtype)}",
        f"logits={literal(facts.logits)}",
        f"logits_dtype={literal(facts.logits_dtype)}",
        f"mask=Mask({', '.join(flags)}, fixed={mask.constant_width})" if mask else "mask=None",
        *([f"lengths=Lengths({literal(facts.lengths.last)}, {literal(facts.lengths.width)})"] if facts.lengths else []),
        f"positions={literal(facts.positions)}",
        f"slots=({slots}{',' if slots else ''})",
        f"shared={bool(plan.groups) and all(group.storage == 'shared-buffer' for group in plan.groups)}",
        f"capacity={literal(min((g.capacity for g in plan.groups if g.capacity), default=None))}",
        f"ragged={facts.ragged}",
        f"vocab_size={facts.vocab_size}",
        f"one_token={facts.one_token}",
        *([f"flat={facts.flat}"] if facts.flat else []),
        *([f"last_position={literal(facts.last_position)}"] if facts.last_position else []),
        *([f"logits_rank={facts.logits_rank}"] if facts.logits_rank != 3 else []),
        *([f"counts={literal(counts)}"] if counts else []),
        *_pages(facts.pages),
        *([f"prompt_component={literal(facts.prompt_component)}"] if facts.prompt_component else []),
        *([f"one_by_step={facts.one_by_step}"] if facts.one_by_step else []),
        *([f"window=({facts.window.size}, {facts.window.pad})"] if facts.window is not None else []),
        *([f"shift={literal((facts.shift.columns, facts.shift.fill, facts.shift.first))}"] if facts.shift else []),
        *([f"alone={facts.alone}"] if facts.alone else []),
        *([f"switch={facts.switch}"] if facts.switch else []),
        *([f"left={literal(facts.left)}"] if facts.left else []),
        *([f"front=({literal(facts.front.component)}, {literal(facts.front.streams)})"] if facts.front else []),
    ]
    yield f"DECODER = DecoderSpec({', '.join(args)})"


def _pages(pages: Pages | None) -> Iterator[str]:
    if pages is not None:
        names = ("cumulative", "past", "table", "bounds")
        ports = ", ".join(f"{name}={literal(getattr(pages, name))}" for name in names)
        yield f"pages=Pages({ports}, block={pages.block}, per_token={pages.per_token})"


def _decode_origin(plan: Plan) -> str:
    return next(op.origin for op in walk(plan.body) if isinstance(op, Decode))


def _slots(group: StateGroup) -> str:
    return ", ".join(
        f"Slot({literal(each.past)}, {literal(each.present)}, {literal(each.dtype)}, {literal(each.dims)}"
        f"{', once=True' if each.once else ''})"
        for each in group.slots
    )
