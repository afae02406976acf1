"""Files of media that a request brings: the input that takes them, and how many tokens of the prompt they take."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from genai_runtime.adapters.files import split_files
from genai_runtime.given import as_tensors
from genai_runtime.numbered_places import hold_numbered, numbered_ids
from genai_runtime.problem import RequestError
from genai_runtime.prompt_places import Places, Span
from genai_runtime.sound_input import samples_of
from genai_runtime.tokenizer import Tokenizer
from genai_runtime.values import Array

File = bytes | Path | str
_FILE = bytes | bytearray | memoryview | Path | str
"""A file's bytes, or its path."""
MAX_ENTRIES = 1 << 20
"""Tokens of all files of a medium of a request."""
_WORDS = {
    "image": ("picture", "images", "--image", "no-image-input"),
    "audio": ("sound", "audio", "--audio", "no-audio-input"),
}
"""Medium -> what a file of it is called, who gives it here and on the command line, the code where nothing takes it."""


_LIMITS = {"image": "image-limit", "audio": "audio-limit"}
"""Medium -> the code for more tokens than a prompt may have."""


@dataclass(frozen=True)
class MediaInput:
    """One medium of a package. facts: its entry of the manifest."""

    facts: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The workflow's input."""
        return str(self.facts["input"])

    @property
    def kind(self) -> str:
        """`image` or `audio`."""
        return str(self.facts["kind"])

    @property
    def places(self) -> Places:
        """Where a prompt says that its files are."""
        return Places(self.facts["prompt"], self.kind)

    @property
    def placed(self) -> bool:
        """Whether a prompt has entries of its files."""
        return "entry_token" in self.facts["prompt"] or self.numbered

    @property
    def several(self) -> bool:
        """Whether a prompt may have several files: entries of one stand behind those of another."""
        return self.kind != "audio" or bool(self.facts["prompt"].get("several"))

    @property
    def numbered(self) -> bool:
        """Whether these are the files' numbers, below zero."""
        return "numbered" in self.facts["prompt"]

    def spans(self, files: Sequence[bytes]) -> tuple[Span, ...] | None:
        """The entries of each file, by its size alone; None where nobody says how many there are.

        Raises RequestError `bad-image`, `image-limit`, `bad-audio`, `audio-limit`.
        """
        prompt = self.facts["prompt"]
        if self.kind == "image":
            from genai_runtime.adapters.image.limits import hold_count
        else:
            from genai_runtime.adapters.audio.limits import hold_count
        hold_count(len(files))
        if "entries" in prompt:
            return self._held([Span(1, int(prompt["entries"])) for _ in files])
        if "heard" in prompt:
            from genai_runtime.adapters.audio.counting import entries_of_sound

            return self._held([Span(1, entries_of_sound(data, prompt["heard"])) for data in files])
        if self.facts["tiled"] or ("cell" not in prompt and self.facts["views"] is None):
            return None
        from genai_runtime.adapters.image.counting import entries_of

        cell = int(prompt.get("cell", 1))
        return self._held([Span(*entries_of(data, f"picture {at}", self.facts, cell)) for at, data in enumerate(files)])

    def _held(self, spans: list[Span]) -> tuple[Span, ...]:
        """Spans of a number that a prompt may have. Raises RequestError `image-limit`, `audio-limit`."""
        total = sum(each.entries for each in spans)
        if total > MAX_ENTRIES:
            what = f"the {_WORDS[self.kind][0]}s take {total} tokens, more than {MAX_ENTRIES}"
            raise RequestError(_LIMITS[self.kind], what, help="give fewer or smaller ones")
        return tuple(spans)


class MediaInputs:
    """The media of a package. data: its manifest."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._all = {each["kind"]: MediaInput(each) for each in data["media"]}
        self._names: Mapping[str, str] = {each["name"]: each["application"] for each in data["inputs"]}
        self._sound: Mapping[str, Any] | None = data["sound"]
        self._older = [
            each["name"]
            for each in data["inputs"]
            if (each["role"], each["dtype"], each["rank"]) == ("media", "uint8", 1)
        ]

    def tensors(self, images: Sequence[File], audio: Sequence[File]) -> dict[str, Array]:
        """The files by input. Raises RequestError no-image-input, no-audio-input, bad-inputs, several-sounds, ..."""
        made: dict[str, Array] = {}
        for kind, given in (("image", images), ("audio", audio)):
            files = self._listed(kind, given)
            found = self._all.get(kind)
            if found is not None and not found.several and found.facts["tensors"] and len(files) > 1:
                raise _several(len(files))
            if files and kind == "audio" and found is None and self._sound is not None:
                made |= samples_of(self._sound, files)
            elif files:
                name = self._input(kind)
                made |= as_tensors({name: files}, [{"name": name, "application": "", "dtype": "uint8"}])
            elif found is not None and found.facts["required"] and found.facts["tensors"]:
                raise _needed(kind, self._tensors_of(found))
        return made

    def _listed(self, kind: str, files: Any) -> list[File]:
        option = _WORDS[kind][1]
        if isinstance(files, _FILE | Mapping | np.ndarray) or not isinstance(files, Iterable | None):
            what = f"{option} is a list of files: paths or bytes"
            raise RequestError("bad-inputs", what, help=f"write {option}=[...]")
        entries: Iterable[Any] = files or ()
        listed = list(entries)
        for at, each in enumerate(listed):
            if not isinstance(each, _FILE):
                what = f"{option}[{at}] is of type {type(each).__name__}; a file is a path or its bytes"
                raise RequestError("bad-inputs", what, help="give the file's name, or what is in it")
        return listed

    def _input(self, kind: str) -> str:
        """The input for the files of a medium: the one that a program reads, else the only one that takes files."""
        if kind in self._all:
            return self._all[kind].name
        others = [each for each in self._older if each not in {one.name for one in self._all.values()}]
        if len(others) == 1:
            return str(others[0])
        word, option, switch, code = _WORDS[kind]
        many = f"{len(others)} inputs" if others else "no input"
        what = f"{option}=, {switch}: the package has {many} for a {word} file"
        help = f"leave {switch} out, or use run(inputs)"
        help += "; a preprocessor_config.json says at which rate samples are taken" if kind == "audio" else ""
        raise RequestError(code, what, help=help)

    def hold(self, tensors: Mapping[str, Array]) -> None:
        """What a caller of `run` gave: no medium both as files and as tensors, and none left out that is needed."""
        for kind, each in self._all.items():
            both = sorted(set(tensors) & set(each.facts["tensors"]))
            if each.name in tensors and both:
                what = f"'{each.name}' and {', '.join(both)} are the same, as files and as tensors"
                raise RequestError("bad-inputs", what, help="give one of them")
            if each.facts["required"] and each.facts["tensors"] and each.name not in tensors and not both:
                raise _needed(kind, self._tensors_of(each))
            lacking = [name for names in self._tensors_of(each) if not {*names} & {*tensors} for name in names[-1:]]
            if both and lacking:
                what = f"{', '.join(both)} {'is' if len(both) == 1 else 'are'} given, {', '.join(lacking)} not"
                help = f"give all tensors of a {_WORDS[kind][0]}, or its file as '{each.name}'"
                raise RequestError("missing-input", what, help=help)

    def _tensors_of(self, found: MediaInput) -> list[tuple[str, ...]]:
        """The names of each tensor that stands for a medium's files, the caller's own last."""
        return [(name, own) if own else (name,) for name, own in self._names.items() if name in found.facts["tensors"]]

    def hold_prompt(self, tensors: Mapping[str, Array], prompt: Array | None) -> None:
        """The prompt of a caller of `run` has the entries of its files.

        Raises RequestError `image-tokens`, `audio-tokens`, and `several-sounds`: their entries have no order there.
        """
        if prompt is None or prompt.dtype.kind not in "iu":
            return
        for each in self._all.values():
            if each.name not in tensors or (each.kind == "audio" and not each.placed):
                continue
            files = split_files(tensors[each.name].tobytes())
            if not each.several and len(files) > 1:
                raise _several(len(files))
            spans = each.spans(files)
            if spans is not None and each.numbered:
                hold_numbered(prompt.reshape(-1).tolist(), spans)
            elif spans is not None:
                each.places.hold(prompt.reshape(-1).tolist(), spans)

    def hold_counted(self, tensors: Mapping[str, Array]) -> None:
        """It is known how many entries each sound has. Raises RequestError `unknown-count`."""
        for each in self._all.values():
            counts = "entries" in each.facts["prompt"] or "heard" in each.facts["prompt"]
            if each.kind == "audio" and each.placed and each.name in tensors and not counts:
                what = "how many tokens a sound takes shows only when its graph has run: neither the package's files "
                what += "nor the shapes of the graph tell it"
                help = "give token ids with the entries written out; a run says how many there are"
                raise RequestError("unknown-count", what, help=help)

    @property
    def numbered(self) -> bool:
        """Whether ids below zero stand for pictures."""
        return any(each.numbered for each in self._all.values())

    def prompt(
        self, prompt: str | list[int], tensors: Mapping[str, Array], tokenizer: Tokenizer | None, specials: bool
    ) -> list[int] | None:
        """The ids of a prompt with the entries of its files, None where the package says nothing of any."""
        found: list[tuple[Places, tuple[Span, ...]]] = []
        counted: tuple[str, tuple[Span, ...]] | None = None
        for each in self._all.values():
            files = split_files(tensors[each.name].tobytes()) if each.name in tensors else []
            spans = each.spans(files) if each.placed else None
            if spans is not None and each.numbered:
                counted = str(each.facts["prompt"].get("opens", "")), spans
            elif spans is not None:
                found.append((each.places, spans))
        if not found and counted is None:
            return None
        for places, spans in found:
            if isinstance(prompt, str):
                assert tokenizer is not None
                prompt = places.filled(prompt, spans, tokenizer)
            else:
                prompt = places.ids(prompt, spans, tokenizer)
        if counted is not None:
            ids = numbered_ids(prompt, *counted, tokenizer, specials)
        else:
            ids = _encoded(prompt, tokenizer, specials)
        for places, spans in found:
            if spans:
                places.hold(ids, spans)
        return ids


def _encoded(prompt: str | list[int], tokenizer: Tokenizer | None, specials: bool) -> list[int]:
    if not isinstance(prompt, str):
        return prompt
    assert tokenizer is not None
    return tokenizer.encode(prompt, add_special_tokens=specials)


def _several(count: int) -> RequestError:
    """The features of each sound are a row beside an encoder, and a prompt that every sound is to answer is one."""
    what = f"{count} sounds were given, and what is written answers to one"
    help = "generate once for each sound, or give run(inputs) the files and as many prompts"
    return RequestError("several-sounds", what, help=help)


def _needed(kind: str, tensors: Sequence[tuple[str, ...]]) -> RequestError:
    word, option, switch, _ = _WORDS[kind]
    what = f"the package takes a {word}, and none was given"
    named = " and ".join(repr(names[-1]) for names in tensors)
    help = f"give {option}=[...] ({switch} FILE), or the tensor{'s' * (len(tensors) > 1)} {named} to run(inputs)"
    return RequestError("missing-input", what, help=help)
