"""Files of adapters: every format from an independent writer, and what hostile ones are told."""

import json
import struct
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.driver import Options
from genai_runtime.lora.fault import AdapterFault
from genai_runtime.lora.onnx_adapter import read_onnx_adapter
from genai_runtime.lora.safetensors_file import SafetensorsFile
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from tests.lora_packages import Adapter, compiled, overlay_package, plain_delta, random_factors, selected, target

WIDE = {"t": (4, 6)}
X = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
INPUTS = {"a": "t.in", "b": "t.out"}


def package(root: Path, adapter: Adapter, change: Callable[[dict[str, Any]], None] = lambda document: None) -> Path:
    """An overlay of 4 features to 6."""
    return overlay_package(root, {"one": adapter}, [target("t", 4, 6, graph_inputs=INPUTS)], change=change)


def rounded(adapter: Adapter) -> Adapter:
    """The adapter with its factors as float16 holds them."""
    pairs = {
        name: (a.astype(np.float16).astype(np.float32), b.astype(np.float16).astype(np.float32))
        for name, (a, b) in adapter.factors.items()
    }
    return Adapter(pairs, adapter.alpha, adapter.format, adapter.dtype, adapter.baked)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("form", "baked"),
    [("json", False), ("json", True), ("safetensors", False), ("safetensors", True), ("hf_peft", False),
     ("ort_genai", True)],
)  # fmt: skip
def test_each_format_gives_the_plain_product(form: str, baked: bool, dtype: str, tmp_path: Path) -> None:
    adapter = Adapter(random_factors(1, 2, WIDE), 3.0, form, dtype, baked)
    with genai_runtime.load(compiled(package(tmp_path / "p", adapter))) as model:
        got = model.run({"x": X} | selected([(0, 0.5)], [(0, -2.0)]))["y"]
    held = adapter if dtype == "float32" or form == "json" else rounded(adapter)
    wanted = np.concatenate([plain_delta([(held, s)], "t", X[at : at + 1]) for at, s in enumerate((0.5, -2.0))])
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_an_alias_may_hold_slashes(tmp_path: Path) -> None:
    """V100 wants files below `adapters/<alias>/`, whatever the alias."""
    adapter = Adapter(random_factors(1, 2, WIDE))
    root = overlay_package(tmp_path / "p", {"team/one": adapter}, [target("t", 4, 6, graph_inputs=INPUTS)])
    with genai_runtime.load(compiled(root)) as model:
        got = model.run({"x": X} | selected([(0, 1.0)], [(0, 1.0)]))["y"]
    np.testing.assert_allclose(got, plain_delta([(adapter, 1.0)], "t", X), rtol=1e-5)


def test_bfloat16_factors(tmp_path: Path) -> None:
    """Numbers that bfloat16 holds exactly, so that their bits are the upper halves of float32's."""
    a, b = np.array([[1, -0.5, 2, 0.25]], np.float32), np.arange(6, dtype=np.float32).reshape(6, 1)

    def halves(array: Any) -> bytes:
        return (array.view(np.uint32) >> 16).astype("<u2").tobytes()

    root = package(tmp_path / "p", Adapter({"t": (a, b)}, format="safetensors"), _as_bf16)
    header = {
        "t.a": {"dtype": "BF16", "shape": [1, 4], "data_offsets": [0, 8]},
        "t.b": {"dtype": "BF16", "shape": [6, 1], "data_offsets": [8, 20]},
    }
    (root / "adapters/one/w.safetensors").write_bytes(_framed(json.dumps(header).encode()) + halves(a) + halves(b))
    with genai_runtime.load(compiled(root)) as model:
        got = model.run({"x": X} | selected([(0, 1.0)], [(0, 1.0)]))["y"]
    np.testing.assert_allclose(got, np.float32(2) * (X @ a.T @ b.T), rtol=1e-6)


def _as_bf16(document: dict[str, Any]) -> None:
    document["adapters"]["artifacts"]["one"]["dtype"] = "bf16"


def _framed(header: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header


# ---- the names and scales of PEFT ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "module"),
    [("t", "t"), ("t", "base_model.t"), ("t", "base_model.model.t"), ("t", "base_model.model.layers.0.t"),
     ("layers.1.t", "base_model.model.net.layers.1.t")],
)  # fmt: skip
def test_modules_are_found_as_peft_names_them(key: str, module: str, tmp_path: Path) -> None:
    adapter = Adapter(random_factors(1, 2, WIDE), format="hf_peft")
    a, b = adapter.factors["t"]

    def change(document: dict[str, Any]) -> None:
        document["adapters"]["artifacts"]["one"]["bindings"][0]["weight_key"] = key

    root = package(tmp_path / "p", adapter, change)
    others = {f"other.{key}x.lora_A.weight": a, f"x{key}.lora_A.weight": a}
    tensors = {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b, **others}
    save_file(tensors, root / "adapters/one/adapter_model.safetensors")
    with genai_runtime.load(compiled(root)) as model:
        got = model.run({"x": X} | selected([(0, 1.0)], [(0, 1.0)]))["y"]
    np.testing.assert_allclose(got, plain_delta([(adapter, 1.0)], "t", X), rtol=1e-5)


@pytest.mark.parametrize(
    ("alpha", "config"),
    [
        (2 * np.sqrt(2), {"lora_alpha": 2, "use_rslora": True}),
        (5.0, {"alpha_pattern": {"t": 5.0}}),
        (2.0, {"r": 7, "rank_pattern": {"model.t": 2}}),
    ],
)
def test_scales_of_peft_that_are_those_of_the_document(alpha: float, config: dict[str, Any], tmp_path: Path) -> None:
    adapter = Adapter(random_factors(1, 2, WIDE), float(alpha), "hf_peft", more=config)
    with genai_runtime.load(compiled(package(tmp_path / "p", adapter))) as model:
        got = model.run({"x": X} | selected([(0, 1.0)], [(0, 1.0)]))["y"]
    a, b = adapter.factors["t"]
    np.testing.assert_allclose(got, np.float32(alpha / 2) * (X @ a.T @ b.T), rtol=1e-5)


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"r": 3}, "rank 3, the document 2"),
        ({"r": True}, "no usable r"),
        ({"r": None}, "no usable r"),
        ({"lora_alpha": 9}, "by 4.5, the document by 1"),
        ({"lora_alpha": "two"}, "no usable lora_alpha"),
        ({"use_rslora": True}, "alpha: 2.82843"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "biases"),
        ({"modules_to_save": ["head"]}, "modules_to_save"),
        ({"peft_type": "IA3"}, "IA3"),
        ({"init_lora_weights": "pissa_niter_4"}, "other base weights"),
        ({"init_lora_weights": "olora"}, "other base weights"),
        ({"alora_invocation_tokens": [1, 2]}, "alora_invocation_tokens"),
        ({"use_qalora": True}, "use_qalora"),
        ({"rank_pattern": {"(a+)+$": 2}}, "no module's name"),
        ({"rank_pattern": [1]}, "no object"),
    ],
)
def test_a_configuration_that_says_otherwise(config: dict[str, Any], what: str, tmp_path: Path) -> None:
    root = package(tmp_path / "p", Adapter(random_factors(1, 2, WIDE), format="hf_peft", more=config))
    assert refusal(root) == ("adapter-config", "config_location")
    with pytest.raises(CompileError) as refused:
        compile_package(root, out=tmp_path / "out")
    (problem,) = refused.value.problems
    assert what in f"{problem.what} {problem.help}"


# ---- hostile files ---------------------------------------------------------------------------------------------------


def refusal(root: Path) -> tuple[str, str]:
    """(code, field) of the one problem that compiling finds; nothing is written."""
    out = root.with_name("refused.compiled")
    with pytest.raises(CompileError) as refused:
        compile_package(root, out=out)
    assert not out.exists()
    (problem,) = refused.value.problems
    place = "adapters.artifacts.one.weights[0]."
    assert problem.path.startswith(place)
    assert problem.where.line is not None
    return problem.code, problem.path.removeprefix(place)


A, B = (each.ravel().tolist() for each in random_factors(1, 2, WIDE)["t"])


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"", "adapter-file"),
        (b"[]", "adapter-file"),
        (b"\xff\xfe", "adapter-file"),
        (b'{"targets": {"t": {"a": [1, 2', "adapter-file"),
        (b"[" * 100_000, "adapter-file"),
        (b'{"targets": {}, "targets": {}}', "adapter-file"),
        (b'{"targets": {"t": {"a": [1], "a": [1], "b": [1]}}}', "adapter-file"),
        (b'{"targets": {"t": {"a": [NaN], "b": [1]}}}', "adapter-file"),
        (b'{"targets": {"t": {"a": [' + b"9" * 5000 + b'], "b": [1]}}}', "adapter-file"),
        (json.dumps({"targets": {"t": {"a": A, "b": B}}, "alpha": 3}).encode(), "adapter-file"),
        (json.dumps({"targets": {"u": {"a": A, "b": B}}}).encode(), "adapter-weights"),
        (json.dumps({"targets": {"t": {"a": A, "b": B, "scale": 2}}}).encode(), "adapter-weights"),
        (json.dumps({"targets": {"t": {"a": A[1:], "b": B}}}).encode(), "adapter-weights"),
        (json.dumps({"targets": {"t": {"a": A, "b": [*B, 1]}}}).encode(), "adapter-weights"),
        (json.dumps({"targets": {"t": {"a": [True, *A[1:]], "b": B}}}).encode(), "adapter-weights"),
        (json.dumps({"targets": {"t": {"a": ["1", *A[1:]], "b": B}}}).encode(), "adapter-weights"),
        (json.dumps({"targets": {"t": {"a": [1e39, *A[1:]], "b": B}}}).encode(), "adapter-weights"),
        (json.dumps({"targets": {"t": {"a": [10**400, *A[1:]], "b": B}}}).encode(), "adapter-weights"),
        (json.dumps({"targets": {"t": {"a": "1", "b": B}}}).encode(), "adapter-weights"),
    ],
)
def test_json_that_holds_no_factors(text: bytes, code: str, tmp_path: Path) -> None:
    root = package(tmp_path / "p", Adapter(random_factors(1, 2, WIDE)))
    (root / "adapters/one/w.json").write_bytes(text)
    assert refusal(root) == (code, "location")


def header(**changes: Any) -> bytes:
    """A safetensors file of the right factors with another header."""
    entries: dict[str, Any] = {
        "t.a": {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32]},
        "t.b": {"dtype": "F32", "shape": [6, 2], "data_offsets": [32, 80]},
    }
    for name, value in changes.items():
        entries[name.replace("_", ".")] = value
    return _framed(json.dumps(entries).encode()) + np.array(A + B, np.float32).tobytes()


NAN = np.array([*A[1:], np.nan], np.float32).reshape(2, 4)
GOOD = header()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "adapter-file"),
        (b"1234567", "adapter-file"),
        (struct.pack("<Q", 1 << 63) + b"{}", "adapter-file"),
        (struct.pack("<Q", 10**8) + b"{}" * 100, "adapter-file"),
        (struct.pack("<Q", 0), "adapter-file"),
        (_framed(b"[]"), "adapter-file"),
        (_framed(b'{"t.a": {}}'), "adapter-file"),
        (_framed(b'{"t.a": 1, "t.a": 2}'), "adapter-file"),
        (GOOD[:-1], "adapter-file"),
        (GOOD + b"1", "adapter-file"),
        (header(t_a={"dtype": "F32", "shape": [2, 4], "data_offsets": [48, 80]}), "adapter-file"),
        (header(t_a={"dtype": "F32", "shape": [2, 4], "data_offsets": [32, 0]}), "adapter-file"),
        (header(t_a={"dtype": "F32", "shape": [-2, -4], "data_offsets": [0, 32]}), "adapter-file"),
        (header(t_a={"dtype": "F32", "shape": [True, 8], "data_offsets": [0, 32]}), "adapter-file"),
        (header(t_a={"dtype": "F32", "shape": [2.0, 4], "data_offsets": [0, 32]}), "adapter-file"),
        (header(t_a={"dtype": "F99", "shape": [2, 4], "data_offsets": [0, 32]}), "adapter-file"),
        (header(t_a={"dtype": "F32", "shape": [1 << 62, 0], "data_offsets": [0, 0]}), "adapter-file"),
        (header(t_a={"dtype": "F32", "shape": [4, 2], "data_offsets": [0, 32]}), "adapter-weights"),
        (header(t_a={"dtype": "I32", "shape": [2, 4], "data_offsets": [0, 32]}), "adapter-weights"),
        (save({"t.a": NAN, "t.b": np.zeros((6, 2), np.float32)}), "adapter-weights"),
        (save({"t.a": np.zeros((2, 4), np.float32)}), "adapter-weights"),
        (save({"t.a": np.zeros((2, 4), np.float64), "t.b": np.zeros((6, 2))}), "adapter-weights"),
        (save({"t.a": np.zeros((2, 4), np.float16), "t.b": np.zeros((6, 2), np.float16)}), "adapter-weights"),
    ],
)
def test_safetensors_that_hold_no_factors(content: bytes, code: str, tmp_path: Path) -> None:
    root = package(tmp_path / "p", Adapter(random_factors(1, 2, WIDE), format="safetensors"))
    (root / "adapters/one/w.safetensors").write_bytes(content)
    assert refusal(root) == (code, "location")


def test_the_same_file_unharmed_is_taken(tmp_path: Path) -> None:
    root = package(tmp_path / "p", Adapter(random_factors(1, 2, WIDE), format="safetensors"))
    (root / "adapters/one/w.safetensors").write_bytes(GOOD)
    compile_package(root, out=tmp_path / "out")


def onnx_adapter(folder: Path, **parameters: Any) -> Path:
    made = onnxruntime.AdapterFormat()
    made.set_parameters({f"t.{k}": onnxruntime.OrtValue.ortvalue_from_numpy(v) for k, v in parameters.items()})
    made.export_adapter(str(folder / "w.onnx_adapter"))
    return folder / "w.onnx_adapter"


@pytest.mark.parametrize(
    "parameters",
    [
        {"in": np.zeros((4, 2), np.float32)},
        {"in": np.zeros((2, 4), np.float32), "out": np.zeros((2, 6), np.float32)},
        {"in": np.zeros((4, 2), np.float16), "out": np.zeros((2, 6), np.float16)},
        {"in": np.full((4, 2), np.inf, np.float32), "out": np.zeros((2, 6), np.float32)},
        {"in": np.zeros((4, 2), np.int32), "out": np.zeros((2, 6), np.float32)},
    ],
)
def test_an_onnx_runtime_adapter_that_holds_no_factors(parameters: dict[str, Any], tmp_path: Path) -> None:
    adapter = Adapter(random_factors(1, 2, WIDE), format="ort_genai", baked=True)
    root = package(tmp_path / "p", adapter)
    onnx_adapter(root / "adapters/one", **parameters)
    assert refusal(root) == ("adapter-weights", "location")


def test_an_onnx_runtime_adapter_that_is_none(tmp_path: Path) -> None:
    root = package(tmp_path / "p", Adapter(random_factors(1, 2, WIDE), format="ort_genai", baked=True))
    file = root / "adapters/one/w.onnx_adapter"
    whole = file.read_bytes()
    for content in (b"", b"TORT", whole[:40], whole[:-8], whole.replace(b"TORT", b"TORN"), b"\xff" * 200):
        file.write_bytes(content)
        assert refusal(root) == ("adapter-file", "location")


def test_a_scale_in_an_onnx_runtime_adapter_counts(tmp_path: Path) -> None:
    pair = random_factors(1, 2, WIDE)["t"]
    adapter = Adapter({"t": pair}, format="ort_genai", baked=True)
    inputs = {**INPUTS, "scale": "t.scale"}
    root = overlay_package(tmp_path / "p", {"one": adapter}, [target("t", 4, 6, graph_inputs=inputs)])
    parts = {"in": np.ascontiguousarray(pair[0].T), "out": np.ascontiguousarray(pair[1].T)}
    onnx_adapter(root / "adapters/one", **parts, scale=np.array([3.0], np.float32))
    with genai_runtime.load(compiled(root)) as model:
        got = model.run({"x": X} | selected([(0, 1.0)], [(0, 1.0)]))["y"]
    np.testing.assert_allclose(got, np.float32(3) * (X @ pair[0].T @ pair[1].T), rtol=1e-5)


def _read_all(file: Path) -> object:
    return read_onnx_adapter(file, {"t.in", "t.out"})


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_binaries_are_read_or_refused_by_name(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = onnx_adapter(Path(folder), **{"in": np.ones((4, 2), np.float32), "out": np.ones((2, 6), np.float16)})
        kind, content = data.draw(st.sampled_from([(SafetensorsFile, GOOD), (_read_all, source.read_bytes())]))
        damaged = bytearray(content)
        for _ in range(data.draw(st.integers(1, 4))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        file = Path(folder) / "damaged"
        file.write_bytes(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))
        with suppress(AdapterFault):
            kind(file)


# ---- places of files, and the compiled folder ------------------------------------------------------------------------


@pytest.mark.parametrize("location", ["adapters/one/../../secret.json", "/etc/passwd", "adapters/two/w.json"])
def test_weights_that_lie_elsewhere(location: str, tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        document["adapters"]["artifacts"]["one"]["weights"][0]["location"] = location

    root = package(tmp_path / "p", Adapter(random_factors(1, 2, WIDE)), change)
    with pytest.raises(CompileError) as refused:
        compile_package(root, out=tmp_path / "out")
    assert {each.code for each in refused.value.problems} == {"adapter-path"}


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    root = package(tmp_path / "p", Adapter(random_factors(1, 2, WIDE)))
    file = root / "adapters/one/w.json"
    file.rename(tmp_path / "w.json")
    file.symlink_to(tmp_path / "w.json")
    with pytest.raises(CompileError) as refused:
        compile_package(root, out=tmp_path / "out")
    assert {each.code for each in refused.value.problems} == {"outside-package"}


@pytest.mark.parametrize("form", ["json", "hf_peft"])
def test_a_bundle_stands_alone_and_holds_the_adapters(form: str, tmp_path: Path) -> None:
    adapter = Adapter(random_factors(1, 2, WIDE), format=form)
    root = package(tmp_path / "p", adapter)
    compile_package(root, out=tmp_path / "out", options=Options(bundle=True))
    root.rename(tmp_path / "gone")
    with genai_runtime.load(tmp_path / "out") as model:
        got = model.run({"x": X} | selected([(0, 1.0)], [(0, 1.0)]))["y"]
    np.testing.assert_allclose(got, plain_delta([(adapter, 1.0)], "t", X), rtol=1e-5)


def test_adapters_that_changed_since_are_found_at_load(tmp_path: Path) -> None:
    root = package(tmp_path / "p", Adapter(random_factors(1, 2, WIDE)))
    out = compiled(root)
    manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    assert "adapters/one/w.json" in {each["path"] for each in manifest["files"]}
    file = root / "adapters/one/w.json"
    text = file.read_text()
    file.write_text(text.replace("1", "2"))
    with pytest.raises(genai_runtime.LoadError, match=r"adapters/one/w\.json") as refused:
        genai_runtime.load(out)
    assert refused.value.code == "package-changed"
    file.write_text(text)
    with genai_runtime.load(out) as model:
        file.write_text("{}")
        with pytest.raises(genai_runtime.ExecutionError, match=r"adapters\.artifacts.*w\.json") as failed:
            model.run({"x": X} | selected([(0, 1.0)], [(0, 1.0)]))
        assert failed.value.code == "adapter-file"


def test_a_manifest_whose_adapters_are_damaged(tmp_path: Path) -> None:
    out = compiled(package(tmp_path / "p", Adapter(random_factors(1, 2, WIDE))))
    whole = (out / "manifest.json").read_text("utf-8")
    for entry, value in (("targets", []), ("selection", {}), ("cache", 0), ("cache", "x"), ("artifacts", [{}])):
        manifest = json.loads(whole)
        manifest["adapters"][entry] = value
        (out / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(genai_runtime.LoadError) as refused:
            genai_runtime.load(out)
        assert refused.value.code == "damaged-folder"
