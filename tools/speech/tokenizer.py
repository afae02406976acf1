"""The transcriber's list of tokens as a tokenizer.json that turns ids into text.

The list holds the bytes of each token after its length: one byte, or, from 128 on, two with the lower seven bits first.
Ids 3 to 258 are single bytes. A space is written as U+2581.
"""

import re
from typing import Any

_BYTES = range(3, 259)
_FLAGS = {"special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
_SPECIAL = re.compile(r"<(unk|s|/s)>|<<ST_\d+>>")


def read_tokens(content: bytes) -> list[bytes]:
    """Every token's bytes, by id."""
    tokens: list[bytes] = []
    at = 0
    while at < len(content):
        size, at = content[at], at + 1
        if size >= 128:
            size, at = content[at] * 128 + size - 128, at + 1
        tokens.append(content[at : at + size])
        at += size
    return tokens


def tokenizer_json(tokens: list[bytes]) -> dict[str, Any]:
    """A tokenizer of whole words, for decoding; nothing in a transcription is encoded."""
    names: dict[str, int] = {}
    for each, content in enumerate(tokens):
        name = f"<0x{content[0]:02X}>" if each in _BYTES else content.decode("utf-8", "replace")
        names[f"<unused_{each}>" if name in names or not name else name] = each
    special = [_FLAGS | {"id": each, "content": name} for name, each in names.items() if _SPECIAL.fullmatch(name)]
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    return {
        "version": "1.0",
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {"type": "WordLevel", "vocab": names, "unk_token": "<unk>"},
    }
