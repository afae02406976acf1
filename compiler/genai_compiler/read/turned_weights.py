"""Weights of which a graph gathers rows once they are transposed, and that other operators read as they are.

That is how exporters write one matrix for the embedding of tokens and for the projection to logits.
"""

from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass
from math import prod

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from genai_compiler.read.external_data import bits_of
from genai_compiler.read.nodes import all_nodes, input_at, integer, is_onnx, output_at


@dataclass(frozen=True)
class TurnedWeight:
    """weight: an initializer [features, entries]. turned: its transposition, of which only rows are gathered.

    gathers: (what a Gather gives, how many axes its indices have). bytes: of the weight.
    """

    weight: str
    turned: str
    gathers: tuple[tuple[str, int], ...]
    bytes: int


def turned_weights(model: ModelProto, given: Set[str] = frozenset()) -> tuple[TurnedWeight, ...]:
    """Every such weight, in the order of the graph. given: ports that get a value although an initializer stands in."""
    graph = model.graph
    tensors = {each.name: each for each in graph.initializer if each.name not in given and len(each.dims) == 2}
    reads = Counter(name for node in all_nodes(model) for name in node.input)
    reads.update(port.name for port in graph.output)
    ranks = {each.name: len(each.dims) for each in graph.initializer} | dict(_ranks(graph))
    found = list[TurnedWeight]()
    for node in graph.node:
        weight, turned = tensors.get(input_at(node, 0)), output_at(node, 0)
        if weight is None or not _turns(node) or reads[weight.name] < 2:
            continue
        readers = [each for each in graph.node if turned in each.input]
        gathers = tuple((output_at(each, 0), ranks.get(input_at(each, 1), -1)) for each in readers)
        if readers and len(readers) == reads[turned] and all(map(_takes_rows, readers)) and _known(gathers):
            found.append(TurnedWeight(weight.name, turned, gathers, _bytes(weight)))
    return tuple(found)


def _ranks(graph: GraphProto) -> Iterator[tuple[str, int]]:
    """Ranks of inputs, to which a session holds what it is given."""
    for port in graph.input:
        if port.type.tensor_type.HasField("shape"):
            yield port.name, len(port.type.tensor_type.shape.dim)


def _turns(node: NodeProto) -> bool:
    order = next((list(each.ints) for each in node.attribute if each.name == "perm"), [1, 0])
    return is_onnx(node) and node.op_type == "Transpose" and order == [1, 0]


def _takes_rows(node: NodeProto) -> bool:
    return is_onnx(node) and node.op_type == "Gather" and integer(node, "axis", 0) in (0, -2)


def _known(gathers: tuple[tuple[str, int], ...]) -> bool:
    return all(made and rank >= 0 for made, rank in gathers)


def _bytes(tensor: TensorProto) -> int:
    return prod(int(each) for each in tensor.dims) * bits_of(tensor) // 8
