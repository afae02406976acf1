"""A greedy loop in plain onnxruntime and numpy: the second route to the package's tokens.

It shares no code with the compiler or the runtime: `session.run`, caches that come back as arrays and go in again.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray


def open_session(model_path: Path, threads: int = 1) -> Any:
    """An onnxruntime session on the CPU with `threads` threads inside an operator."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(model_path), options, providers=["CPUExecutionProvider"])


def empty_caches(session: Any, batch: int = 1) -> dict[str, NDArray[np.float32]]:
    """A cache of length 0 for each past input, float32 [batch, kv_heads, 0, head_size], shapes from the graph."""
    return {
        port.name: np.zeros((batch, port.shape[1], 0, port.shape[3]), np.float32)
        for port in session.get_inputs()
        if port.name.startswith("past_key_values.")
    }


def step(
    session: Any, input_ids: NDArray[np.int64], mask: NDArray[np.int64], caches: dict[str, NDArray[np.float32]]
) -> tuple[NDArray[np.float32], dict[str, NDArray[np.float32]]]:
    """One forward pass: logits float32 [batch, sequence, vocabulary], and the caches for the next pass."""
    names = [output.name for output in session.get_outputs()]
    values = session.run(names, {"input_ids": input_ids, "attention_mask": mask, **caches})
    outputs = dict(zip(names, values, strict=True))
    logits: NDArray[np.float32] = outputs.pop("logits")
    return logits, {name.replace("present", "past_key_values"): value for name, value in outputs.items()}


def greedy(model: Path | Any, prompt_ids: Sequence[int], new_tokens: int, end_ids: Sequence[int] = ()) -> list[int]:
    """The `new_tokens` most likely tokens after `prompt_ids`, each the lowest id among equals.

    `model` is a graph's path or an open session. With `end_ids` the loop stops after the first of them (kept).
    """
    session = open_session(model) if isinstance(model, Path) else model
    caches = empty_caches(session)
    chunk = np.array([list(prompt_ids)], np.int64)
    produced: list[int] = []
    total = 0
    while len(produced) < new_tokens:
        total += chunk.shape[1]
        logits, caches = step(session, chunk, np.ones((1, total), np.int64), caches)
        produced.append(int(logits[0, -1].argmax()))
        if produced[-1] in end_ids:
            break
        chunk = np.array([produced[-1:]], np.int64)
    return produced
