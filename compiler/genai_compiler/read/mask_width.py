"""Whether the width of an attention mask matters beyond attention operators that know each row's own length.

Where it does not, one mask of full capacity may stay bound for a whole request: its zeros change no row sum, and the
operator takes the width only as the room its cache may use.
"""

from collections import defaultdict

from onnx import GraphProto, ModelProto, NodeProto

from genai_compiler.read.nodes import CONTRIB, Constants, input_at, nested_graphs, operator_of

_TOTAL_LENGTH_INPUT = {(CONTRIB, "GroupQueryAttention"): 6}
"""Where an operator takes the total length that only bounds its cache (onnxruntime ContribOperators.md)."""

_PASS_ON = frozenset({"Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape"})


def width_reaches_only_attention(model: ModelProto, mask: str) -> bool:
    """True when the extent of the mask's last axis reaches nothing but total-length inputs of in-place attention."""
    graph = model.graph
    if any(mask in node.input for inner in nested_graphs(graph) if inner is not graph for node in inner.node):
        return False
    readers, constants = _readers(graph), Constants(graph)
    published = {each.name for inner in nested_graphs(graph) for each in inner.output}
    values, widths, seen = [mask], list[str](), set[str]()
    while values:
        for node in readers[values.pop()]:
            if node.op_type == "Shape":
                widths.extend(node.output)
            elif node.op_type in ("Cast", "Identity", "Neg"):
                values.extend(node.output)
            elif node.op_type != "ReduceSum":
                return False
    while widths:
        name = widths.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in published:
            return False
        for node in readers[name]:
            if not _harmless(node, name, constants, widths):
                return False
    return True


def _harmless(node: NodeProto, name: str, constants: Constants, widths: list[str]) -> bool:
    """Whether a reader of a shape keeps the width to itself; what passes it on is added to `widths`."""
    place = _TOTAL_LENGTH_INPUT.get(operator_of(node))
    if place is not None:
        inputs = [str(each) for each in node.input]
        return inputs.count(name) == 1 and inputs.index(name) == place
    if node.op_type == "Gather" and constants.ints(input_at(node, 1)) == [0]:
        return True  # the row count
    if node.op_type in _PASS_ON or node.op_type == "Gather":
        widths.extend(node.output)
        return input_at(node, 0) == name
    return False


def _readers(graph: GraphProto) -> defaultdict[str, list[NodeProto]]:
    """Value -> the nodes of the graph, and of graphs nested in it, that read it."""
    found: defaultdict[str, list[NodeProto]] = defaultdict(list)
    for inner in nested_graphs(graph):
        for node in inner.node:
            for name in dict.fromkeys(node.input):
                found[name].append(node)
    return found
