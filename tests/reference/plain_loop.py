"""Greedy decoding of one unpadded row by a bare ONNX Runtime loop over a past/present graph."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from tests.reference.values import Array

KV_HEADS, HEAD = 2, 16


@cache
def _session(path: Path) -> Any:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def greedy(
    path: Path, prompt: Sequence[int], count: int, stop: Sequence[int] = (), extra: Mapping[str, Array] | None = None
) -> list[int]:
    """Up to `count` tokens after the prompt; a token of `stop` is the last one. extra: fed to every run."""
    session = _session(path)
    wanted = [port.name for port in session.get_inputs()]
    past: dict[str, Array] = {
        name: np.zeros((1, KV_HEADS, 0, HEAD), np.float32) for name in wanted if name.startswith("past")
    }
    fresh, length, tokens = list(prompt), 0, list[int]()
    while len(tokens) < count and not (tokens and tokens[-1] in stop):
        length += len(fresh)
        feeds = {"input_ids": np.array([fresh]), "attention_mask": np.ones((1, length), np.int64), **past}
        feeds |= extra or {}
        if "position_ids" in wanted:
            feeds["position_ids"] = np.arange(length - len(fresh), length)[None]
        names = [port.name for port in session.get_outputs()]
        results = dict(zip(names, session.run(names, feeds), strict=True))
        past = {name: results[name.replace("past_key_values", "present")] for name in past}
        fresh = [int(results["logits"][0, -1].argmax())]
        tokens += fresh
    return tokens
