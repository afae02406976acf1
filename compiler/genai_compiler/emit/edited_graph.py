"""The graph of a component whose plan says that it runs edited: the artifact's own nodes, its weights by reference.

Nothing bulky is copied: external data stay where they are, and weights inside the artifact are pointed at there. ONNX
Runtime resolves both against the package's folder.
"""

import mmap
from pathlib import Path, PurePosixPath

from onnx import ModelProto, NodeProto, TensorProto, helper

from genai_compiler.emit.fed_lengths import feed_lengths
from genai_compiler.emit.gathered_columns import gather_columns
from genai_compiler.plan.edits import Edited, FeedLengths, SelectLast, free_name
from genai_compiler.read.artifacts import find_artifact
from genai_compiler.read.nodes import value_names
from genai_compiler.read.onnx_wire import with_references
from genai_compiler.read.package import Graph


def edited_bytes(graph: Graph, root: Path, edit: Edited) -> bytes:
    """The edited graph in binary form; same input, same bytes. root: the package's folder."""
    model = ModelProto()
    if graph.textproto:
        model.CopyFrom(graph.model)
    else:
        model.ParseFromString(referencing(find_artifact(root, graph.artifact).file, graph.artifact))
    for part in edit.parts:
        if isinstance(part, SelectLast):
            _select_last(model, part)
        elif isinstance(part, FeedLengths):
            feed_lengths(model, part)
        else:
            gather_columns(model, part)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def referencing(file: Path, artifact: str) -> bytes:
    """The artifact's bytes without its large weights, which point into it."""
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        view = memoryview(content)
        try:
            return with_references(view, PurePosixPath(artifact).name)
        finally:
            view.release()


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
