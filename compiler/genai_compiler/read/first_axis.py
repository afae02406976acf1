"""Whether a graph keeps the first axis of its inputs, or is written for one entry on it whatever its ports declare.

A tracer that has seen one picture writes its extent down: Reshape(x, [1, 16, -1]). The export may call the axis dynamic
all the same, and of two pictures such a graph makes numbers that belong to neither.
"""

from onnx import GraphProto, NodeProto

from genai_compiler.read.nodes import Constants, axes_of, input_at, integer, is_onnx, output_at

_ABOUT_SHAPES = frozenset({"Shape", "Size"})


def fixes_first_axis(graph: GraphProto) -> bool:
    """Whether a number that is written down, or one entry alone, takes the place of the first axis of what is made of
    the inputs. Nested graphs are left alone.
    """
    constants = Constants(graph)
    writers = {output_at(node, 0): node for node in graph.node}
    made = {each.name for each in graph.input} - {each.name for each in graph.initializer}
    for node in graph.node:
        if node.op_type in _ABOUT_SHAPES or made.isdisjoint(node.input):
            continue
        if input_at(node, 0) in made and is_onnx(node) and _fixes(node, constants, writers):
            return True
        made.update(name for name in node.output if name)
    return False


def _fixes(node: NodeProto, constants: Constants, writers: dict[str, NodeProto]) -> bool:
    match node.op_type:
        case "Reshape":
            return _first(input_at(node, 1), constants, writers) > 0
        case "Squeeze":
            return 0 in (axes_of(node, constants) or ())
        case "Gather":
            return integer(node, "axis", 0) == 0 and constants.ints(input_at(node, 1)) is not None
        case "Flatten":
            return integer(node, "axis", 1) == 0
        case _:
            return False


def _first(shape: str, constants: Constants, writers: dict[str, NodeProto]) -> int:
    """The first number of a shape, 0 where it is not written down."""
    numbers, node = constants.ints(shape), writers.get(shape)
    if numbers is None and node is not None and node.op_type == "Concat":
        numbers = constants.ints(input_at(node, 0))
    return numbers[0] if numbers else 0
