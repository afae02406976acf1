"""Sounds of one request, one after the other, for a graph that then hears each by itself, without what fills it up.

genai-compile.one-sound@1  tensors [sounds, ...], at int64 [1] -> the same [1, ...], next int64 [1], more bool [1]
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from genai_runtime.values import Array

Call = Callable[[Mapping[str, Array]], dict[str, Array]]


def one_sound(parameters: Mapping[str, Any]) -> Call:
    """The call that takes sound `at` out of every other tensor. more: whether another one follows.

    sizes [sounds]: how many frames are a sound's own; the rest is cut off. Without it all of them are. parameters:
    axis, that of the frames in features [sounds, ., .]; of a mask [sounds, frames] it is 1, and numbers have none;
    blank: frames behind those that are counted, which stay. Raises ValueError without the axis.
    """
    axis, blank = parameters.get("axis"), parameters.get("blank", 0)
    if axis not in (1, 2):
        raise ValueError("it needs the axis of the frames, 1 or 2")

    def call(inputs: Mapping[str, Array]) -> dict[str, Array]:
        at, sizes = int(inputs["at"][0]), inputs.get("sizes")
        tensors = {port: each for port, each in inputs.items() if port not in ("at", "sizes")}
        count = max(len(each) for each in tensors.values())
        made = {port: each[at : at + 1] for port, each in tensors.items()}
        if sizes is not None:
            made = {port: _cut(each, int(sizes[at]) + blank, axis) for port, each in made.items()}
        made = {port: np.ascontiguousarray(each) for port, each in made.items()}
        return {**made, "next": np.array([at + 1], np.int64), "more": np.array([at + 1 < count])}

    return call


def _cut(sound: Array, frames: int, axis: int) -> Array:
    """The first so many frames, of features or of a mask."""
    if sound.ndim == 3:
        return sound[:, :frames] if axis == 1 else sound[:, :, :frames]
    return sound[:, :frames] if sound.ndim == 2 else sound
