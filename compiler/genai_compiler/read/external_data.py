"""The files in which a graph keeps its weights: named safely, present, and long enough."""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from onnx import AttributeProto, GraphProto, ModelProto, SparseTensorProto, TensorProto

from genai_compiler.problem import Place, Problem
from genai_compiler.read.artifacts import ArtifactFault, find_artifact

_DIGITS = re.compile(r"[0-9]{1,19}")  # as many as 63 bits take

# Bits of one element; types of four bits and less are packed (onnx.proto3, TensorProto.raw_data).
_BITS = {
    **dict.fromkeys(("FLOAT", "INT32", "UINT32"), 32),
    **dict.fromkeys(("DOUBLE", "INT64", "UINT64", "COMPLEX64"), 64),
    **dict.fromkeys(("FLOAT16", "BFLOAT16", "INT16", "UINT16"), 16),
    **dict.fromkeys(("INT4", "UINT4", "FLOAT4E2M1"), 4),
    **dict.fromkeys(("INT2", "UINT2"), 2),
    "COMPLEX128": 128,
}


@dataclass(frozen=True)
class _Region:
    tensor: str
    location: str
    end: int


def check_external_data(model: ModelProto, name: str, root: Path) -> tuple[tuple[str, ...], tuple[Problem, ...]]:
    """(package-relative data files in order of first use, problems) of the model whose file is `name`.

    One problem for each faulty location, naming its first tensor: outside-package (absolute, `..`, a link that
    leads out), missing-file, not-a-file, short-external-data, bad-external-data.
    """
    needs: dict[str, _Region] = {}
    problems: dict[str, Problem] = {}
    for tensor in external_tensors(model):
        try:
            region = _region(tensor)
        except ArtifactFault as fault:
            problems.setdefault(tensor.name, fault.problem(Place(name), ""))
            continue
        known = needs.get(region.location)
        needs[region.location] = region if known is None or region.end > known.end else known
    files: list[str] = []
    for location, region in needs.items():
        try:
            files.append(_check(region, name, root))
        except ArtifactFault as fault:
            what = f"the weight {region.tensor!r} lies in external data {location!r}: {fault.what}"
            problems[location] = Problem(fault.code, Place(name), "", what, fault.help or _HELP)
    return tuple(dict.fromkeys(files)), tuple(problems.values())


_HELP = "keep the data file beside the model under the name the model uses, or export the model again"


def external_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every tensor of the model whose data lie outside its file."""
    bodies = [node.attribute for function in model.functions for node in function.node]
    pending: list[GraphProto] = [model.graph]
    for attributes in bodies:
        yield from _in_attributes(attributes, pending)
    while pending:
        graph = pending.pop()
        tensors = [*graph.initializer, *_parts(graph.sparse_initializer)]
        yield from (each for each in tensors if each.data_location == TensorProto.EXTERNAL)
        for node in graph.node:
            yield from _in_attributes(node.attribute, pending)


def _in_attributes(attributes: Iterable[AttributeProto], pending: list[GraphProto]) -> Iterator[TensorProto]:
    for each in attributes:
        sparse = [*([each.sparse_tensor] if each.HasField("sparse_tensor") else []), *each.sparse_tensors]
        tensors = [*([each.t] if each.HasField("t") else []), *each.tensors, *_parts(sparse)]
        yield from (tensor for tensor in tensors if tensor.data_location == TensorProto.EXTERNAL)
        pending.extend([*([each.g] if each.HasField("g") else []), *each.graphs])


def _parts(sparse: Iterable[SparseTensorProto]) -> Iterator[TensorProto]:
    for each in sparse:
        yield from (each.values, each.indices)


def _region(tensor: TensorProto) -> _Region:
    entries = {each.key: each.value for each in tensor.external_data}
    location = entries.get("location", "")
    offset, length = (_whole(tensor, key, entries.get(key, "0")) for key in ("offset", "length"))
    needed = bytes_of(tensor)
    if 0 < length < needed:
        what = f"the weight {tensor.name!r} takes {needed} bytes, and its entry has the length {length}"
        raise ArtifactFault("bad-external-data", what, _HELP)
    return _Region(tensor.name, location, offset + (length or needed))


def _whole(tensor: TensorProto, key: str, text: str) -> int:
    if not _DIGITS.fullmatch(text):
        what = f"the weight {tensor.name!r} has the {key} {text!r}, which is no whole number from 0 on"
        raise ArtifactFault("bad-external-data", what, _HELP)
    return int(text)


def bits_of(tensor: TensorProto) -> int:
    """Bits of one element."""
    kind = TensorProto.DataType.Name(tensor.data_type) if tensor.data_type in TensorProto.DataType.values() else ""
    return _BITS.get(kind, 8)


def bytes_of(tensor: TensorProto) -> int:
    """Bytes that its elements take."""
    elements = math.prod(int(each) for each in tensor.dims)
    return (elements * bits_of(tensor) + 7) // 8


def _check(region: _Region, name: str, root: Path) -> str:
    folder = PurePosixPath(name).parent
    data = find_artifact(root, region.location if folder == PurePosixPath(".") else _below(folder, region.location))
    size = data.file.stat().st_size
    if region.end > size:
        what = f"{data.name!r} has {size} bytes, and the weight ends at byte {region.end}"
        raise ArtifactFault("short-external-data", what, "the file is incomplete: download or copy it again")
    return data.name


def _below(folder: PurePosixPath, location: str) -> str:
    """`location` read from the model's folder; an absolute one stays absolute, to be refused by its own name."""
    return location if location.startswith(("/", "\\")) or location[1:2] == ":" else f"{folder}/{location}"
