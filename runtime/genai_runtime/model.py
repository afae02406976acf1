"""A loaded package: the text level (generate, chat) and the workflow level (run, stream) of one executor."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from genai_runtime.chat_messages import variables_of
from genai_runtime.chat_template import ChatTemplate, encode_chat, read_chat_template
from genai_runtime.declared import checked_overrides, given_for, length_roles, prompt_tensor, refuse_owned
from genai_runtime.generation import Generation, TextSettings
from genai_runtime.given import as_tensors, hold_session, prompts_of, token_ids
from genai_runtime.manifest import Manifest
from genai_runtime.options import (
    ROLES,
    Limits,
    refuse_overrides,
    resolve_limits,
    resolve_roles,
    resolve_sampling,
    row_values,
    tensor_options,
)
from genai_runtime.problem import RequestError
from genai_runtime.publish import Result
from genai_runtime.request import Audience, Event, Request, SessionStore
from genai_runtime.running import Run
from genai_runtime.sample import SamplingOptions
from genai_runtime.sessions import Sessions
from genai_runtime.stop_strings import join_stops
from genai_runtime.text_files import TextFiles
from genai_runtime.tokenizer import Tokenizer, open_tokenizer
from genai_runtime.values import Array

Message = Mapping[str, Any]


class Executor(Protocol):
    """A generated executor."""

    def run(self, request: Request) -> Generator[Event, None, Result]: ...


class Model:
    """A compiled package, ready to run. Use it in a `with` block, or leave it to the garbage collector.

    One model may serve several threads: every request has its own state; ONNX Runtime's sessions allow concurrent runs.
    """

    def __init__(self, manifest: Manifest, executor: Executor, sessions: Sessions, notices: Sequence[str]) -> None:
        self._manifest, self._sessions = manifest, sessions
        self._open: Executor | None = executor
        self._kept: dict[str, SessionStore] = {}
        self.notices = tuple(notices)

    # ---- text level --------------------------------------------------------------------------------------------------

    def generate(
        self,
        prompt: str | Sequence[int] | None = None,
        *,
        batch: Sequence[str | Sequence[int]] | None = None,
        max_new_tokens: int | None = None,
        stop: str | Iterable[str] | None = None,
        stop_on_eos: bool = True,
        add_special_tokens: bool = True,
        skip_special_tokens: bool = True,
        **sampling: Any,
    ) -> Generation:
        """Continue a prompt: text, or token ids; `batch` takes several, each row equal to its solo run.

        sampling: fields of SamplingOptions (temperature, top_k, top_p, min_p, repetition_penalty, seed, ...); a list
        gives one value a row. Without any the package's defaults decide, and greedy where it has none. stop: strings
        that end a row, beside the package's end tokens. Nothing runs until the result is iterated or asked for.
        Raises RequestError (bad-prompt, bad-token, bad-stop, unknown-option, bad-sampling-options, option-not-allowed,
        option-out-of-bounds, context-exceeded, empty-prompt, unsupported-option, closed).
        """
        executor = self._executor
        prompts = self._prompts(prompt, batch, add_special_tokens)
        refuse_overrides({"max_output_tokens": max_new_tokens, **sampling}, self._generation)
        decoded = self._generation["prompt_decoded"]
        limits = resolve_limits(max_new_tokens, prompts if decoded else [[0]] * len(prompts), self._generation)
        text = self._text_settings(join_stops(stop), stop_on_eos, skip_special_tokens)
        stopped, audience = set[int](), Audience()
        if self._generation["policy"] == "runtime":
            options = resolve_sampling(sampling, self._generation["defaults"], [len(each) for each in prompts])
            runs = self._runtime_runs(executor, prompts, limits, options, stop_on_eos, stopped, audience)
        else:
            runs = self._workflow_runs(executor, prompts, limits, sampling, stop_on_eos)
        return Generation(runs, prompts, text, stopped, limits.context if decoded else 0, audience)

    def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = True,
        fold_system: bool = False,
        template_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Generation:
        """Answer a conversation through the package's chat template. options: those of `generate`.

        messages: mappings with `role` and `content`. tools: JSON schemas, as the template expects them.
        Raises RequestError `no-chat-template`, `chat-template-refused` (with the template's own words), and generate's.
        """
        self._check_open()
        ids = encode_chat(
            self.tokenizer,
            self.chat_template,
            messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            fold_system=fold_system,
            **variables_of(template_options),
        )
        return self.generate(ids, **options)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The package's tokenizer, opened when first asked for. Raises LoadError `no-tokenizer`."""
        return open_tokenizer(self._manifest.package, self._text_files)

    @cached_property
    def chat_template(self) -> ChatTemplate:
        """The package's chat templates, read when first asked for."""
        return read_chat_template(self._manifest.package, self._text_files, self.tokenizer)

    # ---- workflow level ----------------------------------------------------------------------------------------------

    def run(
        self,
        inputs: Mapping[str, Any],
        *,
        stop_on_eos: bool = True,
        session: str | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> Result:
        """One invocation with exactly the document's inputs, by name or application alias.

        session: keeps session-scoped state between calls under this name; without it every call is a first turn.
        overrides: overridable component -> the declared component to run in its place.
        Raises RequestError (unknown-input, missing-input, wrong-dtype, ...), ExecutionError naming the failed step.
        """
        events = self._invocation(inputs, stop_on_eos, session, overrides, Audience(listens=False))
        while True:
            try:
                next(events)
            except StopIteration as done:
                result: Result = done.value
                return result

    def stream(
        self,
        inputs: Mapping[str, Any],
        *,
        stop_on_eos: bool = True,
        session: str | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> Generator[Event, None, Result]:
        """Like `run`, yielding each Event(output, row, value, step) as it is published."""
        return self._invocation(inputs, stop_on_eos, session, overrides, Audience())

    def _invocation(
        self,
        inputs: Mapping[str, Any],
        stop_on_eos: bool,
        session: str | None,
        overrides: Mapping[str, str] | None,
        audience: Audience,
    ) -> Generator[Event, None, Result]:
        executor = self._executor
        tensors = as_tensors(inputs)
        held = hold_session(session)
        refuse_owned(self._manifest.data, tensors)
        roles, sampling = self._sampling_of(tensors)
        store = None if held is None else self._kept.setdefault(held, SessionStore())
        request = Request(
            tensors=tensors,
            roles=roles,
            stop_on_eos=stop_on_eos,
            session=store,
            sampling=sampling,
            end_ids=self._end_ids_of(tensors),
            valid_ids=self._valid_ids,
            context_length=int(self._generation["context_length"]),
            overrides=checked_overrides(self._manifest.data, overrides or {}),
            audience=audience,
        )
        with nullcontext() if store is None else store.leased(str(session)):
            return (yield from executor.run(request))

    def reset(self, session: str) -> None:
        """Forget a session's state: its next call is a first turn."""
        self._check_open()
        self._kept.pop(hold_session(session) or "", None)

    def describe(self) -> dict[str, Any]:
        """Inputs, outputs, state groups, policy, context, providers: plain data."""
        self._check_open()
        data = self._manifest.data
        return {
            "name": data["name"],
            "dialect": data["dialect"],
            "compiler": data["compiler"],
            "inputs": data["inputs"],
            "outputs": data["outputs"],
            "state_groups": data["state_groups"],
            "policy": data["generation"]["policy"],
            "context_length": data["generation"]["context_length"],
            "end_ids": data["generation"]["end_ids"],
            "providers": self._sessions.active_providers(),
            "threads": self._sessions.settings.options.get("intra_op_num_threads"),
        }

    def close(self) -> None:
        """Let the sessions go; later calls raise RequestError `closed`. Requests in flight keep theirs to the end."""
        self._open = None
        self._sessions.close()
        self._kept.clear()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- requests ----------------------------------------------------------------------------------------------------

    @property
    def _executor(self) -> Executor:
        return self._check_open()

    def _check_open(self) -> Executor:
        if self._open is None:
            raise RequestError("closed", "the model is closed", help="load it again")
        return self._open

    @property
    def _generation(self) -> Mapping[str, Any]:
        generation: Mapping[str, Any] = self._manifest.data["generation"]
        return generation

    @property
    def _text_files(self) -> TextFiles:
        return TextFiles.from_dict(self._manifest.data["text"])

    @cached_property
    def _end_ids(self) -> frozenset[int]:
        return frozenset(self._generation["end_ids"])

    @cached_property
    def _valid_ids(self) -> int | npt.NDArray[np.bool_]:
        """How many ids have a token (0: all), or which, when some in between have none."""
        count, holes = int(self._generation["valid_ids"]), self._generation["holes"]
        if not holes:
            return count
        valid = np.ones(count, dtype=np.bool_)
        valid[[each for each in holes if each < count]] = False
        return valid

    def _text_settings(self, stops: tuple[str, ...], stop_on_eos: bool, skip_special_tokens: bool) -> TextSettings:
        output = self._generation["tokens_output"]
        if not output:
            what = "no output of the package has the role 'tokens'"
            raise RequestError("no-tokens-output", what, help="use run(inputs)")
        return TextSettings(
            output=output,
            replaces=bool(self._generation["tokens_replace"]),
            open_tokenizer=lambda: self.tokenizer,
            stops=stops,
            end_ids=self._end_ids if stop_on_eos else frozenset(),
            skip_special_tokens=skip_special_tokens,
        )

    def _prompts(
        self, prompt: str | Sequence[int] | None, batch: Sequence[str | Sequence[int]] | None, specials: bool
    ) -> list[list[int]]:
        if (prompt is None) == (batch is None):
            raise RequestError("no-prompt", "give one prompt, or a batch of them")
        given = prompts_of(batch) if batch is not None else [prompt]
        prompts = [
            self.tokenizer.encode(each, add_special_tokens=specials) if isinstance(each, str) else token_ids(each)
            for each in given
        ]
        if not prompts or any(not each for each in prompts):
            raise RequestError("empty-prompt", "a prompt has no tokens", help="give at least one token a row")
        size = int(self._generation["vocab_size"] or 0) if self._generation["prompt_decoded"] else 0
        end = size or 1 << 31
        wrong = sorted({i for each in prompts for i in each if not 0 <= i < end})
        if wrong:
            raise RequestError("bad-token", f"no such token ids: {wrong[:8]}; ids end at {end - 1}")
        return prompts

    def _runtime_runs(
        self,
        executor: Executor,
        prompts: list[list[int]],
        limits: Limits,
        options: tuple[SamplingOptions, ...],
        stop_on_eos: bool,
        stopped: set[int],
        audience: Audience,
    ) -> list[Callable[[], Run]]:
        """One run for all rows where the decoder can tell their lengths apart, else one a row."""
        equal = len({len(each) for each in prompts}) == 1
        together = equal or self._generation["ragged"]
        groups = [list(range(len(prompts)))] if together else [[row] for row in range(len(prompts))]

        def request(rows: list[int]) -> Request:
            chosen, most = [prompts[row] for row in rows], tuple(limits.rows[row] for row in rows)
            return Request(
                tensors=prompt_tensor(self._manifest.data, chosen),
                roles=length_roles(self._manifest.data, max(most)),
                stop_on_eos=stop_on_eos,
                prompt_lengths=tuple(len(each) for each in chosen),
                row_limits=most,
                sampling=tuple(options[row] for row in rows),
                end_ids=self._end_ids,
                valid_ids=self._valid_ids,
                context_length=limits.context,
                stopped=stopped if len(groups) == 1 else set(),
                audience=audience,
            )

        return [lambda rows=rows: executor.run(request(rows)) for rows in groups]  # type: ignore[misc]

    def _workflow_runs(
        self,
        executor: Executor,
        prompts: list[list[int]],
        limits: Limits,
        sampling: Mapping[str, Any],
        stop_on_eos: bool,
    ) -> list[Callable[[], Run]]:
        """A workflow says nothing of row lengths by role, so every row is a run of its own."""
        rows = [self._roles_of(row_values(sampling, row, len(prompts))) for row in range(len(prompts))]
        for _, options in rows:
            options.validate()

        def request(row: int) -> Request:
            most = limits.rows[row]
            room = limits.context - len(prompts[row]) if limits.context else most
            lengths = length_roles(self._manifest.data, min(most, room))
            roles, options = rows[row]
            return Request(
                prompt_tensor(self._manifest.data, [prompts[row]]),
                {**lengths, **roles},
                stop_on_eos,
                sampling=(options,),
            )

        return [lambda row=row: executor.run(request(row)) for row in range(len(prompts))]  # type: ignore[misc]

    def _roles_of(self, given: Mapping[str, Any]) -> tuple[dict[str, int | float], SamplingOptions]:
        """Role values of one row and the options behind them, for a package that has its own sampler."""
        declared = frozenset(str(each["role"]) for each in self._manifest.data["inputs"] if each["role"])
        always_greedy = self._generation["sampler_mode"] == "greedy"
        return resolve_roles(given, self._generation["defaults"], declared, always_greedy)

    def _sampling_of(self, tensors: Mapping[str, Array]) -> tuple[dict[str, int | float], tuple[SamplingOptions, ...]]:
        """Sampling values that a caller of `run` gave as tensors, over the package's defaults: roles, options a row."""
        given = tensor_options(
            {option: given_for(self._manifest.data, tensors, role) for option, role in ROLES.items()}
        )
        refuse_overrides(given, self._generation)
        if self._generation["policy"] == "runtime":
            rows = max(map(len, given.values()), default=1)
            scalars = {name: values if len(values) > 1 else values[0] for name, values in given.items()}
            return {}, resolve_sampling(scalars, self._generation["defaults"], [0] * rows)
        # one greedy row among others must not make their sampler greedy: the largest temperature stands for all
        roles, options = self._roles_of({name: max(values) for name, values in given.items()})
        return roles, (options,)

    def _end_ids_of(self, tensors: Mapping[str, Array]) -> frozenset[int]:
        value = given_for(self._manifest.data, tensors, "eos_token_ids")
        return self._end_ids if value is None else frozenset(value.reshape(-1).tolist())
