"""How many patches a graph's pictures must have, where it adds a whole table of positions to them.

Exporters leave height and width open although the table is of one size.

Before: Conv of stride 16 -> Reshape -> Transpose -> Concat with one row -> Add a table [1, 197, 768]
After:  pixel_values: 196 patches of 16 pixels
"""

from collections.abc import Iterator
from dataclasses import dataclass

from onnx import GraphProto, ModelProto, NodeProto

from genai_compiler.read.nodes import input_at, is_onnx, operator_of

_TABLES = {("", "Add"): (0, 1), ("com.microsoft", "SkipLayerNormalization"): (0, 1)}
_ALIKE = frozenset({"Identity", "Cast", "Dropout", "Reshape", "Flatten", "Transpose", "Squeeze"})
_MOST = 16


@dataclass(frozen=True)
class Patches:
    """An input [pictures, 3, height, width] whose patches of so many pixels are `count`."""

    input: str
    patch: int
    count: int


def own_patches(model: ModelProto) -> tuple[Patches, ...]:
    """What tables ask of pictures whose height and width the graph leaves open; nested graphs are left alone."""
    return tuple(sorted(set(_Trail(model.graph).found()), key=lambda each: (each.input, each.count)))


class _Trail:
    """One graph."""

    def __init__(self, graph: GraphProto) -> None:
        self._nodes = list(graph.node)
        self._writers = {name: node for node in graph.node for name in node.output if name}
        self._tables = {each.name: tuple(int(dim) for dim in each.dims) for each in graph.initializer}
        self._open = {
            each.name
            for each in graph.input
            if len(dims := each.type.tensor_type.shape.dim) == 4
            and not any(axis.HasField("dim_value") for axis in dims[2:])
        }

    def found(self) -> Iterator[Patches]:
        for node in self._nodes if self._open else ():
            sides = _TABLES.get(operator_of(node))
            for one, other in ((0, 1), (1, 0)) if sides is not None else ():
                table = self._tables.get(input_at(node, one), ())
                if len(table) in (2, 3) and table[-2] > 1 and table[0] in (1, table[-2]):
                    cut = self._cut(input_at(node, other))
                    if cut is not None:
                        port, patch, beside = cut
                        yield Patches(port, patch, table[-2] - beside)

    def _cut(self, name: str) -> tuple[str, int, int] | None:
        """(input, patch, rows beside the patches) of a value that is a picture's patches."""
        beside = 0
        for _ in range(_MOST):
            node = self._writers.get(name)
            if node is None or not is_onnx(node):
                return None
            if node.op_type == "Concat":
                rows = {each: self._rows(each) for each in node.input}
                left = [each for each, count in rows.items() if not count]
                if len(left) != 1:
                    return None
                beside, name = beside + sum(rows.values()), left[0]
            elif node.op_type == "Conv":
                patch = self._patch(node)
                return (input_at(node, 0), patch, beside) if patch else None
            elif node.op_type in _ALIKE:
                name = input_at(node, 0)
            else:
                return None
        return None

    def _patch(self, node: NodeProto) -> int:
        """The edge of the squares that a convolution of a picture makes one of each, 0 for another one."""
        kernel = self._tables.get(input_at(node, 1), ())
        lists = {each.name: list(each.ints) for each in node.attribute}
        square = len(kernel) == 4 and kernel[2] == kernel[3] and lists.get("strides") == list(kernel[2:])
        return kernel[2] if square and not any(lists.get("pads", ())) and input_at(node, 0) in self._open else 0

    def _rows(self, name: str) -> int:
        """Rows of a constant [1, rows, width] that is repeated for each picture; 0 for what is none."""
        for _ in range(4):
            if name in self._tables:
                return self._tables[name][-2] if len(self._tables[name]) == 3 else 0
            node = self._writers.get(name)
            if node is None or node.op_type not in ("Expand", "Identity", "Cast", "Tile"):
                return 0
            name = input_at(node, 0)
        return 0
