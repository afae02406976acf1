"""A session that continues its prompt: the cell holds the conversation as token ids (standard, 3.8, prompt_prefix).

A turn's prompt is what is stored and then what the caller gives, put together before anything is bound. After success
the cell holds that prompt and the tokens published; a turn that fails, is dropped or would be too long changes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from genai_runtime.problem import ExecutionError, RequestError
from genai_runtime.request import Request, SessionStore
from genai_runtime.result import Result
from genai_runtime.running import Executor, Run
from genai_runtime.values import Array, Value, to_array, to_value


def _spec(inputs: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    found = next((each for each in inputs if each["name"] == name), None)
    # an input whose value the runtime's own decoding forms is not among them, and has no alias to be given by
    return found if found is not None else {"name": name, "application": "", "source": "literal", "role": ""}


class Conversation:
    """How a package continues a conversation, from its manifest. rows of a turn stay rows of the conversation."""

    def __init__(self, stated: Mapping[str, Any], inputs: Sequence[Mapping[str, Any]]) -> None:
        self.cell, self.output = str(stated["cell"]), str(stated["tokens_output"])
        self._prompt, self._bound = _spec(inputs, stated["prompt_input"]), _spec(inputs, stated["bound"])
        self._default: Any = stated["bound_default"]

    def stored(self, store: SessionStore | None) -> Array | None:
        """The conversation so far, None before the first turn."""
        value = None if store is None else store.cells.get(self.cell)
        return None if value is None else to_array(value)

    def with_prefix(self, tensors: Mapping[str, Array], store: SessionStore | None) -> dict[str, Array]:
        """The caller's tensors with the whole conversation as the prompt. Raises RequestError wrong-dtype, -shape."""
        given, name = dict(tensors), self._given(tensors, self._prompt)
        so_far = self.stored(store)
        if name is not None and so_far is not None:
            given[name] = self._joined(so_far, given[name], f"input '{name}'")
        return given

    def hold_prompt(self, request: Request) -> None:
        """The whole prompt is within the bound. Raises RequestError `conversation-too-long`."""
        prompt = self._prompt_of(request)
        if prompt is not None:
            self._hold(prompt.shape[-1] if prompt.ndim else 0, request, "the conversation with this prompt")

    def remember(self, request: Request, result: Result) -> None:
        """Hold prompt and published tokens against the bound; with a session they become its state.

        Raises RequestError `conversation-too-long`, ExecutionError `conversation-rows`.
        """
        whole = self._prompt_of(request)
        if whole is None or (request.session is None and len(set(request.prompt_lengths or ())) > 1):
            return
        for published in self._published(result, whole, strict=request.session is not None):
            whole = self._joined(whole, published, f"output '{self.output}'")
        self._hold(whole.shape[-1], request, "the conversation after this turn")
        if request.session is not None:
            request.session.pending[self.cell] = to_value(np.ascontiguousarray(whole))

    # ---- parts -------------------------------------------------------------------------------------------------------

    def _published(self, result: Result, prompt: Array, strict: bool) -> list[Array]:
        """What went to the tokens output, in the form it has: a whole, rows, or events. strict: rows of one length."""
        output = self.output
        if events := result.events(output):
            return events
        if output in result.aggregate:
            return [result.aggregate[output]]
        empty = np.zeros((1, *prompt.shape[1:-1], 0), dtype=prompt.dtype)
        parts = [empty if each is None else each for each in result.row_slots.get(output, [])]
        for row, events in enumerate(result.row_events(output)):
            parts[row] = np.concatenate(events, axis=-1) if events else parts[row]
        if len({each.shape[-1] for each in parts}) > 1:
            if not strict:
                return []
            what = f"rows published {[each.shape[-1] for each in parts]} tokens, and a conversation has one length"
            raise ExecutionError("conversation-rows", what, origin=f"session cell '{self.cell}'")
        return [np.concatenate(parts)] if parts else []

    def _joined(self, first: Array, more: Array, what: str) -> Array:
        if more.dtype != first.dtype:
            raise RequestError("wrong-dtype", f"{what} is {more.dtype}, the session's conversation is {first.dtype}")
        if more.ndim != first.ndim or more.shape[:-1] != first.shape[:-1]:
            text = f"{what} has shape {list(more.shape)}, the session's conversation has {list(first.shape)}"
            raise RequestError("wrong-shape", text, help="every turn has the rows of the first one")
        return np.concatenate([first, more], axis=-1)

    def _hold(self, length: int, request: Request, what: str) -> None:
        limit = self._limit(request)
        if limit is not None and length > limit:
            text = f"{what} has {length} tokens, and the package allows {limit}; the session stays as it was"
            raise RequestError("conversation-too-long", text, help="shorten the prompt, or reset the session")

    def _limit(self, request: Request) -> int | None:
        """The bound's value as it will be bound, None where binding says that it has none."""
        name, given = self._given(request.tensors, self._bound), self._default
        if name is not None:
            given = request.tensors[name]
        elif self._bound["source"] == "request" and self._bound["role"] in request.roles:
            given = request.roles[self._bound["role"]]
        numbers = np.asarray(given if given is not None else ())
        return int(numbers.max()) if numbers.size else None

    def _prompt_of(self, request: Request) -> Array | None:
        name = self._given(request.tensors, self._prompt)
        return None if name is None else request.tensors[name]

    @staticmethod
    def _given(tensors: Mapping[str, Array], spec: Mapping[str, Any]) -> str | None:
        """The name under which a caller gave an input: its own or its application alias."""
        return next((each for each in (spec["name"], spec["application"]) if each in tensors), None)


def conversation_of(data: Mapping[str, Any]) -> Conversation | None:
    """The conversation that a manifest states."""
    stated = data["continuation"]
    return None if stated is None else Conversation(stated, data["inputs"])


@dataclass(frozen=True)
class Seen:
    """What a session held when a turn was asked for: the turn is only run while it holds that."""

    value: Value | None


@dataclass(frozen=True)
class Turn:
    """One invocation within a session, or the only turn of none."""

    conversation: Conversation | None
    store: SessionStore | None
    name: str

    def with_prefix(self, tensors: Mapping[str, Array]) -> Mapping[str, Array]:
        """The caller's tensors, the prompt behind the conversation so far."""
        return tensors if self.conversation is None else self.conversation.with_prefix(tensors, self.store)

    def continued(self, prompts: list[list[int]]) -> tuple["Seen | None", list[list[int]]]:
        """(the conversation so far, the prompts behind it). Raises RequestError `bad-session`, `wrong-shape`."""
        if self.store is None:
            return None, prompts
        if len(prompts) != 1:
            help = "give one prompt, and every conversation a session of its own"
            raise RequestError(
                "bad-session", f"a session is one conversation, and there are {len(prompts)} prompts", help=help
            )
        seen = self._held()
        if seen is None:
            return Seen(None), prompts
        so_far = to_array(seen)
        if so_far.size != so_far.shape[-1]:
            what = f"session '{self.name}' holds {so_far.shape[0]} rows, and a prompt is one"
            raise RequestError("wrong-shape", what, help="continue it with run(inputs)")
        return Seen(seen), [[*so_far.reshape(-1).tolist(), *prompts[0]]]

    def refuse_stops(self, stops: tuple[str, ...]) -> None:
        """A run cut off at a stop string has no end that a session could keep. Raises `unsupported-option`."""
        if stops and self.store is not None:
            what = "this package's own sampler does not end at stop strings, and a session keeps whole turns only"
            raise RequestError("unsupported-option", what, help="leave stop or session out")

    def run(self, executor: Executor, make: Callable[[], Request], seen: "Seen | None" = None) -> Run:
        """Run a request that is made once the session is held.

        seen: the conversation that the request's prompt continues already. Raises RequestError `session-busy`, and what
        Conversation raises.
        """
        if self.conversation is None and self.store is None:
            return executor.run(make())
        return self._kept_run(executor, make, seen)

    def _kept_run(self, executor: Executor, make: Callable[[], Request], seen: "Seen | None") -> Run:
        with nullcontext() if self.store is None else self.store.leased(self.name):
            if seen is not None and self.store is not None and self._held() is not seen.value:
                what = f"session '{self.name}' has gone on since this turn was asked for"
                raise RequestError("session-busy", what, help="ask for a turn when the one before has ended")
            request = replace(make(), session=self.store)
            if self.conversation is not None:
                self.conversation.hold_prompt(request)
            result = yield from executor.run(request)
            if request.audience.cancelled and self.store is not None:
                self.store.pending.clear()
            elif self.conversation is not None:
                self.conversation.remember(request, result)
            return result

    def _held(self) -> Value | None:
        assert self.store is not None
        return self.store.cells.get(self.conversation.cell) if self.conversation is not None else None
