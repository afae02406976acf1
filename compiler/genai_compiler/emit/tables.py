"""Weights that the runtime itself reads: the table that embeds the tokens a proposer takes.

One in external data is read where it lies; one inside a graph's file is written beside the executor.
"""

import hashlib
from pathlib import PurePosixPath
from typing import Any

import onnx
from onnx import TensorProto, numpy_helper

from genai_compiler.plan.ir import Plan
from genai_compiler.read.artifacts import find_artifact
from genai_compiler.read.package import Graph, Package
from genai_compiler.read.signature import dtype_name

FILE = "graphs/embedding.bin"
"""No graph is written under this name: theirs end in .onnx."""


def tables(plan: Plan, package: Package) -> tuple[dict[str, dict[str, Any]], dict[str, bytes]]:
    """(component that takes it -> where its table lies, files to write into the compiled folder)."""
    found = plan.speculation
    if found is None or found.drafting is None or not found.drafting.table:
        return {}, {}
    graph, name = package.graphs[found.target], found.drafting.table
    tensor = next(each for each in graph.model.graph.initializer if each.name == name)
    facts = {"dtype": dtype_name(tensor.data_type), "dims": [int(each) for each in tensor.dims]}
    if tensor.data_location == TensorProto.EXTERNAL:
        entries = {each.key: each.value for each in tensor.external_data}
        file = str(PurePosixPath(graph.artifact).parent / entries["location"])
        place = {"in": "package", "file": file, "offset": int(entries.get("offset", "0")), "sha256": ""}
        return {found.proposer: {**place, **facts}}, {}
    content = _content(graph, name, package)
    place = {"in": "compiled", "file": FILE, "offset": 0, "sha256": hashlib.sha256(content).hexdigest()}
    return {found.proposer: {**place, **facts}}, {FILE: content}


def _content(graph: Graph, name: str, package: Package) -> bytes:
    """The initializer's elements, little-endian; a graph that was read without its weights is read again."""
    model = graph.model
    if not graph.textproto:
        model = onnx.load(str(find_artifact(package.root, graph.artifact).file), load_external_data=False)
    tensor = next(each for each in model.graph.initializer if each.name == name)
    return bytes(tensor.raw_data) or numpy_helper.to_array(tensor).tobytes()
