"""How much memory one run of a graph takes for its values: a walk over its nodes in order, with numbers for extents.

A value's storage is free after its last reader. Views share their source's storage, and an elementwise operator writes
over an operand that nobody reads afterwards. A value goes into storage that another of its shape has left, where the
graph tells both shapes (`value_info`): ONNX Runtime plans that before the first run, so that such storage stays in use
between the two (allocation_planner.cc). What is allocated lies in an arena, and what counts is what that has touched.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, shape_inference

from genai_compiler.read.arena import Arena
from genai_compiler.read.extents import asked_model
from genai_compiler.read.folded import fold_extents
from genai_compiler.read.kernel_scratch import scratch
from genai_compiler.read.like_extents import in_onnx_terms
from genai_compiler.read.nodes import CONTRIB, graphs_of, input_at, integer, nested_graphs, operator_of, output_at

Extents = tuple[int, ...]
Shapes = dict[str, tuple[int | None, ...]]

PLACES = 6
"""In how many places of the heap a kernel's memory outside the arena comes to lie in the nodes of one run.

It is aligned and freed at each node. The C library (glibc) often finds no room for the next where it was, because an
aligned block needs some beside its size and small blocks have gone there, and takes new memory, a few times. What is
free then stays in memory. Seen by its calls, for a decoder of 30 layers: once the largest for 512 tokens, 6.7 times for
1,024, 7.5 times for 2,048. Estimated.
"""
NEVER = 1 << 60
"""A node behind all others."""
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
    """Bytes of one run. peak: what it has touched at its end. at: the node at which most is in use, of which `scratch`
    is the kernel's own. unknown: values whose size nothing tells, which are left out. shapes: the extents of every
    value that inference finds.
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
    uses = Counter(name for node in model.graph.node for name in _reads(node))
    told = {each.name for each in model.graph.value_info if _has_shape(each)}
    storage, waiting, unknown = _Storage(mine, {each.name for each in model.graph.output}), dict(uses), 0
    for at, node in enumerate(model.graph.node):
        for place, name in enumerate(node.output):
            if not name or name in mine:
                continue
            size = sizes.get(name)
            unknown += size is None
            over = _reused(node, place, size, sizes, waiting, storage)
            storage.make(at, name, size or 0, shapes.get(name) if name in told else None, over, waiting.get(name, 0))
        for name in _reads(node):
            waiting[name] -= 1
            storage.read(at, name)
        storage.drop(at, node.output)
    return _played(model, storage.buffers, shapes, unknown)


def _played(model: ModelProto, buffers: "Iterable[_Buffer]", shapes: Shapes, unknown: int) -> Workspace:
    """One run in an arena: at each node its results, then what the kernel takes for itself, then what ends there."""
    arena, outside, fullest, most = Arena(), 0, Workspace(0, 0, "", 0, shapes), 0
    begins, ends = defaultdict[int, list[_Buffer]](list), defaultdict[int, list[_Buffer]](list)
    for each in buffers:
        begins[each.first].append(each)
        ends[each.last].append(each)
    for at, node in enumerate(model.graph.node):
        for each in begins[at]:
            arena.take(each.name, each.size)
        own = scratch(node, shapes)
        for place, size in enumerate(own.arena):
            arena.take(f"@{place}", size)
        if arena.in_use + own.outside > most:
            most = arena.in_use + own.outside
            fullest = Workspace(0, sum(own.arena) + own.outside, node.name or node.op_type, unknown, shapes)
        for place in range(len(own.arena)):
            arena.give(f"@{place}")
        for each in ends[at]:
            arena.give(each.name)
        outside = max(outside, own.outside)
    return replace(fullest, peak=arena.touched + PLACES * outside, unknown=unknown)


def extents_at(model: ModelProto, given: Mapping[str, Extents]) -> Shapes:
    """The extents of every value that inference finds. given: those of the inputs."""
    return _sizes(model, given, {})[0]


@dataclass
class _Buffer:
    """Storage of one value or of several, one after another. first, last: nodes at which it is made and read last."""

    name: str
    size: int
    shape: tuple[int | None, ...] | None
    first: int
    last: int


class _Storage:
    """Which storage values share. mine: values that lie elsewhere; stays: the graph's outputs."""

    def __init__(self, mine: Collection[str], stays: Collection[str]) -> None:
        self._stays = stays
        self._root = {name: name for name in mine}
        self._left = dict.fromkeys(mine, 1 << 60)
        self._made, self._idle = dict[str, _Buffer](), list[_Buffer]()

    @property
    def buffers(self) -> Collection[_Buffer]:
        """All that a run allocates."""
        return self._made.values()

    def make(
        self, at: int, name: str, size: int, shape: tuple[int | None, ...] | None, over: str, readers: int
    ) -> None:
        """A value: in the storage of another, in what another of its shape has left, or in its own."""
        root = self._root.get(over, "") if over else ""
        if not root:
            like = (each for each in self._idle if (each.shape, each.size) == (shape, size))
            left = next(like, None) if shape is not None and name not in self._stays else None
            if left is None:
                left = self._made[name] = _Buffer(name, size, shape, at, at)
                self._left[name] = 0
            else:
                self._idle.remove(left)
            root = left.name
        self._root[name] = root
        self._left[root] += readers + (name in self._stays)
        self._until(root, at, name in self._stays)

    def read(self, at: int, name: str) -> None:
        """One reader of the value is done."""
        root = self._root.get(name)
        if root is not None:
            self._left[root] -= 1
            self._until(root, at, False)
            self._leave(root)

    def drop(self, at: int, names: Iterable[str]) -> None:
        """Results that nobody reads."""
        for root in [self._root[name] for name in names if name in self._root]:
            self._until(root, at, False)
            self._leave(root)

    def only_reader(self, name: str) -> bool:
        """Whether one reader is all that the value's storage waits for."""
        return self._left.get(self._root.get(name, ""), 0) == 1

    def _until(self, root: str, at: int, ever: bool) -> None:
        if root in self._made:
            self._made[root].last = max(self._made[root].last, NEVER if ever else at)

    def _leave(self, root: str) -> None:
        """Nobody waits for the storage: the last that was left is the first that is taken."""
        found = self._made.get(root)
        if found is not None and self._left[root] <= 0 and found not in self._idle:
            self._idle.insert(0, found)


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
