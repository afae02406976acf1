"""Task profiles: an embedding, a score or a transcription from what a run has published (standard, 1.9).

Everything is computed in float32. Which outputs are pooled or decoded, and what says which of their positions are
valid, was decided by the compiler from the outputs' own types.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from genai_runtime.pooling import pool
from genai_runtime.problem import ExecutionError, GenaiError, RequestError
from genai_runtime.sequence_text import Vocabulary, decode
from genai_runtime.values import Array

if TYPE_CHECKING:
    from genai_runtime.result import Result
    from genai_runtime.tokenizer import Tokenizer

Computed = Array | dict[str, Array] | list[str] | list[list[int]]
"""What a profile gives: one array, an array a role, a text a row, or class ids a row."""


@dataclass(frozen=True)
class Profile:
    """One task view over a package's outputs. `outputs` maps role -> output; `batch_invariance` is "" when unstated.

    A padding-sensitive profile gives a row other values when longer rows stand beside it: the package says so.
    """

    name: str
    kind: str
    version: str
    batch_invariance: str
    outputs: Mapping[str, str]
    _data: Mapping[str, Any]
    _open_tokenizer: "Callable[[], Tokenizer]"

    @property
    def gives_array(self) -> bool:
        """Whether it makes one array: no text, no class ids, and not several outputs."""
        return self._data["pooling"] is not None or (self._data["decoding"] is None and len(self.outputs) == 1)

    def of(self, result: "Result") -> Computed:
        """Compute it: pooled float32 [rows, ...]; a text a row; else the outputs as they are, by role when several.

        A decoding without a vocabulary gives class ids. Raises ExecutionError `profile-output` (nothing was published),
        `profile-lengths` (RequestError where the caller's own input says the lengths), `profile-axis`,
        `profile-vocabulary`, `logits-not-finite`; LoadError `no-tokenizer`.
        """
        try:
            if self._data["pooling"] is not None:
                return self._pooled(result)
            if self._data["decoding"] is not None:
                return self._decoded(result)
        except GenaiError as failure:
            kind, help, given = type(failure), failure.help, self._data.get("marks_input", "")
            if failure.code == "profile-lengths" and given:
                kind, help = RequestError, f"input '{given}' says which positions count: give each row some that it has"
            raise kind(failure.code, failure.what, help=help, origin=f"profiles.{self.name}") from None
        found = {role: _joined(self._parts(result, output), 0) for role, output in self.outputs.items()}
        return next(iter(found.values())) if len(found) == 1 else found

    # ---- the two computations ----------------------------------------------------------------------------------------

    def _pooled(self, result: "Result") -> Array:
        how, source, rows = self._data["pooling"], self._data["source"], self._data["rows"]
        parts = self._parts(result, source)
        marks = self._marks(result, len(parts))
        pooled = [
            pool(part, how["kind"], how["axis"], rows, bool(how["normalize"]), mark)
            for part, mark in zip(parts, marks, strict=True)
        ]
        return _joined(pooled, max(rows - (how["axis"] < rows), 0))

    def _decoded(self, result: "Result") -> list[str] | list[list[int]]:
        how = self._data["decoding"]
        parts = self._parts(result, self._data["source"])
        marks = self._marks(result, len(parts))
        ids = [
            row
            for part, lengths in zip(parts, marks, strict=True)
            for row in decode(part, how["time_axis"], how["class_axis"], lengths, how["collapse_repeats"], how["blank"])
        ]
        stated = how["vocabulary"]
        if stated is None:
            return ids
        tokenizer = self._open_tokenizer() if stated["tokens"] is None else None
        vocabulary = Vocabulary(
            stated["tokens"], tokenizer, stated["word_delimiter"], frozenset(stated["ignored_tokens"])
        )
        return [vocabulary.text(row) for row in ids]

    # ---- outputs -----------------------------------------------------------------------------------------------------

    def _parts(self, result: "Result", output: str) -> list[Array]:
        """The whole output in one, or its rows where it was published row by row; floats as float32."""
        if output in result.aggregate:
            return [_plain(result.aggregate[output])]
        rows = result.row_slots.get(output)
        if rows is None:
            raise ExecutionError("profile-output", f"this run published nothing to '{output}'")
        silent = [at for at, each in enumerate(rows) if each is None]
        if silent:
            raise ExecutionError("profile-output", f"row {silent[0]} of '{output}' published nothing")
        return [_plain(each) for each in rows if each is not None]

    def _marks(self, result: "Result", parts: int) -> Sequence[Array | None]:
        """What says which positions of each part are valid: lengths, a mask, or None for all."""
        output = self._data["lengths"] or self._data["mask"]
        if not output:
            return [None] * parts
        whole = np.concatenate([each if each.ndim else each.reshape(1) for each in self._parts(result, output)])
        if parts == 1:
            return [whole]
        if len(whole) != parts:
            raise ExecutionError("profile-lengths", f"'{output}' speaks of {len(whole)} rows, there are {parts}")
        return [whole[at : at + 1] for at in range(parts)]


def _plain(array: Array) -> Array:
    with np.errstate(over="ignore"):
        return array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array


def _joined(parts: Sequence[Array], axis: int) -> Array:
    if len(parts) == 1:
        return parts[0]
    try:
        return np.concatenate(parts, axis=axis)
    except ValueError as fault:
        raise ExecutionError("profile-output", f"rows of different shape are no one tensor: {fault}") from fault


def profiles_of(stated: Sequence[Mapping[str, Any]], open_tokenizer: "Callable[[], Tokenizer]") -> dict[str, Profile]:
    """The profiles of a manifest, by name."""
    return {str(each["name"]): _profile(each, open_tokenizer) for each in stated}


def profile_named(profiles: Mapping[str, Profile], name: str) -> Profile:
    """One of a package's profiles. Raises RequestError `no-profile`."""
    if name not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        raise RequestError("no-profile", f"the package has no profile '{name}'", help=f"its profiles: {known}")
    return profiles[name]


def _profile(each: Mapping[str, Any], open_tokenizer: "Callable[[], Tokenizer]") -> Profile:
    named = (str(each[fact]) for fact in ("name", "kind", "version", "batch_invariance"))
    name, kind, version, invariance = named
    return Profile(name, kind, version, invariance, each["outputs"], each, open_tokenizer)
