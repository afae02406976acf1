"""What a package may tell ONNX Runtime: known harmless options, and nothing that native code would act upon."""

import json
import re
from pathlib import Path
from typing import Any

import genai_runtime
import pytest
from genai_compiler import compile_package
from genai_compiler.problem import Severity
from genai_compiler.read.ort_options import ATTRIBUTES, ENTRIES, TUNING
from genai_compiler.read.session_options import PROVIDERS

from tests.lower.packages import Recipe, lower, write_package

HARMFUL_ENTRIES = {
    "custom_ops_library": "evil.so",
    "enable_profiling": "prefix",
    "foo_bar": "1",
    "session.model_external_initializers_file_folder_path": "/etc",
    "session.optimized_model_filepath": "written.onnx",
    "session.debug_layout_transformation": "1",
    "session.moe.offload.derived_cache_dir": "cache",
    "session.use_ort_model_bytes_directly": "1",
    "ep.context_enable": "1",
    "ep.context_file_path": "written.onnx",
    "azure.uri": "https://example.com",
    "session.resource_cuda_partitioning_settings": "1,stats.csv",
}
HARMFUL_OPTIONS = {
    "qnn": {"backend_path": "evil.so", "qnn_saver_path": "x", "profiling_file_path": "x"},
    "cuda": {
        "gpu_external_alloc": "140000000000000", "gpu_external_free": "1", "gpu_external_empty_cache": "1",
        "user_compute_stream": "12", "has_user_compute_stream": "1", "enable_cuda_graph": "1",
    },
    "openvino": {"load_config": "{}", "cache_dir": "cache", "context": "0x1000"},
    "webgpu": {"dawnProcTable": "1", "webgpuInstance": "2", "webgpuDevice": "3", "enableRobustness": "0"},
    "tensorrt": {"trt_extra_plugin_lib_paths": "evil.so", "trt_engine_cache_path": "c", "user_compute_stream": "1"},
    "coreml": {"ModelCacheDirectory": "cache"},
    "vitisai": {"config_file": "passwd"},
    "cpu": {"anything": "1"},
}  # fmt: skip


def test_no_file_address_or_library_reaches_native_code(tmp_path: Path) -> None:
    """Custom allocators and streams are raw addresses that ONNX Runtime calls."""
    harmless = {"qnn": {"htp_performance_mode": "burst"}, "cuda": {"gpu_mem_limit": "1"}}
    stated = [{name: {**harmless.get(name, {}), **bad}} for name, bad in HARMFUL_OPTIONS.items()]
    session = {**HARMFUL_ENTRIES, "session.disable_prepacking": "1", "provider_options": stated}
    lowered = lower(tmp_path, config={"model": {"decoder": {"session_options": session}}})
    assert lowered.session_options.entries == (("session.disable_prepacking", "1"),)
    assert {each.name: dict(each.options) for each in lowered.providers if each.options} == {
        "QNNExecutionProvider": harmless["qnn"],
        "CUDAExecutionProvider": harmless["cuda"],
    }
    ignored = [each for each in lowered.problems if each.code == "ignored-key"]
    assert len(ignored) == len(HARMFUL_ENTRIES) + sum(map(len, HARMFUL_OPTIONS.values()))
    assert {each.severity for each in ignored} == {Severity.WARNING}


def test_the_lists_hold_no_name_that_speaks_of_harm() -> None:
    names = {*ENTRIES, *(option for options in TUNING.values() for option in options)}
    harm = re.compile(r"path|library|(?<!pro)file|dir\b|_dir|[Dd]irectory|user_|external|alloc$|dump|save|[Cc]apture")
    assert {each for each in names if harm.search(each)} == set()
    assert set(TUNING) <= set(PROVIDERS.values())


def test_entries_and_attributes_are_told_apart_by_a_dot() -> None:
    """The manifest keeps both in one object."""
    assert all("." in each for each in ENTRIES)
    assert not any("." in each for each in ATTRIBUTES)


def test_an_unknown_option_of_a_package_does_not_keep_it_from_loading(tmp_path: Path) -> None:
    session = {
        "foo_bar": "1", "session.set_denormal_as_zero": "0", "log_id": "x", "enable_mem_pattern": False,
        "graph_optimization_level": "ORT_ENABLE_BASIC", "intra_op_num_threads": 1,
    }  # fmt: skip
    write_package(tmp_path / "p", Recipe(), {"model": {"decoder": {"session_options": session}}})
    compiled = compile_package(tmp_path / "p", tmp_path / "c")
    ignored = [each.path for each in compiled.problems if each.code == "ignored-key"]
    assert ignored == ["model.decoder.session_options.foo_bar"]
    assert genai_runtime.load(tmp_path / "c").generate([3], max_new_tokens=1).tokens


@pytest.mark.parametrize("options", [{"foo_bar": 1}, {"graph_optimization_level": "HIGH"}, {"enable_mem_pattern": []}])
def test_a_manifest_with_an_option_that_is_none_is_damaged(tmp_path: Path, options: dict[str, Any]) -> None:
    write_package(tmp_path / "p", Recipe())
    compile_package(tmp_path / "p", tmp_path / "c")
    file = tmp_path / "c" / "manifest.json"
    data = json.loads(file.read_text("utf-8"))
    data["session"]["options"] |= options
    file.write_text(json.dumps(data), "utf-8")
    with pytest.raises(genai_runtime.LoadError, match="damaged-folder"):
        genai_runtime.load(tmp_path / "c")
