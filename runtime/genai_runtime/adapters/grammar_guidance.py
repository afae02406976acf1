"""onnx-genai.grammar-guidance@1: a row's place in a token automaton (standard, 5.1).

The automaton is a table int64 [states, vocabulary]: the next state, or -1 where the token is rejected.
"""

from collections.abc import Callable, Mapping
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
ACTIONS = ("clone", "lookahead", "commit")


def grammar_guidance(
    parameters: Mapping[str, bool | int | float | str],
) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """The call for `parameters.action`: clone consumes nothing, lookahead stops at a rejected token, commit refuses it.

    In: state int64 [B], tokens int64 [B, W], valid_length int64 [B], transition_table. Out: next_state, consumed_length
    int64 [B], logits_mask bool [B, V], forced_tokens int64 [B, 1], forced_length int64 [B]. A table is looked through
    when it comes first; while the same array comes again, it is not.
    """
    action = parameters.get("action")
    if action not in ACTIONS:
        raise ValueError(f"action is {action!r}; it is one of {', '.join(ACTIONS)}")
    return _Guidance(str(action))


class _Guidance:
    """One step's call, and the table that it last found in order."""

    def __init__(self, action: str) -> None:
        self.action = action
        self._sound: ReferenceType[Array] | None = None

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        table = inputs.get("transition_table")
        if self.action == "clone" and table is None:
            state = inputs["state"].copy()
            return {"next_state": state, "consumed_length": np.zeros_like(state)}
        table = inputs["transition_table"]
        if self._sound is None or self._sound() is not table:
            _check_table(table)
            self._sound = ref(table)
        return _step(self.action, inputs, table)


_OUTSIDE = "a state or a transition names no row of the transition table"


def _check_table(table: Array) -> None:
    if table.ndim != 2 or table.dtype.kind not in "iu":
        raise ValueError(f"the transition table is {table.dtype} of rank {table.ndim}, not whole numbers of rank 2")
    if table.size and not (table.min() >= -1 and table.max() < table.shape[0]):
        raise ValueError(_OUTSIDE)


def _step(action: str, inputs: Mapping[str, Array], table: Array) -> dict[str, Array]:
    state = inputs["state"].copy()
    if ((state < 0) | (state >= table.shape[0])).any():
        raise ValueError(_OUTSIDE)
    if "tokens" in inputs and (inputs["tokens"] < 0).any():
        raise ValueError("a token is negative")
    consumed = np.zeros_like(state)
    if action != "clone":
        tokens, lengths = inputs["tokens"], inputs["valid_length"]
        if not state.size == tokens.shape[0] == lengths.size:
            rows = f"{state.size} states, {tokens.shape[0]} rows of tokens and {lengths.size} lengths"
            raise ValueError(f"{rows} are not of the same requests")
        if ((lengths < 0) | (lengths > tokens.shape[1])).any():
            raise ValueError(f"valid_length {lengths.tolist()} leaves the {tokens.shape[1]} tokens given")
        for row in range(state.size):
            state[row], consumed[row] = _advance(action, table, int(state[row]), tokens[row, : lengths[row]])
    return {"next_state": state, "consumed_length": consumed, **_ways_on(table[state] != -1)}


def _ways_on(allowed: Array) -> dict[str, Array]:
    """The tokens that each row may take next, and the one that it must where there is but one."""
    forced = allowed.sum(axis=1) == 1
    only = np.where(forced, allowed.argmax(axis=1), 0).astype(np.int64)
    return {
        "logits_mask": allowed,
        "forced_tokens": only.reshape(-1, 1),
        "forced_length": forced.astype(np.int64),
    }


def _advance(action: str, table: Array, state: int, tokens: Array) -> tuple[int, int]:
    for count, token in enumerate(tokens.tolist()):
        following = int(table[state, token]) if token < table.shape[1] else -1
        if following == -1:
            if action == "commit":
                raise ValueError(f"token {token} is rejected in state {state}")
            return state, count
        state = following
    return state, tokens.size
