"""The end id behind each row of an encoder's source."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from genai_runtime.problem import RequestError
from genai_runtime.values import Array


def end_source(parameters: Mapping[str, Any]) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """The call: tokens int [rows, n], mask int [rows, n] -> both [rows, longest + 1], the end id with a 1 behind each.

    parameters: the ids `end` and `pad`. Without a mask every token is one of the source. Raises ValueError for other
    parameters, RequestError `bad-value` for a mask that is not ones and then zeros.
    """
    end, pad = parameters.get("end"), parameters.get("pad")
    if not isinstance(end, int) or not isinstance(pad, int):
        raise ValueError("it needs the whole numbers end and pad")

    def call(inputs: Mapping[str, Array]) -> dict[str, Array]:
        tokens, mask = inputs["tokens"], inputs.get("mask")
        rows, width = tokens.shape
        lengths = np.full(rows, width) if mask is None else (mask != 0).sum(axis=1)
        places = np.arange(width)
        if mask is not None and (mask != (places < lengths[:, None])).any():
            what = "the mask of the source is not ones and then zeros in every row"
            raise RequestError(
                "bad-value", what, help="pad the rows of the source on the right, and give 1 for a token"
            )
        longest = int(lengths.max(initial=0))
        ended = np.full((rows, longest + 1), pad, dtype=tokens.dtype)
        ended[:, :longest] = np.where(places[:longest] < lengths[:, None], tokens[:, :longest], pad)
        ended[np.arange(rows), lengths] = end
        if mask is None:
            return {"tokens": ended}
        return {"tokens": ended, "mask": (np.arange(longest + 1) <= lengths[:, None]).astype(mask.dtype)}

    return call
