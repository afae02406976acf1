"""A loaded package: the text level (generate, chat) and the workflow level (run, stream) of one executor."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from genai_runtime.context import context_help, hold_context
from genai_runtime.conversation import Conversation, Turn, conversation_of
from genai_runtime.declared import checked_overrides, given_for, refuse_owned
from genai_runtime.drawing import DrawingSide
from genai_runtime.further import Further
from genai_runtime.generation import Generation, TextSettings
from genai_runtime.given import as_tensors, hold_flags, hold_session
from genai_runtime.kept import KeptSessions
from genai_runtime.lora.asked import Asked, wishes_of
from genai_runtime.manifest import Manifest
from genai_runtime.media_inputs import File, MediaInputs
from genai_runtime.options import refuse_overrides, resolve_limits, resolve_sampling
from genai_runtime.origins import Origins, in_own_terms
from genai_runtime.problem import GenaiError, RequestError
from genai_runtime.profiles import Profile, profiles_of
from genai_runtime.prompt_chunks import chunk_of_request
from genai_runtime.prompting import Prompting
from genai_runtime.request import Audience, Event, Request, Shared, Tally
from genai_runtime.result import Result
from genai_runtime.running import Executor, Run, outcome
from genai_runtime.sessions import Sessions
from genai_runtime.speculation import speculates
from genai_runtime.speech import Speaking
from genai_runtime.stop_strings import join_stops
from genai_runtime.text_files import TextFiles
from genai_runtime.text_requests import Requests
from genai_runtime.tokenizer import Tokenizer, open_tokenizer

if TYPE_CHECKING:
    from genai_runtime.chat_template import ChatTemplate
    from genai_runtime.timings import Timings

Message = Mapping[str, Any]


class Model(Speaking, DrawingSide):
    """A compiled package, ready to run. Use it in a `with` block, or leave it to the garbage collector.

    One model may serve several threads: every request has its own state; ONNX Runtime's sessions allow concurrent runs.
    """

    def __init__(self, manifest: Manifest, executor: Executor, sessions: Sessions, notices: Sequence[str]) -> None:
        self._manifest, self._sessions = manifest, sessions
        self._open: Executor | None = executor
        data = manifest.data
        self._conversation: Conversation | None = conversation_of(data)
        self._kept = KeptSessions(data["session_cells"], any(each["role"] == "tokens" for each in data["outputs"]))
        self.profiles: Mapping[str, Profile] = profiles_of(data["profiles"], lambda: self.tokenizer)
        self.notices = tuple(notices)

    # ---- text level --------------------------------------------------------------------------------------------------

    def generate(
        self,
        prompt: str | Sequence[int] | None = None,
        *,
        batch: Sequence[str | Sequence[int]] | None = None,
        max_new_tokens: int | Sequence[int | None] | None = None,
        stop: str | Iterable[str] | None = None,
        stop_on_eos: bool = True,
        add_special_tokens: bool = True,
        skip_special_tokens: bool = True,
        images: Sequence[File] = (),
        audio: Sequence[File] = (),
        adapters: Any = None,
        session: str | None = None,
        speculate: bool | None = None,
        prefill_chunk: int | None = None,
        **sampling: Any,
    ) -> Generation:
        """Continue a prompt: text, or token ids; `batch` takes several, each row equal to its solo run.

        sampling: fields of SamplingOptions (temperature, top_k, top_p, min_p, repetition_penalty, seed, ...). Of
        these and max_new_tokens a list gives one value a row; what else there is holds for all rows. Without any the
        package's defaults decide, and greedy where it has none. stop: strings that end a row, beside the package's
        end tokens. images, audio: files (paths or bytes), for a package that takes them; every row sees them, and
        each place for a picture in a prompt becomes its tokens; beside a sound the package may say how an output
        starts where there is no prompt. adapters: {alias: scale} or [alias, ...] of the package's LoRA adapters, in
        slot order; for a batch also a list with one of these a row. session: continue the conversation of that name;
        it takes the turn when the generation has run to its end. speculate: whether the package's proposer drafts;
        the tokens are the same (docs/options.md). prefill_chunk: as for `load`, for this request. Nothing runs until
        the result is iterated or asked for.
        Raises RequestError (bad-prompt, bad-token, bad-stop, bad-option, bad-length, wrong-row-count, unknown-option,
        bad-sampling-options, option-not-allowed, option-out-of-bounds, context-exceeded, empty-prompt,
        unsupported-option, no-image-input, no-audio-input, missing-input, bad-audio, several-sounds, bad-image,
        image-limit, bad-chunk, image-tokens, no-session-state, no-proposer, closed;
        bad-adapters, unknown-adapter, no-adapter-service and the codes of an adapter selection).
        """
        executor = self._executor
        hold_flags(
            stop_on_eos=stop_on_eos, add_special_tokens=add_special_tokens, skip_special_tokens=skip_special_tokens
        )
        turn = self._turn(session)
        files = self._files.tensors(images, audio)
        if audio and prompt is None and batch is None:
            from genai_runtime.sound_input import start_of_output

            prompt = start_of_output(self._manifest.data)
        seen, prompts = turn.continued(self._prompting.prompts(prompt, batch, add_special_tokens, files))
        refuse_overrides({"max_output_tokens": max_new_tokens, **sampling}, self._generation)
        asked = Asked(self._manifest.lora, wishes_of(adapters, len(prompts)))
        further = Further(files, asked)
        decoded = self._generation["prompt_decoded"]
        limits = resolve_limits(max_new_tokens, prompts if decoded else [[0]] * len(prompts), self._generation)
        text = self._text_settings(join_stops(stop), stop_on_eos, skip_special_tokens)
        chunk = chunk_of_request(prefill_chunk, self._generation)
        shared = Shared(set(), Audience(), Tally(), speculates(self._manifest.data, speculate), chunk)
        if self._generation["policy"] == "runtime":
            options = resolve_sampling(sampling, self._generation["defaults"], [len(each) for each in prompts])
            requests = self._requests.runtime(prompts, limits, options, stop_on_eos, shared, further)
        else:
            turn.refuse_stops(text.stops)
            requests = self._requests.workflow(prompts, limits, sampling, stop_on_eos, shared.audience, further)
        runs: list[Callable[[], Run]] = [lambda make=make: turn.run(executor, make, seen) for make in requests]  # type: ignore[misc]
        context = limits.context if decoded else 0
        kept = turn.store is not None
        return Generation(runs, prompts, text, shared, context, kept, self.timings, self._origins)

    def count_tokens(
        self,
        prompt: str | Sequence[int],
        *,
        images: Sequence[File] = (),
        audio: Sequence[File] = (),
        add_special_tokens: bool = True,
    ) -> int:
        """How many tokens a prompt takes, its pictures and sounds included, as `generate` counts them. Nothing is run.

        Raises what `generate` raises for these, and `unknown-count` for a text with a sound whose entries none tells.
        """
        self._check_open()
        hold_flags(add_special_tokens=add_special_tokens)
        files = self._files.tensors(images, audio)
        if isinstance(prompt, str):
            self._files.hold_counted(files)
        return len(self._prompting.prompts(prompt, None, add_special_tokens, files)[0])

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
        from genai_runtime.chat_messages import variables_of

        self._check_open()
        hold_flags(add_generation_prompt=add_generation_prompt, fold_system=fold_system)
        text = self.chat_template.render(
            messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            fold_system=fold_system,
            **variables_of(template_options),
        )
        return self.generate(text, **{**options, "add_special_tokens": False})

    @property
    def writes(self) -> bool:
        """Whether the package makes tokens, so that `generate` and `chat` have an answer."""
        return bool(self._generation["tokens_output"])

    @property
    def timings(self) -> "Timings | None":
        """Where the time of this model's requests went, when it was loaded with `timings=True`."""
        return self._sessions.timings

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The package's tokenizer, opened when first asked for. Raises LoadError `no-tokenizer`, `package-changed`."""
        self._hold_text()
        return open_tokenizer(self._manifest.package, self._text_files)

    @cached_property
    def chat_template(self) -> "ChatTemplate":
        """The package's chat templates, read when first asked for."""
        from genai_runtime.chat_template import read_chat_template

        self._hold_text()
        return read_chat_template(self._manifest.package, self._text_files, self.tokenizer)

    def _hold_text(self) -> None:
        self._sessions.hold_files(frozenset(name for name in self._text_files.to_dict().values() if name))

    # ---- workflow level ----------------------------------------------------------------------------------------------

    def run(
        self,
        inputs: Mapping[str, Any],
        *,
        stop_on_eos: bool = True,
        session: str | None = None,
        overrides: Mapping[str, str] | None = None,
        speculate: bool | None = None,
    ) -> Result:
        """One invocation with exactly the document's inputs, by name or application alias.

        inputs: arrays, or Python's numbers in lists, which take the input's dtype; for an input that takes a file's
        bytes also the bytes, a path, or a list of them.
        session: keeps session-scoped state between calls under this name; without it every call is a first turn.
        overrides: overridable component -> the declared component to run in its place. speculate: as for `generate`.
        Raises RequestError (unknown-input, missing-input, wrong-dtype, ...), ExecutionError naming the failed step.
        """
        unheard = Audience(listens=False)
        return outcome(self._invocation(inputs, stop_on_eos, session, overrides, speculate, unheard))

    def stream(
        self,
        inputs: Mapping[str, Any],
        *,
        stop_on_eos: bool = True,
        session: str | None = None,
        overrides: Mapping[str, str] | None = None,
        speculate: bool | None = None,
    ) -> Generator[Event, None, Result]:
        """Like `run`, yielding each Event(output, row, value, step) as it is published."""
        return self._invocation(inputs, stop_on_eos, session, overrides, speculate, Audience())

    def _invocation(
        self,
        inputs: Mapping[str, Any],
        stop_on_eos: bool,
        session: str | None,
        overrides: Mapping[str, str] | None,
        speculate: bool | None,
        audience: Audience,
        roles: Mapping[str, int | float] | None = None,
    ) -> Generator[Event, None, Result]:
        executor = self._executor
        hold_flags(stop_on_eos=stop_on_eos)
        replaced = checked_overrides(self._manifest.data, overrides or {})
        tensors = as_tensors(inputs, self._manifest.data["inputs"])
        turn = self._turn(session)
        refuse_owned(self._manifest.data, tensors)
        self._files.hold(tensors)
        self._files.hold_prompt(tensors, given_for(self._manifest.data, tensors, "prompt_tokens"))
        chosen, sampling = self._requests.sampling_of(tensors)

        def request() -> Request:
            whole = turn.with_prefix(tensors)
            hold_context(self._manifest.data, whole)
            return Request(
                tensors=whole,
                roles={**(roles or {}), **chosen},
                stop_on_eos=stop_on_eos,
                sampling=sampling,
                end_ids=self._requests.end_ids_of(tensors),
                valid_ids=self._requests.valid_ids,
                context_length=int(self._generation["context_length"]),
                overrides=replaced,
                audience=audience,
                speculate=speculates(self._manifest.data, speculate),
                profiled=bool(self.profiles),
            )

        try:
            result = yield from turn.run(executor, request)
        except GenaiError as failure:
            told = in_own_terms(failure, self._origins)
            help = context_help(failure, self._manifest.data, turn.with_prefix(tensors))
            if told is failure and not help:
                raise
            again = type(told)(told.code, told.what, help=help or told.help, origin=told.origin)
            raise again.with_traceback(failure.__traceback__) from failure.__cause__
        return replace(result, profiles=self.profiles, media=self._media)

    def _turn(self, session: str | None) -> Turn:
        name = hold_session(session)
        return Turn(self._conversation, self._kept.store(name), name or "")

    def reset(self, session: str) -> None:
        """Forget a session's state: its next call is a first turn."""
        self._check_open()
        self._kept.reset(hold_session(session))

    def checkpoint(self, session: str) -> bytes:
        """A session's semantic state as bytes (an .npz of arrays and their contracts), to be kept or sent elsewhere.

        Raises RequestError `no-session`, `session-busy`.
        """
        self._check_open()
        return self._kept.checkpoint(hold_session(session))

    def restore(self, session: str, data: bytes) -> None:
        """Put what `checkpoint` gave in the place of a session's state. Nothing in it is executed.

        Raises RequestError `bad-checkpoint` (unknown cell, no semantic session state, other contract), `session-busy`.
        """
        self._check_open()
        self._kept.restore(hold_session(session), data)

    def describe(self) -> dict[str, Any]:
        """Inputs, outputs, state groups, profiles, identity, policy, context, providers: plain data."""
        self._check_open()
        from genai_runtime.description import described

        return {**described(self._manifest.data, self._sessions), "speech": self._speech_facts()}

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
    def _origins(self) -> Origins:
        """Empty in a folder of before there were any."""
        return self._manifest.data.get("origins") or {}

    @property
    def _text_files(self) -> TextFiles:
        return TextFiles.from_dict(self._manifest.data["text"])

    @cached_property
    def _files(self) -> MediaInputs:
        return MediaInputs(self._manifest.data)

    @cached_property
    def _prompting(self) -> Prompting:
        return Prompting(self._manifest.data, self._files, lambda: self.tokenizer)

    @cached_property
    def _requests(self) -> Requests:
        return Requests(self._manifest.data)

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
            end_ids=self._requests.end_ids if stop_on_eos else frozenset(),
            skip_special_tokens=skip_special_tokens,
            origin=self._manifest.data.get("text_origin") or "",
        )
