"""What a graph must have before anything can be said of it, whatever its operators mean: the form that ONNX prescribes.

ONNX Runtime refuses these too, but only once an executor is loaded, and after the compiler may have joined the graph
with others.
"""

from collections.abc import Iterable, Iterator, Sequence

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto


def form_fault(model: ModelProto) -> str:
    """What is wrong with the form of a model, "" for nothing: the first fault in the order of the file."""
    imported = {_domain(each.domain) for each in model.opset_import}
    return next(_body_faults(model.graph, imported), "")


def _body_faults(graph: GraphProto, imported: set[str]) -> Iterator[str]:
    """Of a graph and those nested in it."""
    yield from _made_twice([each.name for each in graph.input], graph.node)
    yield from _circles(graph.node)
    yield from _nodes(graph.node, imported)


def _made_twice(inputs: Iterable[str], nodes: Iterable[NodeProto]) -> Iterator[str]:
    seen: set[str] = set()
    for name in (*inputs, *(name for node in nodes for name in node.output)):
        if name and name in seen:
            yield f"two of its nodes or inputs are called {name!r}"
        seen.add(name)


def _circles(nodes: Sequence[NodeProto]) -> Iterator[str]:
    """Values that are made from themselves: whoever follows an edge back would never arrive."""
    makers = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    sources = [{makers[name] for name in _operands(node) if name in makers} for node in nodes]
    if all(source < at for at, found in enumerate(sources) for source in found):
        return  # in the order that ONNX prescribes, as nearly all are
    readers: list[list[int]] = [[] for _ in nodes]
    for at, found in enumerate(sources):
        for source in found:
            readers[source].append(at)
    waits = [len(found) for found in sources]
    ready = [at for at, count in enumerate(waits) if not count]
    for at in ready:  # grows as it is walked
        for reader in readers[at]:
            waits[reader] -= 1
            if not waits[reader]:
                ready.append(reader)
    if len(ready) < len(nodes):
        node = nodes[next(at for at, count in enumerate(waits) if count)]
        yield f"node {node.name or node.op_type!r} waits for a value that is made from its own"


def _operands(node: NodeProto) -> Iterator[str]:
    """What a node reads, and what the graphs nested in it read from outside.

    Values of their own may have the names of the node's outputs. Reading bounds how deep graphs are nested.
    """
    yield from node.input
    for graph in (graph for attribute in node.attribute for graph in _graphs(attribute)):
        own = {each.name for each in (*graph.input, *graph.initializer)}
        own |= {name for each in graph.node for name in each.output}
        yield from (name for each in graph.node for name in _operands(each) if name not in own)


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
