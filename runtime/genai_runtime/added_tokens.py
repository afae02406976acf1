"""Tokens that tokenizer_config.json adds to those of tokenizer.json, under `added_tokens_decoder`: id -> token.

Some tools write a chat's tags there alone. The reference library adds them when it opens a tokenizer; so does this
runtime, where the id that a token gets is the stated one: an id decides which row of the model's tables is read.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import tokenizers

KEY = "added_tokens_decoder"
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def add_stated(backend: "tokenizers.Tokenizer", config: Mapping[str, Any]) -> tuple[tuple[int, str], ...]:
    """Add what the backend lacks, in the order of ids; what could not get its id is given back as (id, content).

    An entry that is no token is passed over, as is one that the backend has with another id: tokenizer.json decides.
    """
    left: list[tuple[int, str]] = []
    held = {each.content for each in backend.get_added_tokens_decoder().values()}
    for number, token in sorted(_stated(config), key=lambda each: each[0]):
        content = str(token["content"])
        if not content or content in held:
            continue
        if _next_id(backend, content) != number:
            left.append((number, content))
            continue
        _add(backend, content, token)
        held.add(content)
    return tuple(left)


def _stated(config: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    stated: Any = config.get(KEY)
    for number, token in stated.items() if isinstance(stated, Mapping) else ():
        text = str(number)
        if isinstance(token, Mapping) and isinstance(token.get("content"), str) and text.isascii() and text.isdigit():
            yield int(text), cast(Mapping[str, Any], token)


def _next_id(backend: "tokenizers.Tokenizer", content: str) -> int:
    """The id that the library would give: the vocabulary's own, else the one behind all that there are."""
    known: int | None = backend.token_to_id(content)
    if known is not None:
        return known
    last = max(backend.get_added_tokens_decoder(), default=-1)
    return max(last + 1, int(backend.get_vocab_size(with_added_tokens=False)))


def _add(backend: "tokenizers.Tokenizer", content: str, token: Mapping[str, Any]) -> None:
    from tokenizers import AddedToken

    flags = {name: bool(token[name]) for name in _FLAGS if isinstance(token.get(name), bool)}
    made = AddedToken(content, **flags)
    if made.special:
        backend.add_special_tokens([made])
    else:
        backend.add_tokens([made])
