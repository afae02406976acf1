"""`python -m tools.smollm2.fidelity`: how far the shipped graph is from the dequantised weights, token by token.

Two fixed texts go through the float form and through the shipped form, each the way it runs in use: the prompt pass
over the whole text, and one token at a time.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from tools.smollm2.plain_loop import empty_caches, open_session, step

TEXTS = Path(__file__).parent / "texts"
TOKENS = 512
MAX_KL = 0.005
CLEAR_MARGIN = 0.5
"""A distance in logits between the two likeliest tokens above which the likeliest must not change."""

Logits = NDArray[np.float32]


@dataclass(frozen=True)
class Row:
    """One text in one way of running: divergences in nats, from the float form to the shipped one."""

    text: str
    way: str
    tokens: int
    mean_kl: float
    max_kl: float
    agreement: float
    clear_flips: int
    largest_flip_margin: float

    @property
    def good(self) -> bool:
        """Within the bounds that the package promises."""
        return self.mean_kl <= MAX_KL and self.clear_flips == 0


def compare(text: str, way: str, reference: Logits, candidate: Logits) -> Row:
    """Judge float32 [tokens, vocabulary] `candidate` by `reference`."""
    expected, actual = _log_probabilities(reference), _log_probabilities(candidate)
    divergence = (np.exp(expected) * (expected - actual)).sum(axis=-1)
    flipped = reference.argmax(axis=-1) != candidate.argmax(axis=-1)
    best_two = np.partition(reference, -2, axis=-1)[:, -2:]
    margins = (best_two[:, 1] - best_two[:, 0])[flipped]
    return Row(
        text=text,
        way=way,
        tokens=len(reference),
        mean_kl=float(divergence.mean()),
        max_kl=float(divergence.max()),
        agreement=float(1 - flipped.mean()),
        clear_flips=int((margins >= CLEAR_MARGIN).sum()),
        largest_flip_margin=float(margins.max(initial=0)),
    )


def whole_text(session: Any, ids: list[int]) -> Logits:
    """Logits of every position from one pass over `ids`: float32 [tokens, vocabulary]."""
    row = np.array([ids], np.int64)
    logits: Logits = step(session, row, np.ones_like(row), empty_caches(session))[0][0]
    return logits


def one_by_one(session: Any, ids: list[int]) -> Logits:
    """The same from a pass per token."""
    caches = empty_caches(session)
    logits = []
    for index, token in enumerate(ids):
        out, caches = step(session, np.array([[token]], np.int64), np.ones((1, index + 1), np.int64), caches)
        logits.append(out[0, 0])
    return np.stack(logits)


def measure(out: Path, form: str) -> Iterator[Row]:
    """Rows for every text and way, `form` under `out` against the float form there."""
    reference, candidate = (open_session(out / name / "model.onnx") for name in ("float", form))
    tokenizer = Tokenizer.from_file(str(out / form / "tokenizer.json"))
    for path in sorted(TEXTS.glob("*.txt")):
        ids = tokenizer.encode(path.read_text(encoding="utf-8"), add_special_tokens=False).ids[:TOKENS]
        expected = whole_text(reference, ids)
        yield compare(path.stem, "prompt", expected, whole_text(candidate, ids))
        yield compare(path.stem, "decode", expected, one_by_one(candidate, ids))


def _log_probabilities(logits: Logits) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 0 when every row is within the bounds, 1 when one is not, 2 when a form is not built."""
    parser = argparse.ArgumentParser(prog="python -m tools.smollm2.fidelity", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/smollm2"), help="folder of the built packages")
    parser.add_argument("--form", default="v1", help="the form to judge")
    options = parser.parse_args(arguments)
    missing = [form for form in ("float", options.form) if not (options.out / form / "model.onnx").exists()]
    if missing:
        print(f"not built: run python -m tools.smollm2 --forms {' '.join(missing)}", file=sys.stderr)
        return 2
    heads = ("text", "way", "tokens", "mean KL", "max KL", "argmax agree", "clear flips", "largest flip margin")
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    good = True
    for row in measure(options.out, options.form):
        good = good and row.good
        print(
            f"| {row.text} | {row.way} | {row.tokens} | {row.mean_kl:.2e} | {row.max_kl:.2e} "
            f"| {row.agreement:.2%} | {row.clear_flips} | {row.largest_flip_margin:.3f} |",
            flush=True,
        )
    print(f"bounds: mean KL <= {MAX_KL}, no flip at a margin >= {CLEAR_MARGIN}: {'kept' if good else 'BROKEN'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
