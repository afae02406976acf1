"""Placements of single components: kinds of device to providers, with builds of ONNX Runtime that are not at hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from genai_runtime import binding
from genai_runtime.placement import PROVIDERS, placed
from genai_runtime.providers import SPELLINGS
from genai_runtime.sessions import Graph, Sessions, Settings

from tests.conftest import FIXTURES, Traced

CPU, CUDA, DML, QNN = (f"{name}ExecutionProvider" for name in ("CPU", "CUDA", "Dml", "QNN"))
COMMON = Settings(((CPU, {}),), {"intra_op_num_threads": 1})


def entry(device: str = "", index: int | None = None, memory: int = 0, cpu_arena: bool = True) -> dict[str, Any]:
    return {"device": device, "index": index, "memory": memory, "cpu_arena": cpu_arena}


@pytest.fixture(params=[[CPU], [CUDA, CPU], [DML, CPU], [QNN, CPU]], ids=lambda each: each[0])
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The providers of some build."""
    monkeypatch.setattr(binding, "available_providers", lambda: request.param)
    here: list[str] = request.param
    return here


@pytest.mark.parametrize("kind", ["gpu", "npu", "cpu"])
def test_a_kind_of_device_is_served_or_a_notice(kind: str, build: list[str]) -> None:
    own, notices = placed({"a": entry(kind)}, COMMON, strict=False)
    served = {"gpu": {CUDA, DML}, "npu": {QNN}, "cpu": {CPU}}[kind] & set(build)
    assert bool(notices) == (not served)
    if served - {CPU}:
        assert [name for name, _ in own["a"].providers] == [*served, CPU]
        assert own["a"].options == COMMON.options
    else:
        assert own == {}
    assert all("'a'" in each and CPU in each for each in notices)


def test_numbers_and_limits_become_options_of_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "available_providers", lambda: [CUDA, CPU])
    own, _ = placed({"a": entry("gpu", 1, 4096), "b": entry("cpu"), "c": entry(memory=64)}, COMMON, strict=False)
    assert own["a"].providers == ((CUDA, {"device_id": "1", "gpu_mem_limit": "4096"}), (CPU, {}))
    assert set(own) == {"a"}, "the others already run so"


def test_what_the_package_says_of_a_provider_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "available_providers", lambda: [CUDA, CPU])
    common = Settings(((CUDA, {"use_tf32": "0", "device_id": "0"}), (CPU, {})))
    own, _ = placed({"a": entry("gpu", 1), "b": entry("cpu")}, common, strict=False)
    assert own["a"].providers == ((CUDA, {"use_tf32": "0", "device_id": "1"}), (CPU, {}))
    assert own["b"].providers == ((CPU, {}),)
    assert common.providers[0][1]["device_id"] == "0"


def test_providers_of_the_user_count_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "available_providers", lambda: [CUDA, CPU])
    own, notices = placed({"a": entry("gpu"), "b": entry("npu", cpu_arena=False)}, COMMON, strict=True)
    assert notices == ()
    assert set(own) == {"b"}
    assert own["b"].providers == COMMON.providers
    assert own["b"].options["enable_cpu_mem_arena"] is False


def test_settings_that_a_session_refuses_give_way_to_the_common_ones(
    compiled: Callable[[str], tuple[Path, Traced]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A device number that the machine does not have must not keep a package from running."""
    whole, tried = binding.open_session, []

    def only_cpu(graph: Path, options: Any, providers: Any) -> Any:
        tried.append([name for name, _ in providers])
        if tried[-1] != [CPU]:
            raise RuntimeError("no such device: 7")
        return whole(graph, options, providers)

    monkeypatch.setattr(binding, "open_session", only_cpu)
    folder = compiled("tiny-gqa-v1")[0]
    graph = Graph(FIXTURES / "tiny-gqa-v1" / "model.onnx", folder)
    own = {"decoder": Settings(((CUDA, {"device_id": "7"}), (CPU, {})))}
    sessions = Sessions({"decoder": graph}, COMMON, own)
    assert sessions.session("decoder").get_providers() == [CPU]
    assert tried == [[CUDA, CPU], [CPU]]
    assert "'decoder'" in caplog.text
    assert "no such device: 7" in caplog.text


def test_every_provider_is_one_that_onnx_runtime_has() -> None:
    known = set(SPELLINGS.values())
    assert {f"{name}ExecutionProvider" for names in PROVIDERS.values() for name in names} <= known
