"""The hand-written loop: what an expert writes against ONNX Runtime for this one model. It shares no code with ours.

Past and present share a buffer, the mask keeps its full length and gains a one a step, and every binding is made once.
"""

import json
import time
from collections.abc import Sequence
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


def head_size(package: Path) -> int:
    """Numbers of an attention head, which a graph may leave open; from the package's configuration."""
    config = json.loads((package / "genai_config.json").read_text(encoding="utf-8"))
    return int(config["model"]["decoder"]["head_size"])


def cache_ports(session: Any, package: Path) -> dict[str, tuple[int, int]]:
    """Past input -> (heads, head size)."""
    ports = [port for port in session.get_inputs() if port.name.startswith("past_key_values.")]
    sizes = [port.shape[3] if isinstance(port.shape[3], int) else head_size(package) for port in ports]
    return {port.name: (port.shape[1], size) for port, size in zip(ports, sizes, strict=True)}


def vocabulary(session: Any) -> int:
    """Numbers of a row of logits."""
    return int(next(port.shape[-1] for port in session.get_outputs() if port.name == "logits"))


@dataclass(frozen=True)
class Buffers:
    """Everything bound for one shape, kept alive. token int64 [B, 1], mask int64 [B, capacity], logits [B, 1, V]."""

    step: Any
    token: NDArray[np.int64]
    mask: NDArray[np.int64]
    logits: NDArray[np.float32]
    caches: dict[str, Any]
    held: list[Any] = field(default_factory=list[Any])


class BoundLoop:
    """A greedy loop over one session; buffers are made once a shape and used again."""

    def __init__(self, package: Path, threads: int, clock: RunClock, session: Any = None) -> None:
        self.session = session if session is not None else open_session(package / "model.onnx", threads)
        self._run = clock.timed(self.session, self.session._sess.run_with_iobinding)
        self._clock, self._package = clock, package
        self._made: dict[tuple[int, int], Buffers] = {}

    def generate(self, rows: Sequence[list[int]], new: int) -> Trace:
        """`new` greedy tokens after each of these prompts of one length, whatever the end token."""
        buffers = self.buffers(len(rows), len(rows[0]) + new)
        now = time.perf_counter
        self._clock.take()
        start = now()
        buffers.mask[:] = 0
        buffers.mask[:, : len(rows[0])] = 1
        chosen = self._prefill(rows, buffers)
        first = now()
        step = self._one_row if len(rows) == 1 else self._several
        tokens = step(chosen, len(rows[0]), new, buffers)
        return Trace(tokens, first - start, now() - start, self._clock.take(), rows=len(rows))

    def _one_row(self, chosen: NDArray[np.int64], place: int, new: int, buffers: Buffers) -> list[int]:
        run, token_row, mask, row = self._run, buffers.token[0], buffers.mask[0], buffers.logits[0, 0]
        binding, token = buffers.step._iobinding, int(chosen[0])
        tokens = [token]
        for _ in range(new - 1):
            token_row[0] = token
            mask[place] = 1
            place += 1
            run(binding, None)
            token = int(row.argmax())
            tokens.append(token)
        return tokens

    def _several(self, chosen: NDArray[np.int64], place: int, new: int, buffers: Buffers) -> list[int]:
        run, token, mask, logits = self._run, buffers.token, buffers.mask, buffers.logits[:, 0]
        binding, made = buffers.step._iobinding, [chosen.tolist()]
        token[:, 0] = chosen
        for _ in range(new - 1):
            mask[:, place] = 1
            place += 1
            run(binding, None)
            logits.argmax(-1, out=token[:, 0])
            made.append(token[:, 0].tolist())
        return [each[row] for row in range(len(chosen)) for each in made]

    def _prefill(self, rows: Sequence[list[int]], buffers: Buffers) -> NDArray[np.int64]:
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        binding = self.session.io_binding()
        bind_caches(binding, buffers.caches)
        prompt = np.array(rows, np.int64)
        mask = np.ones(prompt.shape, np.int64)
        logits = np.empty((*prompt.shape, buffers.logits.shape[-1]), np.float32)
        binding.bind_ortvalue_input("input_ids", value(prompt))
        binding.bind_ortvalue_input("attention_mask", value(mask))
        binding.bind_ortvalue_output("logits", value(logits))
        self._run(binding._iobinding, None)
        chosen: NDArray[np.int64] = logits[:, -1].argmax(-1)
        return chosen

    def buffers(self, rows: int, capacity: int) -> Buffers:
        """The buffers of that shape."""
        if (rows, capacity) not in self._made:
            self._made[rows, capacity] = self._make(rows, capacity)
        return self._made[rows, capacity]

    def _make(self, rows: int, capacity: int) -> Buffers:
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        caches = {
            port: value(np.zeros((rows, heads, capacity, size), np.float32))
            for port, (heads, size) in cache_ports(self.session, self._package).items()
        }
        token, mask = np.zeros((rows, 1), np.int64), np.zeros((rows, capacity), np.int64)
        logits = np.zeros((rows, 1, vocabulary(self.session)), np.float32)
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
