"""Threads and cores (known traps S)."""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import genai_runtime
import pytest
from genai_runtime import binding
from genai_runtime.cores import allowed_cores

from tests.traps.probe import PROBE_NEEDS_LINUX, run_probe

ONE_CORE = """
import os
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
import genai_runtime, onnxruntime
before = len(os.listdir("/proc/self/task"))
with genai_runtime.load({folder!r}) as model:
    model.generate([1, 9], max_new_tokens=4, stop_on_eos=False).tokens
    print(model.describe()["threads"], len(os.listdir("/proc/self/task")) - before)
"""


@PROBE_NEEDS_LINUX
def test_s2_one_allowed_core_is_one_thread(compiled: Callable[[str], tuple[Path, object]]) -> None:
    """A container limited to one core of many: nothing is pinned to others, and no graph brings threads of its own."""
    for case in ("tiny-gqa-v1", "tiny-decoder"):
        assert run_probe(ONE_CORE.format(folder=str(compiled(case)[0]))).split() == ["1", "0"]


def with_groups(root: Path, groups: str, files: dict[str, str]) -> str:
    """A root folder whose proc and sys say this."""
    for name, text in {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{each}": files[each] for each in files}}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    return f"{root}/"


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/\n", {"cpu.max": "100000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "350000 100000\n"}, 3),
        ("0::/\n", {"cpu.max": "20000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 64),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "200000 100000\n"}, 2),
        ("0::/of/the/host\n", {"cpu.max": "250000 100000\n"}, 2),
        ("3:cpu,cpuacct:/\n", {"cpu,cpuacct/cpu.cfs_quota_us": "400000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}, 4),
        ("3:cpu:/x\n", {"cpu/x/cpu.cfs_quota_us": "-1", "cpu/x/cpu.cfs_period_us": "100000"}, 64),
        ("0::/\n", {"cpu.max": "0 0\n"}, 64),
        ("4:memory:/x\n", {"cpu.max": "max 100000\n"}, 64),
        ("0::/größe\n", {"größe/cpu.max": "200000 100000\n"}, 2),
    ],
)
def test_s2_a_quota_of_time_counts_as_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, files: dict[str, str], cores: int
) -> None:
    """Whole cores of quota / period (kernel documentation, cgroup-v2 `cpu.max`, sched-bwc), of 64 that there are."""
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)), raising=False)
    found = allowed_cores(with_groups(tmp_path, groups, files))
    assert found.number == cores
    assert ("quota" in found.reason) is (cores < 64)


def test_s2_the_fewest_count_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = with_groups(tmp_path, "0::/\n", {"cpu.max": "400000 100000\n"})
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {5, 9}, raising=False)
    assert allowed_cores(root) == (2, "cores that this process may run on")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert allowed_cores(root) == (4, "a quota of 4.00 cores (control group)")
    assert allowed_cores(f"{tmp_path}/nothing/").number == 8


def test_s2_a_container_of_one_core_is_one_thread_and_the_model_says_why(
    compiled: Callable[[str], tuple[Path, object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = with_groups(tmp_path, "0::/\n", {"cpu.max": "100000 100000\n"})
    monkeypatch.setattr("genai_runtime.opening.allowed_cores", lambda: allowed_cores(root))
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    with genai_runtime.load(compiled("tiny-gqa-v1")[0]) as model:
        told = model.describe()
        assert (told["threads"], told["threads_from"]) == (1, "a quota of 1.00 cores (control group)")
    with genai_runtime.load(compiled("tiny-gqa-v1")[0], threads=2) as model:
        assert (model.describe()["threads"], model.describe()["threads_from"]) == (2, "asked for")


class Counting:
    """A session that notes how many threads are inside a run at once; a run waits for another one, but not for long."""

    def __init__(self, provider: str) -> None:
        self._sess, self._provider = self, provider
        self._inside, self.most, self._both = 0, 0, threading.Barrier(2)

    def get_providers(self) -> list[str]:
        return [self._provider, "CPUExecutionProvider"]

    def run_with_ort_values(self, *_: object) -> None:
        self._inside += 1
        self.most = max(self.most, self._inside)
        with contextlib.suppress(threading.BrokenBarrierError):
            self._both.wait(0.2)
        self._inside -= 1


@pytest.mark.parametrize(
    ("provider", "at_once"), [("DmlExecutionProvider", 1), ("QNNExecutionProvider", 1), ("CUDAExecutionProvider", 2)]
)
def test_s1_runs_of_one_session_wait_for_each_other_unless_its_provider_allows_more(
    provider: str, at_once: int
) -> None:
    """DirectML: "does not support multi-threaded calls to Run on the same inference session" (its documentation)."""
    session = Counting(provider)
    runs = [binding.run_with_values(session) for _ in range(2)]
    threads = [threading.Thread(target=run, args=({}, [], None)) for run in runs]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert session.most == at_once
