"""The plain route to a decoder's tokens: `session.run` on one unpadded row, ports and shapes read from the graph."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

Logits = np.ndarray[Any, Any]
TYPES = {
    "tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int8)": np.int8, "tensor(uint8)": np.uint8,
}  # fmt: skip


@cache
def session(path: Path) -> Any:
    """A session on the CPU, one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def plain_logits(
    path: Path, prompt: Sequence[int], choose: Callable[[Logits], int] = lambda row: int(row.argmax())
) -> Iterator[tuple[int, Logits]]:
    """(token, the logits it was chosen from), endlessly. Past ports' names start with `past`, ordered as present."""
    run = session(path)
    ports = {each.name: each for each in run.get_inputs()}
    outputs = [each.name for each in run.get_outputs()]
    presents = [each for each in outputs if each.startswith("present")]
    pasts = [each for each in ports if each.startswith("past")]
    held = {name: _empty(ports[name], name) for name in pasts}
    fresh, total = list(prompt), 0
    while True:
        total += len(fresh)
        feeds: dict[str, Any] = {"input_ids": np.array([fresh]), **held}
        if "attention_mask" in ports:
            feeds["attention_mask"] = np.ones((1, total), np.int64)
        if "position_ids" in ports:
            feeds["position_ids"] = np.arange(total - len(fresh), total)[None]
        feeds = {name: value.astype(_type(ports[name])) for name, value in feeds.items()}
        made = dict(zip(outputs, run.run(outputs, feeds), strict=True))
        held = {past: made[present] for past, present in zip(pasts, presents, strict=True)}
        row = made["logits"].reshape(-1, made["logits"].shape[-1])[-1]
        token = choose(row)
        yield token, row
        fresh = [token]


def plain_tokens(path: Path, prompt: Sequence[int], count: int, ends: Sequence[int] = ()) -> list[int]:
    """Greedy tokens; one of `ends` is the last."""
    tokens: list[int] = []
    for token, _ in islice(plain_logits(path, prompt), count):
        tokens.append(token)
        if token in ends:
            break
    return tokens


def _empty(port: Any, name: str) -> Any:
    assert len(port.shape) == 4, name
    return np.zeros((1, port.shape[1], 0, port.shape[3]), TYPES[port.type])


def _type(port: Any) -> Any:
    return {"tensor(int32)": np.int32, "tensor(int64)": np.int64, **TYPES}[port.type]
