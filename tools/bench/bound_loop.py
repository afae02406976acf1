"""The hand-written loop: what an expert writes against ONNX Runtime for this one model. It shares no code with ours.

Past and present share a buffer, the mask keeps its full length and gains a one a step, and every binding is made once.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from tools.bench.run_clock import RunClock, Trace


def open_session(graph: Path, threads: int) -> Any:
    """A CPU session with `threads` threads inside an operator."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True)
class Buffers:
    """Everything bound for one capacity, kept alive. token int64 [1, 1], mask int64 [1, capacity], logits [1, 1, V]."""

    step: Any
    token: NDArray[np.int64]
    mask: NDArray[np.int64]
    logits: NDArray[np.float32]
    caches: dict[str, Any]
    held: list[Any] = field(default_factory=list[Any])


class BoundLoop:
    """A greedy loop over one session; buffers are made once a capacity and used again."""

    def __init__(self, graph: Path, threads: int, clock: RunClock, session: Any = None) -> None:
        self.session = session if session is not None else open_session(graph, threads)
        self._run = clock.timed(self.session, self.session._sess.run_with_iobinding)
        self._clock, self._made = clock, dict[int, Buffers]()

    def generate(self, ids: list[int], new: int) -> Trace:
        """`new` greedy tokens after `ids`, whatever the end token."""
        buffers = self._buffers(len(ids) + new)
        run, now = self._run, time.perf_counter
        token_row, mask, row = buffers.token[0], buffers.mask[0], buffers.logits[0, 0]
        binding, place = buffers.step._iobinding, len(ids)
        self._clock.take()
        start = now()
        mask[:] = 0
        mask[:place] = 1
        token = self._prefill(ids, buffers)
        first = now()
        tokens = [token]
        for _ in range(new - 1):
            token_row[0] = token
            mask[place] = 1
            place += 1
            run(binding, None)
            token = int(row.argmax())
            tokens.append(token)
        return Trace(tokens, first - start, now() - start, self._clock.take())

    def _prefill(self, ids: list[int], buffers: Buffers) -> int:
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        binding = self.session.io_binding()
        bind_caches(binding, buffers.caches)
        prompt, mask = np.array([ids], np.int64), np.ones((1, len(ids)), np.int64)
        logits = np.empty((1, len(ids), buffers.logits.shape[-1]), np.float32)
        binding.bind_ortvalue_input("input_ids", value(prompt))
        binding.bind_ortvalue_input("attention_mask", value(mask))
        binding.bind_ortvalue_output("logits", value(logits))
        self._run(binding._iobinding, None)
        return int(logits[0, -1].argmax())

    def _buffers(self, capacity: int) -> Buffers:
        if capacity not in self._made:
            self._made[capacity] = self._make(capacity)
        return self._made[capacity]

    def _make(self, capacity: int) -> Buffers:
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        caches = {
            port.name: value(np.zeros((1, port.shape[1], capacity, port.shape[3]), np.float32))
            for port in self.session.get_inputs()
            if port.name.startswith("past_key_values.")
        }
        vocabulary = next(port.shape[-1] for port in self.session.get_outputs() if port.name == "logits")
        token, mask = np.zeros((1, 1), np.int64), np.zeros((1, capacity), np.int64)
        logits = np.zeros((1, 1, vocabulary), np.float32)
        held = [value(token), value(mask), value(logits)]
        binding = self.session.io_binding()
        bind_caches(binding, caches)
        binding.bind_ortvalue_input("input_ids", held[0])
        binding.bind_ortvalue_input("attention_mask", held[1])
        binding.bind_ortvalue_output("logits", held[2])
        return Buffers(binding, token, mask, logits, caches, held)


def bind_caches(binding: Any, caches: dict[str, Any]) -> None:
    """Bind every cache as past and, the same buffer, as present."""
    for name, cache in caches.items():
        binding.bind_ortvalue_input(name, cache)
        binding.bind_ortvalue_output(name.replace("past_key_values", "present"), cache)
