"""What compiling costs: wall and processor time, and memory, of `genai-compile` in a process of its own."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from tools.bench.place import Place
from tools.bench.ratios import Rounds
from tools.bench.step_documents import write_steps

STEPS = (1, 100, 250, 500, 1000, 1500, 2000)
PACKAGES = ("workflow", "int4", "int8", "fp32")
LOOK = 0.005


def compile_packages(place: Place, rounds: int = 3) -> Rounds:
    """Per round and package `seconds`, `processor`, `peak` MB and the `weights` MB."""
    names = [name for name in PACKAGES if place.has(name)]
    measured: Rounds = []
    for number in range(-1, rounds):  # the first round only warms the page cache and compiles the modules
        found = {
            name: compile_once(place.package(name), place.work / "cost" / name, place.environment) for name in names
        }
        for name in names:
            found[name]["weights"] = weight_bytes(place.package(name)) / 1e6
        if number >= 0:
            measured.append(found)
        print(f"  compile: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return measured


def compile_steps(place: Place, rounds: int = 3) -> Rounds:
    """Per round and number of steps: `seconds`, `processor` and `peak`."""
    folders = {str(count): place.work / "steps" / str(count) for count in STEPS}
    for count, folder in folders.items():
        write_steps(folder, int(count))
    measured: Rounds = []
    for number in range(rounds):
        order = list(folders.items())[:: 1 if number % 2 else -1]
        found = {
            count: compile_once(folder, folder.with_suffix(".compiled"), place.environment) for count, folder in order
        }
        measured.append(found)
        print(f"  steps: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return measured


def compile_once(package: Path, out: Path, environment: dict[str, str]) -> dict[str, float]:
    """One compilation: `seconds` of the wall clock, seconds of the `processor`, `peak` MB resident."""
    command = [sys.executable, "-m", "genai_compiler", str(package), "-q", "-o", str(out)]
    begun = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    peak = Peak(process.pid)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return {"seconds": seconds, "processor": usage.ru_utime + usage.ru_stime, "peak": peak.ended()}


class Peak:
    """Watches a process's largest resident memory. rusage is no good: it counts what the parent had when it forked."""

    def __init__(self, process: int) -> None:
        self._status, self._most, self._done = Path(f"/proc/{process}/status"), 0.0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def ended(self) -> float:
        """MB (10^6 bytes); 0 where the system does not tell."""
        self._done.set()
        self._thread.join()
        return self._most

    def _look(self) -> None:
        begun = time.monotonic()
        while not self._done.wait(LOOK):
            try:
                text = self._status.read_text("ascii")
            except OSError:
                return
            if time.monotonic() - begun > 20 * LOOK:  # before that it may not have become the compiler yet
                self._most = max(self._most, resident_peak(text))


def resident_peak(status: str) -> float:
    """MB of VmHWM in the text of /proc/PID/status; 0 where it is not named."""
    found = (line.split() for line in status.splitlines() if line.startswith("VmHWM:"))
    return next((int(words[1]) * 1024 / 1e6 for words in found), 0.0)


def weight_bytes(package: Path) -> int:
    """Bytes of the package's graphs with their external data."""
    files = (*package.rglob("*.onnx"), *package.rglob("*.onnx.data"))
    return sum(file.stat().st_size for file in files)
