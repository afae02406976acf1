"""What an ONNX graph says about itself: ports, opsets, external data, cache operators.

Reads the graph only: bulk weights inside the file are skipped, external ones are checked to be there but not read.
"""

import mmap
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import FunctionProto, GraphProto, ModelProto, TensorProto, TensorShapeProto, ValueInfoProto

from genai_compiler.problem import CompileError, Place, Problem
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.attention import CacheOp, cache_ops
from genai_compiler.read.external_data import check_external_data, external_tensors
from genai_compiler.read.graph_form import form_fault
from genai_compiler.read.media_traits import NO_TRAITS, MediaTraits, media_traits
from genai_compiler.read.nodes import all_graphs, all_nodes, graphs_of
from genai_compiler.read.onnx_wire import WireFault, without_bulk_data
from genai_compiler.read.ort_format import is_ort_format, ort_format
from genai_compiler.read.own_patches import Patches, own_patches
from genai_compiler.read.own_tables import Limit, own_limits
from genai_compiler.read.paged import PagedInputs, paged_inputs
from genai_compiler.read.textproto import TextprotoFault, is_textproto, parse_textproto
from genai_compiler.read.value_flow import Edges

__all__ = ["UNDEFINED", "CacheOp", "Port", "Signature", "load_graph", "port_of", "read_signature", "signature_of"]

MAX_FILE_BYTES = (2 << 30) + (64 << 20)  # protobuf itself stops at 2 GiB
MAX_GRAPH_BYTES = 512 << 20
MAX_NODES = 2_000_000
MAX_NESTING = 32

UNDEFINED = "undefined"
"""The dtype of a port whose graph does not say it: it fits everything, and a run finds out."""

_FIXED = 3
"""The last IR version whose initializers are constants although they are listed as inputs."""

_DTYPES = {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64", TensorProto.FLOAT8E4M3FN: "float8_e4m3fn"}
_DTYPES |= {TensorProto.FLOAT8E5M2: "float8_e5m2"}


@dataclass(frozen=True)
class Port:
    """An input or output of a graph.

    dtype: canonical name (float32, bfloat16, int64, float8_e4m3fn, ...); "sequence", "optional", "map" for what is no
    tensor, UNDEFINED when the graph does not say. shape: numbers, symbols (dim_param), None for an unnamed unknown
    extent; the whole is None when even the rank is unknown.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class Signature:
    """What a graph says without its weights. `external_data`: package-relative names, checked to be there.

    defaulted: graph inputs that an initializer stands in for when nothing is bound. In models of IR version 3 and older
    every initializer is listed as an input, and none can be given. paged: what attention over paged caches takes.
    limits: extents of inputs that the graph's own tables of positions bound. traits: what it tells of media.
    patches: how many its pictures must have. entries: (integer input, rows of the table that all of
    it looks into).
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    opsets: tuple[tuple[str, int], ...]
    metadata: tuple[tuple[str, str], ...]
    external_data: tuple[str, ...]
    cache_ops: tuple[CacheOp, ...]
    defaulted: tuple[Port, ...] = ()
    paged: PagedInputs | None = None
    limits: tuple[Limit, ...] = ()
    traits: MediaTraits = NO_TRAITS
    patches: tuple[Patches, ...] = ()
    entries: tuple[tuple[str, int], ...] = ()


def read_signature(path: Path, root: Path) -> Signature:
    """The signature of the ONNX file `path`, a file of the package at `root`.

    Raises CompileError: unreadable-graph (truncated, no ONNX, over a bound), ort-format, outside-package, missing-file,
    and external-data faults (docs/problems.md).
    """
    name = _package_name(path, root)
    return signature_of(load_graph(path, root), name, root)


def load_graph(path: Path, root: Path) -> ModelProto:
    """The model at `path` without bulk weights; `.onnx.textproto` files too. Raises CompileError as read_signature."""
    name = _package_name(path, root)
    try:
        model = _parse(find_artifact(root, name).file, name)
        _check_bounds(model)
        _check_names(model)
        _check_form(model)
    except ArtifactFault as fault:
        raise CompileError([fault.problem(Place(name), "")]) from fault
    except TextprotoFault as fault:
        raise _unreadable(Place(name, fault.line, fault.column), str(fault)) from fault
    except (WireFault, DecodeError, UnicodeDecodeError, _Bound) as fault:
        raise _unreadable(Place(name), str(fault)) from fault
    return model


def signature_of(model: ModelProto, name: str, root: Path, weights: bool = True) -> Signature:
    """The signature of an already loaded model whose file is `name` in the package at `root`.

    weights: whether external data must be there; where it need not, its absence is no problem, its faults are.
    """
    graph = model.graph
    files, problems = check_external_data(model, name, root)
    problems = tuple(each for each in problems if weights or each.code != "missing-file")
    if problems:
        raise CompileError(problems)
    held = {each.name for each in graph.initializer} | {each.values.name for each in graph.sparse_initializer}
    return Signature(
        inputs=tuple(port_of(each) for each in graph.input if each.name not in held),
        outputs=tuple(port_of(each) for each in graph.output),
        opsets=tuple(sorted((each.domain, int(each.version)) for each in model.opset_import)),
        metadata=tuple(sorted((each.key, each.value) for each in model.metadata_props)),
        external_data=files,
        cache_ops=cache_ops(graph),
        defaulted=tuple(port_of(each) for each in graph.input if each.name in held and model.ir_version > _FIXED),
        paged=paged_inputs(graph),
        limits=own_limits(model),
        traits=media_traits(model),
        patches=own_patches(model),
        entries=_entries(graph),
    )


def _entries(graph: GraphProto) -> tuple[tuple[str, int], ...]:
    edges, whole = Edges(graph), (TensorProto.INT64, TensorProto.INT32)
    ids = [each.name for each in graph.input if each.type.tensor_type.elem_type in whole]
    return tuple((name, rows) for name in ids if (rows := edges.entry_rows(name)))


class _Bound(ValueError):
    """The graph is larger than this compiler reads."""


def _package_name(path: Path, root: Path) -> str:
    absolute, home = path.absolute(), root.absolute()
    return absolute.relative_to(home).as_posix() if absolute.is_relative_to(home) else path.as_posix()


def _parse(file: Path, name: str) -> ModelProto:
    size = file.stat().st_size
    if size > MAX_FILE_BYTES:
        raise _Bound(f"the file has {size} bytes; ONNX files end at 2 GiB (put the weights into external data)")
    if is_textproto(name):
        return parse_textproto(file.read_bytes().decode("utf-8"))
    if not size:
        raise _Bound("the file is empty")
    with file.open("rb") as stream:
        # Not closed by hand: a fault's traceback still holds views of it, and closing would raise in its place.
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    if mapped[:40].startswith(b"version https://git-lfs"):
        raise _Bound("this is a Git LFS pointer, not the file itself (fetch it with `git lfs pull`)")
    if is_ort_format(mapped[:8]):
        raise CompileError([ort_format(name)])
    slim = without_bulk_data(memoryview(mapped))
    if len(slim) > MAX_GRAPH_BYTES:
        raise _Bound(f"the graph has {len(slim)} bytes without its weights; the limit is {MAX_GRAPH_BYTES}")
    return ModelProto.FromString(slim)


def _check_bounds(model: ModelProto) -> None:
    if not model.HasField("graph"):
        raise _Bound("it holds no graph")
    level: list[GraphProto | FunctionProto] = [model.graph, *model.functions]
    nodes = 0
    for _ in range(MAX_NESTING):
        nodes += sum(len(each.node) for each in level)
        if nodes > MAX_NODES:
            raise _Bound(f"the graph has more than {MAX_NODES} nodes")
        level = [inner for each in level for node in each.node for a in node.attribute for inner in graphs_of(a)]
        if not level:
            return
    raise _Bound(f"graphs are nested deeper than {MAX_NESTING} levels")


def _check_names(model: ModelProto) -> None:
    """protobuf hands out names that are no UTF-8 as bytes; everything here takes them for text."""
    names: list[object] = [each.domain for each in model.opset_import]
    names += [text for each in model.metadata_props for text in (each.key, each.value)]
    names += [text for each in external_tensors(model) for text in _texts(each)]
    for graph in all_graphs(model):
        values = (*graph.input, *graph.output, *graph.initializer)
        names += [each.name for each in values]
        names += [dim.dim_param for each in (*graph.input, *graph.output) for dim in each.type.tensor_type.shape.dim]
    for node in all_nodes(model):
        names += (node.name, node.op_type, node.domain, *node.input, *node.output)
        names += [each.name for each in node.attribute]
    if not all(isinstance(each, str) for each in names):
        raise _Bound("a name in it is no UTF-8 text: the file is damaged")


def _check_form(model: ModelProto) -> None:
    fault = form_fault(model)
    if fault:
        raise _Bound(fault)


def _texts(tensor: TensorProto) -> list[object]:
    return [tensor.name, *(text for pair in tensor.external_data for text in (pair.key, pair.value))]


def _unreadable(where: Place, what: str) -> CompileError:
    text = f"{where.file!r} is no readable ONNX model: {what}"
    return CompileError([Problem("unreadable-graph", where, "", text, "export or download the file again")])


def port_of(value: ValueInfoProto) -> Port:
    """A graph's input or output as a port."""
    kind = value.type.WhichOneof("value")
    if kind not in ("tensor_type", "sparse_tensor_type"):
        return Port(value.name, (kind or UNDEFINED).removesuffix("_type"), None)
    tensor = getattr(value.type, kind)
    shape = tuple(_extent(each) for each in tensor.shape.dim) if tensor.HasField("shape") else None
    return Port(value.name, dtype_name(tensor.elem_type), shape)


def _extent(dim: TensorShapeProto.Dimension) -> int | str | None:
    kind = dim.WhichOneof("value")
    if kind == "dim_value" and dim.dim_value >= 0:
        return int(dim.dim_value)
    return str(dim.dim_param) if kind == "dim_param" and dim.dim_param else None


def dtype_name(elem_type: int) -> str:
    """The canonical name of an ONNX element type, e.g. 1 -> "float32"; "undefined" for 0 or an unknown number."""
    if elem_type in _DTYPES:
        return _DTYPES[elem_type]
    if elem_type not in TensorProto.DataType.values():
        return f"undefined({elem_type})"
    return str(TensorProto.DataType.Name(elem_type)).lower()
