"""Where the values of a graph's inputs go: which outputs they reach, and what an integer input is used for.

Edges decide, never names. A value that only its extents are asked of (`Shape`, `Size`) does not flow on.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from onnx import GraphProto, NodeProto

from genai_compiler.read.attention import attention_slots, read_counts
from genai_compiler.read.nodes import Constants, input_at, integer, operator_of, output_at

_ONLY_SHAPE = frozenset({"Shape", "Size"})
_SAME_NUMBERS = frozenset({"Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Flatten", "Clip", "Where"})
_SAME_ENTRIES = frozenset({"Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Flatten", "Transpose", "Expand"})
_TABLE_STEPS = frozenset({"Cast", "Identity", "DequantizeLinear"})
_ANGLE_STEPS = _SAME_NUMBERS | frozenset({"Expand", "Transpose", "Mul", "MatMul", "Einsum", "Concat", "Slice", "Split"})
_ENTRY_STEPS = _SAME_NUMBERS | frozenset({"Slice", "Split", "Concat", "Transpose", "Expand"})
_PICKED = _ENTRY_STEPS | {"Gather"}
"""Operators behind which positions are positions still; of the entries that a Gather picks, those of its data."""
_ANGLES = frozenset({"Cos", "Sin"})
_LOOKUPS = {("", "Gather"): (0, 1), ("com.microsoft", "GatherBlockQuantized"): (0, 1)}
"""Operator -> the inputs that are its table and what looks into it."""
_ORDERS = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Neg", "Abs", "Sign"})
"""Operators that tell entries below 0 from others, where Equal does with such a constant."""
_ROTARY = {
    ("", "RotaryEmbedding"): 3,
    ("com.microsoft", "RotaryEmbedding"): 1,
    ("com.microsoft", "MRotaryEmbedding"): 1,
}
"""Operator -> the input that gives positions."""


def reaching(graph: GraphProto, names: Iterable[str]) -> dict[str, frozenset[str]]:
    """Output of the graph -> which of the inputs `names` its value is computed from, nested graphs followed."""
    order = list(names)
    bits = {name: 1 << at for at, name in enumerate(order)}
    known: dict[str, int] = dict(bits)
    _flow(graph, known)
    return {
        each.name: frozenset(order[at] for at in range(len(order)) if known.get(each.name, 0) >> at & 1)
        for each in graph.output
    }


def _flow(graph: GraphProto, known: dict[str, int]) -> None:
    """Adds to `known` the sources of every value that the graph's nodes make."""
    for node in graph.node:
        if node.op_type in _ONLY_SHAPE and not node.domain:
            continue
        for name, sources in _made(node, known):
            known[name] = sources


def _made(node: NodeProto, known: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    every = _union(known, node.input)
    slots = attention_slots(node)
    branches = [each.g for each in node.attribute if each.HasField("g")]
    if node.op_type == "If" and not node.domain and branches:
        inner = [_inside(each, known) for each in branches]
        for at, name in enumerate(node.output):
            yield name, every | _union_of(results[at] for results in inner if at < len(results))
        return
    for each in branches:
        every |= _union_of(_inside(each, known))
    pasts = {name for name in (input_at(node, at) for at in slots.past) if name} if slots is not None else set()
    for at, name in enumerate(node.output):
        mine = slots.present.index(at) if slots is not None and at in slots.present else None
        if slots is None or mine is None or slots.past[mine] < 0:
            yield name, every
        else:  # a present holds its own past and what is new, nothing of the other half
            yield (
                name,
                _union(
                    known, [each for each in node.input if each not in pasts or each == node.input[slots.past[mine]]]
                ),
            )


def _inside(graph: GraphProto, known: Mapping[str, int]) -> list[int]:
    """Sources of a nested graph's outputs."""
    inner = dict(known)
    _flow(graph, inner)
    return [inner.get(each.name, 0) for each in graph.output]


def _union(known: Mapping[str, int], names: Iterable[str]) -> int:
    return _union_of(known.get(name, 0) for name in names)


def _union_of(masks: Iterable[int]) -> int:
    found = 0
    for each in masks:
        found |= each
    return found


class Edges:
    """Who reads and who writes each value of one graph, nested graphs apart; `counts` has their reads, too."""

    def __init__(self, graph: GraphProto) -> None:
        self.rows = {each.name: int(each.dims[0]) for each in graph.initializer if len(each.dims) > 1}
        self.writer: dict[str, NodeProto] = {name: node for node in graph.node for name in node.output if name}
        self.nodes, self._constants = list(graph.node), Constants(graph)
        self.counts = read_counts(graph)
        self.readers: defaultdict[str, list[tuple[NodeProto, int]]] = defaultdict(list)
        for node in graph.node:
            for at, name in enumerate(node.input):
                self.readers[name].append((node, at))

    def table_rows(self, name: str) -> frozenset[int]:
        """Rows of the tables (constants with two axes or more) that an integer input looks into, as their index.

        Tables of cosines and sines are left out: what is found in them multiplies what the graph computes.
        """
        return frozenset(rows for rows, found in self._lookups(name) if not self._multiplies(found))

    def turns(self, name: str) -> bool:
        """Whether an integer input becomes angles: cosines and sines, or the positions of a rotary operator."""
        return any(self._multiplies(found) for _, found in self._lookups(name)) or any(
            operator_of(node) in {("", each) for each in _ANGLES} or _ROTARY.get(operator_of(node)) == at
            for node, at in self._reached(name, _ANGLE_STEPS)
        )

    def position_rows(self, name: str) -> int | None:
        """The shortest table that positions look into, so that no run gets beyond its rows.

        Of the input `name` ("" for none), unless the graph clips it first, and of operators that count themselves.
        """
        found = list(self._rows_reached(name)) if name else []
        for node in self.nodes:
            if operator_of(node) == ("com.microsoft", "GroupQueryAttention") and integer(node, "do_rotary", 0):
                found += [self.rows[each] for each in [input_at(node, 7)] if each in self.rows]
        return min(filter(None, found), default=None)

    def entry_rows(self, name: str) -> int | None:
        """The shortest table that every entry of an integer input looks into as it is; None for none.

        None also where the graph asks which entries are below 0: it finds rows for them and puts others in their place.
        """
        reached = list(self._reached(name, _SAME_ENTRIES))
        if any(self._told_below_zero(node) for node, _ in reached):
            return None
        tables = (
            input_at(node, 0) for node, at in reached if operator_of(node) in _LOOKUPS and at == 1 and not _axis(node)
        )
        return min(filter(None, map(self._rows, tables)), default=None)

    def _told_below_zero(self, node: NodeProto) -> bool:
        numbers = (self._constants.ints(each) or [0] for each in node.input)
        domain, operator = operator_of(node)
        return not domain and (operator in _ORDERS or (operator == "Equal" and any(min(each) < 0 for each in numbers)))

    def _rows_reached(self, name: str) -> Iterator[int]:
        """Rows of every table that positions look into: one axis of three at a time, and in rotary operators, too."""
        for node, at in self._reached(name, _PICKED - {"Clip"}):
            if operator_of(node) in _LOOKUPS and at == 1 and _axis(node) == 0:
                yield self._rows(input_at(node, 0))
            elif _ROTARY.get(operator_of(node)) == at:
                yield self._rows(input_at(node, 1 if at == 3 else 2))

    def _lookups(self, name: str) -> Iterator[tuple[int, str]]:
        """(rows of a table, what is found there) for every table that an integer input looks into."""
        for node, at in self._reached(name, _SAME_NUMBERS):
            lookup = _LOOKUPS.get(operator_of(node))
            if lookup is not None and at == lookup[1] and _axis(node) == 0:
                rows, found = self._rows(input_at(node, lookup[0])), output_at(node, 0)
                if rows and found:
                    yield rows, found

    def _multiplies(self, found: str) -> bool:
        """Whether entries of a table turn computed values: factors of them, or the tables of a rotary operator."""
        return any(
            (operator_of(node) in _ROTARY and at > 0)
            or (node.op_type == "Mul" and all(name in self.writer for name in node.input) and not self._fixed(node, at))
            for node, at in self._reached(found, _ENTRY_STEPS)
        )

    def _fixed(self, node: NodeProto, at: int) -> bool:
        """Whether the other factor is a constant."""
        other = self.writer.get(input_at(node, 1 - at))
        while other is not None and other.op_type in _TABLE_STEPS:
            other = self.writer.get(input_at(other, 0))
        return other is None or other.op_type == "Constant"

    def starts_slices(self, name: str) -> bool:
        """Whether all that becomes of a number is to be negated, once, and to be where slices start."""
        pending, sliced = [(name, False)], False
        while pending:
            value, negated = pending.pop()
            if self.counts[value] != len(self.readers[value]):  # a nested graph or an output takes it too
                return False
            for node, at in self.readers[value]:
                if (
                    node.domain
                    or node.op_type not in {*_SAME_NUMBERS, "Neg", "Slice"}
                    or (node.op_type, at) == ("Where", 0)
                ):
                    return False
                if node.op_type != "Slice":
                    pending += [(each, negated != (node.op_type == "Neg")) for each in node.output]
                elif not negated or at != 1:
                    return False
                else:
                    sliced = True
        return sliced

    def _rows(self, table: str) -> int:
        for _ in range(8):
            if table in self.rows:
                return self.rows[table]
            node = self.writer.get(table)
            if node is None or node.op_type not in _TABLE_STEPS or not node.input:
                return 0
            table = node.input[0]
        return 0

    def _reached(self, name: str, steps: frozenset[str]) -> Iterator[tuple[NodeProto, int]]:
        """(node, which input of it) for every node that the value enters, through operators of `steps`."""
        pending, seen = [name], set[str]()
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            for node, at in self.readers[value]:
                yield node, at
                if node.op_type in steps and not node.domain and (node.op_type, at) != ("Gather", 1):
                    pending.extend(node.output)


def _axis(node: NodeProto) -> int:
    return next((int(each.i) for each in node.attribute if each.name in ("axis", "gather_axis")), 0)
