"""Tokens that tokenizer_config.json adds to those of tokenizer.json, under `added_tokens_decoder`: id -> token.

Some tools write a chat's tags there alone. The reference library adds them when it opens a tokenizer; so does this
runtime, where the id that a token gets is the stated one: an id decides which row of the model's tables is read.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import tokenizers

KEY = "added_tokens_decoder"
_MOST_DIGITS = 18
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def add_stated(backend: "tokenizers.Tokenizer", config: Mapping[str, Any]) -> tuple[tuple[int, str], ...]:
    """Add what the backend lacks, in the order of ids; what could not get its id is given back as (id, content).

    An entry that is no token is passed over, as is one that the backend has with another id: tokenizer.json decides.
    """
    left: list[tuple[int, str]] = []
    added: list[Mapping[str, Any]] = []
    own = backend.get_added_tokens_decoder()
    held = {each.content for each in own.values()}
    following = max(max(own, default=-1) + 1, int(backend.get_vocab_size(with_added_tokens=False)))
    for number, token in sorted(_stated(config), key=lambda each: each[0]):
        content = str(token["content"])
        if not content or content in held:
            continue
        known: int | None = backend.token_to_id(content)
        if number != (following if known is None else known):
            left.append((number, content))
            continue
        added.append(token)
        held.add(content)
        following = max(following, number + 1)
    _add(backend, added)
    return tuple(left)


def _stated(config: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    stated: Any = config.get(KEY)
    for number, token in stated.items() if isinstance(stated, Mapping) else ():
        text = str(number)
        if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
            continue
        if isinstance(token, Mapping) and is_text(token.get("content")):
            yield int(text), cast(Mapping[str, Any], token)


def is_text(content: object) -> bool:
    """Whether it is a string that the library takes: JSON can escape half a surrogate pair, which is no text."""
    return isinstance(content, str) and not any("\ud800" <= each <= "\udfff" for each in content)


def _add(backend: "tokenizers.Tokenizer", tokens: list[Mapping[str, Any]]) -> None:
    """In order and all at once: each call makes anew what is found in texts. A token says itself if it is special."""
    from tokenizers import AddedToken

    made = [
        AddedToken(
            token["content"], **{name: bool(token[name]) for name in _FLAGS if isinstance(token.get(name), bool)}
        )
        for token in tokens
    ]
    backend.add_tokens(made)
