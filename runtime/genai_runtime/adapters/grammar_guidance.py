"""onnx-genai.grammar-guidance@1: a row's place in a token automaton (standard, 5.1).

The automaton is a table int64 [states, vocabulary]: the next state, or -1 where the token is rejected.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
ACTIONS = ("clone", "lookahead", "commit")


def grammar_guidance(
    parameters: Mapping[str, bool | int | float | str],
) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """The call for `parameters.action`: clone consumes nothing, lookahead stops at a rejected token, commit refuses it.

    In: state int64 [B], tokens int64 [B, W], valid_length int64 [B], transition_table. Out: next_state, consumed_length
    int64 [B], logits_mask bool [B, V], forced_tokens int64 [B, 1], forced_length int64 [B].
    """
    action = parameters.get("action")
    if action not in ACTIONS:
        raise ValueError(f"action is {action!r}; it is one of {', '.join(ACTIONS)}")
    return lambda inputs: _step(str(action), inputs)


def _step(action: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
    state = inputs["state"].copy()
    if action == "clone" and "transition_table" not in inputs:
        return {"next_state": state, "consumed_length": np.zeros_like(state)}
    table = inputs["transition_table"]
    if ((state < 0) | (state >= table.shape[0])).any() or ((table < -1) | (table >= table.shape[0])).any():
        raise ValueError("a state or a transition names no row of the transition table")
    if "tokens" in inputs and (inputs["tokens"] < 0).any():
        raise ValueError("a token is negative")
    consumed = np.zeros_like(state)
    if action != "clone":
        tokens, lengths = inputs["tokens"], inputs["valid_length"]
        if ((lengths < 0) | (lengths > tokens.shape[1])).any():
            raise ValueError(f"valid_length {lengths.tolist()} leaves the {tokens.shape[1]} tokens given")
        for row in range(state.size):
            state[row], consumed[row] = _advance(action, table, int(state[row]), tokens[row, : lengths[row]])
    allowed = table[state] != -1
    forced = allowed.sum(axis=1) == 1
    only = np.where(forced, allowed.argmax(axis=1), 0).astype(np.int64)
    return {
        "next_state": state,
        "consumed_length": consumed,
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
