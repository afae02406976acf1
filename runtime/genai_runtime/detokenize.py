"""Text from tokens as they come, one row: pieces whose concatenation is the text of the whole.

The whole is decode(prompt + generated) less decode(prompt), by the tokenizer's own decoder. A token decoded alone would
lose its leading space, or be half a character; so each is decoded beside the one before it, and the bytes of an
unfinished character are held. Which of three ways a tokenizer needs is read from its decoder, once:

    byte-level           a token is bytes: an incremental UTF-8 decoder gives exactly what the library gives
    byte fallback, other a token is text, except `<0xE3>`, which is one byte
    byte-level in a mix  text that ends in a replacement character may be unfinished: hold it, a few tokens at most

Bytes that are no UTF-8 become U+FFFD, and the text goes on. Only there may a whole decode differ: of a run of fallback
bytes that starts well and ends badly, the library replaces every byte, here the good characters are already out.
"""

import codecs
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol

from genai_runtime.tokenizer import Tokenizer

CONTEXT = 8  # tokens of context at most; one is enough unless it decodes to nothing
HELD = 8  # tokens that may wait for the rest of a character: a character has at most four bytes
REPLACEMENT = "\ufffd"


class Detokenizer:
    """The text of one row, piece by piece; O(1) a token, whatever the length of the row.

    prompt_ids: the row's prompt; only its last tokens are looked at. skip_special_tokens: leave out what tokenizer.json
    marks special; False keeps tool and thinking tags for a parser. Ids without a token give no text.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int], skip_special_tokens: bool = True) -> None:
        self._skipped = tokenizer.special_ids if skip_special_tokens else frozenset[int]()
        self._token = tokenizer.token
        self._pieces = _way(tokenizer)
        known = (i for i in reversed(prompt_ids) if i >= 0 and i not in self._skipped)
        for token_id in reversed(list(islice(known, CONTEXT))):
            self.push(token_id)
        self._owed = self._pieces.held()

    _owed = 0
    """How many replacement characters the prompt's own text ends with, if its last character stays unfinished."""

    def push(self, token_id: int) -> str:
        """The text that `token_id` completes, "" while a character is unfinished or the token is skipped."""
        if token_id in self._skipped:
            return ""
        token = self._token(token_id)
        if token is None:
            return ""
        text = self._pieces.push(token_id, token)
        return self._less_owed(text) if self._owed and text else text

    def finish(self) -> str:
        """What is still held, its bytes replaced. Nothing may be pushed afterwards."""
        text = self._pieces.finish()
        return self._less_owed(text) if self._owed else text

    def _less_owed(self, text: str) -> str:
        owed, self._owed = self._owed, 0
        while owed and text.startswith(REPLACEMENT):
            owed, text = owed - 1, text[1:]
        return text


class _Pieces(Protocol):
    def push(self, token_id: int, token: str) -> str: ...

    def held(self) -> int:
        """How many replacement characters `finish` would give now."""
        ...

    def finish(self) -> str: ...


def _way(tokenizer: Tokenizer) -> _Pieces:
    kinds = tokenizer.decoder_kinds
    if set(kinds) == {"ByteLevel"}:
        return _Bytes()
    if "ByteLevel" in kinds:
        return _Guessed(_Window(tokenizer))
    return _Text(_Window(tokenizer), "ByteFallback" in kinds)


def _byte_alphabet() -> dict[str, int]:
    """The characters that stand for bytes in a byte-level vocabulary (Radford et al. 2019): printable ones stand for
    themselves, the others for 256 and on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()


def _bytes_of(token: str) -> bytes:
    """A byte-level token's bytes; a token with any other character, an added one, is itself."""
    try:
        return bytes([_BYTE_OF[char] for char in token])
    except KeyError:
        return token.encode()


class _Bytes:
    """Every token is bytes."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int, token: str) -> str:
        return self._utf8.decode(_bytes_of(token))

    def held(self) -> int:
        return 1 if self._utf8.getstate()[0] else 0

    def finish(self) -> str:
        return self._utf8.decode(b"", final=True)


class _Window:
    """The text that tokens add to the one before them, by the library's decoder on a few ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._decode: Callable[[Sequence[int]], str] = lambda ids: tokenizer.decode(ids, skip_special_tokens=False)
        self._before: list[int] = []
        self._before_text = ""

    def added(self, ids: list[int]) -> str:
        whole = self._decode(self._before + ids)
        if whole.startswith(self._before_text):
            return whole[len(self._before_text) :]
        return self._decode(ids)  # a decoder that rewrites earlier text; what is out is out

    def advance(self, ids: list[int]) -> None:
        """Make `ids` the context. A context without text would let the decoder strip the next space: then keep more."""
        text = self._decode(ids)
        self._before = ids if text else (self._before + ids)[-CONTEXT:]
        self._before_text = text or self._decode(self._before)


class _Text:
    """Every token is text, except the byte tokens of a tokenizer that falls back to them."""

    def __init__(self, window: _Window, has_bytes: bool) -> None:
        self._window, self._has_bytes = window, has_bytes
        self._held = bytearray()

    def push(self, token_id: int, token: str) -> str:
        if self._has_bytes and len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            text = self._push_byte(int(token[3:5], 16))
        else:
            text = self.finish() + self._window.added([token_id])
        self._window.advance([token_id])
        return text

    def _push_byte(self, byte: int) -> str:
        """The held bytes and this one, as far as they are characters; a replacement for each other one."""
        held = self._held
        held.append(byte)
        try:
            text = held.decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                return ""
            del held[: error.end]
            return REPLACEMENT * error.end + ("" if not held else self._push_byte(held.pop()))
        held.clear()
        return text

    def held(self) -> int:
        return len(self._held)

    def finish(self) -> str:
        text = REPLACEMENT * len(self._held)
        self._held.clear()
        return text


class _Guessed:
    """Byte-level among other decoder steps: how many bytes of a character are still to come is not known."""

    def __init__(self, window: _Window) -> None:
        self._window = window
        self._ids: list[int] = []

    def push(self, token_id: int, token: str) -> str:
        self._ids.append(token_id)
        text = self._window.added(self._ids)
        if text.endswith(REPLACEMENT) and len(self._ids) < HELD:
            return ""
        return self._release(text)

    def held(self) -> int:
        text = self._window.added(self._ids) if self._ids else ""
        return len(text) - len(text.rstrip(REPLACEMENT))

    def finish(self) -> str:
        return self._release(self._window.added(self._ids)) if self._ids else ""

    def _release(self, text: str) -> str:
        self._window.advance(self._ids)
        self._ids = []
        return text
