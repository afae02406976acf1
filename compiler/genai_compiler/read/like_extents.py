"""Operators that ONNX shape inference does not see through, said in ONNX operators of like extents.

Only extents are alike: what stands here computes nothing. Sources: what ONNX Runtime documents of its own operators'
results, and what their kernels hold them to; and that the parts of a product of rows laid one after another are the
products of those rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from genai_compiler.read.nodes import CONTRIB, constant_ints, input_at, integer, operator_of, output_at, value_names

Matrix = tuple[int | None, int | None]


@dataclass
class Stands:
    """What stands for the nodes of a graph.

    sizes: extents of its initializers, in other shapes too; bytes: those of them that are uint8. writers: value -> its
    node. tables: inputs that stands take, and their extents. alike: values that must turn out to have the same extents,
    or nothing here holds. apart: what no name begins with.
    """

    apart: str
    sizes: dict[str, tuple[int, ...]]
    bytes: frozenset[str]
    writers: dict[str, NodeProto]
    tables: dict[str, Matrix] = field(default_factory=dict)
    alike: list[Sequence[str]] = field(default_factory=list)

    def table(self, sizes: Matrix) -> str:
        """The name of one more table."""
        name = f"{self.apart}{len(self.tables)}"
        self.tables[name] = sizes
        return name


def in_onnx_terms(model: ModelProto) -> Stands:
    """Put ONNX operators that inference follows in the place of others, where it is known which. Changes the model."""
    graph, nodes = model.graph, list[NodeProto]()
    names, apart = value_names(graph), "@"
    while any(each.startswith(apart) for each in names):
        apart += "@"
    sizes, in_bytes = _initializers(graph)
    stands = Stands(
        apart,
        sizes,
        in_bytes,
        {name: node for node in graph.node for name in node.output if name},
    )
    for node in graph.node:
        rule = _RULES.get(operator_of(node))
        nodes += rule(node, stands) if rule is not None else [node]
    ordered = [NodeProto.FromString(each.SerializeToString()) for each in nodes]
    del graph.node[:]
    graph.node.extend(ordered)
    tables = stands.tables.items()
    graph.input.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name, sizes in tables)
    return stands


def _initializers(graph: GraphProto) -> tuple[dict[str, tuple[int, ...]], frozenset[str]]:
    """(extents, which are uint8) of initializers, and of what only gives one of them another shape."""
    sizes = {each.name: tuple(int(dim) for dim in each.dims) for each in graph.initializer}
    in_bytes = {each.name for each in graph.initializer if each.data_type == TensorProto.UINT8}
    for node in graph.node:
        if operator_of(node) == ("", "Reshape") and input_at(node, 0) in sizes:
            shape = constant_ints(graph, input_at(node, 1)) or [0]
            if min(shape) > 0:
                sizes[node.output[0]] = tuple(shape)
                in_bytes |= {node.output[0]} if input_at(node, 0) in in_bytes else set()
    return sizes, frozenset(in_bytes)


Rule = Callable[[NodeProto, Stands], list[NodeProto]]


def _like(*outputs: int) -> Rule:
    """Outputs that have the extents of the first input."""

    def rule(node: NodeProto, stands: Stands) -> list[NodeProto]:
        made = [output_at(node, each) for each in outputs]
        return [helper.make_node("Identity", [input_at(node, 0)], [each]) for each in made if each]

    return rule


def _attention(node: NodeProto, stands: Stands) -> list[NodeProto]:
    """One result a query, as wide as it, or, where queries lie packed with keys and values, of a width left open."""
    if input_at(node, 1) and input_at(node, 2):
        return _like(0)(node, stands)
    return _product(input_at(node, 0), output_at(node, 0), (None, None), stands)


def _packed_product(node: NodeProto, stands: Stands) -> list[NodeProto]:
    matrix = _matrix(node, stands)
    return _product(input_at(node, 0), output_at(node, 0), matrix, stands) if matrix is not None else []


def _matrix(node: NodeProto, stands: Stands) -> Matrix | None:
    """The rows and columns of the constant matrix that a node multiplies by."""
    if operator_of(node) == (CONTRIB, "MatMulNBits"):
        rows, columns = integer(node, "K", 0), integer(node, "N", 0)
    else:
        sizes = stands.sizes.get(input_at(node, 1), ()) if operator_of(node) == ("", "MatMul") else ()
        rows, columns = sizes if len(sizes) == 2 else (0, 0)
    return (rows, columns) if rows > 0 and columns > 0 else None


def _product(taken: str, made: str, matrix: Matrix, stands: Stands) -> list[NodeProto]:
    name = stands.table(matrix)
    cast = helper.make_node("Cast", [taken], [f"{name} taken"], to=TensorProto.FLOAT)
    return [cast, helper.make_node("MatMul", [f"{name} taken", name], [made])]


def _packed_table(node: NodeProto, stands: Stands) -> list[NodeProto]:
    """Rows of a packed table, unpacked: of bytes each holds as many numbers as its bits say; others are left open."""
    sizes, bits = stands.sizes.get(input_at(node, 0), ()), integer(node, "bits", 4)
    if len(sizes) != 2 or integer(node, "gather_axis", 0) != 0:
        return []
    known = input_at(node, 0) in stands.bytes and bits in (2, 4, 8) and integer(node, "quantize_axis", 1) == 1
    name = stands.table((None, sizes[1] * 8 // bits if known else None))
    return [helper.make_node("Gather", [name, input_at(node, 1)], [output_at(node, 0)])]


def _parts(node: NodeProto, stands: Stands) -> list[NodeProto]:
    """Equal parts of a product of as many operands, which lie one after another on the first axis."""
    product = stands.writers.get(input_at(node, 0), NodeProto())
    joined = stands.writers.get(input_at(product, 0), NodeProto())
    matrix = _matrix(product, stands)
    sized = input_at(node, 1) or any(each.name == "split" for each in node.attribute)
    if operator_of(joined) != ("", "Concat") or matrix is None or sized or len(joined.input) != len(node.output):
        return [node]
    if integer(joined, "axis", 0) != 0 or integer(node, "axis", 0) != 0 or not all(node.output):
        return [node]
    stands.alike.append(tuple(joined.input))
    pairs = zip(joined.input, node.output, strict=True)
    return [each for taken, made in pairs for each in _product(taken, made, matrix, stands)]


_RULES: dict[tuple[str, str], Rule] = {
    ("", "SimplifiedLayerNormalization"): _like(0),
    **{(CONTRIB, f"Skip{each}LayerNormalization"): _like(0, 3) for each in ("", "Simplified")},
    **{(CONTRIB, each): _like(0) for each in ("BiasGelu", "FastGelu", "Gelu", "QuickGelu", "RotaryEmbedding")},
    (CONTRIB, "GroupQueryAttention"): _attention,
    (CONTRIB, "MatMulNBits"): _packed_product,
    (CONTRIB, "GatherBlockQuantized"): _packed_table,
    ("", "Split"): _parts,
}
