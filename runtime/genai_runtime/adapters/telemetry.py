"""onnx-genai.telemetry@1: `start` gives a timestamp, `elapsed` the milliseconds since one (standard, 5.2)."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def telemetry(parameters: Mapping[str, bool | int | float | str]) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """The call for `parameters.action`. timestamp: int64 scalar, nanoseconds since a process epoch."""
    action = parameters.get("action")
    if action not in ("start", "elapsed"):
        raise ValueError(f"action is {action!r}; it is 'start' or 'elapsed'")
    return _start if action == "start" else _elapsed


def _start(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {"timestamp": np.array(time.perf_counter_ns(), dtype=np.int64)}


def _elapsed(inputs: Mapping[str, Array]) -> dict[str, Array]:
    spent = time.perf_counter_ns() - int(inputs["timestamp"].reshape(-1)[0])
    return {"duration_ms": np.array(spent / 1e6, dtype=np.float32)}
