"""Speech: the one way from a text to a sound that a package has, bound or refused as a whole (standard, section 11)."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from genai_runtime.declared import input_of, length_roles, prompt_tensor
from genai_runtime.manifest import Manifest
from genai_runtime.problem import ExecutionError, RequestError
from genai_runtime.request import Audience, Event
from genai_runtime.result import Result
from genai_runtime.running import outcome

if TYPE_CHECKING:
    from genai_runtime.media import Audio, Media
    from genai_runtime.text_assembly import TextAssembly
    from genai_runtime.tokenizer import Tokenizer


@dataclass(frozen=True)
class Speech:
    """The bound pair: what makes a prompt of texts, and the output that is the sound."""

    assembly: "TextAssembly"
    audio_output: str

    @property
    def text_assembly(self) -> str:
        """The component that puts the prompt together."""
        return self.assembly.component

    def rows(self, text: str, instructions: str, tokenizer: "Tokenizer") -> list[list[int]]:
        """Token rows of the prompt: one, or two with guidance. Raises RequestError `bad-prompt`, `text-too-long`,
        `text-too-short`, `empty-prompt`."""
        for name, each in (("text", text), ("instructions", instructions)):
            if not isinstance(each, str):
                raise RequestError("bad-prompt", f"{name} is {type(each).__name__}, and speech is made of text")
        tokens = tokenizer.encode(self.assembly.prompt(text, instructions))
        if not tokens:
            raise RequestError("empty-prompt", "the prompt has no tokens", help="give a text")
        return self.assembly.rows(tokens)

    def limit(self, units: int | None) -> int:
        """Steps of a run that makes `units` units of sound (None: as many as the package allows).

        Raises RequestError `option-out-of-bounds`.
        """
        most = self.assembly.most_units
        if units is not None and (type(units) is not int or not 1 <= units <= most):
            raise RequestError("option-out-of-bounds", f"max_output_units is within 1..{most}, got {units!r}")
        return (most if units is None else units) + self.assembly.advance


def bind_speech(stated: Mapping[str, Any]) -> Speech:
    """The pair that a manifest's `speech` leaves no choice about.

    Raises RequestError: `no-speech` (nothing puts prompts together), `ambiguous-speech` (several components do, or
    several outputs could be the sound), `no-speech-output` (no output is a buffered 16-bit WAV file).
    """
    components, outputs = [each["component"] for each in stated["assemblies"]], stated["outputs"]
    if not components:
        what = "the package has no component that makes a prompt of texts (onnx-genai.text-assembly)"
        raise RequestError("no-speech", what, help="use run(inputs), and result.audio() for the sound")
    if len(components) > 1:
        what = f"several components make prompts of texts: {', '.join(components)}"
        raise RequestError("ambiguous-speech", what, help="keep one of them in the package, or use run(inputs)")
    if not outputs:
        what = "no output of the package is a buffered WAV file of 16-bit integers"
        raise RequestError("no-speech-output", what, help="use run(inputs)")
    if len(outputs) > 1:
        what = f"several outputs could be the speech: {', '.join(outputs)}"
        raise RequestError("ambiguous-speech", what, help="keep one of them as a buffered WAV file, or use run(inputs)")
    from genai_runtime.text_assembly import TextAssembly

    return Speech(TextAssembly(components[0], stated["assemblies"][0]["program"]), outputs[0])


class Speaking(ABC):
    """The side of a Model that deals with sound: outputs that are files, and speech. What it needs is abstract."""

    _manifest: Manifest

    @property
    @abstractmethod
    def tokenizer(self) -> "Tokenizer":
        """The package's tokenizer."""

    @abstractmethod
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
        """One run of the workflow; roles: values of runtime roles beside the inputs."""

    @cached_property
    def _media(self) -> "dict[str, Media]":
        if not any(each["media"] for each in self._manifest.data["outputs"]):
            return {}
        from genai_runtime.media import media_of

        return media_of(self._manifest.data["outputs"])

    @cached_property
    def speech_binding(self) -> Speech:
        """The component and the output that `speech` uses. Raises RequestError `no-speech`, `ambiguous-speech`,
        `no-speech-output`."""
        return bind_speech(self._manifest.data["speech"])

    def _speech_facts(self) -> dict[str, str] | None:
        """For describe(): the binding, or the reason why there is none; None where nothing asks for speech."""
        if not self._manifest.data["speech"]["assemblies"]:
            return None
        try:
            bound = self.speech_binding
        except RequestError as refused:
            return {"refused": refused.what}
        return {"text_assembly": bound.text_assembly, "audio_output": bound.audio_output}

    def speech(
        self,
        text: str,
        instructions: str = "",
        *,
        max_output_units: int | None = None,
        inputs: Mapping[str, Any] | None = None,
        session: str | None = None,
    ) -> "Audio":
        """Say a text: the sound as a WAV file. instructions: how, where the package has words for it.

        max_output_units: how long the sound may be, in the package's units, at most what it declares. inputs: values of
        further workflow inputs. Raises RequestError: those of `speech_binding`, `text-too-long`, `text-too-short`,
        `option-out-of-bounds`, and those of `run`.
        """
        bound, data = self.speech_binding, self._manifest.data
        rows = bound.rows(text, instructions, self.tokenizer)
        roles = length_roles(data, bound.limit(max_output_units))
        spec = input_of(data, "prompt_tokens")
        if spec is not None and spec["rank"] == 1 and len(rows) > 1:
            what = f"the prompt has a row for guidance, and input '{spec['name']}' takes one row"
            raise RequestError("wrong-rank", what)
        tensors = {**prompt_tensor(data, rows), **(inputs or {})}
        run = self._invocation(tensors, True, session, None, None, Audience(listens=False), roles)
        return outcome(run).audio(bound.audio_output)

    def stream_audio(
        self, inputs: Mapping[str, Any], output: str | None = None, *, session: str | None = None
    ) -> Generator[bytes, None, Result]:
        """Like `run`, yielding the bytes of a sound part by part as the workflow publishes them to `output`.

        A WAV file's header comes first and leaves the size open, as players of streams expect. Raises RequestError
        `no-audio`, `ambiguous-audio`; ExecutionError `audio-rows` for several rows, `audio-resampling` for an output
        whose rate must change.
        """
        from genai_runtime.media import encode_part, pick

        media, first = pick(self._media, output), True
        events = self._invocation(inputs, True, session, None, None, Audience())
        while True:
            try:
                event = next(events)
            except StopIteration as done:
                result: Result = done.value
                return result
            if event.output == media.output and event.row:
                raise ExecutionError(
                    "audio-rows", f"output '{media.output}' has several rows, and a stream is one sound"
                )
            if event.output == media.output:
                yield encode_part(media, event.value, first)
                first = False
