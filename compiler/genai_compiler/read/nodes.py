"""Nodes of an ONNX graph, as everything that proves something of a graph looks at them."""

from collections.abc import Iterable, Iterator
from math import isfinite, prod
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

CONTRIB = "com.microsoft"
_ONNX = ("", "ai.onnx")
_MOST = 64
"""Elements of a constant that is still read as a list of numbers."""


def is_onnx(node: NodeProto) -> bool:
    """Whether its operator is one of ONNX's own, whose domain has two spellings."""
    return node.domain in _ONNX


def operator_of(node: NodeProto) -> tuple[str, str]:
    """(domain, operator); ONNX's own domain is ""."""
    return "" if is_onnx(node) else str(node.domain), str(node.op_type)


def input_at(node: NodeProto, index: int) -> str:
    """The name of an input, "" when the node has none there."""
    return str(node.input[index]) if 0 <= index < len(node.input) else ""


def output_at(node: NodeProto, index: int) -> str:
    """The name of an output, "" when the node has none there."""
    return str(node.output[index]) if 0 <= index < len(node.output) else ""


def integer(node: NodeProto, name: str, default: int) -> int:
    """An integer attribute."""
    return next((int(each.i) for each in node.attribute if each.name == name), default)


class Constants:
    """Small constants of one graph by name. Made once by who asks for many: a graph may have many nodes."""

    def __init__(self, graph: GraphProto) -> None:
        self._tensors = {each.name: each for each in reversed(graph.initializer)}
        self._writers = {name: each for each in graph.node if each.op_type == "Constant" for name in each.output}

    def ints(self, name: str) -> list[int] | None:
        """The elements of an integer (or integral float) constant or initializer of at most 64 elements, else None."""
        tensor, writer = self._tensors.get(name), self._writers.get(name)
        if tensor is None and writer is not None:
            for each in writer.attribute:
                if each.name in ("value_int", "value_ints"):
                    return [int(value) for value in (each.ints or [each.i])]
            tensor = next((each.t for each in writer.attribute if each.name == "value"), None)
        return _whole_numbers(tensor)


def axes_of(node: NodeProto, constants: Constants) -> list[int] | None:
    """The axes that a node is told, by its attribute or its second input; None when by neither, or not by constants."""
    stated = next((list(each.ints) for each in node.attribute if each.name == "axes"), None)
    return stated if stated is not None else constants.ints(input_at(node, 1))


def sums_rows(node: NodeProto, constants: Constants) -> bool:
    """ReduceSum of the last axis of a rank-2 value."""
    return is_onnx(node) and node.op_type == "ReduceSum" and axes_of(node, constants) in ([1], [-1])


def constant_ints(graph: GraphProto, name: str) -> list[int] | None:
    """One constant of a graph, as `Constants` has it."""
    return Constants(graph).ints(name)


def _whole_numbers(tensor: TensorProto | None) -> list[int] | None:
    if tensor is None or tensor.data_location == TensorProto.EXTERNAL or prod(tensor.dims) > _MOST:
        return None
    array = elements_of(tensor)
    values = array.reshape(-1).tolist() if array is not None else [None]
    numbers = [each for each in values if isinstance(each, int | float) and isfinite(each)]
    whole = [int(each) for each in numbers if each == int(each)]
    return whole if len(whole) == len(values) else None


def elements_of(tensor: TensorProto) -> np.ndarray[Any, np.dtype[Any]] | None:
    """What a tensor inside a graph holds; None for a damaged one, of no known type or with other data than it states.

    Who only looks at a graph learns nothing from such a tensor; ONNX Runtime refuses the graph.
    """
    try:
        array: np.ndarray[Any, np.dtype[Any]] = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, OverflowError):
        return None
    return array


def graphs_of(attribute: AttributeProto) -> list[GraphProto]:
    """The graphs that an attribute holds."""
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def nested_graphs(graph: GraphProto) -> Iterable[GraphProto]:
    """`graph` and every graph nested in it, outer ones first."""
    pending = [graph]
    while pending:
        each = pending.pop()
        yield each
        for node in each.node:
            for attribute in node.attribute:
                pending.extend(graphs_of(attribute))


def all_graphs(model: ModelProto) -> Iterator[GraphProto]:
    """Every graph of a model, outer ones first, then those in the bodies of its local functions."""
    yield from nested_graphs(model.graph)
    for node in (node for each in model.functions for node in each.node):
        for graph in (graph for attribute in node.attribute for graph in graphs_of(attribute)):
            yield from nested_graphs(graph)


def all_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Every node of a model, nested graphs and local functions included."""
    for graph in all_graphs(model):
        yield from graph.node
    for function in model.functions:
        yield from function.node


def value_names(graph: GraphProto) -> set[str]:
    """Every name that stands for a value in the graph or in one nested in it."""
    names = set[str]()
    for each in nested_graphs(graph):
        held = (tensor.name for tensor in each.initializer)
        sparse = (tensor.values.name for tensor in each.sparse_initializer)
        ports = (port.name for port in (*each.input, *each.output))
        names.update(held, sparse, ports, *((*node.input, *node.output) for node in each.node))
    return names
