"""The graph of a component whose plan says that it runs edited: the artifact's own nodes, its weights by reference.

Nothing bulky is copied: external data stay where they are, and weights inside the artifact are pointed at there. ONNX
Runtime resolves both against the package's folder.
"""

import mmap
from pathlib import Path, PurePosixPath

from onnx import ModelProto

from genai_compiler.plan.edited import carry_out
from genai_compiler.plan.edits import Edited
from genai_compiler.read.artifacts import find_artifact
from genai_compiler.read.onnx_wire import with_references
from genai_compiler.read.package import Graph


def edited_bytes(graph: Graph, root: Path, edit: Edited) -> bytes:
    """The edited graph in binary form; same input, same bytes. root: the package's folder."""
    model = ModelProto()
    if graph.textproto:
        model.CopyFrom(graph.model)
    else:
        model.ParseFromString(referencing(find_artifact(root, graph.artifact).file, graph.artifact))
    carry_out(model, edit)
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
