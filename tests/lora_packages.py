"""Small packages with LoRA adapters: an overlay over any features, and fixture decoders whose graphs take factors.

Adapter files are made by independent writers: the json module, the safetensors library, ONNX Runtime's AdapterFormat.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import yaml
from genai_compiler import compile_package
from genai_compiler.lower.genai_config_v1 import lower_genai_config
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

from tests.conftest import FIXTURES
from tools.fixtures.document import (
    Document,
    application,
    emit,
    invoke,
    output,
    package,
    request,
    tensor,
    write_document,
)
from tools.fixtures.document import onnx as component

Floats = NDArray[np.float32]
Factors = Mapping[str, tuple[Floats, Floats]]
"""Target id -> A [rank, inputs], B [width, rank]."""
LOADERS = {
    "json": "onnx-genai.adapters.json@1",
    "safetensors": "onnx-genai.adapters.safetensors@1",
    "hf_peft": "onnx-genai.adapters.hf-peft@1",
    "ort_genai": "onnxruntime.lora-adapter@1",
}
CAPABILITIES = ("parameter_adapters", "heterogeneous_adapter_batching")
NAMES = {"segments": "lora.segments", "counts": "lora.counts", "scales": "lora.scales", "active": "lora.active"}


@dataclass(frozen=True)
class Adapter:
    """One adapter of a test: its factors by target, and how its document scales them."""

    factors: Factors
    alpha: float = 2.0
    format: str = "json"
    dtype: str = "float32"
    baked: bool = False
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def rank(self) -> int:
        return len(next(iter(self.factors.values()))[0])

    @property
    def factor(self) -> float:
        return 1.0 if self.baked else self.alpha / self.rank


def random_factors(seed: int, rank: int, features: Mapping[str, tuple[int, int]]) -> Factors:
    """Factors for targets of these (inputs, width)."""
    draw = np.random.default_rng(seed)
    return {
        name: (
            draw.standard_normal((rank, inputs), np.float32),
            draw.standard_normal((width, rank), np.float32),
        )
        for name, (inputs, width) in features.items()
    }


def plain_delta(adapters: Sequence[tuple[Adapter, float]], target: str, x: Floats) -> Floats:
    """x A^T B^T of each adapter, scaled and summed."""
    total: Floats = np.float32(0)  # type: ignore[assignment]
    for adapter, scale in adapters:
        a, b = adapter.factors[target]
        total = total + np.float32(scale * adapter.factor) * (x @ a.T @ b.T)
    return total


# ---- files -----------------------------------------------------------------------------------------------------------


def write_adapter(root: Path, alias: str, adapter: Adapter, targets: Mapping[str, Document]) -> Document:
    """Write an adapter's files; gives its weights entry."""
    folder = root / "adapters" / alias
    folder.mkdir(parents=True, exist_ok=True)
    location, config = WRITERS[adapter.format](folder, adapter, targets)
    scale = "baked" if adapter.baked else "alpha_over_rank"
    entry = {"location": f"adapters/{alias}/{location}", "loader_capability": LOADERS[adapter.format]}
    entry |= {"scale_encoding": scale, "format": adapter.format}
    return entry | ({"config_location": f"adapters/{alias}/{config}"} if config else {})


def _json(folder: Path, adapter: Adapter, targets: Mapping[str, Document]) -> tuple[str, str]:
    entries = {name: {"a": a.ravel().tolist(), "b": b.ravel().tolist()} for name, (a, b) in adapter.factors.items()}
    (folder / "w.json").write_text(json.dumps({"targets": entries}))
    return "w.json", ""


def _stored(array: Floats, dtype: str) -> NDArray[Any]:
    return array.astype({"float32": np.float32, "float16": np.float16}[dtype])


def _safetensors(folder: Path, adapter: Adapter, targets: Mapping[str, Document]) -> tuple[str, str]:
    tensors = {
        f"{name}.{side}": _stored(array, adapter.dtype)
        for name, pair in adapter.factors.items()
        for side, array in zip("ab", pair, strict=True)
    }
    save_file(tensors, folder / "w.safetensors", metadata={"format": "np"})
    return "w.safetensors", ""


def _peft(folder: Path, adapter: Adapter, targets: Mapping[str, Document]) -> tuple[str, str]:
    tensors = {
        f"base_model.model.{name}.lora_{side}.weight": _stored(array, adapter.dtype)
        for name, pair in adapter.factors.items()
        for side, array in zip("AB", pair, strict=True)
    }
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {"peft_type": "LORA", "r": adapter.rank, "lora_alpha": adapter.alpha, "bias": "none", "use_dora": False}
    (folder / "adapter_config.json").write_text(json.dumps(config | dict(adapter.more)))
    return "adapter_model.safetensors", "adapter_config.json"


def _onnx_adapter(folder: Path, adapter: Adapter, targets: Mapping[str, Document]) -> tuple[str, str]:
    """Parameters as the graphs here want them: A [inputs, rank], B [rank, width]."""
    made = onnxruntime.AdapterFormat()
    made.set_adapter_version(1)
    made.set_model_version(1)
    parameters = {}
    for name, pair in adapter.factors.items():
        for side, array in zip("ab", pair, strict=True):
            turned = np.ascontiguousarray(_stored(array, adapter.dtype).T)
            turned = turned[None] if adapter.more.get("rows") else turned
            port = targets[name]["graph_inputs"][side]
            parameters[port] = onnxruntime.OrtValue.ortvalue_from_numpy(turned)
    made.set_parameters(parameters)
    made.export_adapter(str(folder / "w.onnx_adapter"))
    return "w.onnx_adapter", ""


WRITERS: dict[str, Callable[[Path, Adapter, Mapping[str, Document]], tuple[str, str]]] = {
    "json": _json,
    "safetensors": _safetensors,
    "hf_peft": _peft,
    "ort_genai": _onnx_adapter,
}


# ---- documents -------------------------------------------------------------------------------------------------------


def service(
    root: Path, targets: Sequence[Document], adapters: Mapping[str, Adapter], slots: int, **more: Any
) -> Document:
    """The `adapters` section, after writing every adapter's files."""
    by_id = {each["id"]: each for each in targets}
    artifacts = {}
    for index, (alias, each) in enumerate(adapters.items()):
        artifacts[alias] = {
            "index": index,
            "identity": alias,
            "version": "1",
            "rank": each.rank,
            "alpha": each.alpha,
            "dtype": each.dtype,
            "weights": [write_adapter(root, alias, each, by_id)],
            "bindings": [{"target": name, "weight_key": name} for name in each.factors],
        }
    selection = {"segments": NAMES["segments"], "adapter_counts": NAMES["counts"], "scales": NAMES["scales"]}
    return {
        "target_manifest": {"targets": list(targets)},
        "selection": {**selection, "active": NAMES["active"], "max_adapters": slots},
        "application_capability": "onnx-genai.adapters@1",
        "portable_fallback": True,
        "artifacts": artifacts,
        **more,
    }


def selection_inputs(slots: int) -> Document:
    """The workflow inputs that select."""
    return {
        NAMES["segments"]: request(tensor("int64", "batch", slots, rows=True), "adapter_segments"),
        NAMES["counts"]: request(tensor("int64", "batch", rows=True), "adapter_counts"),
        NAMES["scales"]: request(tensor("float32", "batch", slots, rows=True), "adapter_scales"),
        NAMES["active"]: request(tensor("bool", "batch", rows=True), "adapter_active"),
    }


def target(name: str, inputs: int, outputs: int, **more: Any) -> Document:
    """A target in component `base`."""
    spec = {"id": name, "component": "base", "initializer": "w", "node_name": "w", "output_name": "y"}
    return spec | {"activation_dtype": "float32", "input_features": inputs, "output_features": outputs, **more}


def overlay_package(
    root: Path,
    adapters: Mapping[str, Adapter],
    targets: Sequence[Document],
    *,
    slots: int = 2,
    change: Callable[[Document], None] = lambda document: None,
    **more: Any,
) -> Path:
    """x -> an overlay over initializer `w` of a component that no step runs -> y. more: fields of `adapters`."""
    root.mkdir(parents=True, exist_ok=True)
    inputs, outputs = targets[0]["input_features"], targets[0]["output_features"]
    _projection(root / "base.onnx", inputs, outputs)
    rows_in, rows_out = tensor("float32", "batch", inputs, rows=True), tensor("float32", "batch", outputs, rows=True)
    overlay = {
        "implementation": {"kind": "adapter", "abi": "onnx-genai.parameter-overlay", "version": "1"},
        "ports": {"inputs": {"in": rows_in}, "outputs": {"out": rows_out}},
        "contract": {
            "id": "onnx-genai.parameter-overlay",
            "version": "1",
            "bindings": {"input": "in", "output": "out"},
            "parameters": {"action": "apply", "component": "base", "parameter": "w"},
        },
        "row_scope": {"axis": 0},
    }
    document = package(
        ["workflow_ssa", "typed_emit", *CAPABILITIES],
        {"x": application(rows_in, "x"), **selection_inputs(slots)},
        {"y": output(rows_out)},
        {"base": component("base.onnx", {"x": rows_in}, {"y": rows_out}), "overlay": overlay},
        [invoke("overlay", {"in": "x"}, {"out": "adapted"}), emit("adapted", "y")],
        adapters=service(root, targets, adapters, slots, **more),
    )
    document["pipeline"]["workflow"]["manifest"]["adapter_abis"] = {"onnx-genai.parameter-overlay": "1"}
    change(document)
    write_document(root, document)
    return root


def _projection(file: Path, inputs: int, outputs: int) -> None:
    weight = numpy_helper.from_array(np.zeros((inputs, outputs), np.float32), "w")
    sides = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])]
        for name, size in (("x", inputs), ("y", outputs))
    ]
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "w")
    onnx.save(helper.make_model(helper.make_graph([node], "g", *sides, [weight]), ir_version=8), file)


def selected(
    *rows: Sequence[tuple[int, float]], slots: int = 2, active: Sequence[bool] = ()
) -> dict[str, NDArray[Any]]:
    """Selection inputs for rows of (number, scale) slots."""
    segments, scales = np.full((len(rows), slots), -1), np.zeros((len(rows), slots), np.float32)
    for at, row in enumerate(rows):
        for slot, (index, scale) in enumerate(row):
            segments[at, slot], scales[at, slot] = index, scale
    return {
        NAMES["segments"]: segments,
        NAMES["counts"]: np.array([len(row) for row in rows]),
        NAMES["scales"]: scales,
        NAMES["active"]: np.array(active or [True] * len(rows)),
    }


# ---- decoders --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seam:
    """How a graph takes the factors of one weight. rank_first: A [rank, inputs] and B [width, rank]; rank: fixed."""

    weight: str
    rows: bool = True
    scale: bool = True
    rank_first: bool = False
    rank: int | str = "rank"


def with_seams(model: onnx.ModelProto, seams: Sequence[Seam]) -> list[Document]:
    """Give a graph inputs for factors of these weights; gives the targets of a document (component `decoder`)."""
    return [_with_seam(model.graph, seam) for seam in seams]


def _with_seam(graph: onnx.GraphProto, seam: Seam) -> Document:
    weight = next(each for each in graph.initializer if each.name == seam.weight)
    inputs, width = weight.dims
    at, node = next((at, each) for at, each in enumerate(graph.node) if seam.weight in each.input)
    name, made = seam.weight, node.output[0]
    node.output[0] = f"{name}.base"
    node.name = f"{name}.node"
    nodes = []

    def factor(port: str, features: int, features_first: bool) -> str:
        dims: list[int | str] = [features, seam.rank] if features_first else [seam.rank, features]
        shape = (["batch"] if seam.rows else []) + dims
        default = [1 if each == "batch" else 0 if isinstance(each, str) else each for each in shape]
        graph.input.append(helper.make_tensor_value_info(port, TensorProto.FLOAT, shape))
        graph.initializer.append(numpy_helper.from_array(np.zeros(default, np.float32), port))
        if not seam.rank_first:
            return port
        nodes.append(helper.make_node("Transpose", [port], [f"{port}.t"], perm=[0, 2, 1] if seam.rows else [1, 0]))
        return f"{port}.t"

    a, b = factor(f"{name}.a", inputs, not seam.rank_first), factor(f"{name}.b", width, seam.rank_first)
    nodes += [
        helper.make_node("MatMul", [node.input[0], a], [f"{name}.low"]),
        helper.make_node("MatMul", [f"{name}.low", b], [f"{name}.delta"]),
    ]
    delta, ports = f"{name}.delta", {"a": f"{name}.a", "b": f"{name}.b"}
    if seam.scale:
        ports["scale"] = f"{name}.s"
        graph.input.append(helper.make_tensor_value_info(ports["scale"], TensorProto.FLOAT, [1]))
        graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), ports["scale"]))
        nodes.append(helper.make_node("Mul", [delta, ports["scale"]], [f"{name}.scaled"]))
        delta = f"{name}.scaled"
    nodes.append(helper.make_node("Add", [f"{name}.base", delta], [made]))
    for each in reversed(nodes):
        graph.node.insert(at + 1, each)
    return {
        "id": name,
        "component": "decoder",
        "initializer": name,
        "node_name": f"{name}.node",
        "output_name": f"{name}.base",
        "activation_dtype": "float32",
        "input_features": inputs,
        "output_features": width,
        "graph_inputs": ports,
    }


def decoder_package(
    root: Path,
    fixture: str,
    seams: Sequence[Seam],
    adapters: Callable[[Mapping[str, tuple[int, int]]], Mapping[str, Adapter]],
    slots: int = 2,
    **more: Any,
) -> Path:
    """A fixture whose decoder takes factors. adapters: made for the (inputs, width) of each target."""
    shutil.copytree(FIXTURES / fixture, root)
    model = onnx.load(root / "model.onnx")
    document = _document(root)
    workflow = document["pipeline"]["workflow"]
    name = next(
        name for name, each in workflow["components"].items()
        if each["implementation"].get("artifact") == "model.onnx"
    )  # fmt: skip
    targets = [{**each, "component": name} for each in with_seams(model, seams)]
    onnx.save(model, root / "model.onnx")
    made = adapters({each["id"]: (each["input_features"], each["output_features"]) for each in targets})
    document["adapters"] = service(root, targets, made, slots, **more)
    workflow["inputs"] |= selection_inputs(slots)
    workflow["manifest"]["capabilities"] += CAPABILITIES
    write_document(root, document)
    return root


def _document(root: Path) -> Document:
    """The package's document; of a genai_config the one that it is lowered to."""
    file = root / "inference_metadata.yaml"
    if file.exists():
        document: Document = yaml.safe_load(file.read_text("utf-8"))
        return document
    lowered = lower_genai_config(root).document
    (root / "genai_config.json").unlink()
    return json.loads(json.dumps(lowered))  # type: ignore[no-any-return]


def merged_model(root: Path, fixture: str, adapters: Sequence[tuple[Adapter, float]]) -> Path:
    """The fixture's graph with the deltas in its weights: what the adapters mean, without any of our code."""
    model = onnx.load(FIXTURES / fixture / "model.onnx")
    for each in model.graph.initializer:
        changing = [(adapter, scale) for adapter, scale in adapters if each.name in adapter.factors]
        if changing:
            weight = numpy_helper.to_array(each)
            delta = plain_delta(changing, each.name, np.eye(weight.shape[0], dtype=np.float32))
            each.CopyFrom(numpy_helper.from_array((weight + delta).astype(np.float32), each.name))
    file = root / f"merged-{fixture}-{len(list(root.iterdir()))}.onnx"
    onnx.save(model, file)
    return file


def compiled(root: Path) -> Path:
    """The package's compiled folder."""
    out = root.with_name(f"{root.name}.compiled")
    compile_package(root, out=out)
    return out
