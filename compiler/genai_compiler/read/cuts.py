"""Where a graph can be cut in two that run one behind the other, and the two graphs of a cut.

A cut is a place in the order of the graph's nodes. What is made before it and read behind it crosses. Constants don't:
each side has those that it reads. Neither does anything that ONNX Runtime's optimiser could have joined with a reader,
which would change how sums are rounded: what crosses comes from operators that it leaves as they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

from genai_compiler.read.nodes import CONTRIB, graphs_of, nested_graphs, operator_of
from genai_compiler.read.packing import gathers
from genai_compiler.read.weights import weight_size

APART = frozenset(
    {
        ("", "SimplifiedLayerNormalization"),
        (CONTRIB, "SkipSimplifiedLayerNormalization"),
        (CONTRIB, "SkipLayerNormalization"),
        (CONTRIB, "GroupQueryAttention"),
    }
)
"""Operators that nothing behind them is joined with: they are what the optimiser makes of others, or beyond it."""
ROUNDED = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
"""Types of which nothing crosses: on the CPU, nodes of these may run in float32, and what one hands to another is then
not rounded in between. As a port of two graphs it would be."""
TWICE = 1 << 16
"""Bytes of weights that both sides may arrange: norms, scales."""


@dataclass(frozen=True)
class Cut:
    """before: how many nodes run first. crossing: what they hand on, with element types. weights: bytes that a session
    arranges when it is opened, of each side. label: the last node of the first side.
    """

    before: int
    crossing: tuple[tuple[str, int], ...]
    weights: tuple[int, int]
    label: str

    @property
    def heavier(self) -> int:
        """What the slower of the two sessions arranges."""
        return max(self.weights)


def arranged_weights(model: ModelProto) -> dict[str, tuple[int, int, int]]:
    """Weight -> (bytes, first and last node that reads it as a whole); not those of which only rows are gathered.

    A weight of another shape is that weight: what reads it reads this one.
    """
    sizes = {each.name: weight_size(each) for each in model.graph.initializer}
    weights, found = {name: name for name in sizes}, dict[str, tuple[int, int, int]]()
    for at, node in enumerate(model.graph.node):
        own = [name for place, name in enumerate(node.input) if not gathers(node, place)]
        if operator_of(node) == ("", "Reshape") and own[0] in weights:
            weights[node.output[0]] = weights[own.pop(0)]
        for name in (weights[each] for each in (*own, *_inner(node)) if each in weights):
            size, first, _ = found.get(name, (sizes[name], at, at))
            found[name] = (size, first, at)
    return found


def cuts(model: ModelProto, most: int) -> Iterator[Cut]:
    """Every place where at most so many values cross, in the order of the nodes."""
    graph = model.graph
    made = {name for node in graph.node for name in node.output}
    if graph.sparse_initializer or graph.quantization_annotation or any(each.name not in made for each in graph.output):
        return
    told = {each.name: int(each.type.tensor_type.elem_type) for each in graph.value_info}
    kinds = {name: kind for name, kind in told.items() if kind and kind not in ROUNDED}
    last = {name: at for at, node in enumerate(graph.node) for name in reads(node)}
    published, sides = {each.name for each in graph.output}, _sides(model)
    crossing = dict[str, bool]()  # whether it may
    for at, (node, following) in enumerate(pairwise(graph.node)):
        if not _is_constant(node):
            apart = operator_of(node) in APART
            crossing |= {name: apart and name in kinds and name not in published for name in node.output if name}
        crossing = {name: may for name, may in crossing.items() if last.get(name, -1) > at}
        first, second, twice = sides[at]
        if 0 < len(crossing) <= most and all(crossing.values()) and twice <= TWICE and not _is_constant(following):
            handed = tuple((name, kinds[name]) for name in crossing)
            yield Cut(at + 1, handed, (first, second), node.name or node.op_type)


def _sides(model: ModelProto) -> list[tuple[int, int, int]]:
    """For each node, as the last of the first side: bytes that the first, the second, and both arrange."""
    count, spans = len(model.graph.node), arranged_weights(model).values()
    ended, begun = [0] * count, [0] * count
    for size, first, final in spans:
        begun[first] += size
        ended[final] += size
    whole, before, opened, sides = sum(begun), 0, 0, list[tuple[int, int, int]]()
    for at in range(count):
        before, opened = before + ended[at], opened + begun[at]
        sides.append((before, whole - opened, opened - before))
    return sides


def reads(node: NodeProto) -> Iterator[str]:
    """Names that a node reads, in graphs nested in it, too."""
    yield from node.input
    yield from _inner(node)


def _inner(node: NodeProto) -> Iterator[str]:
    for attribute in node.attribute:
        for held in graphs_of(attribute):
            for graph in nested_graphs(held):
                yield from (name for each in graph.node for name in each.input)
                yield from (each.name for each in graph.output)


def _is_constant(node: NodeProto) -> bool:
    return operator_of(node) == ("", "Constant")


def halves(model: ModelProto, before: int, crossing: Sequence[ValueInfoProto]) -> tuple[ModelProto, ModelProto]:
    """The two graphs of a cut. crossing: outputs of the first, inputs of the second. An input that nobody reads is the
    first one's.
    """
    nodes = list(model.graph.node)
    ahead, behind = nodes[:before], nodes[before:]
    read = {name for node in behind for name in reads(node)}
    constants = [each for each in ahead if _is_constant(each) and read.intersection(each.output)]
    own = {name for node in ahead for name in reads(node)}
    own |= {each.name for each in model.graph.input if each.name not in read}
    return _half(model, ahead, own, (), crossing), _half(model, [*constants, *behind], read, crossing, ())


def _half(
    model: ModelProto,
    nodes: Sequence[NodeProto],
    read: set[str],
    taken: Sequence[ValueInfoProto],
    given: Sequence[ValueInfoProto],
) -> ModelProto:
    """A model of some nodes, with what they read. taken, given: ports beside those of the whole."""
    made, whole = {name for node in nodes for name in node.output}, model.graph
    half = _without_graph(model)
    graph = half.graph
    graph.name, graph.doc_string = whole.name, whole.doc_string
    graph.node.extend(nodes)
    graph.initializer.extend(each for each in whole.initializer if each.name in read)
    graph.input.extend((*taken, *(each for each in whole.input if each.name in read)))
    graph.output.extend((*given, *(each for each in whole.output if each.name in made)))
    ports = {each.name for each in (*graph.input, *graph.output)}
    graph.value_info.extend(each for each in whole.value_info if each.name in made and each.name not in ports)
    return half


def _without_graph(model: ModelProto) -> ModelProto:
    """A model that says of itself what this one says, without a graph."""
    kept = ModelProto(
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        model_version=model.model_version,
    )
    kept.opset_import.extend(model.opset_import)
    kept.functions.extend(model.functions)
    kept.metadata_props.extend(model.metadata_props)
    return kept
