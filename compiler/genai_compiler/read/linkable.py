"""Whether a graph can be taken apart and linked with others, where nothing says so but its content."""

from collections.abc import Iterable, Sequence

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from genai_compiler.read.nodes import all_graphs, all_nodes, graphs_of, operator_of

_SHARED = ("ai.onnx", "com.microsoft", "com.ms")
"""Domains, with all that begin so, of operators that ONNX Runtime has itself and prefers to a local function."""
_ANY_SHAPE = frozenset(
    ("", each)
    for each in (
        "Abs",
        "Cast",
        "Constant",
        "Exp",
        "Identity",
        "If",
        "Log",
        "Neg",
        "Not",
        "Relu",
        "Sigmoid",
        "Sqrt",
        "Tanh",
    )
)
"""Operators that take one value of any shape, or none. Branches nested in branches are looked into by themselves."""


def unlinkable(model: ModelProto) -> str:
    """Why a graph has to stay as it is, "" when it need not. Its weights may be absent."""
    attributes = (each for node in all_nodes(model) for each in node.attribute)
    if any(each.sparse_initializer for each in all_graphs(model)) or any(_is_sparse(each) for each in attributes):
        return "it has sparse weights"
    if any(not each.domain or each.domain.startswith(_SHARED) for each in model.functions):
        return "it defines functions in the domain of operators"
    if _branches_by_shape(model):
        return "a branch of it that is never taken may not bear the shapes that its neighbours have"
    domains = {"" if node.domain == "ai.onnx" else node.domain for node in all_nodes(model)}
    if not model.ir_version or not domains <= {domain for domain, _ in opsets(model)}:
        return "it does not say of what versions it is"
    if not _is_whole(model):
        return "it reads what it does not have, or makes a value twice"
    return _refusal(model)


def _refusal(model: ModelProto) -> str:
    """What the library that links graphs has against one, "" when nothing."""
    import onnx_ir as ir  # tens of MB with what it imports: only for graphs that nothing else keeps apart

    try:
        ir.to_proto(ir.from_proto(model))
    except Exception as fault:  # what a malformed graph makes of a library; ONNX Runtime judges it when it is opened
        return f"it is no sound graph: {type(fault).__name__}"
    return ""


def _branches_by_shape(model: ModelProto) -> bool:
    """Whether a branch of an `If` holds an operator that some shapes are wrong for.

    ONNX Runtime infers the shapes of every branch, also of one that is never taken; what a neighbour in one graph tells
    of them may break it, and the graph would not open.
    """
    bodies = {(each.domain, each.name): list(each.node) for each in model.functions}
    pending = [node for each in all_nodes(model) if operator_of(each) == ("", "If") for node in _inside(each)]
    entered = set[tuple[str, str]]()
    while pending:
        node = pending.pop()
        called = (str(node.domain), str(node.op_type))
        if called in bodies:
            pending += bodies[called] if called not in entered else []
            entered.add(called)
        elif operator_of(node) not in _ANY_SHAPE:
            return True
    return False


def _inside(node: NodeProto) -> list[NodeProto]:
    return [each for attribute in node.attribute for graph in graphs_of(attribute) for each in graph.node]


def _is_sparse(attribute: AttributeProto) -> bool:
    return attribute.HasField("sparse_tensor") or bool(attribute.sparse_tensors)


def _is_whole(model: ModelProto) -> bool:
    """Whether every operand is there when it is read, and has one origin: linked, it could find another of its name."""
    return _graph_runs(model.graph, set()) and all(
        _runs(each.node, each.input, each.output, set()) for each in model.functions
    )


def _graph_runs(graph: GraphProto, scope: set[str]) -> bool:
    given = {*(each.name for each in graph.input), *(each.name for each in graph.initializer)}
    return _runs(graph.node, sorted(given), [each.name for each in graph.output], scope)


def _runs(nodes: Iterable[NodeProto], given: Sequence[str], results: Iterable[str], scope: set[str]) -> bool:
    """Whether nodes in this order find their operands among `given` and `scope`, and make the results."""
    own = set(given)
    if len(own) != len(given):
        return False
    own -= scope
    scope |= own
    try:
        for node in nodes:
            if not all(name in scope for name in node.input if name):
                return False
            for graph in (graph for attribute in node.attribute for graph in graphs_of(attribute)):
                if not _graph_runs(graph, scope):
                    return False
            made = [name for name in node.output if name]
            if not scope.isdisjoint(made) or len(set(made)) != len(made):
                return False
            own.update(made)
            scope.update(made)
        return all(name in scope for name in results)
    finally:
        scope -= own


def opsets(model: ModelProto) -> set[tuple[str, int]]:
    """(domain, version) of every operator set that the graph or one of its local functions imports; "" is ai.onnx."""
    imports = (*model.opset_import, *(each for function in model.functions for each in function.opset_import))
    return {("" if each.domain == "ai.onnx" else each.domain, int(each.version)) for each in imports}
