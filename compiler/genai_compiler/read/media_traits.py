"""What graphs around media say of pictures and sounds by their edges: the token of an entry, patches that are merged.

An embedding model puts entries of a medium where a token stands; a vision model joins patches, so that an entry stands
for a square of them. Files beside the graphs state both again, and can be wrong.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isqrt

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from genai_compiler.read.first_axis import fixes_first_axis
from genai_compiler.read.graph_facts import scale_of_all
from genai_compiler.read.nodes import Constants, input_at, is_onnx

_WHOLE = frozenset[int]({TensorProto.INT32, TensorProto.INT64})
_SAME = frozenset(
    {"Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Expand", "Transpose", "NonZero", "Or", "And"}
)
_NUMBERS = frozenset({"Cast", "Identity"})
_PLACED = frozenset(
    {"Cast", "Identity", "Gather", "Slice", "Split", "Squeeze", "Unsqueeze", "Reshape", "Max", "Clip", "Where", "Add"}
    | {"ReduceMax", "Relu"}
)
_ROW_WISE = frozenset(
    {"Squeeze", "Unsqueeze", "Add", "Mul", "Gelu", "FastGelu", "QuickGelu", "Relu", "Sigmoid", "Tanh", "Gather", "Cast"}
    | {"Identity", "BiasGelu", "Dropout"}
)
_NORMS = frozenset(
    {"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", "SkipLayerNormalization"}
    | {"SkipSimplifiedLayerNormalization"}
)
_MOST = 256
"""Nodes that a trail is followed over."""


@dataclass(frozen=True)
class MediaTraits:
    """entries: (input for a medium's features, the token in whose places they go). merge: patches of the edge of the
    square that an entry stands for; patch: pixels of a patch's edge. 0: the graph does not tell. single: the graph is
    written for one picture a run, whatever its ports declare, or would round several by one scale.
    """

    entries: tuple[tuple[str, int], ...] = ()
    merge: int = 0
    patch: int = 0
    single: bool = False


NO_TRAITS = MediaTraits()


def media_traits(model: ModelProto) -> MediaTraits:
    """What a graph tells, each only where no other reading is possible."""
    trails = _Trails(model.graph)
    single = fixes_first_axis(model.graph) or bool(scale_of_all(model))
    return MediaTraits(tuple(sorted(trails.entries())), trails.merge(), trails.patch(), single)


class _Trails:
    """One graph, of which only the outermost nodes are followed."""

    def __init__(self, graph: GraphProto) -> None:
        self._nodes = list(graph.node)
        self._writers = {name: node for node in graph.node for name in node.output if name}
        self._readers: dict[str, list[NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self._constants = Constants(graph)
        self._held = {each.name: tuple(int(dim) for dim in each.dims) for each in graph.initializer}
        kinds = {each.name: each.type.tensor_type for each in graph.input if each.name not in self._held}
        self._whole = {name for name, kind in kinds.items() if kind.elem_type in _WHOLE}
        self._floats = set(kinds) - self._whole
        self._ranks = {name: len(kind.shape.dim) for name, kind in kinds.items()}
        self._outputs = [each.name for each in graph.output]

    # ---- entries -----------------------------------------------------------------------------------------------------

    def entries(self) -> Iterator[tuple[str, int]]:
        """Where a value is chosen by a token's places, and on one side features go in."""
        if not self._whole or not self._floats:
            return
        found: dict[str, set[int]] = {}
        for node in self._nodes:
            sides = {"Where": (1, 2, 0), "ScatterND": (2, 0, 1), "ScatterElements": (2, 0, 1)}.get(node.op_type)
            if sides is None or not is_onnx(node):
                continue
            chosen, others, condition = (input_at(node, at) for at in sides)
            tokens = self._compared(condition)
            features = self._sources(chosen) - self._sources(others)
            if len(tokens) == 1 and len(features) == 1:
                found.setdefault(features.pop(), set()).update(tokens)
        yield from ((port, tokens.pop()) for port, tokens in found.items() if len(tokens) == 1)

    def _compared(self, name: str) -> set[int]:
        """The token ids that a condition, or indices, look for."""
        tokens = set[int]()
        for node in self._behind(name, _SAME | {"Equal"}):
            if node.op_type != "Equal":
                continue
            for ids, other in ((0, 1), (1, 0)):
                constant = self._constants.ints(input_at(node, other))
                if constant is not None and len(constant) == 1 and self._plain(input_at(node, ids)):
                    tokens.add(constant[0])
        return tokens

    def _plain(self, name: str) -> bool:
        """Whether a value is an input of whole numbers as it is."""
        nodes = list(self._behind(name, _NUMBERS))
        return (input_at(nodes[-1], 0) if nodes else name) in self._whole

    def _sources(self, name: str) -> set[str]:
        """Inputs of floats that a value is made of."""
        pending, seen = [name], set[str]()
        while pending and len(seen) < _MOST:
            each = pending.pop()
            if each and each not in seen:
                seen.add(each)
                pending.extend(self._writers[each].input if each in self._writers else ())
        return seen & self._floats

    def _behind(self, name: str, steps: frozenset[str]) -> Iterator[NodeProto]:
        """Nodes of these operators that make a value, last ones first; an Equal is no further looked behind."""
        pending, seen = [name], set[str]()
        while pending and len(seen) < _MOST:
            each = pending.pop()
            node = self._writers.get(each)
            if each in seen or node is None or not is_onnx(node) or node.op_type not in steps:
                continue
            seen.add(each)
            yield node
            pending.extend(node.input if node.op_type != "Equal" else ())

    # ---- patches -----------------------------------------------------------------------------------------------------

    def patch(self) -> int:
        """The edge of patches, where whole pictures are cut by the first convolution."""
        pictures = {name for name in self._floats if self._ranks[name] == 4}
        found = set[int]()
        for node in self._nodes:
            behind = list(self._behind(input_at(node, 0), _NUMBERS | {"Transpose"})) if node.op_type == "Conv" else []
            if node.op_type == "Conv" and (input_at(behind[-1], 0) if behind else input_at(node, 0)) in pictures:
                kernel = self._held.get(input_at(node, 1), ())
                strides = next((list(each.ints) for each in node.attribute if each.name == "strides"), [])
                same = len(kernel) == 4 and list(kernel[2:]) == strides and strides[0] == strides[1]
                found.add(strides[0] if same else 0)
        return found.pop() if len(found) == 1 else 0

    def merge(self) -> int:
        """Patches of an edge of what one entry is made of: by how much a layer is wider, or by how places are divided.

        The last change of width before the output that is none of a weight joins rows.
        """
        widths = {self._joined(name) for name in self._outputs}
        divided = set(self._divided())
        found = {each for each in (*widths, *divided) if each > 1}
        return found.pop() if len(found) == 1 and len(divided) <= 1 else 0

    def _joined(self, name: str) -> int:
        """The edge of the square of rows that are joined before the layers in front of an output; 0 for none."""
        wanted = 0
        for _ in range(_MOST):
            node = self._writers.get(name)
            if node is None:
                return 0
            if node.op_type in ("Reshape", "Transpose"):
                before = name
                while node is not None and node.op_type in ("Reshape", "Transpose"):
                    before = input_at(node, 0)
                    node = self._writers.get(before)
                ratio = wanted / width if wanted and (width := self._width(before)) else 0
                edge = isqrt(int(ratio))
                if ratio != 1:
                    return edge if edge > 1 and edge * edge == ratio else 0
                name = before
                continue
            if node.op_type in ("MatMul", "Gemm") and len(self._held.get(input_at(node, 1), ())) == 2:
                turned = any(each.name == "transB" and each.i for each in node.attribute)
                wanted = self._held[input_at(node, 1)][1 if turned else 0]
            elif node.op_type in _NORMS:
                wanted = self._width(name)
            elif node.op_type not in _ROW_WISE:
                return 0
            name = self._main(node)
        return 0

    def _main(self, node: NodeProto) -> str:
        """The input that goes on: the one that is no constant."""
        first = input_at(node, 0)
        held = first in self._held or self._constants.ints(first) is not None
        return input_at(node, 1) if held and node.op_type in ("Add", "Mul") else first

    def _width(self, name: str) -> int:
        """The last extent of a value, as the weights of what makes it tell; 0 where they do not."""
        for _ in range(8):
            node = self._writers.get(name)
            if node is None:
                return 0
            shapes = [self._held[each] for each in node.input if each in self._held]
            if node.op_type in ("MatMul", "Gemm") and len(self._held.get(input_at(node, 1), ())) == 2:
                turned = any(each.name == "transB" and each.i for each in node.attribute)
                return self._held[input_at(node, 1)][0 if turned else 1]
            vectors = [shape[0] for shape in shapes if len(shape) == 1 and shape[0] > 1]
            if vectors and node.op_type in (*_NORMS, "Add", "BiasGelu"):
                return vectors[0]
            if node.op_type not in ("Gelu", "FastGelu", "QuickGelu", "Relu", "Cast", "Identity", "Dropout"):
                return 0
            name = input_at(node, 0)
        return 0

    def _divided(self) -> Iterable[int]:
        """What places of patches, an input [pictures, patches, 2], are divided by."""
        pending = [name for name in self._whole if self._ranks[name] == 3]
        seen, found = set[str](), set[int]()
        while pending and len(seen) < _MOST:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            for node in self._readers.get(name, ()):
                by = self._constants.ints(input_at(node, 1)) if node.op_type == "Div" else None
                if by is not None and len(by) == 1 and input_at(node, 0) == name:
                    found.add(by[0])
                elif node.op_type in _PLACED and is_onnx(node) and (node.op_type, node.input[0]) != ("Where", name):
                    pending.extend(node.output)
        return found
