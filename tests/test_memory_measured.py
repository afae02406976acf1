"""The memory that --memory predicts for SmolLM2 against what a process has: unique set size, watched while it runs.

Folders are bundled, so that no other process maps their weights; one more process keeps the libraries in use, so that
their pages are shared whatever else the machine does.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from genai_compiler.driver import Compiled, Options, compile_package
from genai_compiler.memory import MemoryAsk

from tests.data import ROOT

BUILT = ROOT / "build" / "smollm2"
FORMS = ("v1", "workflow", "float")
WITHIN = 0.10
NEW = 2
_ABSENT = [form for form in FORMS if not (BUILT / form).is_dir()]
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(bool(_ABSENT), reason=f"not built: {', '.join(_ABSENT)} (python -m tools.smollm2)"),
    pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="this system does not tell unique memory"),
]
REQUESTS = [(1, 8, NEW), (1, 512, NEW), (1, 1024, NEW), (4, 256, NEW), (1, 32, 600)]
"""(rows, prompt, new tokens)."""


@pytest.fixture(scope="module", autouse=True)
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A process that has the same libraries, and every kernel, in use."""
    out = tmp_path_factory.mktemp("libraries") / "made"
    compile_package(BUILT / "v1", out)
    command = [sys.executable, "-m", "tools.measure_memory", str(out), "--prompt", "64", "--wait"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as kept:
        assert kept.stdout is not None
        assert kept.stdout.readline()
        yield
        assert kept.stdin is not None
        kept.stdin.close()


@pytest.fixture(scope="module", params=FORMS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    out = tmp_path_factory.mktemp(request.param) / "made"
    compile_package(BUILT / request.param, out, Options(bundle=True))
    return request.param, out


def predicted(form: str, rows: int, prompt: int, new: int, chunk: int | None = None) -> Compiled:
    ask = MemoryAsk(rows, prompt, prompt + new, chunk)
    return compile_package(BUILT / form, options=Options(stop_after="mark_last_reads", memory=ask))


@pytest.mark.parametrize(("rows", "prompt", "new"), REQUESTS)
def test_the_predicted_peak_is_the_measured_one(made: tuple[str, Path], rows: int, prompt: int, new: int) -> None:
    form, folder = made
    rows = 1 if form == "workflow" else rows  # several prompts of a workflow are requests of their own, one by one
    memory = predicted(form, rows, prompt, new).memory
    assert memory is not None
    command = [sys.executable, "-m", "tools.measure_memory", str(folder), "--batch", str(rows)]
    command += ["--prompt", str(prompt), "--new", str(new)]
    found = json.loads(subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout)
    said = {**dict(memory.phases), "peak": memory.peak}
    print(
        form,
        rows,
        prompt,
        new,
        *({name: round(size / 1e6, 1) for name, size in each.items()} for each in (found, said)),
    )
    assert said["loaded"] == pytest.approx(found["loaded"], rel=WITHIN)
    running = max(size for name, size in memory.phases if name not in ("while loading", "loaded"))
    assert running == pytest.approx(found["running"], rel=WITHIN)
    assert memory.peak == pytest.approx(found["peak"], rel=WITHIN)


def test_a_long_prompt_in_chunks_takes_the_memory_of_a_chunk(made: tuple[str, Path]) -> None:
    """Of decoders that the runtime drives; a workflow's prompt goes in as its document says."""
    form, folder = made
    if form != "v1":
        return
    found = dict[int, dict[str, int]]()
    for chunk in (64, 1024):
        command = [sys.executable, "-m", "tools.measure_memory", str(folder), "--prompt", "1024", "--new", "2"]
        command += ["--prefill-chunk", str(chunk)]
        found[chunk] = json.loads(subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout)
        memory = predicted(form, 1, 1024, 2, chunk).memory
        assert memory is not None
        print("chunk", chunk, round(found[chunk]["peak"] / 1e6, 1), round(memory.peak / 1e6, 1))
        assert memory.peak == pytest.approx(found[chunk]["peak"], rel=WITHIN)
    assert found[64]["peak"] < found[1024]["peak"]


def test_a_thousand_requests_of_mixed_length_leave_memory_flat(made: tuple[str, Path]) -> None:
    """Behind the first 25, one of which is of the greatest length, no more comes than one request's state.

    The C library may keep buffers of a request that has ended. What grows with the number of requests or of different
    lengths shows, and so does what a second request of one length takes more (both decision 0018).
    """
    form, folder = made
    if form != "v1":
        return
    longest, new = 128, 4
    command = [sys.executable, "-m", "tools.serve_requests", str(folder), "--longest", str(longest), "--new", str(new)]
    ended = subprocess.run([*command, "--every", "25"], capture_output=True, check=True, cwd=ROOT)
    seen = [json.loads(line) for line in ended.stdout.splitlines()]
    assert seen[-1]["requests"] == 1000
    per_token = 30 * 2 * 3 * 64 * 4  # layers, key and value, heads, head size, float32
    print(*(round(each["most"] / 1e6, 1) for each in seen))
    assert max(each["most"] for each in seen[2:]) <= seen[1]["most"] + per_token * (longest + new)
