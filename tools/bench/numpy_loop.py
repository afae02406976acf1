"""The loop that everybody writes first: `session.run`, caches out as arrays and in again. Shares no code with ours."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench.bound_loop import cache_ports, open_session
from tools.bench.run_clock import RunClock, Trace


class NumpyLoop:
    """A greedy loop over one session."""

    def __init__(self, package: Path, threads: int, clock: RunClock) -> None:
        self._session = open_session(package / "model.onnx", threads)
        self._run = clock.timed(self._session, self._session.run)
        self._clock, self._caches = clock, cache_ports(self._session, package)
        self._outputs = ["logits", *(port.replace("past_key_values", "present") for port in self._caches)]

    def generate(self, rows: Sequence[list[int]], new: int) -> Trace:
        """`new` greedy tokens after the only row, whatever the end token."""
        self._clock.take()
        now = time.perf_counter
        start = first = now()
        caches = [np.zeros((1, heads, 0, size), np.float32) for heads, size in self._caches.values()]
        chunk, total = np.array(rows, np.int64), 0
        tokens: list[int] = []
        while len(tokens) < new:
            total += chunk.shape[1]
            feeds: dict[str, Any] = dict(zip(self._caches, caches, strict=True))
            feeds |= {"input_ids": chunk, "attention_mask": np.ones((1, total), np.int64)}
            logits, *caches = self._run(self._outputs, feeds)
            tokens.append(int(logits[0, -1].argmax()))
            chunk = np.array([tokens[-1:]], np.int64)
            if len(tokens) == 1:
                first = now()
        return Trace(tokens, first - start, now() - start, self._clock.take())
