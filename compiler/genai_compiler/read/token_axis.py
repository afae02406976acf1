"""Which graph input's second extent is the number of new tokens of every attention operator.

Followed forwards, node by node, through operators that leave axis 1 as long as they find it. An operator that is not in
the tables here ends a trail: nothing is guessed.
"""

from math import prod

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from genai_compiler.read.attention import is_grouped_attention
from genai_compiler.read.nodes import CONTRIB, Constants, axes_of, input_at, integer, operator_of

Trail = tuple[str, int]
"""The graph input whose axis 1 is as long as the value's, and the value's rank."""

_FROM_FIRST = frozenset(
    {"Cast", "CastLike", "Identity", "Sqrt", "Neg", "Abs", "Exp", "Log", "Erf", "Reciprocal", "Sigmoid", "Tanh", "Relu"}
    | {"Gelu", "FastGelu", "QuickGelu", "BiasGelu", "Softmax", "LayerNormalization", "SimplifiedLayerNormalization"}
    | {"RMSNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "MatMulNBits"}
)
_ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Min", "Max"})
_TABLES = frozenset({"Gather", "GatherBlockQuantized"})
_DOMAINS = frozenset({"", CONTRIB})


def new_token_source(model: ModelProto) -> str:
    """The graph input whose axis 1 all queries of GroupQueryAttention are as long as; "" when that is not provable."""
    axis = _TokenAxis(model.graph)
    found = {axis.trails.get(input_at(node, 0), ("", 0))[0] for node in model.graph.node if is_grouped_attention(node)}
    return found.pop() if len(found) == 1 else ""


class _TokenAxis:
    """Trails of one graph's values; ONNX requires nodes in topological order, so one pass finds them all."""

    def __init__(self, graph: GraphProto) -> None:
        self._constants = Constants(graph)
        self._fixed = {each.name: tuple(each.dims) for each in graph.initializer}
        ports = {
            each.name: len(each.type.tensor_type.shape.dim) for each in graph.input if each.name not in self._fixed
        }
        self._indices = {name for name, rank in ports.items() if rank == 2}
        self.trails: dict[str, Trail] = {name: (name, rank) for name, rank in ports.items() if rank == 3}
        for node in graph.node:
            self._follow(node)

    def _follow(self, node: NodeProto) -> None:
        if operator_of(node)[0] not in _DOMAINS or not node.output:
            return
        fixed = _constant_shape(node) if node.op_type == "Constant" else self._fixed.get(input_at(node, 0))
        if fixed is not None and node.op_type in ("Constant", "Cast", "CastLike", "Identity"):
            self._fixed[node.output[0]] = fixed
        trail = self._trail(node)
        kept = node.output if node.op_type == "Split" else self._alike(node)
        if trail is not None:
            self.trails.update((name, trail) for name in kept if name)

    @staticmethod
    def _alike(node: NodeProto) -> list[str]:
        """Outputs shaped like the first: the sum that a norm with a skip also gives, or only the first itself."""
        skips = node.op_type.startswith("Skip")
        return [*node.output[:1], *(node.output[3:4] if skips else [])]

    def _trail(self, node: NodeProto) -> Trail | None:
        first = self.trails.get(input_at(node, 0))
        if node.op_type in _TABLES:
            return self._looked_up(node)
        if node.op_type in _ELEMENTWISE:
            return self._broadcast(node)
        if node.op_type == "Concat":
            known = [self.trails[name] for name in node.input if name in self.trails]
            return known[0] if known and self._elsewhere(node, known[0][1], None) else None
        if first is None or node.op_type in _FROM_FIRST:
            return first
        if node.op_type == "MatMul":
            return first if len(self._fixed.get(input_at(node, 1), ())) == 2 else None
        if node.op_type == "Split":
            return first if self._elsewhere(node, first[1], 0) else None
        if node.op_type.startswith("Reduce"):
            return first if self._reduces_others(node, first[1]) else None
        if node.op_type == "Reshape":
            return self._reshaped(node, first)
        return (first[0], 3) if is_grouped_attention(node) else None

    def _looked_up(self, node: NodeProto) -> Trail | None:
        """Rows of a constant table [entries, width] at the places that a graph input [batch, sequence] names."""
        rows = all(each.i == 0 for each in node.attribute if each.name in ("axis", "gather_axis"))
        table = len(self._fixed.get(input_at(node, 0), ())) == 2
        return (input_at(node, 1), 3) if rows and table and input_at(node, 1) in self._indices else None

    def _broadcast(self, node: NodeProto) -> Trail | None:
        """Operands with one trail; others are constants that have no more than a last axis."""
        trails = {self.trails[name] for name in node.input if name in self.trails}
        others = [self._fixed.get(name) for name in node.input if name not in self.trails]
        small = all(dims is not None and prod(dims[:-1]) == 1 and len(dims) <= 3 for dims in others)
        return trails.pop() if len(trails) == 1 and small else None

    def _elsewhere(self, node: NodeProto, rank: int, default: int | None) -> bool:
        axis = next((each.i for each in node.attribute if each.name == "axis"), default)
        return axis is not None and int(axis) % rank != 1

    def _reduces_others(self, node: NodeProto, rank: int) -> bool:
        """Over other axes, which stay as extents of 1."""
        axes = axes_of(node, self._constants)
        return bool(axes) and all(axis % rank != 1 for axis in axes or ()) and integer(node, "keepdims", 1) == 1

    def _reshaped(self, node: NodeProto, first: Trail) -> Trail | None:
        """To [..., 0, ...] with the 0 in second place: axis 1 is taken over."""
        shape = self._constants.ints(input_at(node, 1))
        kept = shape is not None and len(shape) > 2 and shape[1] == 0 and not integer(node, "allowzero", 0)
        return (first[0], len(shape)) if kept and shape is not None else None


def _constant_shape(node: NodeProto) -> tuple[int, ...] | None:
    for each in node.attribute:
        if each.name == "value" and each.type == each.TENSOR and isinstance(each.t, TensorProto):
            return tuple(each.t.dims)
        if each.name in ("value_float", "value_int"):
            return ()
    return None
