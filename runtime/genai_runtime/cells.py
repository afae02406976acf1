"""State cells: the contract at a loop's entry and the shape law between iterations (standard, 2.6)."""

from collections.abc import Sequence
from dataclasses import dataclass

from genai_runtime.inputs import Bound, Dim, unify
from genai_runtime.problem import ExecutionError, RequestError
from genai_runtime.values import Array, Value, dtype_of, to_array


@dataclass(frozen=True)
class Cell:
    """A cell's contract. dims: as the package's symbols see them; None for a symbol of an axis that may vary."""

    name: str
    dtype: str
    dims: tuple[Dim, ...]
    row_axis: int | None = None
    row_factor: int = 1


def enter(cell: Cell, value: Value, symbols: dict[str, int], origin: str) -> Value:
    """The value a loop starts a cell with, held against the cell's contract."""
    shape = value.shape()
    if (found := dtype_of(value)) != cell.dtype:
        what = f"cell '{cell.name}' starts as {found}, its contract says {cell.dtype}"
        raise ExecutionError("cell-contract", what, origin=origin)
    if len(shape) != len(cell.dims):
        what = f"cell '{cell.name}' starts with rank {len(shape)}, its contract says {len(cell.dims)}"
        raise ExecutionError("cell-contract", what, origin=origin)
    try:
        unify(f"cell '{cell.name}'", shape, cell.dims, symbols, cell.row_axis, cell.row_factor)
    except RequestError as conflict:
        raise ExecutionError("cell-contract", conflict.what, origin=origin) from conflict
    return value


def invariant(name: str, current: Value, following: Value, origin: str) -> None:
    """The shape does not change."""
    before, after = current.shape(), following.shape()
    if before != after:
        raise ExecutionError(
            "recurrence", f"cell '{name}' is invariant but went from {before} to {after}", origin=origin
        )


def bounded(name: str, current: Value, following: Value, axis: int, maximum: Value, origin: str) -> None:
    """Only `axis` may change, in either direction, and stays within the maximum."""
    before, after = current.shape(), following.shape()
    limit = int(control(name, "maximum", maximum, origin).max())
    _others_equal(name, before, after, axis, origin)
    if max(before[axis], after[axis]) > limit:
        what = f"cell '{name}' has extent {max(before[axis], after[axis])} on axis {axis}, its maximum is {limit}"
        raise ExecutionError("recurrence", what, origin=origin)


def growing(
    name: str,
    current: Value,
    following: Value,
    axis: int,
    increment: Value,
    maximum: Value,
    origin: str,
    grouped: bool = False,
) -> None:
    """`axis` grows by exactly the increment and stays within the maximum (vectors: within the largest row).

    grouped: the cell belongs to a service group; only then can rows grow by numbers of their own (V333).
    """
    before, after = current.shape(), following.shape()
    step, limit = control(name, "increment", increment, origin), control(name, "maximum", maximum, origin)
    _others_equal(name, before, after, axis, origin)
    if step.size == 1 and limit.size == 1:
        wanted = before[axis] + int(step.flat[0])
        if after[axis] != wanted or after[axis] > int(limit.flat[0]):
            what = f"cell '{name}' went from {before[axis]} to {after[axis]} on axis {axis}; it grows by "
            raise ExecutionError("recurrence", what + f"{int(step.flat[0])} up to {int(limit.flat[0])}", origin=origin)
    elif not grouped:
        what = f"cell '{name}' grows by {step.size} increments up to {limit.size} limits; only cells of a service "
        raise ExecutionError("recurrence", what + "group grow row by row (V333)", origin=origin)
    elif 1 not in (step.size, limit.size) and step.size != limit.size:
        what = f"cell '{name}' grows by {step.size} increments up to {limit.size} limits, not of the same rows"
        raise ExecutionError("recurrence", what, origin=origin)
    elif (step > limit).any():
        what = f"cell '{name}' grows by {step.tolist()}, its row limits are {limit.tolist()}"
        raise ExecutionError("recurrence", what, origin=origin)
    elif after[axis] > int(limit.max()):
        what = f"cell '{name}' has extent {after[axis]} on axis {axis}, its largest row limit is {int(limit.max())}"
        raise ExecutionError("recurrence", what, origin=origin)


def control(name: str, what: str, value: Value, origin: str) -> Array:
    """What controls a recurrence: numbers that are not negative, at least one (standard, V329)."""
    numbers = to_array(value).reshape(-1)
    if numbers.dtype.kind not in "iu" or not numbers.size or (numbers < 0).any():
        text = f"the {what} of cell '{name}' is {numbers.tolist()}, not whole numbers from 0 up"
        raise ExecutionError("recurrence", text, origin=origin)
    return numbers


def _others_equal(name: str, before: Sequence[int], after: Sequence[int], axis: int, origin: str) -> None:
    if len(before) != len(after) or any(
        i != axis and a != b for i, (a, b) in enumerate(zip(before, after, strict=True))
    ):
        what = f"cell '{name}' may only change on axis {axis} but went from {list(before)} to {list(after)}"
        raise ExecutionError("recurrence", what, origin=origin)


def agree(symbol: str, origin: str, *places: tuple[Value, int, int]) -> None:
    """Ports of one invoke that share a symbol have one extent: (value, axis, entries a unit of the symbol)."""
    seen = {_extent(value, axis, f"a value of '{symbol}'", origin) / factor for value, axis, factor in places}
    if len(seen) > 1 or any(not each.is_integer() for each in seen):
        what = f"the ports of this step give '{symbol}' the extents {', '.join(f'{each:g}' for each in sorted(seen))}"
        raise ExecutionError("symbol-conflict", what, origin=origin)


def has_extent(
    value: Value, axis: int, extent: int, what: str, origin: str, files: str = "", inputs: Bound | None = None
) -> None:
    """A fixed extent that the contract promises. files: the input of `inputs` whose files alone the value is made of.

    Raises ExecutionError `wrong-shape`; RequestError where the caller's files are the cause.
    """
    found = _extent(value, axis, what, origin)
    if found != extent:
        if inputs is not None:
            from genai_runtime.wrong_files import wrong_files

            raise wrong_files(f"{what} has extent {found} on axis {axis}, the package takes {extent}", files, inputs)
        what = f"{what} has extent {found} on axis {axis}, its contract says {extent}"
        raise ExecutionError("wrong-shape", what, origin=origin)


def has_form(value: Value, dtype: str, rank: int, what: str, origin: str) -> None:
    """What the contract promises where no graph says it. dtype "", rank -1: known before (standard, V327)."""
    if dtype and (found := dtype_of(value)) != dtype:
        raise ExecutionError("wrong-dtype", f"{what} is {found}, its contract says {dtype}", origin=origin)
    if rank >= 0 and (axes := len(value.shape())) != rank:
        raise ExecutionError("wrong-rank", f"{what} has rank {axes}, its contract says {rank}", origin=origin)


def _extent(value: Value, axis: int, what: str, origin: str) -> int:
    """An extent of a value, whose rank may be known to nobody before it is there (standard, V327)."""
    shape = value.shape()
    if axis >= len(shape):
        raise ExecutionError("wrong-rank", f"{what} has rank {len(shape)} and no axis {axis}", origin=origin)
    return shape[axis]


def within_capacity(
    group: str, origin: str, destinations: Value, capacity: Value, lengths: Value | None, *states: tuple[Value, int]
) -> None:
    """Before a graph writes into a fixed-capacity state: everything lies within the capacity (standard, 3.9)."""
    held, places = to_array(capacity), to_array(destinations).reshape(-1)
    room = int(held.flat[0]) if held.size == 1 else 0
    faults = [f"the capacity is {held.tolist()}"] if room <= 0 else []
    if ((places < 0) | (places >= room)).any():
        faults.append(f"a write to {places.tolist()} is outside its capacity {room}")
    for value, axis in states:
        if (found := _extent(value, axis, f"a state of group '{group}'", origin)) != room:
            faults.append(f"a state has extent {found} on axis {axis}, the capacity is {room}")
    if lengths is not None:
        valid = to_array(lengths).reshape(-1)
        if ((valid < 0) | (valid > room)).any() or valid.size != places.size:
            faults.append(f"the lengths {valid.tolist()} do not fit {places.size} rows of capacity {room}")
    if faults:
        raise ExecutionError("capacity", f"state group '{group}': " + "; ".join(faults), origin=origin)
