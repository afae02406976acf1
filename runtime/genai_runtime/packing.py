"""Rows packed into one axis: what tells a decoder over paged caches which tokens and which pages are whose.

Each row has pages of its own, in order, as many as its longest text needs; so position p of row r lies in page
`table[r, p // block]` at `p % block`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from genai_runtime.values import NUMPY, Array


@dataclass(frozen=True)
class Pages:
    """The ports, in pairs with their dtypes. bounds: (port, dtype, how many), None where the graph has none.

    cumulative: where rows begin and end among the tokens, [rows + 1]; past: positions a row before the run, [rows];
    table: pages a row, [rows, pages]; bounds: most new tokens a row, longest row after the run, and its lower bound.
    block: positions a page. per_token: logits are [tokens, vocab], else [rows, vocab].
    """

    cumulative: tuple[str, str]
    past: tuple[str, str]
    table: tuple[str, str]
    bounds: tuple[str, str, int] | None
    block: int
    per_token: bool


def page_table(rows: int, most: int, block: int) -> Array:
    """int64 [rows, pages]: so many pages a row that each can have `most` positions, no page twice."""
    each = max(1, -(-most // block))
    return np.arange(rows * each).reshape(rows, each)


def boundaries(new: Array) -> Array:
    """int64 [rows + 1]: where each row's new tokens begin and, last, where they end. new: tokens a row, [rows]."""
    return np.concatenate([[0], np.cumsum(new)])


def packed(values: Array, new: Array) -> Array:
    """The first `new[r]` entries of each row, one row behind another: [rows, n] -> [tokens]."""
    kept: Array = values[np.arange(values.shape[1]) < np.reshape(new, (-1, 1))]
    return kept


def places(past: Array, new: Array) -> Array:
    """int64 [tokens]: the position of every new token in its own row."""
    width = int(np.max(new, initial=0))
    return packed(np.reshape(past, (-1, 1)) + np.arange(width), new)


def described(pages: Pages, past: Array, new: Array) -> dict[str, Any]:
    """What the ports take beside the table, by port: `past` positions and `new` tokens a row, [rows] each."""
    feeds = {
        pages.cumulative[0]: boundaries(new).astype(NUMPY[pages.cumulative[1]]),
        pages.past[0]: np.asarray(past).astype(NUMPY[pages.past[1]]),
    }
    if pages.bounds is not None:
        port, dtype, count = pages.bounds
        longest = int(np.max(np.add(past, new), initial=0))
        known = [int(np.max(new, initial=0)), longest, longest]
        feeds[port] = np.array(known[:count], dtype=NUMPY[dtype])
    return feeds
