"""Which file each component's session opens: the package's own, or one in the compiled folder that is made here.

Made are graphs in text form, which ONNX Runtime does not read, and graphs that the plan runs edited.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from onnx import ModelProto

from genai_compiler.emit.cut_graph import cut_graph
from genai_compiler.emit.edited_graph import edited_bytes, referencing
from genai_compiler.emit.weight_places import follow_links
from genai_compiler.plan.edits import Edited, Linked, Parts
from genai_compiler.plan.ir import Plan
from genai_compiler.read.artifacts import find_artifact
from genai_compiler.read.package import Graph, Package
from genai_compiler.read.request_extents import lengths_vary

_DEVICE = re.compile(r"(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])")
FOLDER = "graphs"


@dataclass(frozen=True)
class GraphFile:
    """file: relative to the compiled folder when there is content, else to the package. weights: a package folder.

    lengths_vary: whether its inputs have other shapes with every request (read/request_extents.py).
    """

    file: str
    weights: str
    lengths_vary: bool
    content: bytes | None = None

    def entry(self) -> dict[str, str | bool]:
        """What the manifest says of it."""
        said: dict[str, str | bool] = {"file": self.file, "weights": self.weights, "lengths_vary": self.lengths_vary}
        if self.content is None:
            return {"in": "package", **said}
        return {"in": "compiled", **said, "sha256": hashlib.sha256(self.content).hexdigest()}


def graph_files(plan: Plan, package: Package, bundle: bool) -> Mapping[str, GraphFile]:
    """The graph file of every component that has a graph, by name. bundle: weights will lie under their names."""
    files = _apart(plan, package, _files(plan, package))
    return files if bundle else {name: _followed(each, package) for name, each in files.items()}


def _apart(plan: Plan, package: Package, whole: Mapping[str, GraphFile]) -> Mapping[str, GraphFile]:
    """The same with the two parts of a component in the place of its graph."""
    found, taken = dict(whole), {each.file.lower() for each in whole.values() if each.content is not None}
    for each in plan.components:
        if each.parts is not None:
            found |= _parts(each.parts, found.pop(each.name), package, taken)
    return found


def _parts(parts: Parts, whole: GraphFile, package: Package, taken: set[str]) -> Iterator[tuple[str, GraphFile]]:
    content = whole.content
    if content is None:
        content = referencing(find_artifact(package.root, whole.file).file, whole.file)
    for name, half in zip(parts.names, cut_graph(ModelProto.FromString(content), parts), strict=True):
        made: bytes = half.SerializeToString(deterministic=True)
        yield name, GraphFile(_free(_plain(name), taken), whole.weights, lengths_vary(half), made)


def _followed(made: GraphFile, package: Package) -> GraphFile:
    """The same with links of the package followed, which ONNX Runtime would not do from here."""
    if made.content is None:
        return made
    content, weights = follow_links(made.content, made.weights, package.root)
    return replace(made, weights=weights, content=content)


def _files(plan: Plan, package: Package) -> Mapping[str, GraphFile]:
    edits = {each.name: each.edit for each in plan.components if isinstance(each.edit, Edited)}
    found, converted, taken = dict[str, GraphFile](), dict[str, GraphFile](), set[str]()
    for each in plan.components:
        if isinstance(each.edit, Linked):
            content = _linked(each.edit, package)
            varies = lengths_vary(ModelProto.FromString(content))
            found[each.name] = GraphFile(_free(_plain(each.name), taken), ".", varies, content)
    for name, graph in sorted(package.graphs.items()):
        folder, varies = PurePosixPath(graph.artifact).parent.as_posix(), lengths_vary(graph.model)
        if name in edits:
            content = edited_bytes(graph, package.root, edits[name])
            found[name] = GraphFile(_free(f"{_plain(name)}.edited", taken), folder, varies, content)
        elif graph.textproto and graph.artifact not in converted:
            stem = graph.artifact.removesuffix(".textproto").removesuffix(".onnx")
            made = GraphFile(_free(_plain(stem.replace("/", "__")), taken), folder, varies, _binary(graph))
            found[name] = converted[graph.artifact] = made
        else:
            found[name] = converted.get(graph.artifact) or GraphFile(graph.artifact, folder, varies)
    return found


def _linked(linked: Linked, package: Package) -> bytes:
    from genai_compiler.emit.linked_graph import linked_bytes  # what links graphs is large

    return linked_bytes(linked, package)


def made_graphs(graphs: Mapping[str, GraphFile]) -> dict[str, bytes]:
    """File name -> content, of those that are made here."""
    return {each.file: each.content for each in graphs.values() if each.content is not None}


def _binary(graph: Graph) -> bytes:
    content: bytes = graph.model.SerializeToString(deterministic=True)
    return content


def _plain(name: str) -> str:
    """A part of a file name, of plain characters, and none of the names that Windows keeps for devices."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]
    return f"{plain}_" if _DEVICE.fullmatch(plain) else plain


def _free(stem: str, taken: set[str]) -> str:
    """A file of the folder, different from all `taken` in any spelling of letters, and taken from now on."""
    name, count = f"{FOLDER}/{stem}.onnx", 1
    while name.lower() in taken:
        count += 1
        name = f"{FOLDER}/{stem}.{count}.onnx"
    taken.add(name.lower())
    return name
