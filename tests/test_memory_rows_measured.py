"""Rows and long prompts: the memory that --memory predicts for what the peer's builder writes against a process's own.

Each package as one session and as two. Beside tests/test_memory_measured.py, whose packages this project builds.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from genai_compiler.driver import Options, compile_package
from genai_compiler.memory import MemoryAsk

from tests.data import ROOT

BUILT = ROOT / "build" / "peers" / "packages"
WITHIN, NEW = 0.10, 2
REQUESTS = [(1, 512), (1, 1024), (2, 1024), (4, 256), (4, 512), (8, 64), (8, 256)]
"""(rows, prompt): two that came out too low before the arena was counted, and what is around them."""
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not (BUILT / "int4").is_dir(), reason="not built (python -m tools.peers packages)"),
    pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="this system does not tell unique memory"),
]


@pytest.fixture(scope="module", autouse=True)
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A process that has the same libraries, and every kernel, in use."""
    out = tmp_path_factory.mktemp("libraries") / "made"
    compile_package(BUILT / "int4", out)
    command = [sys.executable, "-m", "tools.measure_memory", str(out), "--prompt", "64", "--wait"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as kept:
        assert kept.stdout is not None
        assert kept.stdout.readline()
        yield
        assert kept.stdin is not None
        kept.stdin.close()


@pytest.fixture(scope="module", params=["int4", "int8", "fp32"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=[("split_opening",), ()], ids=["whole", "two"])
def made(form: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The package's form, the folder, and the passes left out."""
    out = tmp_path_factory.mktemp(form) / "made"
    compile_package(BUILT / form, out, Options(bundle=True, without=request.param))
    return form, str(out), *request.param


@pytest.mark.parametrize(("rows", "prompt"), REQUESTS)
def test_the_predicted_peak_of_many_rows_is_the_measured_one(made: tuple[str, ...], rows: int, prompt: int) -> None:
    form, folder, *without = made
    ask = MemoryAsk(rows, prompt, prompt + NEW)
    options = Options(stop_after="split_opening", without=tuple(without), memory=ask)
    memory = compile_package(BUILT / form, options=options).memory
    assert memory is not None
    command = [sys.executable, "-m", "tools.measure_memory", folder, "--batch", str(rows), "--prompt", str(prompt)]
    command += ["--new", str(NEW), "--threads", "1"]
    found = json.loads(subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout)
    print(*made, rows, prompt, round(found["running"] / 1e6), round(dict(memory.phases)["prompt"] / 1e6))
    assert dict(memory.phases)["prompt"] == pytest.approx(found["running"], rel=WITHIN)
    assert memory.peak == pytest.approx(found["peak"], rel=WITHIN)
