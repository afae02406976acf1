"""A batch against its rows: what each row gets alone, and what it got among others."""

from typing import Any

import numpy as np

from tests.property.kinds import Kind
from tests.property.packages import Package
from tests.property.requests import Request
from tests.reference.interpreter import Result
from tests.reference.values import Array, Events, Published, RowEvents, Rows


def solo(package: Package, request: Request, row: int) -> Request:
    """The request of one row of a batch."""
    kinds = _kinds(package, request)
    given = {
        name: array if (rows := kinds[name].rows) is None else _slice(array, rows, row)
        for name, array in request.inputs.items()
    }
    return Request(given, 1, request.stop_on_eos, overrides=request.overrides)


def rows_given(package: Package, request: Request) -> int:
    """How many rows the request has: none where every input with rows is left out, and defaults settle their number."""
    return request.rows if any(kind.rows for kind in _kinds(package, request).values()) else 0


def _kinds(package: Package, request: Request) -> dict[str, Kind]:
    """The kind of each value given, under its own name or the application's."""
    aliases = {spec["source"]["name"]: name for name, spec in package.workflow["inputs"].items()
               if spec["source"]["kind"] == "application"}  # fmt: skip
    return {name: package.inputs[name if name in package.inputs else aliases[name]] for name in request.inputs}


def _slice(array: Array, rows: tuple[int, int], row: int) -> Array:
    axis, factor = rows
    return np.take(array, range(row * factor, (row + 1) * factor), axis)


def row_differences(package: Package, batch: Result, alone: Result, row: int) -> list[str]:
    """What a row has otherwise among others. An output that no row of a solo run published is one without content."""
    faults: list[str] = []
    for name, value in batch.outputs.items():
        if name in package.timed:
            continue
        contract: dict[str, Any] = package.workflow["outputs"][name]["contract"].get("batch_layout") or {}
        rows = (contract["axis"], contract.get("factor", 1)) if contract else None
        among = _content(value, rows, row)
        mine = _content(alone.outputs[name], rows, 0) if name in alone.outputs else []
        same = len(among) == len(mine) and all(
            (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()) for a, b in zip(among, mine, strict=True)
        )
        if not same:
            faults.append(f"{name} of row {row}: {among} among others, {mine} alone")
    return faults


def _content(value: Published, rows: tuple[int, int] | None, row: int) -> list[Array]:
    """Everything of one row that an output holds."""
    match value:
        case Rows(items):
            return [items[row]] if row < len(items) and items[row] is not None else []  # type: ignore[list-item]
        case RowEvents(lists, latest):
            held = [each for each in latest[row : row + 1] if each is not None]
            return [*held, *lists[row]] if row < len(lists) else []
        case Events(items, latest):
            held = [] if latest is None else [latest]
            return [each if rows is None else _slice(each, rows, row) for each in (*held, *items)]
        case _:
            return [value if rows is None else _slice(value, rows, row)]
