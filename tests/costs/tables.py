"""Tables of costs written by hand, whose sums a person can do."""

import json
from typing import Any

from genai_compiler.costs import WAYS, Costs

MACHINE = {"processor": "made up", "system": "none", "python": "0", "numpy": "0", "onnxruntime": "0"}


def both(graph: float, host: float) -> dict[str, Any]:
    """A work that costs so much for every element, at any extent."""
    return {"graph": [[1, graph], [1000, graph * 1000]], "host": [[1, host], [1000, host * 1000]]}


def data(**parts: Any) -> dict[str, Any]:
    """A table as plain data: round numbers, or what `parts` put in their place."""
    table = {
        "version": 1,
        "measured": "2026-01-01",
        "machine": MACHINE,
        "session": {"call": 100, "input": 10, "output": 1},
        "node": 1000,
        "host": {"call": 20, "input": 2, "output": 0.5, "operator": 7},
        "searches": {"ArgMax": both(4, 1), "ArgMin": both(8, 2)},
        "draws": {way: both(1, 2) for way in WAYS},
    }
    return {**table, **parts}


def table(**parts: Any) -> Costs:
    """The same, typed."""
    return Costs.model_validate_json(json.dumps(data(**parts)))
