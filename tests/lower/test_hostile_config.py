"""Configurations with numbers that nobody can mean: refused or left out with a reason, and never acted upon."""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_compiler.lower import search_defaults
from genai_compiler.problem import CompileError, Severity
from genai_runtime.sample import SamplingOptions
from onnx import TensorProto, external_data_helper, helper, numpy_helper, save

from tests.lower.packages import Recipe, lower, refused, write_package

THREADS = ("intra_op_num_threads", "inter_op_num_threads")


# ---- extents ---------------------------------------------------------------------------------------------------------


def test_a_huge_number_of_layers_is_a_contradiction_like_any_other(tmp_path: Path) -> None:
    """In a process of its own with 2 GiB: a list of a billion numbers takes eight."""
    package = write_package(tmp_path / "p", Recipe(), {"model": {"decoder": {"num_hidden_layers": 1_000_000_000}}})

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    command = [sys.executable, "-m", "genai_compiler", str(package), "--check", "--format", "json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, preexec_fn=limit)
    assert ended.returncode == 0, ended.stderr[-500:]
    found = [each for each in json.loads(ended.stdout)["problems"] if each["path"] == "model.decoder.num_hidden_layers"]
    assert [each["code"] for each in found] == ["config-contradicts-graph"]


@pytest.mark.parametrize(("stated", "doubts"), [(1, 0), (2, 1), (0, 0)])
def test_the_number_of_layers_is_compared(tmp_path: Path, stated: int, doubts: int) -> None:
    lowered = lower(tmp_path, config={"model": {"decoder": {"num_hidden_layers": stated}}})
    assert sum(each.code == "config-contradicts-graph" for each in lowered.problems) == doubts


# ---- threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", THREADS)
@pytest.mark.parametrize("count", [-1, 1025, 1_000_000_000])
def test_threads_out_of_bounds_are_left_out(tmp_path: Path, key: str, count: int) -> None:
    write_package(tmp_path / "p", Recipe(), {"model": {"decoder": {"session_options": {key: count}}}})
    compiled = compile_package(tmp_path / "p", tmp_path / "c")
    doubts = [each for each in compiled.problems if each.path.endswith(key)]
    assert [(each.code, each.severity) for each in doubts] == [("ignored-key", Severity.WARNING)]
    assert key not in json.loads((tmp_path / "c" / "manifest.json").read_text("utf-8"))["session"]["options"]
    with genai_runtime.load(tmp_path / "c") as model:
        assert model.generate([3], max_new_tokens=1).tokens


@pytest.mark.parametrize("key", THREADS)
@pytest.mark.parametrize("count", [0, 1, 1024])
def test_threads_within_the_bounds_are_kept(tmp_path: Path, key: str, count: int) -> None:
    lowered = lower(tmp_path, config={"model": {"decoder": {"session_options": {key: count}}}})
    assert getattr(lowered.session_options, key) == count


# ---- search ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [("temperature", 1e-300), ("temperature", 1e300), ("temperature", 1e-31), ("repetition_penalty", 1e300)],
)
def test_what_the_sampler_would_refuse_is_refused_here(tmp_path: Path, key: str, value: float) -> None:
    problem = refused(tmp_path, config={"search": {key: value, "do_sample": True}})["bad-value"]
    assert problem.path == f"search.{key}"


@pytest.mark.parametrize("key", ["temperature", "repetition_penalty"])
@pytest.mark.parametrize("value", [0.0, 1e-300, 9e-5, 1e-4, 0.5, 1e30, 2e30, 1e300])
def test_compiler_and_sampler_have_the_same_bounds(tmp_path: Path, key: str, value: float) -> None:
    options: dict[str, Any] = {key: value}
    try:
        SamplingOptions(**options).validate()
        served = True
    except genai_runtime.RequestError:
        served = False
    try:
        lower(tmp_path, config={"search": {**options, "do_sample": True}})
        accepted = True
    except CompileError:
        accepted = False
    assert accepted == served
    assert search_defaults.LARGEST == 1e30


# ---- external data ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("offset", "", "bad-external-data"),
        ("offset", "x", "bad-external-data"),
        ("offset", "1_0", "bad-external-data"),
        ("offset", "-4", "bad-external-data"),
        ("length", "", "bad-external-data"),
        ("length", " 64", "bad-external-data"),
        ("length", "60", "bad-external-data"),
        ("length", "68", "short-external-data"),
        ("length", "64", ""),
    ],
)
def test_entries_of_external_data(tmp_path: Path, key: str, value: str, code: str) -> None:
    """A weight of 16 float32, 64 bytes, in a file of that size."""
    weight = numpy_helper.from_array(np.arange(16, dtype=np.float32), "weight")
    (tmp_path / "weights.bin").write_bytes(weight.raw_data)
    external_data_helper.set_external_data(weight, "weights.bin", 0, 64)
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    next(each for each in weight.external_data if each.key == key).value = value
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [16]) for name in ("input_ids", "logits")]
    node = helper.make_node("Add", ["input_ids", "weight"], ["logits"])
    model = helper.make_model(helper.make_graph([node], "g", ports[:1], ports[1:], [weight]))
    write_package(tmp_path / "p", Recipe())
    save(model, tmp_path / "p" / "model.onnx")
    (tmp_path / "weights.bin").rename(tmp_path / "p" / "weights.bin")
    with pytest.raises(CompileError) as caught:
        compile_package(tmp_path / "p", tmp_path / "c")
    found = {each.code for each in caught.value.problems if "external-data" in each.code}
    assert found == ({code} if code else set())
