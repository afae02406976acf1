"""Rows of a picture's patches in the order of windows, for a vision model whose attention sees one window at a time.

The patches of a group of merge x merge lie together; groups lie row by row, frame by frame. Windows are squares of
groups of one frame, row by row as well; those at the right and lower rim may be smaller.

genai-compile.window-rows@1  rows [..., n, features], grids int64 [1, 3] -> rows, n patches by windows; or, with `back`,
                             n groups by windows in the order of the grid again
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from genai_runtime.problem import RequestError
from genai_runtime.values import Array

Order = npt.NDArray[np.int64]


def window_rows(parameters: Mapping[str, Any]) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """The call. parameters: edge, of a window in groups; merge, of a group in patches; back.

    Raises ValueError without them, RequestError `image-patches` for more pictures than one, and for other
    numbers of rows than the grid says.
    """
    edge, merge, back = (parameters.get(each) for each in ("edge", "merge", "back"))
    if not isinstance(edge, int) or not isinstance(merge, int) or edge < 1 or merge < 1 or not isinstance(back, bool):
        raise ValueError("it needs the whole numbers edge and merge above 0, and the flag back")

    def call(inputs: Mapping[str, Array]) -> dict[str, Array]:
        rows, grids = inputs["rows"], inputs["grids"]
        if grids.shape != (1, 3) or grids.min() < 1:
            what = f"windows are of one picture, and the grids are {grids.tolist()}"
            raise RequestError("image-patches", what, help="give one grid of patches")
        frames, height, width = (int(each) for each in grids[0])
        if height % merge or width % merge:
            what = f"{height} x {width} patches do not come out even in groups of {merge} x {merge}"
            raise RequestError("image-patches", what, help="fit pictures to whole groups")
        group = 1 if back else merge * merge
        expected = frames * (height // merge) * (width // merge) * group
        if rows.shape[-2] != expected:  # before anything as large as the grid is made
            what = f"the graph gives {rows.shape[-2]} rows for {frames} frames of {height} x {width} patches"
            raise RequestError("image-patches", what, help=f"{expected} were expected")
        one = window_order(height // merge, width // merge, edge)
        order = (np.arange(frames)[:, None] * len(one) + one).reshape(-1)
        taken = np.argsort(order) if back else (order[:, None] * group + np.arange(group)).reshape(-1)
        return {"rows": np.ascontiguousarray(rows[..., taken, :])}

    return call


def window_order(height: int, width: int, edge: int) -> Order:
    """int64 [height * width]: which group, row by row, stands at each place by windows."""
    tall, wide = min(edge, height), min(edge, width)  # a larger window holds no more
    padded = np.full((-(-height // tall) * tall, -(-width // wide) * wide), -1, np.int64)
    padded[:height, :width] = np.arange(height * width).reshape(height, width)
    down, across = padded.shape[0] // tall, padded.shape[1] // wide
    windows = padded.reshape(down, tall, across, wide).transpose(0, 2, 1, 3).reshape(-1)
    return windows[windows >= 0]
