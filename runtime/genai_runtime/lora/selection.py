"""Which adapters each row uses: the request's selection inputs, checked (standard, 6.3 and V343)."""

import math
from collections.abc import Sequence

from genai_runtime.lora.spec import Artifact, LoraSpec
from genai_runtime.problem import RequestError
from genai_runtime.values import Array

LARGEST_SCALE = 16
Slots = tuple[tuple[int, float], ...]
"""A row's adapters in slot order: (number, scale)."""


def rows_of(spec: LoraSpec, segments: Array, counts: Array, scales: Array, active: Array | None) -> tuple[Slots, ...]:
    """The adapters of every row, none for a row that is not active.

    segments: int64 [rows, slots]; counts: int64 [rows]; scales: float32 [rows, slots]; active: bool [rows], None: all.
    Raises RequestError `adapter-selection`, `adapter-cache`.
    """
    live = [True] * len(counts) if active is None else active.tolist()
    rows = zip(counts.tolist(), segments.tolist(), scales.tolist(), live, strict=True)
    chosen = tuple(_row(spec, at, *each) for at, each in enumerate(rows))
    distinct = {index for row in chosen for index, _ in row}
    if len(distinct) > spec.cache:
        names = ", ".join(f"'{spec.by_index[each].alias}'" for each in sorted(distinct))
        what = f"the rows use {len(distinct)} adapters ({names}), the cache holds {spec.cache} at once (V343)"
        raise RequestError("adapter-cache", what, help="use fewer adapters in one request")
    return chosen


def _row(spec: LoraSpec, row: int, count: int, segments: list[int], scales: list[float], live: bool) -> Slots:
    if not 0 <= count <= spec.slots:
        raise refused(f"row {row} counts {count} adapters; a row has 0 to {spec.slots}")
    for slot in range(count, spec.slots):
        if segments[slot] != -1 or scales[slot] != 0:
            what = (
                f"slot {slot} of row {row} is not used and holds adapter {segments[slot]} with scale {scales[slot]:g}"
            )
            raise refused(what, "fill slots that are not used with adapter -1 and scale 0")
    used = [_adapter(spec, row, slot, segments[slot]) for slot in range(count)]
    if not live:
        return ()
    for slot, (adapter, scale) in enumerate(zip(used, scales, strict=False)):
        if adapter in used[:slot]:
            raise refused(f"slot {slot} of row {row} holds adapter '{adapter.alias}' a second time")
        if not math.isfinite(scale) or abs(scale) > LARGEST_SCALE:
            what = f"slot {slot} of row {row} scales adapter '{adapter.alias}' by {scale:g}"
            raise refused(what, f"a scale is a number from -{LARGEST_SCALE} to {LARGEST_SCALE}")
    return tuple((adapter.index, scale) for adapter, scale in zip(used, scales, strict=False))


def _adapter(spec: LoraSpec, row: int, slot: int, index: int) -> Artifact:
    if index not in spec.by_index:
        known = ", ".join(f"{each.index} ({each.alias})" for each in sorted(spec.artifacts, key=lambda it: it.index))
        raise refused(f"slot {slot} of row {row} holds adapter {index}, which the package lacks", f"adapters: {known}")
    return spec.by_index[index]


def check_overlays(spec: LoraSpec, rows: Sequence[Slots], overlays: Sequence[tuple[str, str]]) -> None:
    """What an overlay step asks of the adapters of active rows. overlays: (component, parameter) a step.

    Raises RequestError `adapter-fallback`, `adapter-binding`.
    """
    for component, parameter in overlays:
        ids = {each.id for each in spec.targets if (each.component, each.parameter) == (component, parameter)}
        for row, slots in enumerate(rows):
            if slots and not spec.portable:
                what = f"row {row} selects an adapter, and the package forbids to apply one outside its graphs (V343)"
                raise RequestError("adapter-fallback", what, help="its `adapters` says portable_fallback: false")
            for slot, (index, _) in enumerate(slots):
                adapter = spec.by_index[index]
                if not any(each.target in ids for each in adapter.bindings):
                    what = f"slot {slot} of row {row} holds adapter '{adapter.alias}', which does not change "
                    what += f"'{parameter}' of component '{component}' (V343)"
                    raise RequestError("adapter-binding", what, help="use an adapter that does")


def refused(what: str, help: str = "") -> RequestError:
    """A selection that is none."""
    return RequestError("adapter-selection", f"{what} (V343)", help=help)
