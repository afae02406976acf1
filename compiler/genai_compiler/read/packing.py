"""What a session has in memory of a graph's weights on the CPU: read in place, rearranged into a copy, gathered from.

Sources: ONNX Runtime maps external data and reads its pages when they are first used; operators that rearrange a
constant operand do so while the session is made (`PrePack`), and a weight that every reader has rearranged is dropped.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onnx import ModelProto, NodeProto, TensorProto

from genai_compiler.read.nodes import CONTRIB, all_nodes, input_at, integer, operator_of
from genai_compiler.read.weights import weight_size

PANEL = 16
"""Columns of a rearranged float32 matrix come in whole panels of so many (MLAS, packed B)."""
QUANTISED_PRODUCTS = 4
"""accuracy_level from which MatMulNBits multiplies integers and keeps scales and sums of blocks beside the quants."""
WINDOW = 16 * 4096
"""Bytes that Linux maps around a first read of a mapped file (fault-around)."""

Tensors = Mapping[str, TensorProto]


@dataclass(frozen=True)
class WeightMemory:
    """Bytes. packed: rearranged copies. inside: weights that lie in the graph's own file and stay as they are.

    mapped: external weights read as they are, of which `early` while the session is made, that a copy is made of, too;
    tables: external ones of which only rows, or columns, are gathered: (bytes, places in which one of them lies);
    places: (bytes, rows) of those with a row a position. source: the largest weight that becomes a copy alone, there
    beside it for a while.
    """

    packed: int
    inside: int
    mapped: int
    early: int
    tables: tuple[tuple[int, int], ...]
    places: tuple[tuple[int, int], ...]
    source: int

    @property
    def loaded(self) -> int:
        """In memory once the session is made."""
        return self.packed + self.inside + self.early

    def gathered(self, rows: int, context: int) -> int:
        """Bytes of the tables that so many rows, spread evenly, and so many positions bring into memory."""
        first = sum(size * min(context, count) // max(count, 1) for size, count in self.places)
        return first + sum(_windows(table, rows * reads) for table, reads in self.tables)


def weight_memory(model: ModelProto) -> WeightMemory:
    """The weights of one session that runs this graph."""
    tensors = _tensors(model)
    copies, uses = packed_copies(model), defaultdict[str, set[str]](set)
    for node in all_nodes(model):
        size = _packed(node, tensors)
        for place, name in enumerate(node.input):
            if name in tensors:
                uses[name] |= _uses(node, place, size)
    external = {name for name in uses if tensors[name].data_location == TensorProto.EXTERNAL}
    kept = {name for name, found in uses.items() if found != {"packed"}}
    tables = {name for name in external if uses[name] and uses[name] <= {"rows", "columns"}}
    places = {name for name in external if uses[name] == {"places"}}
    mapped = (kept & external) - tables - places
    return WeightMemory(
        sum(copies.values()),
        sum(weight_size(tensors[name]) for name in kept - external),
        sum(weight_size(tensors[name]) for name in mapped),
        sum(weight_size(tensors[name]) for name in mapped if uses[name] & {"early", "packed"}),
        tuple(sorted((weight_size(tensors[name]), _reads(tensors[name], uses[name])) for name in tables)),
        tuple(sorted((weight_size(tensors[name]), int((tensors[name].dims or [1])[0])) for name in places)),
        max((weight_size(tensors[name]) for name, found in uses.items() if found == {"packed"}), default=0),
    )


def packed_copies(model: ModelProto) -> dict[str, int]:
    """Weight -> bytes of the rearranged copies that a session makes of it."""
    tensors, copies = _tensors(model), dict[str, int]()
    for node in all_nodes(model):
        name, size = input_at(node, _operand(node)), _packed(node, tensors)
        if size and name in tensors:
            copies[name] = copies.get(name, 0) + size
    return copies


def _tensors(model: ModelProto) -> dict[str, TensorProto]:
    return {each.name: each for each in model.graph.initializer}


def _operand(node: NodeProto) -> int:
    """The place of the operand that a node makes a copy of."""
    return int(operator_of(node) != ("", "Reshape"))


def _reshaped(node: NodeProto, tensors: Tensors) -> int:
    """A weight in another shape is a constant of its own, made when the session is opened."""
    return weight_size(tensors[input_at(node, 0)]) if input_at(node, 0) in tensors else 0


def _packed(node: NodeProto, tensors: Tensors) -> int:
    rule = _PACKED.get(operator_of(node))
    return rule(node, tensors) if rule is not None else 0


def _uses(node: NodeProto, place: int, packed: int) -> set[str]:
    """What a node does with its operand at a place: `packed`, read `early` or late, its `rows` or `places` gathered."""
    kind = operator_of(node)
    if packed and place == _operand(node):
        return {"packed"}
    if kind == ("", "Gather") and place == 0 and integer(node, "axis", 0) == 1:
        return {"columns"}
    if place in _ROWS.get(kind, ()):
        return {"rows"}
    if place in _PLACES.get(kind, ()):
        return {"places"}
    return {"early"} if packed and integer(node, "accuracy_level", 0) >= QUANTISED_PRODUCTS else {"late"}


def gathers(node: NodeProto, place: int) -> bool:
    """Whether a node reads single rows of its operand at a place, and not the whole."""
    kind = operator_of(node)
    return place in _ROWS.get(kind, ()) or place in _PLACES.get(kind, ())


def _reads(table: TensorProto, uses: set[str]) -> int:
    """In how many places of a table one of its rows, or columns, lies."""
    return int(table.dims[0]) if "columns" in uses else 1


def _windows(table: int, rows: int) -> int:
    count = max(1, table // WINDOW)
    return min(table, round(WINDOW * count * (1 - (1 - 1 / count) ** rows)))


def _panels(columns: int) -> int:
    return -(-columns // PANEL) * PANEL


def _matrix(node: NodeProto, tensors: Tensors) -> int:
    """A float32 matrix as second operand, in panels; each reader has a copy of its own."""
    weight = tensors.get(input_at(node, 1))
    if weight is None or len(weight.dims) != 2 or weight.data_type != TensorProto.FLOAT:
        return 0
    rows, columns = (int(each) for each in weight.dims)
    if node.op_type == "Gemm" and integer(node, "transB", 0):
        rows, columns = columns, rows
    return 4 * rows * _panels(columns)


def _quantised(node: NodeProto, tensors: Tensors) -> int:
    """Quants in the kernel's order; with integer products the scales and sums of their blocks, too."""
    if input_at(node, 1) not in tensors:
        return 0
    rows, columns = integer(node, "K", 0), integer(node, "N", 0)
    size, bits = integer(node, "block_size", 32), integer(node, "bits", 4)
    blocks = -(-rows // max(size, 1))
    quants = columns * blocks * size * bits // 8
    if integer(node, "accuracy_level", 0) < QUANTISED_PRODUCTS:
        return quants
    return quants + 4 * blocks * (columns + _panels(columns))


_PACKED: dict[tuple[str, str], Callable[[NodeProto, Tensors], int]] = {
    ("", "MatMul"): _matrix,
    ("", "Gemm"): _matrix,
    (CONTRIB, "MatMulNBits"): _quantised,
    ("", "Reshape"): _reshaped,
}
_ROWS = {("", "Gather"): (0,), (CONTRIB, "GatherBlockQuantized"): (0, 2, 3)}
"""Operands of which rows are gathered."""
_PLACES = {(CONTRIB, "GroupQueryAttention"): (7, 8), (CONTRIB, "RotaryEmbedding"): (2, 3)}
"""Operands with a row a position, of which the first are read."""
