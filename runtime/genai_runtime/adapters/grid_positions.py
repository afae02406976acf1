"""Positions on three axes of a prompt with pictures: time, height and width (standard, 10.4; multimodal rotary).

Text stands at one place on all three axes and moves on by one a token. A picture of t x h x w groups of patches takes
t * h * w tokens, which lie behind the largest place so far: row by row, each at its own height and width. What follows
goes on behind the largest place of the picture, not behind its number of tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from genai_runtime.problem import RequestError
from genai_runtime.values import Array

Places = npt.NDArray[np.int64]


def grid_positions(parameters: Mapping[str, Any]) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """The call: tokens int [rows, n], grids int64 [pictures, 3], given int [3, rows, n] -> positions like `given`.

    parameters: entry_token, the id that stands for an entry of a picture; merge, patches of the edge of a group.
    Without grids, and where a caller gave positions (not negative throughout), `given` is handed on. Raises ValueError
    without the parameters, RequestError `image-tokens` where the entries of the prompt are not those of the pictures.
    """
    token, merge = parameters.get("entry_token"), parameters.get("merge")
    if not isinstance(token, int) or not isinstance(merge, int) or merge < 1:
        raise ValueError("it needs the whole numbers entry_token and merge")

    def call(inputs: Mapping[str, Array]) -> dict[str, Array]:
        tokens, grids, given = inputs["tokens"], inputs["grids"], inputs["given"]
        if not len(grids) or (given >= 0).any():
            return {"positions": given}
        sizes = [(int(t), int(h) // merge, int(w) // merge) for t, h, w in grids]
        rows = [placed(row == token, sizes) for row in tokens]
        return {"positions": np.stack(rows, axis=1).astype(given.dtype)}

    return call


def placed(entries: npt.NDArray[np.bool_], grids: Sequence[tuple[int, int, int]]) -> Places:
    """int64 [3, n]. entries: which of a row's tokens are of pictures; grids: of these, in order.

    Raises RequestError `image-tokens`.
    """
    wanted, found = sum(t * h * w for t, h, w in grids), int(entries.sum())
    if wanted != found:
        what = f"the prompt holds {found} tokens of pictures, and its {len(grids)} pictures take {wanted}"
        raise RequestError("image-tokens", what, help="repeat the token as often as the pictures have entries")
    made: Places = np.empty((3, len(entries)), np.int64)
    at, place = 0, 0
    for t, h, w in grids:
        first = at + int(np.argmax(entries[at:]))
        text = first - at
        made[:, at:first] = place + np.arange(text)
        place += text
        end = first + t * h * w
        if not entries[first:end].all():
            what = f"a picture's {t * h * w} tokens are not together: another token stands between them"
            raise RequestError("image-tokens", what, help="put each picture's tokens side by side")
        inside = np.indices((t, h, w)).reshape(3, -1)
        inside[0] = 0  # a picture is one moment, however often it is repeated
        made[:, first:end] = place + inside
        place += max(h, w)
        at = end
    made[:, at:] = place + np.arange(len(entries) - at)
    return made
