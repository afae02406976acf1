"""Threads and cores (known traps S)."""

from collections.abc import Callable
from pathlib import Path

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
