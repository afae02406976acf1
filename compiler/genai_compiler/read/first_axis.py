"""Whether a graph keeps the first axis of its inputs, or is written for one entry on it whatever its ports declare.

A tracer that has seen one picture writes its extent down: Reshape(x, [1, 16, -1]), or a class token, [1, 1, 16], before
the patches. The export may call the axis dynamic all the same, and of two pictures such a graph makes numbers that
belong to neither, or nothing at all.
"""

from onnx import GraphProto, NodeProto

from genai_compiler.read.nodes import Constants, axes_of, input_at, integer, is_onnx, output_at

_ABOUT_SHAPES = frozenset({"Shape", "Size"})
_ALL = (1 << 31) - 1
"""An end from which on a Slice means whatever there is."""


def fixes_first_axis(graph: GraphProto) -> bool:
    """Whether a number that is written down, one entry alone, or another axis takes the place of the first axis of
    what is made of the inputs. Nested graphs are left alone.
    """
    constants = Constants(graph)
    writers = {output_at(node, 0): node for node in graph.node}
    made = {each.name for each in graph.input} - {each.name for each in graph.initializer}
    sized = set[str]()  # what is made of extents, and may have any extents itself
    for node in graph.node:
        if node.op_type in _ABOUT_SHAPES or made.isdisjoint(node.input):
            if node.op_type in _ABOUT_SHAPES or not sized.isdisjoint(node.input):
                sized.update(node.output)
            continue
        fixed = any(name and name not in made and name not in sized for name in node.input)
        leads = input_at(node, 0) in made or node.op_type == "Concat"
        if leads and is_onnx(node) and _fixes(node, constants, writers, fixed):
            return True
        made.update(name for name in node.output if name)
    return False


def _fixes(node: NodeProto, constants: Constants, writers: dict[str, NodeProto], fixed: bool) -> bool:
    """fixed: whether some of what it takes has the extents that it has, whatever the inputs are."""
    match node.op_type:
        case "Reshape":
            return _first(input_at(node, 1), constants, writers) > 0
        case "Squeeze":
            return 0 in (axes_of(node, constants) or ())
        case "Gather":
            return integer(node, "axis", 0) == 0 and constants.ints(input_at(node, 1)) is not None
        case "Flatten":
            return integer(node, "axis", 1) == 0
        case "Concat":
            return fixed
        case "Slice":
            return _cuts(node, constants)
        case "Split":
            return integer(node, "axis", 0) == 0
        case "Transpose":
            order = next((list(each.ints) for each in node.attribute if each.name == "perm"), [])
            return order[:1] != [0]
        case reduction if reduction.startswith("Reduce"):
            axes = axes_of(node, constants)
            return 0 in axes if axes else not integer(node, "noop_with_empty_axes", 0)
        case _:
            return False


def _first(shape: str, constants: Constants, writers: dict[str, NodeProto]) -> int:
    """The first number of a shape, 0 where it is not written down."""
    numbers, node = constants.ints(shape), writers.get(shape)
    if numbers is None and node is not None and node.op_type == "Concat":
        numbers = constants.ints(input_at(node, 0))
    return numbers[0] if numbers else 0


def _cuts(node: NodeProto, constants: Constants) -> bool:
    """Whether a Slice leaves anything of the first axis out, or may do so."""
    stated = {each.name: list(each.ints) for each in node.attribute}  # before version 10
    starts, ends, axes = (
        stated[name] if name in stated else constants.ints(input_at(node, at))
        for at, name in enumerate(("starts", "ends", "axes"), 1)
    )
    if axes is None and (input_at(node, 3) or starts is None):
        return True
    places = axes if axes is not None else list(range(len(starts or ())))
    if 0 not in places:
        return False
    at, known = places.index(0), starts is not None and ends is not None and len(starts) == len(ends) == len(places)
    return not known or starts is None or ends is None or starts[at] != 0 or ends[at] < _ALL
