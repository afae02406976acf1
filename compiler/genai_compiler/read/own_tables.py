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
_LOOKUPS = {("", "Gather"): "axis", ("com.microsoft", "GatherBlockQuantized"): "gather_axis"}
"""Operator that looks into a table -> the attribute of the axis that it looks along."""
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


@dataclass(frozen=True)
class _Line:
    """What looks into a table, by a number that it is made of: factor * number + added."""

    factor: int = 1
    added: int = 0

    def of(self, factor: int, added: int) -> "_Line":
        """The same by another number, of which this one is factor * number + added."""
        return _Line(self.factor * factor, self.factor * added + self.added)

    def most(self, rows: int) -> int:
        """The largest number that finds one of so many rows; -1 for none. What is below 0 finds rows from behind."""
        if not self.factor or not -rows <= self.added < rows:
            return -1
        return (rows - 1 - self.added) // self.factor if self.factor > 0 else (rows + self.added) // -self.factor


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
            if table := self._table(node):
                yield from self._looked_up(node, table[0])
            elif node.op_type == "Slice" and is_onnx(node):
                yield from self._head(node)
            elif operator_of(node) in _WHOLE_TABLE:
                yield from self._added(node)

    def grown(self) -> Iterator[int]:
        """Positions that a table has for past and new together, where the graph counts them by their extents."""
        for node in self._nodes:
            if table := self._table(node):
                yield from self._counted(input_at(node, 1), table[0])
            elif node.op_type == "Slice" and is_onnx(node):
                rows = self._shape(input_at(node, 0))
                along = self._constants.ints(input_at(node, 3)) == [0] and self._each(node)
                behind = self._behind(input_at(node, 1), input_at(node, 2)) if along else None
                if len(rows) > 1 and rows[0] >= _FEWEST and behind is not None:
                    yield rows[0] - behind

    def _counted(self, index: str, rows: int) -> Iterator[int]:
        for name, line in self._made_of(index):
            node = self._writers.get(name)
            if node is not None and node.op_type == "Range" and self._constants.ints(input_at(node, 2)) == [1]:
                behind, most = self._behind(input_at(node, 0), input_at(node, 1)), line.most(rows)
                yield from [most + 1 - behind] if behind is not None and most >= behind else []

    def shifted(self, name: str) -> Iterator[int]:
        """Positions, from 0 on, that each table has for the input."""
        for node in self._nodes:
            table = self._table(node)
            for value, line in self._made_of(input_at(node, 1)) if table else ():
                if value == name and line.most(table[0]) >= 0:
                    yield line.most(table[0]) + 1

    def _table(self, node: NodeProto) -> tuple[int, ...]:
        """The extents of the table whose rows a node looks up, () for a node that looks up none."""
        shape = self._shape(input_at(node, 0)) if self._looks_up(node) else ()
        return shape if len(shape) > 1 and shape[0] >= _FEWEST else ()

    def _looks_up(self, node: NodeProto) -> bool:
        """Whether a node looks along the first axis of a constant."""
        axis = _LOOKUPS.get(operator_of(node), "")
        return bool(axis and integer(node, axis, 0) == 0 and self._shape(input_at(node, 0)))

    def _each(self, node: NodeProto) -> bool:
        """Whether a Slice takes one after the other."""
        return not input_at(node, 4) or self._constants.ints(input_at(node, 4)) == [1]

    def _behind(self, start: str, end: str) -> int | None:
        """What is added to an extent where numbers begin that end at its sum with another; None for other numbers."""
        first, node = self._length(start), self._writers.get(end)
        while node is not None and node.op_type in _SAME_NUMBERS and is_onnx(node):
            node = self._writers.get(input_at(node, 0))
        if first is None or node is None or node.op_type != "Add":
            return None
        sides = [self._length(input_at(node, at)) for at in (0, 1)]
        return first.more if None not in sides and first in sides else None

    def _looked_up(self, node: NodeProto, rows: int) -> Iterator[Limit]:
        """The highest position must be a row; the last one, where positions count rows from behind."""
        for name, line in self._made_of(input_at(node, 1)):
            counts, most = self._writers.get(name), line.most(rows)
            if counts is None or most < 0 or not is_onnx(counts):
                continue
            if counts.op_type == "Range":
                yield from self._ranged(counts, most)
            elif counts.op_type == "CumSum" and not _exclusive(counts):
                axis = self._constants.ints(input_at(counts, 1))
                end = self._extent(input_at(counts, 0), axis[0]) if axis else None
                if end is not None:
                    yield end.limit(0, most)

    def _ranged(self, node: NodeProto, most: int) -> Iterator[Limit]:
        """No number is above `most`: by where a Range ends that goes up, starts that goes down to a constant."""
        start, end, step = (self._constants.ints(input_at(node, at)) for at in range(3))
        if not step or not step[0]:
            return
        up = step[0] > 0
        if (start if up else end) is None:
            return
        extent = self._length(input_at(node, 1 if up else 0))
        if up and start:
            most = start[0] + step[0] * ((most - start[0]) // step[0] + 1)
        if extent is not None:
            yield extent.limit(0, most)

    def _head(self, node: NodeProto) -> Iterator[Limit]:
        """The first so many rows of a table: there must be as many."""
        table, axes = self._shape(input_at(node, 0)), self._constants.ints(input_at(node, 3)) or []
        starts = self._constants.ints(input_at(node, 1))
        if len(table) < 2 or len(axes) != 1 or starts != [0] or not self._each(node):
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

    def _made_of(self, index: str) -> Iterator[tuple[str, _Line]]:
        """Each value that an index is made of by sums and products with constants, and how; the index first."""
        pending = [(index, _Line())]
        for _ in range(64):
            if not pending:
                return
            name, line = pending.pop()
            yield name, line
            node = self._writers.get(name)
            if node is not None and is_onnx(node):
                pending += self._step(node, line)

    def _step(self, node: NodeProto, line: _Line) -> list[tuple[str, _Line]]:
        first, second = input_at(node, 0), input_at(node, 1)
        if node.op_type in _SAME_NUMBERS:
            return [(first, line)]
        left, right = self._number(first), self._number(second)
        if node.op_type not in ("Add", "Sub", "Mul") or (left is not None and right is not None):
            return []
        if left is None and right is None:  # such a factor is a mask: it leaves numbers as they are, or takes them away
            return [(first, line), (second, line)] if node.op_type == "Mul" else []
        number, other = (left, second) if left is not None else (right or 0, first)
        if node.op_type == "Mul":
            return [(other, line.of(number or 0, 0))]
        sign = -1 if node.op_type == "Sub" else 1
        return [(other, line.of(sign, number or 0) if left is not None else line.of(1, sign * (number or 0)))]

    def _number(self, name: str) -> int | None:
        """A constant that is one number, or the same one everywhere."""
        found = set(self._constants.ints(name) or ())
        return found.pop() if len(found) == 1 else None

    def _length(self, name: str) -> _Extent | None:
        """The extent that a scalar, or a list of one number, is."""
        added = 0
        for node in self._back(name, _SAME_NUMBERS | {"Add", "Sub", "Gather", "Slice", "Shape"}):
            if node.op_type in ("Add", "Sub"):
                other = self._constants.ints(input_at(node, 0 if self._followed(node) == input_at(node, 1) else 1))
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
        """The first input; where that is a constant which is added to the other, the other."""
        commutes = node.op_type == "Add" and self._constants.ints(input_at(node, 0)) is not None
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
            if self._looks_up(node):
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
            if self._looks_up(node):
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
