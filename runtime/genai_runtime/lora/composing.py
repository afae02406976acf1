"""Adapters of the rows -> what the graph inputs of a target take (standard, 6.3).

Slots one after another along the rank: A stacked, B beside each other and multiplied by scale and factor, so that
B (A x) is the sum over the slots. What a row has less than others is filled with zeros, whose product is zero.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from genai_runtime.lora.cache import Loaded
from genai_runtime.lora.files import Floats
from genai_runtime.lora.selection import Slots, refused
from genai_runtime.lora.spec import Port, ScalePort, Seam, Target
from genai_runtime.problem import RequestError
from genai_runtime.values import Value, encode, to_value

Pair = tuple[Floats, Floats]


def component_inputs(
    targets: Sequence[Target], rows: Sequence[Slots], loaded: Mapping[int, Loaded]
) -> dict[str, Value]:
    """Port -> tensor for the targets of one graph, all with a seam; {} when no row changes any.

    Targets whose ranks the graph calls by one symbol get one rank, and all get factors when one does: ONNX Runtime
    plans its memory by these symbols. Raises RequestError `adapter-batching`, `adapter-selection`.
    """
    pairs = {each.id: _pairs(each, rows, loaded) for each in targets}
    widest = {name: max(a.shape[0] for a, _ in each) for name, each in pairs.items()}
    uses = Counter(symbol for each in targets for symbol in set(_seam(each).symbols))
    linked = {each.id for each in targets if any(uses[symbol] > 1 for symbol in _seam(each).symbols)}
    common = max((widest[name] for name in linked), default=0)
    made: dict[str, Value] = {}
    for each in targets:
        rank = common if each.id in linked else widest[each.id]
        if rank:
            made |= _inputs(each, pairs[each.id], _rank(each, rank), len(rows))
    return made


def _seam(target: Target) -> Seam:
    assert target.seam is not None
    return target.seam


def _pairs(target: Target, rows: Sequence[Slots], loaded: Mapping[int, Loaded]) -> list[Pair]:
    """The factors of every row, of one for all where the graph takes one set."""
    changing = [tuple(each for each in row if target.id in loaded[each[0]]) for row in rows]
    if not _seam(target).a.rows:
        changing = [_one_for_all(target, changing)]
    return [_composed(target, row, loaded) for row in changing]


def _inputs(target: Target, pairs: Sequence[Pair], rank: int, rows: int) -> dict[str, Value]:
    seam = _seam(target)
    made = {
        seam.a.name: _tensor(target, seam.a, [_filled(a, 0, rank) for a, _ in pairs], canonical=1),
        seam.b.name: _tensor(target, seam.b, [_filled(b, 1, rank) for _, b in pairs], canonical=0),
    }
    return made | ({seam.scale.name: _ones(seam.scale, rows)} if seam.scale is not None else {})


def _one_for_all(target: Target, rows: Sequence[Slots]) -> Slots:
    """The adapters that all rows share. Raises RequestError `adapter-batching`."""
    for at, row in enumerate(rows):
        if row != rows[0]:
            what = f"rows 0 and {at} use different adapters, and component '{target.component}' takes one set for all "
            what += f"rows of a run ('{target.ports[0]}' has no axis for rows)"
            raise RequestError("adapter-batching", what, help="run rows with different adapters one by one")
    return rows[0]


def _composed(target: Target, row: Slots, loaded: Mapping[int, Loaded]) -> Pair:
    """A [sum of ranks, inputs] and B [width, sum of ranks] of one row."""
    parts = [(loaded[index][target.id], scale) for index, scale in row]
    a = [part.a for part, _ in parts] or [np.zeros((0, target.inputs), np.float32)]
    with np.errstate(over="ignore"):  # infinite numbers are refused where they would be fed
        b = [part.b * np.float32(scale * part.factor) for part, scale in parts]
    b = b or [np.zeros((target.width, 0), np.float32)]
    return np.concatenate(a, axis=0), np.concatenate(b, axis=1)


def _rank(target: Target, needed: int) -> int:
    """The rank that the inputs get: what the graph fixes, else what is needed."""
    port = _seam(target).a
    if port.rank and needed > port.rank:
        what = f"the adapters of a row have rank {needed} together, '{port.name}' of component '{target.component}' "
        raise refused(f"{what}takes {port.rank}", "select fewer adapters in a row")
    return port.rank or needed


def _filled(factor: Floats, axis: int, rank: int) -> Floats:
    missing = [(0, 0), (0, 0)]
    missing[axis] = (0, rank - factor.shape[axis])
    return np.pad(factor, missing) if missing[axis][1] else factor


def _tensor(target: Target, port: Port, rows: Sequence[Floats], canonical: int) -> Value:
    """The factors of all rows as the port takes them. canonical: the axis of features in a factor of ours."""
    turned = [each if port.features == canonical else each.T for each in rows]
    numbers = np.stack(turned) if port.rows else np.ascontiguousarray(turned[0])
    with np.errstate(over="ignore"):
        made = encode(numbers, port.dtype)
    if not np.isfinite(numbers).all() or (port.dtype == "float16" and not np.isfinite(made).all()):
        what = f"the scaled factors of target '{target.id}' are larger than {port.dtype} holds"
        raise refused(what, "scale the adapters less")
    return to_value(made, port.dtype)


def _ones(port: ScalePort, rows: int) -> Value:
    return to_value(encode(np.ones([extent or rows for extent in port.dims], np.float32), port.dtype), port.dtype)
