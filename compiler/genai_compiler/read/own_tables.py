"""How long a graph's inputs may be, as the graph's own tables of positions have it.

A graph that counts its positions itself looks them up in a table that ends somewhere: by a Range or a running sum up to
an input's extent, by the head of the table, or by adding all of it. Edges decide, never names.

Before: Range(0, Shape(input_ids)[1]) -> Gather from a table [77, 768]
After:  input_ids, axis 1: 77 at most
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from onnx import GraphProto, ModelProto, NodeProto, TensorShapeProto

from genai_compiler.read.nodes import Constants, input_at, integer, is_onnx, operator_of

_SAME_NUMBERS = frozenset({"Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Expand", "Tile"})
_SAME_AXES = frozenset(
    {"Cast", "Identity", "Gelu", "Relu", "Erf", "Sigmoid", "Tanh", "Neg", "Not", "Equal", "Dropout", "FastGelu"}
)
_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div"})
_WHOLE_TABLE = {("", "Add"): (0, 1), ("com.microsoft", "SkipLayerNormalization"): (0, 1)}
_FEWEST = 2
"""Rows that make a table: one row goes to every position."""


@dataclass(frozen=True)
class Limit:
    """An axis of an input whose extent is within least..most, because of the rows of a table."""

    input: str
    axis: int
    most: int
    least: int = 0


@dataclass(frozen=True)
class _Extent:
    """The extent of an input's axis, what convolutions leave of it, and a number added to that.

    convolutions: (stride, reach, padding) of each, the first one first.
    """

    input: str
    axis: int
    convolutions: tuple[tuple[int, int, int], ...] = ()
    more: int = 0

    def limit(self, least: int, most: int) -> Limit:
        """What the input's own extent then is, where this is least..most. No least is asked for by 0."""
        low, high = least - self.more if least else 0, most - self.more
        for stride, reach, padding in reversed(self.convolutions):
            low = (low - 1) * stride + reach + 1 - padding if low else 0
            high = high * stride + reach - padding
        return Limit(self.input, self.axis, high, max(low, 0))


def own_limits(model: ModelProto) -> tuple[Limit, ...]:
    """The narrowest limits of each input's axes, sorted; nested graphs are left alone."""
    found: dict[tuple[str, int], Limit] = {}
    for each in _Tables(model.graph).limits():
        known = found.get((each.input, each.axis), each)
        narrow = Limit(each.input, each.axis, min(each.most, known.most), max(each.least, known.least))
        found[each.input, each.axis] = narrow
    return tuple(found[key] for key in sorted(found) if found[key].most > 0)


def grown_rows(model: ModelProto) -> int | None:
    """Rows of the shortest table that is looked into from behind what a cache holds: Range(past, past + new)."""
    return min(_Tables(model.graph).grown(), default=None)


def shifted_rows(model: ModelProto, name: str) -> int | None:
    """Positions that the shortest table has for an input that looks into it with a number added: Add(positions, 2)."""
    return min(_Tables(model.graph).shifted(name), default=None)


class _Tables:
    """One graph and what follows from its tables."""

    def __init__(self, graph: GraphProto) -> None:
        self._nodes = list(graph.node)
        self._writers = {name: node for node in graph.node for name in node.output if name}
        self._constants = Constants(graph)
        self._tables = {each.name: tuple(int(dim) for dim in each.dims) for each in graph.initializer}
        self._open = {each.name: _open_axes(each.type.tensor_type.shape.dim) for each in graph.input}

    def limits(self) -> Iterator[Limit]:
        for node in self._nodes:
            if node.op_type == "Gather" and is_onnx(node) and integer(node, "axis", 0) == 0:
                yield from self._looked_up(node)
            elif node.op_type == "Slice" and is_onnx(node):
                yield from self._head(node)
            elif operator_of(node) in _WHOLE_TABLE:
                yield from self._added(node)

    def grown(self) -> Iterator[int]:
        """Positions that a table has for past and new together, where the graph counts them by their extents."""
        for node in self._nodes:
            rows = self._shape(input_at(node, 0)) if node.op_type in ("Gather", "Slice") and is_onnx(node) else ()
            if len(rows) < 2 or rows[0] < _FEWEST:
                continue
            if node.op_type == "Slice":
                along = self._constants.ints(input_at(node, 3)) == [0]
                behind = self._behind(input_at(node, 1), input_at(node, 2)) if along else None
                yield from [rows[0] - behind] if behind is not None else []
            elif integer(node, "axis", 0) == 0:
                yield from self._counted(input_at(node, 1), rows[0])

    def _counted(self, name: str, rows: int) -> Iterator[int]:
        for node in self._back(name, _SAME_NUMBERS | {"Add", "Sub", "Range"}):
            if node.op_type == "Range":
                behind = self._behind(input_at(node, 0), input_at(node, 1))
                yield from [rows - behind] if behind is not None else []
                return
            if node.op_type in ("Add", "Sub"):
                more = set(self._constants.ints(input_at(node, 1)) or self._constants.ints(input_at(node, 0)) or ())
                if len(more) != 1 or rows <= max(more):
                    return
                rows -= more.pop() if node.op_type == "Add" else 0

    def shifted(self, name: str) -> Iterator[int]:
        """Rows from the one on that position 0 has, of each table."""
        for node in self._nodes:
            rows = self._shape(input_at(node, 0)) if node.op_type == "Gather" and is_onnx(node) else ()
            if len(rows) < 2 or rows[0] < _FEWEST or integer(node, "axis", 0) != 0:
                continue
            first = self._first_row(input_at(node, 1), name)
            yield from [rows[0] - first] if first is not None and rows[0] > first else []

    def _first_row(self, index: str, name: str) -> int | None:
        """What is added to an input where it looks into a table, None where another value does."""
        added = 0
        for node in self._back(index, _SAME_NUMBERS | {"Add", "Sub"}):
            index = self._followed(node)
            if node.op_type in ("Add", "Sub"):
                more = self._constants.ints(input_at(node, 0 if index == input_at(node, 1) else 1))
                if more is None or len(set(more)) != 1:
                    return None
                added += more[0] if node.op_type == "Add" else -more[0]
        return added if index == name else None

    def _behind(self, start: str, end: str) -> int | None:
        """What is added to an extent where numbers begin that end at its sum with another; None for other numbers."""
        first, node = self._length(start), self._writers.get(end)
        while node is not None and node.op_type in _SAME_NUMBERS and is_onnx(node):
            node = self._writers.get(input_at(node, 0))
        if first is None or node is None or node.op_type != "Add":
            return None
        sides = [self._length(input_at(node, at)) for at in (0, 1)]
        return first.more if None not in sides and first in sides else None

    def _looked_up(self, node: NodeProto) -> Iterator[Limit]:
        """The highest position must be a row."""
        rows = self._shape(input_at(node, 0))
        highest = self._highest(input_at(node, 1)) if len(rows) > 1 and rows[0] >= _FEWEST else None
        if highest is not None:
            yield highest.limit(0, rows[0] - 1)

    def _head(self, node: NodeProto) -> Iterator[Limit]:
        """The first so many rows of a table: there must be as many."""
        table, axes = self._shape(input_at(node, 0)), self._constants.ints(input_at(node, 3)) or []
        starts = self._constants.ints(input_at(node, 1))
        steps = self._constants.ints(input_at(node, 4)) if input_at(node, 4) else [1]
        if len(table) < 2 or len(axes) != 1 or starts != [0] or steps != [1]:
            return
        end = self._length(input_at(node, 2))
        rows = table[axes[0]] if -len(table) <= axes[0] < len(table) else 0
        if end is not None and rows >= _FEWEST:
            yield end.limit(0, rows)

    def _added(self, node: NodeProto) -> Iterator[Limit]:
        """A whole table, [..., rows, width], beside a value that has to be as long."""
        first, second = (input_at(node, at) for at in _WHOLE_TABLE[operator_of(node)])
        for value, other in ((first, second), (second, first)):
            table, rank = self._shape(other), self._rank(value)
            if len(table) < 2 or table[-2] < _FEWEST or rank < len(table) or value in self._tables:
                continue
            extent = self._extent(value, rank - 2)
            if extent is not None:
                yield extent.limit(table[-2], table[-2])

    # ---- numbers -----------------------------------------------------------------------------------------------------

    def _highest(self, name: str) -> _Extent | None:
        """The largest number of a value that counts up to an extent; None for any other value."""
        added = 0
        for node in self._back(name, _SAME_NUMBERS | _ARITHMETIC | {"Range", "CumSum"}):
            if node.op_type == "Range":
                start, step = (self._constants.ints(input_at(node, at)) for at in (0, 2))
                end = self._length(input_at(node, 1)) if step == [1] and start is not None else None
                return _more(end, added - 1) if end is not None else None
            if node.op_type == "CumSum":
                axis = self._constants.ints(input_at(node, 1))
                end = self._extent(input_at(node, 0), axis[0]) if axis and not _exclusive(node) else None
                return _more(end, added) if end is not None else None
            if node.op_type in ("Add", "Sub"):
                other = self._constants.ints(input_at(node, 1))
                if other is None or len(set(other)) != 1:
                    return None
                added += other[0] if node.op_type == "Add" else -other[0]
            elif node.op_type == "Div" or (node.op_type == "Mul" and self._by_constant(node)):
                return None
        return None

    def _by_constant(self, node: NodeProto) -> bool:
        return any(self._constants.ints(input_at(node, at)) is not None for at in (0, 1))

    def _length(self, name: str) -> _Extent | None:
        """The extent that a scalar, or a list of one number, is."""
        added = 0
        for node in self._back(name, _SAME_NUMBERS | {"Add", "Sub", "Gather", "Slice", "Shape"}):
            if node.op_type in ("Add", "Sub"):
                other = self._constants.ints(input_at(node, 1))
                if other is None or len(other) != 1:
                    return None
                added += other[0] if node.op_type == "Add" else -other[0]
            elif node.op_type in ("Gather", "Slice"):
                shape = self._writers.get(input_at(node, 0))
                start = self._constants.ints(input_at(node, 1))
                end = self._constants.ints(input_at(node, 2)) if node.op_type == "Slice" else start
                one = start is not None and end is not None and len(start) == 1 == len(end)
                if shape is None or shape.op_type != "Shape" or shape.attribute or not one or start is None:
                    return None
                if node.op_type == "Slice" and (end is None or end[0] != start[0] + 1):
                    return None
                return _more(self._extent(input_at(shape, 0), start[0]), added)
            elif node.op_type == "Shape":
                ends = {each.name: int(each.i) for each in node.attribute}
                first = ends.get("start", 0)
                if ends.get("end") != first + 1:
                    return None
                return _more(self._extent(input_at(node, 0), first), added)
        return None

    def _back(self, name: str, steps: Iterable[str]) -> Iterator[NodeProto]:
        """The nodes that make a value, last one first, through first inputs."""
        for _ in range(64):
            node = self._writers.get(name)
            if node is None or not is_onnx(node) or node.op_type not in steps:
                return
            yield node
            name = self._followed(node)

    def _followed(self, node: NodeProto) -> str:
        """The first input; where that is a constant which is added to the other, or multiplied with it, the other."""
        commutes = node.op_type in ("Add", "Mul") and self._constants.ints(input_at(node, 0)) is not None
        return input_at(node, 1 if commutes else 0)

    # ---- axes --------------------------------------------------------------------------------------------------------

    def _extent(self, name: str, axis: int) -> _Extent | None:
        """Which input's extent an axis of a value has, None where that is not known, or is a number."""
        convolutions: list[tuple[int, int, int]] = []
        for _ in range(64):
            if name in self._open:
                ports = self._open[name]
                axis += len(ports) if axis < 0 else 0
                known = 0 <= axis < len(ports) and ports[axis]
                return _Extent(name, axis, tuple(reversed(convolutions))) if known else None
            node = self._writers.get(name)
            if node is None:
                return None
            if node.op_type == "Gather" and integer(node, "axis", 0) == 0 and self._shape(input_at(node, 0)):
                if not 0 <= axis < self._rank(input_at(node, 1)):
                    return None
                name = input_at(node, 1)
                continue
            if node.op_type == "Transpose":
                order = next((list(each.ints) for each in node.attribute if each.name == "perm"), [])
                if not 0 <= axis < len(order):
                    return None
                axis = int(order[axis])
            elif node.op_type == "Conv":
                step = self._convolution(node, axis)
                if step is None:
                    return None
                convolutions.append(step)
            elif node.op_type not in _SAME_AXES and not self._scales(node):
                return None
            name = input_at(node, 0)
        return None

    def _convolution(self, node: NodeProto, axis: int) -> tuple[int, int, int] | None:
        """(stride, reach, padding) of a convolution along an axis; None for one that chooses its padding."""
        kernel = self._shape(input_at(node, 1))
        lists = {each.name: list(each.ints) for each in node.attribute}
        chosen = next((each.s for each in node.attribute if each.name == "auto_pad"), b"NOTSET")
        at, count = axis - 2, len(kernel) - 2
        if not 0 <= at < count or chosen not in (b"NOTSET", b""):
            return None
        stride, dilation = (lists.get(name, [1] * count)[at] for name in ("strides", "dilations"))
        pads = lists.get("pads", [0] * 2 * count)
        return stride, dilation * (kernel[at + 2] - 1), pads[at] + pads[at + count]

    def _scales(self, node: NodeProto) -> bool:
        """Arithmetic with one number."""
        return node.op_type in _ARITHMETIC and len(self._constants.ints(input_at(node, 1)) or ()) == 1

    def _rank(self, name: str) -> int:
        """The axes of a value, as far as one step tells; 0: not known."""
        for _ in range(64):
            if name in self._open:
                return len(self._open[name])
            node = self._writers.get(name)
            if node is None:
                return len(self._shape(name))
            if node.op_type == "Conv":
                return len(self._shape(input_at(node, 1)))
            if node.op_type == "Gather" and self._shape(input_at(node, 0)):
                rank = self._rank(input_at(node, 1))
                return rank + len(self._shape(input_at(node, 0))) - 1 if rank else 0
            if node.op_type not in (*_SAME_AXES, "Transpose") and not self._scales(node):
                return 0
            name = input_at(node, 0)
        return 0

    def _shape(self, name: str) -> tuple[int, ...]:
        """Extents of a constant table, () for what is none."""
        for _ in range(8):
            if name in self._tables:
                return self._tables[name] if name not in self._open else ()
            node = self._writers.get(name)
            if node is None or node.op_type not in ("Cast", "Identity", "DequantizeLinear"):
                return ()
            name = input_at(node, 0)
        return ()


def _more(extent: "_Extent | None", more: int) -> "_Extent | None":
    if extent is None:
        return None
    return _Extent(extent.input, extent.axis, extent.convolutions, extent.more + more)


def _exclusive(node: NodeProto) -> bool:
    return bool(integer(node, "exclusive", 0) or integer(node, "reverse", 0))


def _open_axes(dims: Iterable[TensorShapeProto.Dimension]) -> tuple[bool, ...]:
    """Of each axis of an input: whether the graph leaves its extent open."""
    return tuple(not each.HasField("dim_value") for each in dims)
