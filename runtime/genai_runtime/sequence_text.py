"""Frame scores -> class ids -> text, in exactly the order of the standard (1.9).

First `length` frames, best class of each, equal neighbours merged, blanks dropped; then tokens, ignored ones dropped,
words at the delimiter. Merging comes before the blanks go: a blank between two equal classes keeps both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from genai_runtime.pooling import valid_positions
from genai_runtime.problem import ExecutionError
from genai_runtime.values import Array

if TYPE_CHECKING:
    from genai_runtime.tokenizer import Tokenizer


def decode(
    scores: Array, time_axis: int, class_axis: int, lengths: Array | None, collapse: bool, blank: int | None
) -> list[list[int]]:
    """The class ids of each row. scores: rank 3 with rows on the axis that is neither, or rank 2: one row.

    lengths: [rows], valid frames of each; None: all. Of equal scores the lowest class counts.
    """
    if scores.ndim not in (2, 3) or max(time_axis, class_axis) >= scores.ndim:
        what = f"scores of rank {scores.ndim} have no time on axis {time_axis} with classes on axis {class_axis}"
        raise ExecutionError("profile-axis", what)
    frames = np.moveaxis(scores, (time_axis, class_axis), (-2, -1))
    frames = frames if frames.ndim == 3 else frames[None]
    if frames.shape[2] == 0:
        raise ExecutionError("profile-axis", "there is no class to choose")
    valid = valid_positions(lengths, frames.shape[0], frames.shape[1])
    if np.isnan(frames[valid]).any():
        raise ExecutionError("logits-not-finite", "scores of a valid frame are NaN")
    best = frames.argmax(axis=2)
    return [_row(best[row][valid[row]], collapse, blank) for row in range(len(best))]


def _row(ids: Array, collapse: bool, blank: int | None) -> list[int]:
    if collapse and ids.size:
        ids = ids[np.concatenate(([True], ids[1:] != ids[:-1]))]
    return [each for each in ids.tolist() if each != blank]


@dataclass(frozen=True)
class Vocabulary:
    """Class ids as text. tokens: one a class; None: the tokenizer's own."""

    tokens: Sequence[str] | None
    tokenizer: "Tokenizer | None"
    word_delimiter: str | None
    ignored: frozenset[str]

    def text(self, ids: Sequence[int]) -> str:
        """Tokens without the ignored ones; split at the delimiter and joined with one space, or all together.

        A tokenizer's tokens that no delimiter splits become text as the tokenizer itself makes it, except where its
        decoder would merge repeats once more. Raises ExecutionError `profile-vocabulary`.
        """
        named = [(each, self._token(each)) for each in ids]
        kept = [(each, token) for each, token in named if token not in self.ignored]
        if self.word_delimiter is not None:
            return _words([token for _, token in kept], self.word_delimiter)
        if self.tokenizer is not None and "CTC" not in self.tokenizer.decoder_kinds:
            return self.tokenizer.decode([each for each, _ in kept], skip_special_tokens=False)
        return "".join(token for _, token in kept)

    def _token(self, each: int) -> str:
        if self.tokens is not None:
            found = self.tokens[each] if each < len(self.tokens) else None
        else:
            found = self.tokenizer.token(each) if self.tokenizer is not None else None
        if found is None:
            raise ExecutionError("profile-vocabulary", f"class {each} has no token in the vocabulary")
        return found


def _words(tokens: Sequence[str], delimiter: str) -> str:
    words = [""]
    for each in tokens:
        if each == delimiter:
            words.append("")
        else:
            words[-1] += each
    return " ".join(filter(None, words))
