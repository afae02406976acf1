"""Numbers that a graph computes of extents alone, once its inputs' extents are numbers: written into it as constants.

Shape inference follows few of them by itself, and what a Range of them makes has then no extent.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from genai_compiler.read.nodes import elements_of, input_at, is_onnx

SMALL, LONG = 64, 1 << 17
"""Elements of a constant that is computed with; of what a Range of two such makes."""
_FOLLOWED = frozenset(
    {"Squeeze", "Unsqueeze", "Add", "Sub", "Mul", "Div", "Max", "Min", "Gather", "Concat", "Cast", "Slice", "Reshape"}
    | {"Identity", "Constant", "ConstantOfShape", "Range", "Equal", "Where", "Neg", "Abs"}
)
_NUMBERS = (TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT, TensorProto.BOOL)

Numbers = np.ndarray[Any, np.dtype[Any]]


def fold_extents(model: ModelProto, shapes: Mapping[str, Sequence[int | None]]) -> int:
    """Put constants in the place of nodes that compute with extents. shapes: extents of values. Returns how many."""
    graph = model.graph
    small = {each.name: elements_of(each) for each in graph.initializer if _is_small(each)}
    known = {name: each for name, each in small.items() if each is not None}
    kept, made = list[NodeProto](), dict[str, Numbers]()
    for node in graph.node:
        found = _computed(node, {**known, **made}, shapes) if is_onnx(node) and len(node.output) == 1 else None
        if found is None:
            kept.append(NodeProto.FromString(node.SerializeToString()))
        else:
            made[node.output[0]] = found
    del graph.node[:]
    graph.node.extend(kept)
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in made.items())
    return len(made)


def _is_small(tensor: TensorProto) -> bool:
    """Whether its numbers are there to compute with."""
    inside = tensor.data_location != TensorProto.EXTERNAL
    return inside and tensor.data_type in _NUMBERS and bool(np.prod(tensor.dims, dtype=np.float64) <= SMALL)


def _computed(
    node: NodeProto, known: Mapping[str, Numbers], shapes: Mapping[str, Sequence[int | None]]
) -> Numbers | None:
    """What the node gives where that is told by numbers; None where it is not, or is too much."""
    if node.op_type == "Shape":
        shape = shapes.get(input_at(node, 0))
        if shape is None or None in shape:
            return None
        ends = {each.name: int(each.i) for each in node.attribute}
        return np.array(shape[ends.get("start", 0) : ends.get("end", len(shape))], np.int64)
    if node.op_type not in _FOLLOWED or any(name and name not in known for name in node.input):
        return None
    given = {name: known[name] for name in node.input if name}
    most = LONG if node.op_type == "Range" else SMALL
    if any(value.size > SMALL for value in given.values()) or _size(node, given) > most:
        return None
    from onnx.reference import ReferenceEvaluator  # 12 MB: only for graphs that compute with extents

    try:
        return np.asarray(ReferenceEvaluator(node).run(None, given)[0])
    except Exception:  # what the operator refuses it refuses at run time, too
        return None


def _size(node: NodeProto, given: Mapping[str, Numbers]) -> float:
    """Elements of what a node makes that can make more than it takes."""
    values = [given[name].astype(np.float64) for name in node.input if name]
    if node.op_type == "Range":
        numbers = [float(each.reshape(-1)[0]) for each in values if each.size]
        start, limit, delta = numbers if len(numbers) == 3 else (0.0, 0.0, 0.0)
        return abs((limit - start) / delta) if delta else float("inf")
    return float(np.prod(values[0])) if node.op_type == "ConstantOfShape" and values else 0.0
