"""How much memory one run of a graph takes for its values: a walk over its nodes in order, with numbers for extents.

A value's storage goes after its last reader. Views share their source's storage, and an elementwise operator writes
over an operand that nobody reads afterwards, as ONNX Runtime's planner has it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, shape_inference

from genai_compiler.read.extents import asked_model
from genai_compiler.read.folded import fold_extents
from genai_compiler.read.kernel_scratch import scratch
from genai_compiler.read.like_extents import in_onnx_terms
from genai_compiler.read.nodes import CONTRIB, graphs_of, input_at, integer, nested_graphs, operator_of, output_at

Extents = tuple[int, ...]
Shapes = dict[str, tuple[int | None, ...]]

ROUNDS = 4
"""How often inference and the numbers that it allows to compute follow one another."""
_VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
_OVER = frozenset(
    {"Add", "Sub", "Mul", "Div", "Neg", "Abs", "Exp", "Sqrt", "Relu", "Sigmoid", "Tanh", "Clip", "Softmax", "Cast"}
)
"""Operators that write their result over an operand of its size which dies there."""
_SIZE = {
    **dict.fromkeys((TensorProto.DOUBLE, TensorProto.INT64, TensorProto.UINT64), 8),
    **dict.fromkeys((TensorProto.FLOAT, TensorProto.INT32, TensorProto.UINT32), 4),
    **dict.fromkeys((TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT16, TensorProto.UINT16), 2),
}


@dataclass(frozen=True)
class Workspace:
    """Bytes of one run. peak: at its fullest node, `at`, of which `scratch` is the kernel's own. unknown: values whose
    size nothing tells, which are left out. shapes: the extents of every value that inference finds.
    """

    peak: int
    scratch: int
    at: str
    unknown: int
    shapes: Mapping[str, tuple[int | None, ...]]


def workspace(
    model: ModelProto, given: Mapping[str, Extents], bound: Mapping[str, Extents], known: Mapping[str, Extents]
) -> Workspace:
    """One run. given: extents of the inputs. bound: outputs that are written into buffers of the caller's. known:
    extents of further values, which inference does not find.
    """
    shapes, sizes = _sizes(model, given, {**known, **bound})
    mine = {*given, *bound, *(each.name for each in model.graph.initializer), *(p.name for p in model.graph.input)}
    stays = {each.name for each in model.graph.output}
    uses = Counter(name for node in model.graph.node for name in _reads(node))
    storage, waiting, unknown = _Storage(mine, stays), dict(uses), 0
    peak = Workspace(0, 0, "", 0, shapes)
    for node in model.graph.node:
        for place, name in enumerate(node.output):
            if not name or name in mine:
                continue
            size = sizes.get(name)
            unknown += size is None
            storage.make(name, size or 0, _reused(node, place, size, sizes, waiting, storage), waiting.get(name, 0))
        own = scratch(node, shapes)
        if storage.live + own > peak.peak:
            peak = Workspace(storage.live + own, own, node.name or node.op_type, 0, shapes)
        for name in _reads(node):
            waiting[name] -= 1
            storage.read(name)
        storage.drop(node.output)
    return Workspace(peak.peak, peak.scratch, peak.at, unknown, shapes)


def extents_at(model: ModelProto, given: Mapping[str, Extents]) -> Shapes:
    """The extents of every value that inference finds. given: those of the inputs."""
    return _sizes(model, given, {})[0]


class _Storage:
    """Which storage is alive. mine: values that lie elsewhere; stays: outputs of the graph."""

    def __init__(self, mine: Collection[str], stays: Collection[str]) -> None:
        self.live, self._stays = 0, stays
        self._root = {name: name for name in mine}
        self._size, self._left = dict.fromkeys(mine, 0), dict.fromkeys(mine, 1 << 60)

    def make(self, name: str, size: int, over: str, readers: int) -> None:
        """A value: in the storage of another, or in its own."""
        root = self._root.get(over, "") if over else ""
        if not root:
            root = name
            self._size[name], self._left[name] = size, 0
            self.live += size
        self._root[name] = root
        self._left[root] += readers + (name in self._stays)

    def read(self, name: str) -> None:
        """One reader of the value is done."""
        root = self._root.get(name)
        if root is not None:
            self._left[root] -= 1
            self._free(root)

    def drop(self, names: Iterable[str]) -> None:
        """Results that nobody reads."""
        for root in [self._root[name] for name in names if name in self._root]:
            self._free(root)

    def only_reader(self, name: str) -> bool:
        """Whether one reader is all that the value's storage waits for."""
        return self._left.get(self._root.get(name, ""), 0) == 1

    def _free(self, root: str) -> None:
        if self._left[root] <= 0 and self._size[root]:
            self.live -= self._size[root]
            self._size[root] = 0


def _reused(
    node: NodeProto,
    place: int,
    size: int | None,
    sizes: Mapping[str, int],
    waiting: Mapping[str, int],
    storage: _Storage,
) -> str:
    """The operand whose storage the first result takes, "" for none."""
    domain, kind = operator_of(node)
    if place or size is None:
        return ""
    if domain == "" and kind in _VIEWS:
        return input_at(node, 0)
    if (domain == "" and kind in _OVER) or (domain == CONTRIB and kind in ("QuickGelu", "Gelu", "FastGelu")):
        dying = (each for each in node.input if waiting.get(each) == 1 and storage.only_reader(each))
        return next((each for each in dying if sizes.get(each) == size), "")
    return ""


def _reads(node: NodeProto) -> Iterator[str]:
    """What a node reads, and what graphs inside it read of the outside."""
    yield from (each for each in node.input if each)
    for attribute in node.attribute:
        for inner in (each for graph in graphs_of(attribute) for each in nested_graphs(graph)):
            yield from (name for each in inner.node for name in each.input if name)


def _sizes(
    model: ModelProto, given: Mapping[str, Extents], known: Mapping[str, Extents]
) -> tuple[Shapes, dict[str, int]]:
    """Extents of values, and bytes of those whose extents are all known."""
    asked, _ = asked_model(model, given)
    _say_widths(asked, given)
    in_onnx_terms(asked)
    found, graph = Shapes({**given, **known}), asked.graph
    for at in range(ROUNDS):
        if not fold_extents(asked, found) and at:
            break
        try:
            graph = shape_inference.infer_shapes(asked, data_prop=True).graph
        except Exception:  # what a malformed graph makes of a library; every value is then one of unknown size
            return {**given, **known}, {}
        found |= {each.name: _dims(each) for each in (*graph.value_info, *graph.output) if _has_shape(each)}
        found |= known
    types = {each.name: each.type.tensor_type.elem_type for each in (*graph.value_info, *graph.output)}
    types |= {each.name: each.data_type for each in graph.initializer}
    found |= {each.name: tuple(int(dim) for dim in each.dims) for each in graph.initializer}
    sizes = dict[str, int]()
    for name, kind in types.items():
        numbers = [dim for dim in found.get(name, (None,)) if dim is not None]
        if len(numbers) == len(found.get(name, (None,))):
            sizes[name] = prod(numbers) * _SIZE.get(kind, 1)
    return found, sizes


def _has_shape(value: ValueInfoProto) -> bool:
    return bool(value.type.tensor_type.HasField("shape"))


def _dims(value: ValueInfoProto) -> tuple[int | None, ...]:
    dims = value.type.tensor_type.shape.dim
    return tuple(int(dim.dim_value) if dim.HasField("dim_value") else None for dim in dims)


def _say_widths(model: ModelProto, given: Mapping[str, Extents]) -> None:
    """Put products by tables of known width in the place of two operators whose result `in_onnx_terms` leaves open.

    With numbers for extents the width is known: of packed rows by the table's, of attention by the cache's head size.
    """
    graph, nodes = model.graph, list[NodeProto]()
    dims = {each.name: tuple(int(dim) for dim in each.dims) for each in graph.initializer}
    tables = dict[str, Extents]()
    for node in graph.node:
        kind, name = operator_of(node), f"@width {len(tables)}"
        table, past = dims.get(input_at(node, 0), ()), given.get(input_at(node, 3), ())
        if kind == (CONTRIB, "GatherBlockQuantized") and len(table) == 2 and integer(node, "gather_axis", 0) == 0:
            tables[name] = (table[0], table[1] * _packed(model, node))
            nodes.append(helper.make_node("Gather", [name, input_at(node, 1)], [output_at(node, 0)]))
        elif kind == (CONTRIB, "GroupQueryAttention") and len(past) == 4 and not input_at(node, 1):
            heads, groups = integer(node, "num_heads", 0), integer(node, "kv_num_heads", 0)
            tables[name] = ((heads + 2 * groups) * past[3], heads * past[3])
            nodes.append(helper.make_node("MatMul", [input_at(node, 0), name], [output_at(node, 0)]))
        else:
            nodes.append(node)
    ordered = [NodeProto.FromString(each.SerializeToString()) for each in nodes]
    del graph.node[:]
    graph.node.extend(ordered)
    graph.input.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, extents) for name, extents in tables.items()
    )


def _packed(model: ModelProto, node: NodeProto) -> int:
    """Numbers in one element of the table: bytes hold several, types of four bits one."""
    table = next(each for each in model.graph.initializer if each.name == input_at(node, 0))
    return 8 // max(integer(node, "bits", 4), 1) if table.data_type == TensorProto.UINT8 else 1
