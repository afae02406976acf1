"""Which components, and which of their nodes, a hint speaks of."""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from fnmatch import translate

from onnx import NodeProto

from genai_compiler.read.graph_hints import GraphAdvice
from genai_compiler.read.hint_sources import Hint
from genai_compiler.read.hints import NodeSelector


@dataclass(frozen=True)
class Reach:
    """What a hint selects of one component: all of it, or some nodes of its `of`."""

    whole: bool
    nodes: frozenset[int]
    of: int

    def meets(self, other: "Reach") -> bool:
        """Whether two hints speak of a node in common."""
        if self.whole or other.whole:
            return (self.whole or bool(self.nodes)) and (other.whole or bool(other.nodes))
        return not self.nodes.isdisjoint(other.nodes)


def reach(hint: Hint, component: str, graph: GraphAdvice | None) -> Reach | None:
    """What a hint selects of a component; None for nothing. graph: None where it has none, or none to read."""
    count = len(graph.nodes) if graph is not None else 0
    if hint.component:
        if hint.component != component:
            return None
        nodes = hint.nodes
        return Reach(nodes is None or len(nodes) == count, nodes or frozenset(), count)
    if hint.selector is None:
        return Reach(True, frozenset(), count)
    found = _selected(hint.selector, component, graph)
    if found is None:
        return Reach(True, frozenset(), count)
    return Reach(len(found) == count, found, count) if found else None


def _selected(selector: NodeSelector, component: str, graph: GraphAdvice | None) -> frozenset[int] | None:
    """Nodes that meet every property of a selector; None when the component itself meets all of them."""
    found: frozenset[int] | None = None
    for each in _by_property(selector, component, graph):
        if each is not None:
            found = each if found is None else found & each
    return found


def _by_property(selector: NodeSelector, component: str, graph: GraphAdvice | None) -> Iterator[frozenset[int] | None]:
    """For each property that the selector has: its nodes, or None when it names the component as a whole."""
    nodes = graph.nodes if graph is not None else ()
    if selector.names is not None:
        names = frozenset(selector.names)
        yield None if component in names else _matching(nodes, lambda name: name in names)
    if selector.pattern is not None:
        shape = re.compile(translate(selector.pattern))
        whole = shape.match(component) is not None
        yield None if whole else _matching(nodes, lambda name: shape.match(name) is not None)
    if selector.op_types is not None:
        yield frozenset(at for at, node in enumerate(nodes) if _types(node) & set(selector.op_types))
    if selector.layer_range is not None:
        layers = graph.layers if graph is not None else {}
        first, last = selector.layer_range.start, selector.layer_range.end
        yield frozenset(at for at, layer in layers.items() if first <= layer <= last)


def _matching(nodes: Collection[NodeProto], accepts: Callable[[str], bool]) -> frozenset[int]:
    """Nodes whose name, or one of whose outputs, is accepted."""
    return frozenset(at for at, node in enumerate(nodes) if any(map(accepts, (node.name, *node.output))))


def _types(node: NodeProto) -> set[str]:
    return {node.op_type, f"{node.domain}.{node.op_type}"}
