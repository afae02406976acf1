"""Whether numpy can do all of a graph, bit for bit, and what that takes.

The graph must search (ArgMax, ArgMin) floats of an input along their last axis, and do otherwise nothing but exact work
on integers and truth values. Ties go to the first element in both worlds; what may differ, a NaN, the runtime leaves to
the session.
"""

from collections.abc import Iterator
from math import prod

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from genai_compiler.read.host_program import HostConstant, HostInput, HostProgram, HostStep
from genai_compiler.read.nodes import Constants, axes_of, elements_of, input_at, integer, is_onnx, output_at
from genai_compiler.read.package import Graph
from genai_compiler.read.signature import Port, dtype_name

SEARCHES = ("ArgMax", "ArgMin")
_SEARCHED = ("float32", "float64")
_EXACT = ("int64", "int32", "bool")
_LOGIC = {"And": ("bool",), "Or": ("bool",), "Not": ("bool",)}
_NUMBERS = {"Add": ("int64", "int32"), "Sub": ("int64", "int32")}
_COMPARED = dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"), ("int64", "int32"))
_TAKEN = {**_LOGIC, **_NUMBERS, **_COMPARED}
"""Operator -> types of its operands."""
_TAKES: dict[str, tuple[int, ...]] = dict.fromkeys(("Not", "Identity", "Cast", *SEARCHES), (1,))
_TAKES |= {"Where": (3,), "Squeeze": (1, 2), "Unsqueeze": (1, 2)}
"""Operator -> how many operands it has; the others have two."""
_LARGEST = 64
"""Elements of a constant."""


class Unhosted(Exception):
    """Why numpy can't do it, in words."""


def host_program(graph: Graph) -> HostProgram:
    """What numpy does in the place of a graph. Raises Unhosted."""
    if graph.absent:
        raise Unhosted("its graph is absent")
    model = graph.model
    if not any(node.op_type in SEARCHES and is_onnx(node) for node in model.graph.node):
        raise Unhosted("it searches nothing")
    if graph.signature.defaulted or model.graph.sparse_initializer or model.functions:
        raise Unhosted("its graph has more than inputs, constants and operators")
    inputs = tuple(map(_input, graph.signature.inputs))
    constants = tuple(_constants(model))
    types = {each.port: each.dtype for each in inputs} | {each.name: each.dtype for each in constants}
    ranks = {each.port: len(each.shape) for each in inputs}
    known = Constants(model.graph)
    steps = list[HostStep]()
    for node in model.graph.node:
        if node.op_type == "Constant" and is_onnx(node):
            continue
        step, dtype = _step(node, types, ranks, known)
        steps.append(step)
        types[step.gives] = dtype
    return HostProgram(inputs, tuple(steps), constants)


def searched(program: HostProgram) -> tuple[str, ...]:
    """The input ports along whose last axis a program searches."""
    return tuple(each.takes[0] for each in program.steps if each.operator in SEARCHES)


def _input(port: Port) -> HostInput:
    if port.shape is None or port.dtype not in (*_SEARCHED, *_EXACT):
        raise Unhosted(f"its input '{port.name}' is none whose type and rank numpy can take as they are")
    return HostInput(port.name, port.dtype, tuple(dim if isinstance(dim, int) else -1 for dim in port.shape))


def _constants(model: ModelProto) -> Iterator[HostConstant]:
    held = [(each.name, each) for each in model.graph.initializer]
    held += [(output_at(node, 0), _value(node)) for node in model.graph.node if node.op_type == "Constant"]
    for name, tensor in held:
        if tensor.data_location == TensorProto.EXTERNAL or dtype_name(tensor.data_type) not in _EXACT:
            raise Unhosted("it has constants that are no integers or truth values")
        if prod(tensor.dims) > _LARGEST:
            raise Unhosted(f"it has a constant of more than {_LARGEST} elements")
        array = elements_of(tensor)
        if array is None:
            raise Unhosted("it has a constant that is damaged")
        values = tuple(int(each) for each in array.reshape(-1).tolist())
        yield HostConstant(name, dtype_name(tensor.data_type), tuple(tensor.dims), values)


def _value(node: NodeProto) -> TensorProto:
    for each in node.attribute:
        match each.name:
            case "value":
                return each.t
            case "value_int":
                return numpy_helper.from_array(np.array(each.i, np.int64))
            case "value_ints":
                return numpy_helper.from_array(np.array(each.ints, np.int64))
            case _:
                pass
    raise Unhosted("it has constants that are no integers or truth values")


def _step(node: NodeProto, types: dict[str, str], ranks: dict[str, int], known: Constants) -> tuple[HostStep, str]:
    """(the step, the type of what it gives). ranks: of inputs."""
    operator, takes = str(node.op_type), tuple(node.input)
    other = Unhosted(f"its operator {operator} is none that numpy does to the same bits for less")
    if not is_onnx(node) or len(node.output) != 1 or not all(each in types for each in takes):
        raise other
    if len(takes) not in _TAKES.get(operator, (2,)):  # ONNX Runtime refuses the graph
        raise other
    gives, given = str(node.output[0]), [types[each] for each in takes]
    if operator in SEARCHES:
        axis, rank = integer(node, "axis", 0), ranks.get(takes[0], 0)
        if given[0] not in _SEARCHED or not rank or axis not in (-1, rank - 1) or integer(node, "select_last_index", 0):
            raise other
        return HostStep(operator, takes, gives, (integer(node, "keepdims", 1),)), "int64"
    if any(each not in _EXACT for each in given):
        raise other
    if operator == "Identity":
        return HostStep(operator, takes, gives), given[0]
    if operator == "Cast":
        made = dtype_name(integer(node, "to", 0))
        if made in _EXACT:
            return HostStep(operator, takes, gives, dtype=made), made
    elif operator in ("Squeeze", "Unsqueeze"):
        axes = axes_of(node, known)
        if axes:
            return HostStep(operator, (input_at(node, 0),), gives, tuple(axes)), given[0]
    elif operator == "Where" and given[0] == "bool" and given[1] == given[2]:
        return HostStep(operator, takes, gives), given[1]
    elif given and set(given) <= set(_TAKEN.get(operator, ())) and len(set(given)) == 1:
        return HostStep(operator, takes, gives), given[0] if operator in (*_NUMBERS, "Not", "And", "Or") else "bool"
    raise other
