"""Prompts as a caller gives them -> the token ids that the decoder takes, places of media filled in."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from genai_runtime.declared import input_of
from genai_runtime.given import prompts_of, token_ids
from genai_runtime.media_inputs import MediaInputs
from genai_runtime.problem import LoadError, RequestError
from genai_runtime.token_entries import hold_ids
from genai_runtime.tokenizer import Tokenizer
from genai_runtime.values import Array

Prompt = str | Sequence[int]
_NO_TOKENS = "give at least one token a row; genai-run takes --prompt, --chat, --tokens or standard input"

_MEDIA = {"image-tokens": "images", "audio-tokens": "audio"}
"""Code for numbers that do not agree -> the option that gives the files."""


class Prompting:
    """How prompts of one package become ids. data: its manifest; tokenizer: opens the package's."""

    def __init__(self, data: Mapping[str, Any], media: MediaInputs, tokenizer: Callable[[], Tokenizer]) -> None:
        self._generation: Mapping[str, Any] = data["generation"]
        self._media, self._tokenizer = media, tokenizer
        size = int(self._generation["vocab_size"] or 0) if self._generation["prompt_decoded"] else 0
        self._entries = int((input_of(data, "prompt_tokens") or {}).get("entries", size))

    def prompts(
        self, prompt: Prompt | None, batch: Sequence[Prompt] | None, specials: bool, media: Mapping[str, Array]
    ) -> list[list[int]]:
        """The ids of one prompt or of a batch. media: files by input, which every row sees.

        Raises RequestError `no-prompt`, `empty-prompt`, `bad-prompt`, `bad-token`, `image-tokens`.
        """
        if (prompt is None) == (batch is None):
            raise RequestError("no-prompt", "give one prompt, or a batch of them")
        given = prompts_of(batch) if batch is not None else [prompt]
        prompts = [self._row(given, row, specials, media) for row in range(len(given))]
        if not prompts or any(not each for each in prompts):
            raise RequestError("empty-prompt", "a prompt has no tokens", help=_NO_TOKENS)
        for each in prompts:
            hold_ids(each, self._entries or 1 << 31, -(1 << 31) if self._media.numbered else 0)
        return prompts

    def _row(self, given: Sequence[Any], row: int, specials: bool, media: Mapping[str, Array]) -> list[int]:
        """The ids of one row; what is wrong with it names the row where there are several."""
        try:
            return self._ids(given[row], specials, media)
        except RequestError as fault:
            if len(given) == 1:
                raise
            option = _MEDIA.get(fault.code, "")
            shared = f"{option}=[...] holds for every row: each sees all of them" if option else ""
            help = "; ".join(each for each in (fault.help, shared) if each)
            raise RequestError(fault.code, f"row {row}: {fault.what}", help=help, origin=fault.origin) from fault

    def _ids(self, prompt: Any, specials: bool, media: Mapping[str, Array]) -> list[int]:
        if isinstance(prompt, str):
            tokenizer = self._tokenizer()
            placed = self._media.prompt(prompt, media, tokenizer, specials)
            return self._encoded(prompt, tokenizer, specials) if placed is None else placed
        ids = token_ids(prompt)
        placed = self._media.prompt(ids, media, self._any_tokenizer() if media else None, specials)
        return ids if placed is None else placed

    def _encoded(self, text: str, tokenizer: Tokenizer, specials: bool) -> list[int]:
        """The ids of a text, without an end id that the tokenizer adds and the package puts behind each source, too."""
        ids, end = tokenizer.encode(text, add_special_tokens=specials), self._generation.get("source_end")
        if not specials or end is None or ids[-1:] != [end]:
            return ids
        return ids[:-1] if len(ids) > len(tokenizer.encode(text, add_special_tokens=False)) else ids

    def _any_tokenizer(self) -> Tokenizer | None:
        """The package's tokenizer, None where it has none: ids that hold all entries do without."""
        try:
            return self._tokenizer()
        except LoadError:
            return None
