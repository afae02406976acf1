"""Which file each component's session opens: the package's own, or one in the compiled folder that is made here.

Made are graphs in text form, which ONNX Runtime does not read, and graphs that the plan runs edited.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from genai_compiler.emit.edited_graph import edited_bytes
from genai_compiler.emit.linked_graph import linked_bytes
from genai_compiler.plan.edits import Linked, SelectLast
from genai_compiler.plan.ir import Plan
from genai_compiler.read.package import Graph, Package

FOLDER = "graphs"


@dataclass(frozen=True)
class GraphFile:
    """file: relative to the compiled folder when there is content, else to the package. weights: a package folder."""

    file: str
    weights: str
    content: bytes | None = None

    def entry(self) -> dict[str, str]:
        """What the manifest says of it."""
        if self.content is None:
            return {"in": "package", "file": self.file, "weights": self.weights}
        digest = hashlib.sha256(self.content).hexdigest()
        return {"in": "compiled", "file": self.file, "weights": self.weights, "sha256": digest}


def graph_files(plan: Plan, package: Package) -> Mapping[str, GraphFile]:
    """The graph file of every component that has a graph, by name. No two that are made here have one name."""
    edits = {each.name: each.edit for each in plan.components if isinstance(each.edit, SelectLast)}
    found, taken = dict[str, GraphFile](), set[str]()
    for each in plan.components:
        if isinstance(each.edit, Linked):
            found[each.name] = GraphFile(_free(each.name, ".onnx", taken), ".", linked_bytes(each.edit, package))
    converted: dict[str, GraphFile] = {}
    for name, graph in sorted(package.graphs.items()):
        folder = PurePosixPath(graph.artifact).parent.as_posix()
        if name in edits:
            content = edited_bytes(graph, package.root, edits[name])
            found[name] = GraphFile(_free(_plain(name), ".edited.onnx", taken), folder, content)
        elif graph.textproto and graph.artifact not in converted:
            stem = graph.artifact.replace("/", "__").removesuffix(".textproto").removesuffix(".onnx")
            found[name] = converted[graph.artifact] = GraphFile(_free(stem, ".onnx", taken), folder, _binary(graph))
        else:
            found[name] = converted.get(graph.artifact) or GraphFile(graph.artifact, folder)
    return found


def made_graphs(graphs: Mapping[str, GraphFile]) -> dict[str, bytes]:
    """File name -> content, of those that are made here."""
    return {each.file: each.content for each in graphs.values() if each.content is not None}


def _binary(graph: Graph) -> bytes:
    content: bytes = graph.model.SerializeToString(deterministic=True)
    return content


def _plain(component: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", component)[:64]


def _free(stem: str, ending: str, taken: set[str]) -> str:
    """A file name different from all `taken`, also where upper and lower case are one, and taken from now on."""
    name, count = f"{FOLDER}/{stem}{ending}", 1
    while name.lower() in taken:
        count += 1
        name = f"{FOLDER}/{stem}_{count}{ending}"
    taken.add(name.lower())
    return name
