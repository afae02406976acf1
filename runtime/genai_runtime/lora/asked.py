"""Adapters as a caller of `generate` names them -> the selection inputs of the package."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from genai_runtime.lora.selection import refused
from genai_runtime.lora.spec import LoraSpec
from genai_runtime.problem import RequestError
from genai_runtime.values import Array

Wish = dict[str, float]
"""Alias -> scale, in slot order."""


def wishes_of(adapters: Any, rows: int) -> list[Wish]:
    """One wish a row. adapters: alias -> scale, or aliases (scale 1), for all rows; a list of these, one a row; None.

    Raises RequestError `bad-adapters`, `wrong-row-count`.
    """
    if isinstance(adapters, list | tuple):
        items = cast(Sequence[Any], adapters)
        if not all(isinstance(each, str) for each in items):
            if len(items) != rows:
                raise RequestError("wrong-row-count", f"adapters has {len(items)} entries for {rows} rows")
            return [_wish(each) for each in items]
    return [_wish(adapters)] * rows


def _wish(given: Any) -> Wish:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        entries: Mapping[Any, Any] = given
        pairs = list(entries.items())
    elif isinstance(given, Iterable) and not isinstance(given, str):
        aliases: Iterable[Any] = given
        pairs = [(each, 1.0) for each in aliases]
    else:
        raise _odd(given)
    wish: Wish = {}
    for alias, scale in pairs:
        number = isinstance(scale, int | float | np.number) and not isinstance(scale, bool)
        if not isinstance(alias, str) or not number:
            raise _odd(given)
        if alias in wish:
            raise RequestError("bad-adapters", f"adapter '{alias}' is named twice for one row")
        wish[alias] = float(scale)
    return wish


def _odd(given: object) -> RequestError:
    what = f"{given!r:.80} names no adapters"
    return RequestError("bad-adapters", what, help='give {"alias": scale}, or ["alias", ...]; for a batch, one a row')


class Asked:
    """What a request asks of the package's adapters, a wish a row.

    Raises RequestError `no-adapter-service`, `unknown-adapter`, `adapter-selection`.
    """

    def __init__(self, spec: LoraSpec | None, wishes: Sequence[Wish]) -> None:
        self._spec, self._wishes = spec, tuple(wishes)
        if spec is None and any(wishes):
            help = "leave `adapters` (--adapter) out"
            raise RequestError("no-adapter-service", "the package has no adapters", help=help)
        for row, wish in enumerate(wishes):
            if spec is not None:
                _check(spec, row, wish)

    @property
    def together(self) -> bool:
        """Whether the rows may share a run: all use the same adapters, or each row can have its own."""
        alike = all(list(each.items()) == list(self._wishes[0].items()) for each in self._wishes)
        return alike or self._spec is None or self._spec.by_row

    def tensors(self, rows: Sequence[int]) -> dict[str, Array]:
        """The package's selection inputs for these rows, all of which are active; {} for a package without adapters."""
        if self._spec is None:
            return {}
        spec, wishes = self._spec, [self._wishes[row] for row in rows]
        shape = (len(wishes), spec.slots)
        segments, scales = np.full(shape, -1, dtype=np.int64), np.zeros(shape, dtype=np.float32)
        for row, wish in enumerate(wishes):
            segments[row, : len(wish)] = [spec.by_alias[alias].index for alias in wish]
            with np.errstate(over="ignore"):  # what overflows is infinite, and refused as such
                scales[row, : len(wish)] = list(wish.values())
        counts = np.array([len(each) for each in wishes], dtype=np.int64)
        active = np.ones(len(wishes), dtype=np.bool_)
        values: tuple[Array, ...] = (segments, counts, scales, active)
        return {name: value for name, value in zip(spec.inputs, values, strict=True) if name}


def _check(spec: LoraSpec, row: int, wish: Wish) -> None:
    unknown = [each for each in wish if each not in spec.by_alias]
    if unknown:
        what = f"the package has no adapter '{unknown[0]}'"
        raise RequestError("unknown-adapter", what, help=f"adapters: {', '.join(spec.by_alias)}")
    if len(wish) > spec.slots:
        raise refused(f"row {row} names {len(wish)} adapters; a row has 0 to {spec.slots}")
