"""The graph of an island: the graphs of its members, linked by the values that flow between them.

Every name inside is the member's own behind the member's place and component, so that a failing operator says where it
comes from; ports are named as the plan's values, which may be any text. Small weights are copied, external ones
referenced from the package's folder. Claims of the members about shapes are left out (read/link.py): two files may call
different extents alike, and ONNX Runtime takes extents of one name for equal.
"""

from pathlib import PurePosixPath

import onnx_ir as ir
from onnx import ModelProto

from genai_compiler.emit.edited_graph import referencing
from genai_compiler.emit.hoisted import hoist_selection
from genai_compiler.plan.edits import Linked
from genai_compiler.problem import CompileError, Place, Problem
from genai_compiler.read.artifacts import find_artifact
from genai_compiler.read.external_data import external_tensors
from genai_compiler.read.link import Link
from genai_compiler.read.nodes import all_graphs
from genai_compiler.read.package import Graph, Package

COPIED = 1 << 20
"""Bytes of a member's file up to which its weights are copied; a larger one's are pointed at."""


def linked_bytes(linked: Linked, package: Package) -> bytes:
    """The linked graph in binary form; same input, same bytes. Raises CompileError for members that can't be read."""
    link, lead, own = Link(), _lead(linked), dict(linked.own)
    try:
        for at, member in enumerate(linked.members):
            name = member.component
            model = ModelProto.FromString(own[name]) if name in own else _model(package.graphs[name], package)
            link.add(member, model, f"{lead}{at}.{name}/")
        whole = ir.to_proto(link.model(linked.outputs))
        if linked.hoist is not None:
            hoist_selection(whole, linked.hoist, f"{lead}0.{linked.members[0].component}/")
    except ir.serde.SerdeError as fault:
        raise _unlinkable(linked, package, fault) from fault
    content: bytes = whole.SerializeToString(deterministic=True)
    return content


def _lead(linked: Linked) -> str:
    """What names inside begin with, so that none is that of a value of the plan; "" for ordinary ones."""
    values = [value for member in linked.members for _, value in (*member.inputs, *member.outputs)]
    lead = ""
    while any(each.startswith(lead) and each[len(lead) :][:1].isdigit() for each in values):
        lead += "."
    return lead


def _unlinkable(linked: Linked, package: Package, fault: Exception) -> CompileError:
    cause: BaseException = fault
    while cause.__cause__ is not None:
        cause = cause.__cause__
    files = dict.fromkeys(
        package.graphs[each.component].artifact for each in linked.members if each.component in package.graphs
    )
    what = f"the graphs {', '.join(files)} can't be linked: {cause}"
    help = "look at them with onnx.checker; --without fuse_islands runs them one by one"
    return CompileError([Problem("unreadable-graph", Place(next(iter(files))), "", what, help)])


def _model(graph: Graph, package: Package) -> ModelProto:
    """A member's whole graph, its external data located from the package's folder."""
    if graph.textproto:
        model = ModelProto()
        model.CopyFrom(graph.model)
    else:
        file = find_artifact(package.root, graph.artifact).file
        whole = file.stat().st_size <= COPIED
        model = ModelProto.FromString(file.read_bytes() if whole else referencing(file, graph.artifact))
    folder = PurePosixPath(graph.artifact).parent
    for tensor in external_tensors(model):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = (folder / entry.value).as_posix()
    _drop_claims(model)
    return model


def _drop_claims(model: ModelProto) -> None:
    """Take out what the file says of shapes behind its own ports."""
    for graph in all_graphs(model):
        del graph.value_info[:]
        for each in (*graph.input, *graph.output) if graph is not model.graph else ():
            if each.type.HasField("tensor_type"):
                each.type.tensor_type.ClearField("shape")
    for function in model.functions:
        del function.value_info[:]
