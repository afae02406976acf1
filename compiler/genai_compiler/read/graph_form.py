"""What a graph must have before anything can be said of it, whatever its operators mean: the form that ONNX prescribes.

ONNX Runtime refuses these too, but only once an executor is loaded, and after the compiler may have joined the graph
with others.
"""

from collections.abc import Iterable, Iterator

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto


def form_fault(model: ModelProto) -> str:
    """What is wrong with the form of a model, "" for nothing: the first fault in the order of the file."""
    imported = {_domain(each.domain) for each in model.opset_import}
    return next(_body_faults(model.graph, imported), "")


def _body_faults(graph: GraphProto, imported: set[str]) -> Iterator[str]:
    """Of a graph and those nested in it."""
    yield from _made_twice([each.name for each in graph.input], graph.node)
    yield from _nodes(graph.node, imported)


def _made_twice(inputs: Iterable[str], nodes: Iterable[NodeProto]) -> Iterator[str]:
    seen: set[str] = set()
    for name in (*inputs, *(name for node in nodes for name in node.output)):
        if name and name in seen:
            yield f"two of its nodes or inputs are called {name!r}"
        seen.add(name)


def _nodes(nodes: Iterable[NodeProto], imported: set[str]) -> Iterator[str]:
    for node in nodes:
        shown = node.name or node.op_type
        if _domain(node.domain) not in imported:
            yield f"node {shown!r} is of the domain {node.domain!r}, of which it imports no version"
        for attribute in node.attribute:
            if not attribute.name:
                yield f"node {shown!r} has an attribute without a name"
            for inner in _graphs(attribute):
                yield from _body_faults(inner, imported)


def _graphs(attribute: AttributeProto) -> list[GraphProto]:
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def _domain(name: str) -> str:
    """The operators of ONNX itself have two spellings."""
    return "" if name == "ai.onnx" else name
