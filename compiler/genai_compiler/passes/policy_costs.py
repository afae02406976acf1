"""What a draw costs on the host and by a graph, as measured, and which is cheaper for a vocabulary.

`policy_costs.json` holds microseconds at a few vocabulary sizes; `python -m tools.bench.policy --write` measures anew.
"""

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

WAYS = ("top_k", "top_k+top_p", "top_p", "min_p", "temperature")
"""By the first cut that a request asks for; `top_k+top_p` apart, where the host takes longer."""
SAVES = 0.85
"""A graph takes over where it costs at most so much of what the host does. In a decoder's loop caches are cold, both
sides take longer, and a smaller gain can't be seen there."""
MISSES: Mapping[str, float] = {"top_p": 0.25, "min_p": 0.02}
"""Share of draws whose cut keeps more tokens than the graph looks at: the host draws then, after the graph has run."""

_FILE = Path(__file__).with_name("policy_costs.json")


def graph_costs_less(way: str, vocabulary: int) -> bool:
    """Whether a graph should draw a token of so many."""
    host = draw_cost(way, "host", vocabulary)
    return draw_cost(way, "graph", vocabulary) + MISSES.get(way, 0.0) * host < SAVES * host


def draw_cost(way: str, side: Literal["host", "graph"], vocabulary: int) -> float:
    """Microseconds of one draw: between two measured sizes on the line through them, outside like the nearest one."""
    measured = _measured()
    sizes, costs = measured["vocabularies"], measured[side][way]
    return _on_line(sizes, costs, vocabulary)


def _on_line(sizes: Sequence[int], costs: Sequence[float], size: int) -> float:
    size = min(max(size, sizes[0]), sizes[-1])
    at = min(bisect_right(sizes, size), len(sizes) - 1)
    share = (size - sizes[at - 1]) / (sizes[at] - sizes[at - 1])
    return costs[at - 1] + share * (costs[at] - costs[at - 1])


@cache
def _measured() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return found
