"""Weights that several sessions of a package hold: by one place of a file, or by equal content in two.

Each weight belongs to one session where graphs can be one session. Where they can't, the pages of one place of a file
are mapped once for all; what kernels rearrange, and content that the package keeps twice, each session has for itself.
"""

import hashlib
import mmap
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from onnx import ModelProto, TensorProto

from genai_compiler.emit.edited_graph import referencing
from genai_compiler.emit.graph_files import GraphFile
from genai_compiler.read.package import Package

LEAST = 4096
"""Bytes of the smallest weight that is looked at."""


@dataclass(frozen=True)
class Shared:
    """Weights of these components in bytes, each counted once. one_place: all of them read it from one place.

    names: component -> the weights' names in its graph.
    """

    components: tuple[str, ...]
    bytes: int
    one_place: bool
    names: Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class _Weight:
    """A weight of a component. file: where it lies, None where the graph holds it, as `content`."""

    component: str
    name: str
    kind: tuple[int, tuple[int, ...]]
    file: Path | None
    offset: int
    length: int
    content: bytes = b""

    def part(self, least: int | None = None) -> bytes:
        """Its bytes, or the first so many."""
        count = self.length if least is None else min(self.length, least)
        if self.file is None:
            return self.content[:count]
        with self.file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data[self.offset : self.offset + count]

    @property
    def place(self) -> tuple[Path | None, int]:
        return self.file, self.offset


def shared_weights(files: Mapping[str, GraphFile], package: Package, used: Collection[str]) -> tuple[Shared, ...]:
    """By components, the largest first. files: what each component's session opens; used: components that run.

    Weights of other types, shapes or first bytes are not read any further.
    """
    alike = defaultdict[tuple[object, bytes], list[_Weight]](list)
    for name in sorted(set(used) & set(files)):
        for each in _weights(name, files[name], package):
            alike[each.kind, each.part(LEAST)].append(each)
    groups = defaultdict[tuple[str, ...], list[list[_Weight]]](list)
    for weights in alike.values():
        for equal in _equal(weights):
            components = tuple(dict.fromkeys(each.component for each in equal))
            if len(components) > 1:
                groups[components].append(equal)
    found = (_shared(components, equals) for components, equals in groups.items())
    return tuple(sorted(found, key=lambda each: (-each.bytes, each.components)))


def _equal(weights: list[_Weight]) -> Iterator[list[_Weight]]:
    """Those of one place, or of equal content. Only where several components have one is it read as a whole."""
    if len({each.component for each in weights}) < 2:
        return
    by_content = defaultdict[bytes, list[_Weight]](list)
    known: dict[tuple[Path | None, int], bytes] = {}
    for each in weights:
        digest = known.get(each.place) if each.file is not None else None
        digest = digest or hashlib.sha256(each.part()).digest()
        if each.file is not None:
            known[each.place] = digest
        by_content[digest].append(each)
    yield from by_content.values()


def _shared(components: tuple[str, ...], equals: list[list[_Weight]]) -> Shared:
    places = all(each.file is not None and len({one.place for one in equal}) == 1 for equal in equals for each in equal)
    names = {
        component: frozenset(each.name for equal in equals for each in equal if each.component == component)
        for component in components
    }
    return Shared(components, sum(equal[0].length for equal in equals), places, names)


def _weights(component: str, made: GraphFile, package: Package) -> Iterator[_Weight]:
    content = referencing(package.root / made.file, made.file) if made.content is None else made.content
    for tensor in ModelProto.FromString(content).graph.initializer:
        kind = tensor.data_type, tuple(int(each) for each in tensor.dims)
        if tensor.data_location == TensorProto.EXTERNAL:
            entries = {each.key: each.value for each in tensor.external_data}
            file = (package.root / made.weights / entries["location"]).resolve()
            offset = int(entries.get("offset", "0"))
            length = int(entries.get("length", "0")) or file.stat().st_size - offset
            weight = _Weight(component, tensor.name, kind, file, offset, length)
        else:
            raw = tensor.raw_data
            weight = _Weight(component, tensor.name, kind, None, 0, len(raw), raw)
        if weight.length >= LEAST:
            yield weight
