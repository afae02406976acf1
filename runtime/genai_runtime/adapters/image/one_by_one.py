"""Pictures of one request, one after the other, for a graph that takes one a run; and what it made, put together.

genai-compile.one-picture@1    tensors [pictures, ...], at int64 [1] -> the same [1, ...], next int64 [1], more
                               with `together`: the same [k, ...] of k pictures of one size
genai-compile.join-pictures@1  so_far [n, ...], more [m, ...] -> entries [n + m, ...]
"""

from collections.abc import Callable, Mapping
from math import prod
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
    of patches, one picture behind another. together: how many numbers pictures of one size, one behind the other, may
    have that are taken out at once; one is, whatever it has. Raises RequestError `image-patches` where patches are not
    as many as the grids say, and for grids that are none; ValueError for another `together` than a whole number.
    """
    grid, together = parameters.get("grid"), parameters.get("together", 0)
    if not isinstance(together, int):
        raise ValueError(f"together is a whole number, not {together!r}")
    return (lambda inputs: _picked(inputs, together)) if grid is None else lambda inputs: _patches(inputs, str(grid))


def _patches(inputs: Mapping[str, Array], grid: str) -> dict[str, Array]:
    at, grids = int(inputs["at"][0]), inputs[grid]
    if not len(grids) or (grids < 1).any():
        what = f"'{grid}' has no grid" if not len(grids) else f"'{grid}' holds a number below 1: {grids.min()}"
        raise RequestError("image-patches", what, help="give the grid of each picture, or leave pictures out")
    counts = [prod(each) for each in grids.tolist()]  # of Python's integers, which do not overflow
    made = {grid: np.ascontiguousarray(grids[at : at + 1])}
    for port, rows in inputs.items():
        if port in ("at", grid):
            continue
        if len(rows) != sum(counts):
            what = f"'{port}' has {len(rows)} patches, and the {len(grids)} grids of '{grid}' take {sum(counts)}"
            raise RequestError("image-patches", what, help="give the grid of each picture, in order")
        first = sum(counts[:at])
        made[port] = np.ascontiguousarray(rows[first : first + counts[at]])
    return {**made, "next": np.array([at + 1], np.int64), "more": np.array([at + 1 < len(grids)])}


def _picked(inputs: Mapping[str, Array], together: int) -> dict[str, Array]:
    at, sizes = int(inputs["at"][0]), inputs.get("sizes")
    tensors = {port: each for port, each in inputs.items() if port not in ("at", "sizes")}
    count = max((len(each) for port, each in inputs.items() if port != "at"), default=0)
    following = at + _alike(tensors, sizes, at, count, together)
    made = {port: each[at:following] for port, each in tensors.items()}
    if sizes is not None:
        height, width = (int(each) for each in sizes[at])
        made = {port: _cropped(each, height, width) for port, each in made.items()}
    return {
        **{port: np.ascontiguousarray(each) for port, each in made.items()},
        "next": np.array([following], np.int64),
        "more": np.array([following < count]),
    }


def _alike(tensors: Mapping[str, Array], sizes: Array | None, at: int, count: int, together: int) -> int:
    """How many pictures from `at` on are of one size and have no more than so many numbers; at least one."""
    one = max((prod(each.shape[1:]) for each in tensors.values()), default=1)
    if sizes is not None:
        one = 3 * int(sizes[at][0]) * int(sizes[at][1])
    most, found = min(together // max(one, 1), count - at), 1
    while found < most and (sizes is None or (sizes[at + found] == sizes[at]).all()):
        found += 1
    return found


def _cropped(picture: Array, height: int, width: int) -> Array:
    """The own part of pictures, whichever axis their channels are; what is no picture stays whole."""
    if picture.ndim != 4:
        return picture
    return picture[:, :, :height, :width] if picture.shape[1] == 3 else picture[:, :height, :width]


def join_pictures(parameters: Mapping[str, Any]) -> Call:
    """The call that puts what was made of a picture behind what was made before."""
    return lambda inputs: {"entries": np.concatenate([inputs["so_far"], inputs["more"]])}
