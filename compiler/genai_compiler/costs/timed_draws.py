"""The draws that are timed: each way, of scores such as a decoder gives, by the host and by the compiler's graphs."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from genai_runtime.policy_graphs import PolicyGraphs
from genai_runtime.sample import SamplingOptions, make_selector

from genai_compiler.emit.policy_graphs import KINDS, policy_graph

ASKED: Mapping[str, Mapping[str, float]] = {
    "top_k": {"top_k": 50},
    "top_k+top_p": {"top_k": 50, "top_p": 0.9, "temperature": 0.8},
    "top_p": {"top_p": 0.9, "temperature": 0.8},
    "min_p": {"min_p": 0.05},
    "temperature": {"temperature": 0.8},
}
"""Options that stand for a way of drawing, by the way."""
DECAY = 1.9
"""Scores fall by so much for each factor e of rank, as SmolLM2's do from the third place to the thousandth."""

FloatRow = npt.NDArray[np.float32]


def scores(vocabulary: int, seed: int = 0) -> FloatRow:
    """A row float32 [vocabulary] whose scores fall with the logarithm of their rank, in no order."""
    generator = np.random.default_rng(seed)
    falling = -DECAY * np.log(np.arange(1, vocabulary + 1)) + 0.3 * generator.normal(size=vocabulary)
    return generator.permutation(falling).astype(np.float32)


def graphs_in(folder: Path) -> PolicyGraphs:
    """All graphs that the compiler writes, written there; each is preferred."""
    files = {kind: folder / f"{kind}.onnx" for kind in KINDS}
    for kind, file in files.items():
        file.write_bytes(policy_graph(kind))
    return PolicyGraphs(files, None, 0)


def draw(way: str, row: FloatRow, graphs: PolicyGraphs | None) -> Callable[[], int]:
    """Draws from the row float32 [vocabulary] at every call; graphs: None where the host draws."""
    options = SamplingOptions(do_sample=True, seed=1, **ASKED[way])  # type: ignore[arg-type]
    facts = {"vocab_size": row.size, "valid_ids": row.size}
    return make_selector(options, **facts, end_ids=frozenset(), prompt=(), graphs=graphs).over(row)
