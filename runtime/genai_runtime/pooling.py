"""Pooling: many positions of one axis into one, over the valid ones only (standard, 1.9)."""

import numpy as np
import numpy.typing as npt

from genai_runtime.problem import ExecutionError
from genai_runtime.values import Array

_LEAST_NORM = np.float32(1e-12)
"""What a vector is divided by at least: a zero vector stays one."""


def pool(array: Array, kind: str, axis: int, rows: int, normalize: bool, marks: Array | None) -> Array:
    """`array` (float32) without `axis`. kind: mean, max, cls (the first valid position), last_token (the last).

    rows: the axis of request rows, -1 for none. marks: lengths [rows], a mask [rows, positions], None: all are valid.
    normalize: divide by the L2 norm over the last axis that is left, rows apart.
    """
    if axis >= array.ndim or axis == rows or rows >= array.ndim:
        what = f"axis {axis} can't be pooled: the output has rank {array.ndim}, its rows lie on axis {rows}"
        raise ExecutionError("profile-axis", what)
    moved = np.moveaxis(array, (rows, axis), (0, 1)) if rows >= 0 else np.moveaxis(array, axis, 0)[None]
    valid = valid_positions(marks, moved.shape[0], moved.shape[1])
    empty = np.flatnonzero(~valid.any(axis=1))
    if empty.size:
        raise ExecutionError("profile-lengths", f"row {empty[0]} has no valid position to pool")
    with np.errstate(over="ignore", invalid="ignore"):  # what is infinite stays so, without a word
        pooled = _reduced(moved, kind, valid) if len(moved) else np.zeros((0, *moved.shape[2:]), np.float32)
        if normalize:
            squares = np.square(pooled)
            norm = np.sqrt(squares.sum(axis=-1, keepdims=True) if pooled.ndim > 1 else squares)
            pooled = pooled / np.maximum(norm, _LEAST_NORM)
    return np.moveaxis(pooled, 0, rows - (axis < rows)) if rows >= 0 else pooled[0]


def _reduced(moved: Array, kind: str, valid: npt.NDArray[np.bool_]) -> Array:
    """[rows, positions, ...] -> [rows, ...]."""
    if kind in ("cls", "last_token"):
        first = valid.argmax(axis=1)
        last = valid.shape[1] - 1 - valid[:, ::-1].argmax(axis=1)
        chosen: Array = moved[np.arange(len(moved)), first if kind == "cls" else last]
        return chosen
    wide = valid.reshape(*valid.shape, *(1,) * (moved.ndim - 2))
    if kind == "max":
        largest: Array = np.where(wide, moved, np.float32(-np.inf)).max(axis=1)
        return largest
    total = np.where(wide, moved, np.float32(0)).sum(axis=1, dtype=np.float32)
    counts = valid.sum(axis=1).astype(np.float32)
    mean: Array = total / counts.reshape(-1, *(1,) * (total.ndim - 1))
    return mean


def valid_positions(marks: Array | None, rows: int, positions: int) -> npt.NDArray[np.bool_]:
    """bool [rows, positions]. Raises ExecutionError `profile-lengths` for marks that do not fit."""
    if marks is None:
        return np.ones((rows, positions), dtype=np.bool_)
    if marks.ndim == 2:
        if marks.shape != (rows, positions):
            what = f"the mask has shape {list(marks.shape)} for {rows} rows of {positions} positions"
            raise ExecutionError("profile-lengths", what)
        return np.asarray(marks != 0, dtype=np.bool_)
    if marks.shape != (rows,) or (marks < 0).any() or (marks > positions).any():
        what = f"the lengths {marks.tolist()} do not fit {rows} rows of {positions} positions"
        raise ExecutionError("profile-lengths", what)
    return np.arange(positions) < marks.reshape(-1, 1)
