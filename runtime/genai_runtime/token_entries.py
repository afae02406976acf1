"""Token ids held against how many there are: a graph counts those below 0 from the end, and fails over higher ones."""

from collections.abc import Iterable

from genai_runtime.problem import RequestError
from genai_runtime.values import Array

_SHOWN = 8
"""Ids that a message lists."""


def hold_ids(ids: Iterable[int], end: int, least: int = 0, name: str = "") -> None:
    """Every id is within least .. end - 1. name: of the input that holds them. Raises RequestError `bad-token`."""
    wrong = sorted({each for each in ids if not least <= each < end})
    if wrong:
        holder = f"input '{name}': " if name else ""
        shown = ", ".join(map(str, wrong[:_SHOWN])) + (", ..." if len(wrong) > _SHOWN else "")
        raise RequestError("bad-token", f"{holder}no such token ids: [{shown}]; ids are 0 to {end - 1}")


def hold_entries(array: Array, end: int, name: str) -> None:
    """The same of an input's array, of any whole type and shape, from 0 on."""
    if array.size and (int(array.min()) < 0 or int(array.max()) >= end):
        hold_ids(array.reshape(-1).tolist(), end, name=name)
