"""What a decoder's graph and its contract say of how it may be driven."""

from collections.abc import Mapping

from genai_compiler.plan.state import GROWTH, PAGES, ROWS, Mask, Shift, Slot, StateGroup, Storage, Window
from genai_compiler.read.attention import writes_in_place
from genai_compiler.read.document import StateGroup as DeclaredGroup
from genai_compiler.read.graph_facts import mask_use
from genai_compiler.read.mask_width import width_reaches_only_attention
from genai_compiler.read.one_token import takes_one_token
from genai_compiler.read.package import Graph
from genai_compiler.read.signature import Port
from genai_compiler.read.switch_length import switch_length


def mask_of(graph: Graph, port: str | None) -> Mask | None:
    """The mask at a port of the graph, None where there is no such port."""
    found = next((each for each in graph.signature.inputs if each.name == port), None)
    if found is None:
        return None
    use = "columns" if graph.absent else mask_use(graph.model, found.name)
    fixed = use == "lengths" and width_reaches_only_attention(graph.model, found.name)
    return Mask(found.name, found.dtype, use, fixed)


def tells_rows_apart(graph: Graph, mask: Mask | None, positions: bool, groups: tuple[StateGroup, ...]) -> bool:
    """Whether rows of different length may share a run: something tells the graph where each row ends.

    Not where tables change with the length: a longer row would choose those of a shorter one.
    """
    fixed_size = any(GROWTH not in slot.dims for group in groups for slot in group.slots)
    if mask is None or fixed_size or switch_of(graph, mask):
        return False
    ops = graph.signature.cache_ops
    cached = {pair for op in ops for pair in ((op.past_key, op.present_key), (op.past_value, op.present_value))}
    held = {(slot.past, slot.present) for group in groups for slot in group.slots}
    own_lengths = bool(ops) and held <= cached and all(writes_in_place(op) for op in ops)
    return (own_lengths and mask.constant_width) if mask.use == "lengths" else positions


def switch_of(graph: Graph, mask: Mask | None) -> int:
    """Positions for which the graph takes its first tables, 0 where it has one set."""
    return switch_length(graph.model, mask.port) if mask is not None and not graph.absent else 0


def runs_token_by_token(first: Graph, tokens: Port) -> bool:
    """Whether the graph that runs with the prompt takes one token a row. tokens: the port as later tokens have it."""
    named = (each for each in first.signature.inputs if each.name == tokens.name)
    return takes_one_token(first.model, next(named, tokens))


def window_of(parameters: Mapping[str, object]) -> Window | None:
    """How prompts are cut, by the contract's parameters; None where they go in whole."""
    size, pad = (parameters.get(each) for each in ("prompt_window", "window_pad"))
    return Window(size, pad if isinstance(pad, int) else 0) if isinstance(size, int) and size > 1 else None


def one_by_step(parameters: Mapping[str, object]) -> bool:
    """Whether a prompt of one token runs as a later token does, by the contract's parameters."""
    return parameters.get("prompt_of_one_token") == "later"


def shift_of(parameters: Mapping[str, object]) -> Shift | None:
    """How caches move, by the contract's parameters; None where they stay."""
    columns, fill = (parameters.get(each) for each in ("cache_columns", "cache_fill"))
    if not isinstance(columns, int) or columns < 1:
        return None
    return Shift(columns, fill if isinstance(fill, int) else 0, parameters.get("padding_first") is True)


def state_group(
    named: tuple[str, str, str], group: DeclaredGroup, slots: tuple[Slot, ...], graph: Graph, shift: Shift | None
) -> StateGroup:
    """A group of the decoder's state: what moves is kept as that, the rest grows unless a pass knows better.

    named: its name, its component, its place in the document.
    """
    name, component, origin = named
    if shift is not None and group.kind == "sliding_attention" and group.update is None:
        reason = "a run gives the new entries, and the oldest drop out"
        return StateGroup(name, component, "shifted", slots, shift.columns, reason, origin)
    grows = any({GROWTH, PAGES} & {*slot.dims} for slot in slots)
    storage: Storage = "growing" if grows else "constant"
    return StateGroup(name, component, storage, slots, _fixed_extent(graph, group.sequence_axis, slots), "", origin)


def _fixed_extent(graph: Graph, axis: int | None, slots: tuple[Slot, ...]) -> int | None:
    """The sequence extent that the graph itself fixes, when it does. axis: of the sequence."""
    shapes = {each.name: each.shape for each in graph.signature.inputs}
    extents = {shape[axis] for slot in slots if axis is not None and (shape := shapes.get(slot.past))}
    return next((each for each in extents if isinstance(each, int)), None) if len(extents) == 1 else None


def slot_dim(axis: int, dim: int | str | None, sequence_axis: int | None, rows: int) -> int | None:
    """An extent of a slot: a number, or the mark of an axis; None where nothing tells it."""
    if axis == sequence_axis:
        return GROWTH
    if isinstance(dim, int):
        return dim
    return ROWS if axis == rows else None
