"""Rows and control values of a loop: who is live, how long, and what inactive rows keep (standard, 3.4)."""

from functools import lru_cache

import numpy as np

from genai_runtime.problem import ExecutionError
from genai_runtime.values import Array, Value, bits_dtype, to_array, to_bits, to_value


def iteration_limit(value: Value, origin: str) -> int:
    """A loop's bound: exactly one non-negative integer."""
    array = to_array(value)
    if array.dtype.kind not in "iu" or array.size != 1 or int(array.flat[0]) < 0:
        raise ExecutionError(
            "loop-bound", f"the bound is {array.tolist()}, not one non-negative integer", origin=origin
        )
    return int(array.flat[0])


def live_rows(value: Value, heed: bool = True, origin: str = "") -> tuple[Array, int]:
    """The liveness mask, bool [rows] (one entry steers the whole batch), and how many rows are live.

    heed False: every row counts as live.

    Raises ExecutionError `loop-predicate` for a mask without rows or of more axes (standard, V330).
    """
    array = to_array(value)
    if heed and array.dtype != np.bool_:
        raise ExecutionError("loop-predicate", f"the predicate is {array.dtype}, not bool", origin=origin)
    if heed and array.ndim > 1:
        what = f"the predicate has shape {list(array.shape)}, and a mask has one entry a row"
        raise ExecutionError("loop-predicate", what, origin=origin)
    array = array.reshape(-1)
    if not heed:
        rows = max(array.size, 1)
        return np.ones(rows, dtype=np.bool_), rows
    if not array.size:
        raise ExecutionError("loop-predicate", "the predicate has no rows, so nothing says when to stop", origin=origin)
    return array.copy(), int(np.count_nonzero(array))


@lru_cache(maxsize=1024)
def iteration_value(step: int, rank: int, extent: int = 1) -> Value:
    """The induction value: int64, a scalar or a vector filled with the iteration number.

    Nobody writes into a value, so all loops of a process share these.
    """
    return to_value(np.full((extent,) * rank, step, dtype=np.int64))


def branch_key(value: Value, origin: str) -> str:
    """The case a predicate names: `true`/`false` for bool, the decimal string of an integer."""
    array = to_array(value)
    if array.dtype.kind not in "biu":
        what = f"the predicate is {array.dtype}, neither bool nor a whole number"
        raise ExecutionError("branch-predicate", what, origin=origin)
    if array.size != 1:
        raise ExecutionError("branch-predicate", f"the predicate has {array.size} elements, not one", origin=origin)
    one = array.reshape(-1)[0].item()
    return ("true" if one else "false") if isinstance(one, bool) else str(one)


def unmatched_case(key: str, origin: str, given: str = "") -> ExecutionError:
    """The failure of a branch without a default whose predicate names no case. given: the input that it asks for."""
    if given:
        was = "is given" if key == "true" else "was not given"
        what = f"input '{given}' {was}, and the workflow has no case for that"
        return ExecutionError("branch-case", what, origin=origin)
    return ExecutionError("branch-case", f"no case '{key}' and no default", origin=origin)


def keep_rows(
    cell: str, live: Array, current: Value, following: Value, axis: int, factor: int, grows: int, origin: str
) -> Value:
    """`following`, but with the current entries of rows that are not live.

    axis: the request axis, -1 when the cell has none (it can't be merged then); factor: consecutive entries a request;
    grows: the axis that may have grown, -1 for none (of a grown cell only an inactive row's old part is restored).
    """
    if axis < 0:
        what = f"cell '{cell}' has no request axis, so it can't keep the values of rows that are inactive"
        raise ExecutionError("inactive-rows", what, origin=origin)
    old, new = to_bits(current), to_bits(following)
    if new.shape[axis] != live.size * factor or old.shape[axis] != new.shape[axis]:
        what = f"cell '{cell}' has {new.shape[axis]} entries on its request axis for {live.size} rows"
        raise ExecutionError("inactive-rows", what, origin=origin)
    fits = all(a == b or (i == grows and a <= b) for i, (a, b) in enumerate(zip(old.shape, new.shape, strict=True)))
    if not fits:
        what = f"cell '{cell}' changed shape from {list(old.shape)} to {list(new.shape)} while rows are inactive"
        raise ExecutionError("inactive-rows", what, origin=origin)
    merged = new.copy()
    frozen = np.repeat(~live, factor)
    kept = [slice(None)] * new.ndim
    if grows >= 0:
        kept[grows] = slice(0, old.shape[grows])
    place = list(kept)
    place[axis] = frozen  # type: ignore[call-overload]
    from_old = [slice(None)] * old.ndim
    from_old[axis] = frozen  # type: ignore[call-overload]
    merged[tuple(place)] = old[tuple(from_old)]
    return to_value(merged, bits_dtype(following))
