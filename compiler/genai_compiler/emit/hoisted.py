"""A linked graph in which a selection of positions stands before the projection, not behind it.

The nodes of the projection move to where the selection stood, because what it selects by may be computed by then only.
"""

from onnx import ModelProto, NodeProto, TensorProto, helper

from genai_compiler.plan.edits import Hoist, free_name
from genai_compiler.read.layouts import POSITIONS
from genai_compiler.read.nodes import value_names


def hoist_selection(model: ModelProto, hoist: Hoist, prefix: str) -> None:
    """Edit the graph in place. prefix: what names of the first member's values begin with."""
    graph = model.graph
    projected, hidden = prefix + hoist.projected, prefix + hoist.hidden
    moved = {prefix + name for name in hoist.behind}
    projection = [node for node in graph.node if moved.intersection(node.output)]
    nodes = list[NodeProto]()
    for node in graph.node:
        if moved.intersection(node.output):
            continue
        if projected not in node.input:
            nodes.append(node)
        elif node.op_type == "Shape":  # of the axes that the hidden state has too
            node.input[0] = hidden
            nodes.append(node)
        else:
            nodes += _early(model, node, projection, (projected, hidden), hoist.drops)
    ordered = [NodeProto.FromString(each.SerializeToString()) for each in nodes]
    del graph.node[:]
    graph.node.extend(ordered)


def _early(
    model: ModelProto, select: NodeProto, projection: list[NodeProto], ends: tuple[str, str], drops: bool
) -> list[NodeProto]:
    """The selection, of the hidden state, and the projection behind it."""
    projected, hidden = ends
    graph, (result,) = model.graph, select.output
    taken = value_names(graph)
    chosen, row, axis = (free_name(f"{hidden}{each}", taken) for each in ("_selected", "_row", "_axis"))
    select.input[0], select.output[0] = hidden, chosen
    for node in projection:
        node.input[:] = [(row if drops else chosen) if name == hidden else name for name in node.input]
        node.output[:] = [result if name == projected and not drops else name for name in node.output]
    if not drops:
        return [select, *projection]
    graph.initializer.append(helper.make_tensor(axis, TensorProto.INT64, [1], [POSITIONS]))
    return [
        select,
        helper.make_node("Unsqueeze", [chosen, axis], [row], name=f"{row}.Unsqueeze"),
        *projection,
        helper.make_node("Squeeze", [projected, axis], [result], name=f"{result}.Squeeze"),
    ]
