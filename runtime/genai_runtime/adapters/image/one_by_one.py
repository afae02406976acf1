"""Pictures of one request, one after the other, for a graph that takes one a run; and what it made, put together.

genai-compile.one-picture@1    tensors [pictures, ...], at int64 [1] -> the same [1, ...], next int64 [1], more
genai-compile.join-pictures@1  so_far [n, ...], more [m, ...] -> entries [n + m, ...]
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from genai_runtime.problem import RequestError
from genai_runtime.values import Array

Call = Callable[[Mapping[str, Array]], dict[str, Array]]


def one_picture(parameters: Mapping[str, Any]) -> Call:
    """The call that takes picture `at` out of every other tensor. more: bool [1], whether another one follows.

    sizes: int64 [pictures, 2], (height, width) of what is a picture's own of `pixel_values`, [pictures, 3, height,
    width] or with the channels last; the rest is cut off. Without it pictures are as large as the tensor.
    parameters: grid, the tensor of (frames, height, width) in patches, int64 [pictures, 3], where the others are rows
    of patches, one picture behind another. Raises RequestError `image-patches` where these are not as many as the
    grids say, and for grids that are none.
    """
    grid = parameters.get("grid")
    return _picked if grid is None else lambda inputs: _patches(inputs, str(grid))


def _patches(inputs: Mapping[str, Array], grid: str) -> dict[str, Array]:
    at, grids = int(inputs["at"][0]), inputs[grid]
    if not len(grids) or (grids < 1).any():
        what = f"'{grid}' has no grid" if not len(grids) else f"'{grid}' holds a number below 1: {grids.min()}"
        raise RequestError("image-patches", what, help="give the grid of each picture, or leave pictures out")
    counts = grids.prod(axis=1)
    made = {grid: np.ascontiguousarray(grids[at : at + 1])}
    for port, rows in inputs.items():
        if port in ("at", grid):
            continue
        if len(rows) != counts.sum():
            what = f"'{port}' has {len(rows)} patches, and the {len(grids)} grids of '{grid}' take {counts.sum()}"
            raise RequestError("image-patches", what, help="give the grid of each picture, in order")
        first = int(counts[:at].sum())
        made[port] = np.ascontiguousarray(rows[first : first + int(counts[at])])
    return {**made, "next": np.array([at + 1], np.int64), "more": np.array([at + 1 < len(grids)])}


def _picked(inputs: Mapping[str, Array]) -> dict[str, Array]:
    at, sizes = int(inputs["at"][0]), inputs.get("sizes")
    made = {port: each[at : at + 1] for port, each in inputs.items() if port not in ("at", "sizes")}
    count = max((len(each) for port, each in inputs.items() if port != "at"), default=0)
    if sizes is not None:
        height, width = (int(each) for each in sizes[at])
        made = {port: _cropped(each, height, width) for port, each in made.items()}
    return {
        **{port: np.ascontiguousarray(each) for port, each in made.items()},
        "next": np.array([at + 1], np.int64),
        "more": np.array([at + 1 < count]),
    }


def _cropped(picture: Array, height: int, width: int) -> Array:
    """A picture's own part, whichever axis its channels are; what is no picture stays whole."""
    if picture.ndim != 4:
        return picture
    return picture[:, :, :height, :width] if picture.shape[1] == 3 else picture[:, :height, :width]


def join_pictures(parameters: Mapping[str, Any]) -> Call:
    """The call that puts what was made of a picture behind what was made before."""
    return lambda inputs: {"entries": np.concatenate([inputs["so_far"], inputs["more"]])}
