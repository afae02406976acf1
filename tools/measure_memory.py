"""What a process that runs a compiled folder has in memory, measured: unique set size (USS) at each time.

    python -m tools.measure_memory FOLDER [--batch N] [--prompt N] [--new N] [--prefill-chunk N]
        [--threads N] [--wait]

prints one JSON object, bytes: `imported`, `loading` (the most while loading), `loaded`, `running` (the most while one
request runs), `peak`. Prompts are random tokens, spread evenly over the vocabulary. Linux only: USS is Private_Clean +
Private_Dirty of /proc/self/smaps_rollup. Pages that another process maps too are not this one's alone; --wait keeps the
process until its standard input ends, so that the pages of libraries are shared whoever else runs.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROLLUP = Path("/proc/self/smaps_rollup")
STATUS = Path("/proc/self/status")
EVERY = 0.003
"""Seconds between two looks."""


def unique_bytes() -> int:
    """Memory that is this process's alone."""
    lines = [line.split() for line in ROLLUP.read_text("ascii").splitlines()]
    return sum(int(line[1]) << 10 for line in lines if line[0] in ("Private_Clean:", "Private_Dirty:"))


def anonymous_bytes() -> int:
    """Resident memory of this process that no file backs; what other processes do has no part in it."""
    lines = [line.split() for line in STATUS.read_text("ascii").splitlines()]
    return next(int(line[1]) << 10 for line in lines if line[0] == "RssAnon:")


class Watch:
    """Looks from now on until it is asked for the most that it saw."""

    def __init__(self, look: Callable[[], int] = unique_bytes) -> None:
        self._read, self._most, self._on = look, look(), True
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while self._on:
            self._most = max(self._most, self._read())
            time.sleep(EVERY)

    def most(self) -> int:
        """The most that there was; the watch ends."""
        self._on = False
        self._thread.join()
        return max(self._most, self._read())


def measured(
    folder: Path, batch: int, prompt: int, new: int, chunk: int | None = None, threads: int | None = None
) -> dict[str, int]:
    """Load the folder and run one request: bytes by name."""
    import genai_runtime
    import numpy as np
    import onnxruntime  # noqa: F401

    found = {"imported": unique_bytes()}
    watch = Watch()
    model = genai_runtime.load(folder, prefill_chunk=chunk, threads=threads)
    found["loading"], found["loaded"] = watch.most(), unique_bytes()
    watch = Watch()
    words = json.loads((folder / "manifest.json").read_text("utf-8"))["generation"]["vocab_size"]
    draw = np.random.default_rng(0)
    rows = [draw.integers(0, words, prompt).tolist() for _ in range(batch)]
    made = model.generate(batch=rows, max_new_tokens=new, temperature=0, stop_on_eos=False)
    assert all(len(row.tokens) == new for row in made.rows)
    found["running"] = watch.most()
    found["peak"] = max(found["loading"], found["running"])
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser("measure_memory", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--new", type=int, default=2)
    parser.add_argument("--prefill-chunk", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--wait", action="store_true")
    given = parser.parse_args(argv)
    found = measured(given.folder, given.batch, given.prompt, given.new, given.prefill_chunk, given.threads)
    print(json.dumps(found), flush=True)
    if given.wait:
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
