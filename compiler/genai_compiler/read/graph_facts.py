"""Facts of a decoder graph that a caller must know and no signature tells: each is proven from the edges.

How the attention mask is used, where the graph changes its tables by length, whether logits are cut to the last
position, which operators draw random numbers, and which round all of a tensor by one scale.
"""

from collections import defaultdict
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Literal

from onnx import GraphProto, ModelProto, NodeProto

from genai_compiler.read.nodes import (
    CONTRIB,
    Constants,
    all_nodes,
    constant_ints,
    input_at,
    integer,
    is_onnx,
    nested_graphs,
    operator_of,
    sums_rows,
)

MaskUse = Literal["lengths", "columns"]

_SAME_VALUES = frozenset({"Cast", "Identity", "Neg"})
_ONLY_SHAPE = frozenset({"Shape", "Size"})
_REDUCED = frozenset({"Shape", "Size", "ReduceSum", "ReduceMax", "ReduceMin"})
_COMPARISONS = frozenset({"Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"})
_SCALAR_STEPS = frozenset(
    {"Gather", "Slice", "Squeeze", "Unsqueeze", "Reshape", "Cast", "Identity", "Add", "Sub", "Mul", "Max", "Min", "Not"}
    | {"And", "Or", "Constant"}
)
_RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
_SCALING = frozenset(
    {("", "DynamicQuantizeLinear"), (CONTRIB, "DynamicQuantizeMatMul"), (CONTRIB, "DynamicQuantizeLSTM")}
)
"""Take the scale that they round by from the least and the largest number of a whole tensor."""
_ROW_WISE = frozenset(
    {"MatMul", "MatMulNBits", "MatMulBnb4", "Gemm", "Cast", "Identity", "Mul", "Div", "Add", "Sub", "Tanh", "Softmax"}
    | {"Where", "Clip", "Unsqueeze", "Squeeze", "Reshape"}
)


@dataclass(frozen=True)
class LengthSwitch:
    """The graph picks one of two branches (or tables) by comparing a length with a constant.

    threshold: the constant. comparison: the ONNX operator. inputs: the graph inputs that the length comes from.
    """

    threshold: int
    comparison: str
    inputs: tuple[str, ...]


def mask_use(model: ModelProto, mask_input: str) -> MaskUse:
    """What of the mask [batch, total] matters: "lengths" when only its row sums and its extents, else "columns".

    With "lengths" a row of n valid positions may be given as any n ones, so right padding is harmless.
    """
    readers = _readers(model.graph)
    published = {each.name for graph in nested_graphs(model.graph) for each in graph.output}
    pending, seen = [mask_input], set[str]()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in published:
            return "columns"
        for node, held in readers[name]:
            if node.op_type in _SAME_VALUES and is_onnx(node):
                pending.extend(node.output)
            elif not (node.op_type in _ONLY_SHAPE or sums_rows(node, held)):
                return "columns"
    return "lengths"


def length_switches(model: ModelProto) -> tuple[LengthSwitch, ...]:
    """The lengths at which `If` or `Where` nodes change over, in order of threshold.

    Found: conditions that compare a constant with a scalar computed from extents, row sums or extrema of graph inputs.
    """
    outer = model.graph
    writers, constants = {name: node for node in outer.node for name in node.output}, Constants(outer)
    conditions = {node.input[0] for node in outer.node if node.op_type in ("If", "Where") and node.input}
    switches = set(_compared_lengths(conditions, writers, constants, frozenset(each.name for each in outer.input)))
    return tuple(sorted(switches, key=lambda each: (each.threshold, each.comparison, each.inputs)))


def last_token_only(model: ModelProto, logits: str) -> bool:
    """Whether the graph gives logits of the last position only: [batch, 1, vocabulary] or [batch, vocabulary]."""
    port = next((each for each in model.graph.output if each.name == logits), None)
    if port is not None and port.type.tensor_type.HasField("shape"):
        dims = port.type.tensor_type.shape.dim
        if len(dims) == 2 or (len(dims) == 3 and dims[1].dim_value == 1):
            return True
    writers = {name: node for node in model.graph.node for name in node.output}
    node = writers.get(logits)
    for _ in range(32):
        if node is None or _takes_last(node, model.graph):
            return node is not None
        if node.op_type not in _ROW_WISE:
            return False
        node = next((writers[name] for name in node.input if name in writers), None)
    return False


def random_ops(model: ModelProto) -> tuple[str, ...]:
    """Names of the nodes that draw random numbers inside the graph, nested graphs and functions included."""
    found = (node for node in all_nodes(model) if node.op_type in _RANDOM and is_onnx(node))
    return tuple(node.name or node.op_type for node in found)


def scale_of_all(model: ModelProto) -> str:
    """The operator by which what a run makes of one row, picture or position depends on the others in it; "" where
    there is none: one scale is found for all of them, and each is rounded by it.
    """
    return min((name for domain, name in op_types(model) if (domain, name) in _SCALING), default="")


def op_types(model: ModelProto) -> frozenset[tuple[str, str]]:
    """(domain, operator) of every node, nested graphs and functions included; the ONNX domain is ""."""
    return frozenset(operator_of(node) for node in all_nodes(model))


def _readers(graph: GraphProto) -> defaultdict[str, list[tuple[NodeProto, Constants]]]:
    """Who reads each value, with the constants of its graph: by outer-scope capture also in the graphs nested in it."""
    readers: defaultdict[str, list[tuple[NodeProto, Constants]]] = defaultdict(list)
    for each in nested_graphs(graph):
        constants = Constants(each)
        for node in each.node:
            for name in node.input:
                readers[name].append((node, constants))
    return readers


def _compared_lengths(
    conditions: Set[str], writers: dict[str, NodeProto], constants: Constants, ports: frozenset[str]
) -> Iterator[LengthSwitch]:
    pending, seen = sorted(conditions), set[str]()
    while pending:
        node = writers.get(name := pending.pop())
        if node is None or name in seen:
            continue
        seen.add(name)
        if node.op_type in _COMPARISONS:
            yield from _length_against_constant(node, writers, constants, ports)
        elif node.op_type in _SCALAR_STEPS:
            pending.extend(node.input)


def _length_against_constant(
    node: NodeProto, writers: dict[str, NodeProto], constants: Constants, ports: frozenset[str]
) -> Iterator[LengthSwitch]:
    one, other = input_at(node, 0), input_at(node, 1)
    for length, constant in ((one, other), (other, one)):
        value = constants.ints(constant)
        if value is not None and len(value) == 1 and (inputs := _length_inputs(length, writers, ports)):
            yield LengthSwitch(value[0], node.op_type, inputs)


def _length_inputs(name: str, writers: dict[str, NodeProto], ports: frozenset[str]) -> tuple[str, ...]:
    """The graph inputs of which scalar `name` is a length; () when anything else than lengths enters it."""
    pending, seen, found = [(name, False)], set[tuple[str, bool]](), set[str]()
    while pending:
        value, reduced = state = pending.pop()
        if state in seen or not value:
            continue
        seen.add(state)
        node = writers.get(value)
        if node is None:
            if value in ports and not reduced:
                return ()
            found.update([value] if value in ports else [])
        elif node.op_type in _REDUCED:
            pending.append((input_at(node, 0), True))
        elif node.op_type in _SCALAR_STEPS:
            pending.extend((each, reduced) for each in node.input)
        elif not reduced:
            return ()
    return tuple(sorted(found))


def _takes_last(node: NodeProto, graph: GraphProto) -> bool:
    """Gather of index -1, or Slice from -1, on axis 1."""
    axis = integer(node, "axis", 0)
    if node.op_type == "Gather":
        return axis == 1 and constant_ints(graph, input_at(node, 1)) == [-1]
    if node.op_type != "Slice" or len(node.input) < 4:
        return False
    return constant_ints(graph, node.input[1]) == [-1] and constant_ints(graph, node.input[3]) == [1]
