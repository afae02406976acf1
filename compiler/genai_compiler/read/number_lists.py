"""Lists of numbers in a graph of single numbers: whether a number is among them, how often, and the one at a place.

A list lies along one axis: a constant of the graph, or a tensor that stays as it is while a loop runs. What is looked
for in it gives a truth value for each of its numbers, of which a reduction along that axis makes one again.
"""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from onnx import ModelProto, NodeProto, TensorProto, shape_inference

from genai_compiler.read.nodes import Constants, axes_of, elements_of, input_at, integer

Operand = str | int
"""A value by name, or a constant: a truth value is one of Python's own."""
MOST = 64
"""Numbers of a list that Python looks through one by one."""
LONGEST = 1 << 16
"""Entries of a table that may say the same but for MOST."""
FOUND: Mapping[tuple[str, bool], str] = {
    ("ReduceMax", False): "In", ("ReduceMin", True): "NotIn", ("ReduceProd", True): "NotIn",
    ("ReduceSum", False): "Count",
}  # fmt: skip
"""(reduction, whether it is of what differs) -> the step that it comes to."""


@dataclass(frozen=True)
class NumberList:
    """Numbers along `axis` of `rank`, all other extents being one. values: they, or the name of the tensor."""

    values: tuple[int, ...] | str
    dtype: str
    rank: int
    axis: int

    @property
    def from_behind(self) -> int:
        """The axis as a negative number, which it keeps when the list is compared with something of higher rank."""
        return self.axis - self.rank

    def unsqueezed(self, axes: Sequence[int] | None) -> "NumberList | None":
        """The list with more axes; None where these are not told."""
        if axes is None:
            return None
        rank = self.rank + len(axes)
        kept = [at for at in range(rank) if at not in {each % rank for each in axes}]
        return replace(self, rank=rank, axis=kept[self.axis]) if len(kept) == self.rank else None


@dataclass(frozen=True)
class Hits:
    """For each number of a list, in order, whether `number` is the same (differs: whether it is another one)."""

    number: Operand
    among: NumberList
    dtype: str = "bool"
    differs: bool = False


@dataclass(frozen=True)
class ListStep:
    """What became of a list: an operator of FOUND, or `Lookup` of the entry at a place, and what it is to look at."""

    operator: str
    number: Operand
    among: tuple[int, ...] | str
    dtype: str


def list_of(tensor: TensorProto, dtype: str) -> NumberList | None:
    """A constant of two numbers and more along one axis; None for another."""
    long = [axis for axis, extent in enumerate(tensor.dims) if extent != 1]
    if len(long) != 1 or not 2 <= tensor.dims[long[0]] <= LONGEST:
        return None
    array = elements_of(tensor)
    return None if array is None else NumberList(tuple(array.reshape(-1).tolist()), dtype, array.ndim, long[0])


class ListReading:
    """How nodes of one graph use lists. fixed: names of its constants that nothing is bound to."""

    def __init__(self, model: ModelProto, fixed: Container[str]) -> None:
        self._model, self._fixed = model, fixed

    @cached_property
    def _constants(self) -> Constants:
        return Constants(self._model.graph)

    @cached_property
    def _ranks(self) -> Mapping[str, int]:
        """Ranks by the operators themselves; claims of the file are left aside."""
        asked = ModelProto()
        asked.CopyFrom(self._model)
        del asked.graph.value_info[:]
        for each in asked.graph.output:
            each.type.tensor_type.ClearField("shape")
        try:
            graph = shape_inference.infer_shapes(asked).graph
        except Exception:  # what a malformed graph makes of a library; ONNX Runtime judges it when it is opened
            return {}
        shown = ((each.name, each.type.tensor_type) for each in (*graph.value_info, *graph.input, *graph.output))
        return {name: len(type.shape.dim) for name, type in shown if type.HasField("shape")}

    def changed(self, node: NodeProto, first: NumberList | Hits) -> NumberList | Hits | None:
        """A list, or what was found in it, behind a node that keeps all of it; None where it does not."""
        op = node.op_type
        if op == "Identity":
            return first
        if isinstance(first, NumberList):
            return first.unsqueezed(self._axes(node)) if op == "Unsqueeze" else None
        return replace(first, differs=not first.differs) if op == "Not" and first.dtype == "bool" else None

    def step(self, node: NodeProto, taken: Sequence[object]) -> ListStep | None:
        """The one number that a node makes of what was found in a list; None where it makes something else."""
        (hits, op) = (taken[0] if taken else None), str(node.op_type)
        if not isinstance(hits, Hits) or not self._along(node, hits.among):
            return None
        found = FOUND.get((op, hits.differs), "")
        if not found or (found == "Count" and hits.dtype == "bool"):
            return None
        return ListStep(found, hits.number, hits.among.values, hits.dtype)

    def _along(self, node: NodeProto, among: NumberList) -> bool:
        """Whether a reduction takes the list's axis."""
        if len(input_at(node, 1)) == 0 and not any(each.name == "axes" for each in node.attribute):
            return not integer(node, "noop_with_empty_axes", 0)
        rank = self._ranks.get(input_at(node, 0))
        behind = [each if each < 0 or rank is None else each - rank for each in self._axes(node) or ()]
        return among.from_behind in behind

    def _axes(self, node: NodeProto) -> list[int] | None:
        told = input_at(node, 1)
        return axes_of(node, self._constants) if not told or told in self._fixed else None


def looked_up(node: NodeProto, table: NumberList, place: Operand) -> ListStep | None:
    """The entry of a constant table at a place; None where that is not what Gather does, or the table says too much."""
    axis = integer(node, "axis", 0)
    if isinstance(table.values, str) or axis not in (table.axis, table.from_behind):
        return None
    return ListStep("Lookup", place, table.values, table.dtype) if is_short(table.values) else None


def is_short(table: tuple[int, ...]) -> bool:
    """Whether a table is written down in a line: of few entries, or the same but for few, which are alike, too."""
    return len(table) <= MOST or exceptions(table) is not None


def exceptions(table: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]] | None:
    """(the usual entry, another one, the places where that stands); None where there are more, or more kinds."""
    counts = Counter(table)
    if len(counts) != 2:
        return None
    (usual, _), (other, count) = counts.most_common()
    return (usual, other, tuple(at for at, each in enumerate(table) if each == other)) if count <= MOST else None
