"""Execution providers (known traps R): what the user names is strict, what the package names is a preference.

This build of ONNX Runtime runs on the CPU; tests that need a provider to be absent say so.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import onnxruntime
import pytest
from genai_compiler import CompileError, compile_package
from genai_runtime import LoadError
from genai_runtime.providers import check_active, provider_name, wanted_by_user

from tests.conftest import Traced
from tests.lower.packages import Recipe, write_package

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
without_cuda = pytest.mark.skipif(
    CUDA in onnxruntime.get_available_providers(), reason="this build of ONNX Runtime has CUDA"
)


def package_that_prefers(folder: Path, *stated: dict[str, Any]) -> Path:
    """A compiled package with these provider_options."""
    options = {"session_options": {"provider_options": list(stated)}}
    write_package(folder / "package", Recipe(), {"model": {"decoder": options}})
    compile_package(folder / "package", out=folder / "compiled")
    return folder / "compiled"


@without_cuda
def test_r1_a_provider_that_the_user_names_is_strict(compiled: Callable[[str], tuple[Path, Traced]]) -> None:
    for names in (["cuda"], ["cuda", "cpu"], ["CUDAExecutionProvider"]):
        with pytest.raises(LoadError) as refused:
            genai_runtime.load(compiled("tiny-gqa-v1")[0], providers=names)
        assert refused.value.code == "provider-unavailable"
        assert CUDA in refused.value.what
        assert CPU in refused.value.what, "what this build has is said"
        assert "genai-compile[gpu]" in refused.value.help


@without_cuda
def test_r1_a_provider_that_the_package_names_is_a_preference(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = package_that_prefers(tmp_path, {"cuda": {"enable_cuda_graph": "0"}})
    with caplog.at_level(logging.WARNING, logger="genai_runtime"):
        model = genai_runtime.load(folder, threads=1)
    assert len(model.notices) == 1
    assert CUDA in model.notices[0]
    assert CPU in model.notices[0]
    assert caplog.messages == list(model.notices)
    assert model.describe()["providers"] == {"decoder": [CPU]}
    assert len(model.generate([3, 4], max_new_tokens=4, stop_on_eos=False).tokens) == 4


def test_r1_what_runs_is_reported_per_session(compiled: Callable[[str], tuple[Path, Traced]]) -> None:
    for providers in (None, ["cpu"]):
        model = genai_runtime.load(compiled("tiny-decoder")[0], providers=providers, threads=1)
        told = model.describe()["providers"]
        assert {"island_1", "last_token_logits"} & set(told)
        assert set(map(tuple, told.values())) == {(CPU,)}
        assert model.notices == ()


def test_r1_a_session_that_falls_back_is_an_error() -> None:
    """ONNX Runtime may drop a provider when it opens a session, with only a log line."""
    with pytest.raises(LoadError) as refused:
        check_active({"decoder": [CUDA, CPU], "sampler": [CPU]}, ((CUDA, {}),))
    assert refused.value.code == "provider-unavailable"
    assert "'sampler'" in refused.value.what
    check_active({"decoder": [CUDA, CPU]}, ((CUDA, {}),))


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("webgpu", "WebGpuExecutionProvider"),
        ("WebGPU", "WebGpuExecutionProvider"),
        ("WebGpuExecutionProvider", "WebGpuExecutionProvider"),
        (" WEBGPUEXECUTIONPROVIDER ", "WebGpuExecutionProvider"),
        ("web", "WebGpuExecutionProvider"),
        ("cpu", CPU),
        ("CUDA", CUDA),
        ("cudaexecutionprovider", CUDA),
        ("dml", "DmlExecutionProvider"),
        ("DirectML", "DmlExecutionProvider"),
        ("TensorrtExecutionProvider", "TensorrtExecutionProvider"),
        ("trt", "TensorrtExecutionProvider"),
        ("QNN", "QNNExecutionProvider"),
        ("openvino", "OpenVINOExecutionProvider"),
        ("NvTensorRtRtx", "NvTensorRTRTXExecutionProvider"),
        ("rocm", "ROCMExecutionProvider"),
        ("MIGraphX", "MIGraphXExecutionProvider"),
        ("CoreML", "CoreMLExecutionProvider"),
        ("VitisAI", "VitisAIExecutionProvider"),
    ],
)
def test_r2_spellings_are_one_name(spelling: str, name: str) -> None:
    """Names as ONNX Runtime's documentation of execution providers has them."""
    assert provider_name(spelling) == name


def test_r2_every_provider_of_this_build_is_known() -> None:
    for name in onnxruntime.get_available_providers():
        assert provider_name(name) == name
        assert wanted_by_user([name.removesuffix("ExecutionProvider").lower()]) == ((name, {}),)


@pytest.mark.parametrize(("spelling", "near"), [("cudda", "cuda"), ("webgpuu", "webgpu"), ("gpu!", ""), ("", "")])
def test_r2_an_unknown_name_is_an_error(
    compiled: Callable[[str], tuple[Path, Traced]], spelling: str, near: str
) -> None:
    with pytest.raises(LoadError) as refused:
        genai_runtime.load(compiled("tiny-gqa-v1")[0], providers=[spelling])
    assert refused.value.code == "unknown-provider"
    assert f"'{spelling}'" in refused.value.what
    assert near in refused.value.help


def test_r2_spellings_of_a_package_are_normalised_when_compiled(tmp_path: Path) -> None:
    folder = package_that_prefers(tmp_path, {"WebGPU": {}}, {"cpu": {}})
    notices = genai_runtime.load(folder, threads=1).notices
    assert len(notices) == ("WebGpuExecutionProvider" not in onnxruntime.get_available_providers())
    assert all("WebGpuExecutionProvider" in each for each in notices)
    with pytest.raises(CompileError, match="unknown-provider"):
        package_that_prefers(tmp_path / "other", {"webgpuu": {}})


def test_r2_an_empty_list_of_providers_is_no_wish(compiled: Callable[[str], tuple[Path, Traced]]) -> None:
    assert genai_runtime.load(compiled("tiny-gqa-v1")[0], providers=[], threads=1).describe()["providers"] == {
        "decoder": [CPU]
    }
