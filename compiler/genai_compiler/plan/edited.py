"""Edits of a graph, carried out: on what passes look at, and on what is written (emit/edited_graph.py)."""

from onnx import ModelProto, NodeProto, TensorProto, helper

from genai_compiler.plan.edits import Edited, FeedLengths, SelectLast, free_name
from genai_compiler.plan.fed_lengths import feed_lengths
from genai_compiler.plan.gathered_columns import gather_columns
from genai_compiler.read.nodes import value_names


def carry_out(model: ModelProto, edit: Edited) -> None:
    """Edit the graph in place."""
    for part in edit.parts:
        if isinstance(part, SelectLast):
            _select_last(model, part)
        elif isinstance(part, FeedLengths):
            feed_lengths(model, part)
        else:
            gather_columns(model, part)


def _select_last(model: ModelProto, edit: SelectLast) -> None:
    """Put a GatherND of one position a row before the projection."""
    graph = model.graph
    selected = free_name(f"{edit.hidden}_selected", {*value_names(graph), edit.port})
    name = free_name("select_last_position", {node.name for node in graph.node})
    gather = helper.make_node("GatherND", [edit.hidden, edit.port], [selected], name=name, batch_dims=1)
    nodes, thinned = list[NodeProto](), set(edit.thinned)
    for node in graph.node:
        if thinned.intersection(node.output) and edit.hidden in node.input:
            nodes += [gather] if gather not in nodes else []
            node.input[:] = [selected if name == edit.hidden else name for name in node.input]
        nodes.append(node)
    ordered = [NodeProto.FromString(each.SerializeToString()) for each in nodes]
    del graph.node[:]
    graph.node.extend(ordered)
    rows = _rows(model, edit)
    graph.input.append(helper.make_tensor_value_info(edit.port, TensorProto.INT64, [rows, 1, 1]))
    for info in (*graph.output, *graph.value_info):
        if info.name in thinned and len(info.type.tensor_type.shape.dim) > 1:
            info.type.tensor_type.shape.dim[1].dim_value = 1


def _rows(model: ModelProto, edit: SelectLast) -> str | int | None:
    """The first extent of the logits, as the graph names it."""
    shape = next(each for each in model.graph.output if each.name == edit.thinned[-1]).type.tensor_type.shape
    dim = shape.dim[0]
    return dim.dim_param or (dim.dim_value if dim.HasField("dim_value") else None)
