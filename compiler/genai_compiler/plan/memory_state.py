"""State of a plan in bytes: what it has after the prompt, and at most while it goes on to the context."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from genai_compiler.plan.dtypes import SIZE, stored
from genai_compiler.plan.ir import Decode, Hold, Loop, Plan, Type
from genai_compiler.plan.memory_runs import FIRST_ROOM, Lengths, slot_extents
from genai_compiler.plan.state import GROWTH, PAGES, StateGroup
from genai_compiler.plan.uses import walk
from genai_compiler.read.activations import Extents

HUGE = 4 << 20
"""From so many bytes on numpy asks the system for huge pages: what an array does not use is then in memory as well."""


@dataclass(frozen=True)
class StateMemory:
    """Bytes. per_token: one more token of one row. prompt: after the prompt's run; steps: at most in later ones.

    logits: the arrays in which the runtime keeps them. parts: (name, bytes at most, why) of what makes up `steps`.
    """

    per_token: int
    prompt: int
    steps: int
    parts: tuple[tuple[str, int, str], ...]


def state_memory(plan: Plan, lengths: Lengths, values: Mapping[str, Extents]) -> StateMemory:
    """State of every loop. values: extents of the plan's values."""
    prompt, parts = 0, list[tuple[str, int, str]]()
    holds = {op.group: op for op in walk(plan.body) if isinstance(op, Hold)}
    for group in plan.groups:
        if group.name in holds:
            first, most, why = _held(group, holds[group.name], lengths, values)
        elif group.storage == "shifted":
            first, most, why = _moving(group, lengths)
        elif group.storage == "shared-buffer":
            first, most, why = _shared(group, lengths)
        elif group.storage == "pages":
            first, most, why = _paged(group, lengths)
        else:
            first, most, why = _growing(group, lengths)
        prompt += first
        parts.append((f"state {group.name}", most, why))
    if plan.decoder is not None and any(isinstance(op, Decode) for op in walk(plan.body)):
        size = lengths.batch * plan.decoder.vocab_size * SIZE["float32"]
        prompt += size
        parts.append(("logits", size, "one float32 a row and entry of the vocabulary"))
    carried = _carried(plan, holds, values) if plan.decoder is None else 0
    if carried:
        prompt += carried
        parts.append(("carried values", carried, "cells of loops, as long as the context"))
    per_token = _cells_per_token(plan, holds)
    per_token += sum(_step(each) if each.storage == "shifted" else each.bytes_per_token for each in plan.groups)
    return StateMemory(per_token, prompt, sum(size for _, size, _ in parts), tuple(parts))


def _bytes(group: StateGroup, rows: int, length: int) -> int:
    return sum(prod(slot_extents(slot, rows, length)) * SIZE[slot.dtype] for slot in group.slots)


def _touched(group: StateGroup, rows: int, filled: int, room: int, used: int) -> int:
    """Bytes in memory of buffers with `room`, of which so many entries are written; used: those known when it was made.

    With half of the room known the runtime makes one block of all.
    """
    sizes = [prod(slot_extents(slot, rows, room)) * SIZE[slot.dtype] for slot in group.slots]
    if 2 * used >= room and sum(sizes) >= HUGE:
        return sum(sizes)
    return sum(size if size >= HUGE else size * filled // room for size in sizes)


def _shared(group: StateGroup, lengths: Lengths) -> tuple[int, int, str]:
    """Buffers that double when they are full, until they have room for the context; each is copied to the next."""
    if group.capacity is not None:
        size = _bytes(group, lengths.batch, group.capacity)
        return size, size, f"one buffer of {group.capacity} entries a tensor"
    room, most = lengths.first_room, max(lengths.context, lengths.prompt + 1)
    used = lengths.prompt
    first = _touched(group, lengths.batch, lengths.prompt, room, used)
    largest, rooms = first, [room]
    while room < most:
        larger = max(room + 1, min(most, 2 * room))
        moving = _bytes(group, lengths.batch, room) + _touched(group, lengths.batch, room, larger, room)
        largest, used, room = max(largest, moving), room, larger
        rooms.append(room)
    largest = max(largest, _touched(group, lengths.batch, min(lengths.context, room), room, used))
    shown = ", ".join(str(each) for each in rooms)
    return first, largest, f"one buffer a tensor, room for {shown} tokens in turn; old and new while it moves"


def _paged(group: StateGroup, lengths: Lengths) -> tuple[int, int, str]:
    """Pages for every row's longest text, made before the prompt; what is beside them has an entry a row."""
    size = _bytes(group, lengths.batch, lengths.context)
    block = next(slot.dims[1] for slot in group.slots if PAGES in slot.dims)
    return size, size, f"pages of {block} positions for {lengths.context} tokens a row, all there from the start"


def _growing(group: StateGroup, lengths: Lengths) -> tuple[int, int, str]:
    """Past and present are the session's own and counted with its runs: present becomes past."""
    if not any(GROWTH in slot.dims and not slot.once for slot in group.slots):
        size = _bytes(group, lengths.batch, 0)
        return size, size, "of one size; what a run gives is in its workspace"
    return 0, 0, "past beside present, both in the workspace"


def _moving(group: StateGroup, lengths: Lengths) -> tuple[int, int, str]:
    """Strips of so many columns, which go on by a column of one head a token; one for windows, then one for steps."""
    columns = _bytes(group, lengths.batch, group.capacity or 0)
    most = columns + _step(group) * max(lengths.context - lengths.prompt, 0)
    return 2 * columns, most, f"strips of {group.capacity} entries a tensor; the prompt's beside those of the steps"


def _step(group: StateGroup) -> int:
    """Bytes by which the strips go on for one token."""
    return sum(prod(each.dims[each.dims.index(GROWTH) + 1 :]) * SIZE[each.dtype] for each in group.slots)


def _held(group: StateGroup, hold: Hold, lengths: Lengths, values: Mapping[str, Extents]) -> tuple[int, int, str]:
    """Buffers that take over cells: the cells stay with the session that made them, in its workspace."""
    sizes, room, written = list[int](), 0, 0
    for _, initial in hold.cells:
        extents = list(values.get(initial, ()))
        if len(extents) > hold.axis:
            filled = extents[hold.axis]
            room = max(lengths.context, filled) + min(FIRST_ROOM, max(lengths.context - lengths.prompt, 0))
            sizes.append(prod(extents) // max(filled, 1) * room * SIZE[group.slots[0].dtype])
            written = max(filled, lengths.context)
    known = lengths.prompt if lengths.context - lengths.prompt <= FIRST_ROOM else written
    together = sum(sizes) >= HUGE and 2 * known >= room
    size = sum(each if together or each >= HUGE else each * written // room for each in sizes)
    return size, size, f"one buffer of {room} entries a cell, beside what was there before the loop"


def _carried(plan: Plan, holds: Mapping[str, Hold], values: Mapping[str, Extents]) -> int:
    """Cells of loops that no buffer holds, at their longest."""
    held = {cell for hold in holds.values() for cell, _ in hold.cells}
    total = 0
    for op in walk(plan.body):
        for carry in op.carried if isinstance(op, Loop) else ():
            name = carry.declared or carry.cell
            if name not in held and carry.cell in values:
                total += prod(values[carry.cell]) * _size(plan.types.get(carry.cell))
    return total


def _cells_per_token(plan: Plan, holds: Mapping[str, Hold]) -> int:
    """Bytes that one more entry of one row costs in cells of a service group that no buffer holds."""
    held, total = {cell for hold in holds.values() for cell, _ in hold.cells}, 0
    for cell in plan.cells:
        if cell.group and cell.recurrence != "invariant" and cell.name not in held:
            others = (dim for axis, dim in enumerate(cell.type.dims) if axis not in (cell.axis, cell.type.row_axis))
            total += prod(dim if isinstance(dim, int) else 1 for dim in others) * _size(cell.type)
    return total


def _size(type: Type | None) -> int:
    return SIZE.get(stored(type.dtype), 1) if type is not None else 1
