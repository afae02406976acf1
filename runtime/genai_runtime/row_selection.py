"""The rows of a request by its `row_selection` input: one permutation for everything that has an entry a row.

The standard (3.11, 3.1) lets a caller give it and has the runtime make it otherwise. It names positions of the rows of
the request, before anything is bound; a position may stand in it several times, or not at all. No batch is re-ordered
while it runs: the runtime's permutation is the identity.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from genai_runtime.problem import RequestError
from genai_runtime.request import Request
from genai_runtime.values import Array

if TYPE_CHECKING:
    from genai_runtime.inputs import Input

ROLE = "row_selection"
Given = Mapping[str, Array | None]


def select_rows(inputs: Sequence["Input"], given: Given, request: Request) -> Given:
    """The given values by input, their rows selected. Raises RequestError `row-selection` (V339), `wrong-rank`.

    Every value whose contract is aligned with the request's rows is re-ordered, the adapters of each row among them.
    """
    spec = next((each for each in inputs if each.role == ROLE and each.source == "request"), None)
    selection = given[spec.name] if spec is not None else None
    if spec is None or selection is None:
        return given
    rows = row_count(inputs, given, without=spec.name)
    _check(spec, selection, rows)
    if np.array_equal(selection, np.arange(rows)):
        return given
    if request.session is not None or request.prompt_lengths is not None:
        kind = "a session" if request.session is not None else "generate"
        what = f"'{spec.name}' re-orders the rows, and {kind} keeps state of its own for each in the order given"
        raise RequestError("row-selection", what, help="use run without a session")
    chosen = dict(given)
    for each in inputs:
        value = given[each.name]
        if value is not None and each.name != spec.name and each.row_axis is not None and value.ndim > each.row_axis:
            chosen[each.name] = _taken(value, selection, each.row_axis, each.row_factor)
    return chosen


def identity(inputs: Sequence["Input"], values: Given) -> Array:
    """What the runtime makes where nobody gives one: every row at its own place, int64 [rows]."""
    return np.arange(row_count(inputs, values), dtype=np.int64)


def row_count(inputs: Sequence["Input"], values: Given, without: str = "") -> int:
    """Rows of a request, as the first value that has an entry a row says; 1 where none does."""
    for each in inputs:
        value = values.get(each.name)
        if value is not None and each.name != without and each.row_axis is not None and value.ndim > each.row_axis:
            return int(value.shape[each.row_axis]) // each.row_factor
    return 1


def _check(spec: "Input", selection: Array, rows: int) -> None:
    if selection.ndim != 1 or selection.dtype.kind not in "iu":
        what = f"'{spec.name}' is {selection.dtype} of rank {selection.ndim}; it is a list of row numbers"
        raise RequestError("wrong-rank", what)
    wrong = [int(each) for each in selection if not 0 <= each < rows]
    if wrong:
        what = f"'{spec.name}' selects row {wrong[0]}, and the request has {rows} (V339)"
        raise RequestError("row-selection", what, help=f"rows are counted from 0; give numbers below {rows}")


def _taken(value: Array, selection: Array, axis: int, factor: int) -> Array:
    places = (selection.astype(np.int64)[:, None] * factor + np.arange(factor)).reshape(-1)
    return np.take(value, places, axis)
