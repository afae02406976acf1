"""A package's tokenizer: text to ids and back, by the `tokenizers` library, which is imported when first needed.

tokenizer.json decides the ids, start token included; tokenizer_config.json and special_tokens_map.json name the special
tokens, and the former may add tokens behind those (added_tokens.py). A truncation or padding that tokenizer.json has is
switched off: a prompt is never cut silently.
"""

import codecs
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from genai_runtime.added_tokens import add_stated, is_text
from genai_runtime.problem import LoadError, RequestError
from genai_runtime.text_files import TextFiles

if TYPE_CHECKING:
    import tokenizers

MAX_TOKENIZER_BYTES = 256 << 20  # the largest published tokenizer.json files are about 40 MB
MAX_CONFIG_BYTES = 16 << 20
MERGES_AS_PAIRS_SINCE = (0, 20)  # release of `tokenizers` that reads and writes merges as pairs
_PREFIX = "Cannot instantiate Tokenizer from buffer: "  # of the library, before what is wrong with the file
NAMED_TOKENS = ("bos", "eos", "pad", "unk", "sep", "cls", "mask")


class Tokenizer:
    """A held tokenizer. Ids are ints, text is str; safe to use from several threads.

    config: tokenizer_config.json as data, {} without one. special: `bos_token` and so on -> content, as far as named.
    not_added: tokens that the configuration adds under an id that they can't have, as (id, content).
    """

    def __init__(
        self, backend: "tokenizers.Tokenizer", config: Mapping[str, Any], special_map: Mapping[str, Any]
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self.not_added = add_stated(backend, config)
        self._backend, self.config = backend, config
        self.special = _special_contents({**special_map, **{k: v for k, v in config.items() if v is not None}})
        self.token: Callable[[int], str | None] = backend.id_to_token
        self._valid: dict[int, int | npt.NDArray[np.bool_]] = {}

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The ids of `text`. add_special_tokens: let the tokenizer add its own start and end tokens.

        Special tokens that stand in the text become their ids either way, as in the reference library.
        Raises RequestError `bad-text` for half a surrogate pair, which is how Python holds bytes that are no UTF-8;
        LoadError `bad-tokenizer` when the tokenizer itself fails.
        """
        try:
            text.encode()
        except UnicodeEncodeError as fault:
            raise RequestError("bad-text", f"the text is no Unicode text: {fault}", help="give it as UTF-8") from fault
        return list(self._encoding(text, add_special_tokens).ids)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of `ids`; an id without a token is left out. For text as it comes see detokenize.py."""
        known = [i for i in ids if 0 <= i < 1 << 32]
        try:
            return str(self._backend.decode(known, skip_special_tokens=skip_special_tokens))
        except BaseException as failure:
            raise _named(failure, "these ids can't be decoded") from failure

    def _encoding(self, text: str, add_special_tokens: bool) -> "tokenizers.Encoding":
        try:
            return self._backend.encode(text, add_special_tokens=add_special_tokens)
        except BaseException as failure:
            raise _named(failure, "this text can't be encoded") from failure

    def token_id(self, content: str) -> int | None:
        """The id of a token by its exact content."""
        found: int | None = self._backend.token_to_id(content) if is_text(content) else None
        return found

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of all tokens that tokenizer.json marks special: those that decoding skips."""
        added = self._backend.get_added_tokens_decoder()
        return frozenset(i for i, token in added.items() if token.special)

    @property
    def bos_token(self) -> str | None:
        return self.special.get("bos_token")

    @property
    def eos_token(self) -> str | None:
        return self.special.get("eos_token")

    @property
    def pad_token(self) -> str | None:
        return self.special.get("pad_token")

    @property
    def bos_id(self) -> int | None:
        return self._named_id("bos_token")

    @property
    def eos_id(self) -> int | None:
        return self._named_id("eos_token")

    @property
    def pad_id(self) -> int | None:
        return self._named_id("pad_token")

    @cached_property
    def id_count(self) -> int:
        """How many ids have a token; they need not be 0 .. id_count-1 (see `valid_ids`)."""
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    def valid_ids(self, vocab_size: int) -> int | npt.NDArray[np.bool_]:
        """Which of the ids 0 .. vocab_size-1 have a token: n for exactly 0 .. n-1, else bool[vocab_size].

        A model's head often has more rows than its tokenizer has ids; those rows must never be chosen.
        """
        if vocab_size not in self._valid:
            token = self.token
            present = np.fromiter((token(i) is not None for i in range(vocab_size)), np.bool_, vocab_size)
            count = int(present.sum())
            self._valid[vocab_size] = count if bool(present[:count].all()) else present
        return self._valid[vocab_size]

    def missing_ids(self, vocab_size: int) -> tuple[int, ...]:
        """The ids 0 .. vocab_size-1 that have no token."""
        valid = self.valid_ids(vocab_size)
        if isinstance(valid, int):
            return tuple(range(valid, vocab_size))
        return tuple(np.flatnonzero(~valid).tolist())

    @cached_property
    def added_prefix(self) -> tuple[int, ...]:
        """The ids that `encode` puts before a text when it adds special tokens: a start token, most often."""
        ids = self._encoding("a", True)
        own = next((i for i, special in enumerate(ids.special_tokens_mask) if not special), len(ids.ids))
        return tuple(ids.ids[:own])

    @cached_property
    def decoder_kinds(self) -> tuple[str, ...]:
        """The decoder's steps by the library's type names, `("ByteLevel",)` for one; () when it has none."""
        if self._backend.decoder is None:
            return ()
        return tuple(_kinds(json.loads(self._backend.decoder.__getstate__())))

    def _named_id(self, name: str) -> int | None:
        content = self.special.get(name)
        return None if content is None else self.token_id(content)


def open_tokenizer(folder: Path, files: TextFiles) -> Tokenizer:
    """Open the tokenizer that `files` names inside `folder`. Reads nothing else and imports `tokenizers` only now.

    Raises LoadError `no-tokenizer`, `missing-file`, `file-too-large`, `bad-tokenizer`, `bad-json`, `missing-library`.
    """
    if files.tokenizer is None:
        raise LoadError(
            "no-tokenizer",
            "the package has no tokenizer.json, so text can't become ids",
            help="give token ids, or save the tokenizer in the fast form (tokenizer.json) beside the model",
        )
    data = _read(folder, files.tokenizer, MAX_TOKENIZER_BYTES)
    _text(folder, files.tokenizer, data)
    config = read_json(folder, files.tokenizer_config)
    return Tokenizer(_backend(data, files.tokenizer), config, read_json(folder, files.special_tokens_map))


def read_text(folder: Path, name: str, limit: int) -> str:
    """A UTF-8 file of the package. Raises LoadError `missing-file`, `file-too-large`, `not-utf8`."""
    return _text(folder, name, _read(folder, name, limit))


def _read(folder: Path, name: str, limit: int) -> bytes:
    path = folder / name
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise LoadError("missing-file", f"{path} can't be read: {error.strerror or error}") from error
    if len(data) > limit:
        raise LoadError("file-too-large", f"{path} is larger than {limit >> 20} MiB")
    return data


def _text(folder: Path, name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LoadError("not-utf8", f"{folder / name} is not UTF-8 at byte {error.start}") from error


def read_json(folder: Path, name: str | None) -> dict[str, Any]:
    """A JSON object of the package, {} when name is None. Raises as `read_text` does, and LoadError `bad-json`."""
    if name is None:
        return {}
    try:
        data = json.loads(read_text(folder, name, MAX_CONFIG_BYTES))
    except (ValueError, RecursionError) as error:
        raise LoadError("bad-json", f"{folder / name}: {error}") from error
    if not isinstance(data, dict):
        raise LoadError("bad-json", f"{folder / name} holds a {type(data).__name__}, not an object")
    return cast(dict[str, Any], data)


def _backend(data: bytes, name: str) -> "tokenizers.Tokenizer":
    """The library's tokenizer, of bytes: a str of text beyond Latin-1 would take twice to four times their memory."""
    try:
        import tokenizers
    except ImportError as error:
        raise LoadError(
            "missing-library", "text needs the tokenizers library", help="pip install tokenizers"
        ) from error
    try:
        return tokenizers.Tokenizer.from_buffer(data.removeprefix(codecs.BOM_UTF8))
    except BaseException as error:
        if not isinstance(error, Exception) and not _is_panic(error):
            raise
        raise _refused(data, name, tokenizers.__version__, error) from error


def _is_panic(error: BaseException) -> bool:
    """Whether it is a panic of the library's Rust code, which is no Exception; whatever else is none has to pass."""
    return type(error).__name__ == "PanicException"


def _named(error: BaseException, what: str) -> BaseException:
    """A failure of the library as a LoadError: it raises plain Exceptions and panics. Any other error as it is."""
    if type(error) is not Exception and not _is_panic(error):
        return error
    help = "tokenizer.json contradicts itself: save it again"
    return LoadError("bad-tokenizer", f"{what}: the tokenizer fails with {str(error)!r}", help=help)


def _refused(data: bytes, name: str, version: str, error: BaseException) -> LoadError:
    what = f"tokenizers {version} does not accept {name}: {str(error).removeprefix(_PREFIX)}"
    try:
        merges = json.loads(data.decode("utf-8-sig"))["model"]["merges"]
    except (ValueError, RecursionError, LookupError, TypeError):
        merges = []
    needed = ".".join(map(str, MERGES_AS_PAIRS_SINCE))
    if (
        isinstance(merges, list)
        and merges
        and isinstance(merges[0], list)
        and _release(version) < MERGES_AS_PAIRS_SINCE
    ):
        return LoadError("bad-tokenizer", what, help=f"its merges are pairs: pip install 'tokenizers>={needed}'")
    return LoadError("bad-tokenizer", what, help="save it again, or install the version of tokenizers that wrote it")


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _special_contents(data: Mapping[str, Any]) -> dict[str, str]:
    """Each named special token's content; the files give a string, or an object with the key `content`."""
    contents: dict[str, str] = {}
    for name in (f"{each}_token" for each in NAMED_TOKENS):
        value = data.get(name)
        content = cast(Mapping[str, Any], value).get("content") if isinstance(value, Mapping) else value
        if isinstance(content, str):
            contents[name] = content
    return contents


def _kinds(decoder: Mapping[str, Any]) -> list[str]:
    if decoder.get("type") == "Sequence":
        return [kind for each in decoder.get("decoders", ()) for kind in _kinds(each)]
    return [str(decoder.get("type"))]
