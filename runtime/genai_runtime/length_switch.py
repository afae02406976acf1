"""Where a graph takes other tables of positions behind a length: keep its caches, compute them again, or refuse.

Keys in the caches are turned by the tables of the run that made them. The first run behind the length reads them with
other ones. `recompute` makes that run one over the whole sequence, as if all of it were the prompt.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from genai_runtime.problem import LoadError, RequestError
from genai_runtime.values import Array

if TYPE_CHECKING:
    from genai_runtime.decoding import Decoding

CHOICES = ("keep", "recompute", "refuse")


def hold_choice(length_switch: str) -> None:
    """Raises LoadError `bad-length-switch`."""
    if length_switch not in CHOICES:
        what = f"length_switch is {length_switch!r}: one of {', '.join(CHOICES)}"
        raise LoadError("bad-length-switch", what, help="'keep' is the graph as it is")


def watch_switch(decoding: "Decoding", choice: str, limit: int) -> None:
    """Do as chosen for a request of new tokens up to `limit`. Raises RequestError `length-switch`."""
    last, prompt = decoding.spec.switch, decoding.width
    if prompt > last or prompt + limit - 1 <= last:
        return  # all of its runs are on one side
    if choice == "refuse":
        room = last + 1 - prompt
        what = f"a prompt of {prompt} tokens and up to {limit} new ones pass {last} positions, where the graph changes"
        help = f"ask for at most {room} new tokens (max_new_tokens), or load with length_switch='recompute'"
        raise RequestError("length-switch", f"{what} its tables", help=help)
    spec = decoding.spec
    whole = decoding.takes_switches and decoding.front is None and decoding.places is None and not spec.one_token
    if not whole or spec.prompt_component:
        what = f"the graph changes its tables behind {last} positions, and this decoder's prompt can't be run again"
        raise RequestError("length-switch", what, help="load with length_switch='keep' or 'refuse'")
    decoding.switch = Rebuilding(decoding.ids, last)


class Rebuilding:
    """The tokens of a request so far. last: positions for which the graph takes its first tables."""

    def __init__(self, prompt: Array, last: int) -> None:
        self._parts, self._last = [prompt], last

    def due(self, tokens: Array, filled: int) -> bool:
        """Whether the run that is to take `tokens` [rows, 1] is the first one behind the length; notes them."""
        self._parts.append(tokens.copy())
        return filled >= self._last

    def again(self, decoding: "Decoding") -> None:
        """Run the whole sequence as a prompt; the decoding then stands behind it."""
        decoding.ids = np.ascontiguousarray(np.concatenate(self._parts, axis=1))
        decoding.width = decoding.first = decoding.ids.shape[1]
        decoding.lengths = np.full(decoding.rows, decoding.width, dtype=np.int64)
        decoding.room = replace(decoding.room, prompt=decoding.width, now=0)
        decoding.chunk, decoding.switch = 0, None
        decoding.prompt()
