"""Tiny tokenizers of the kinds that packages ship, as tokenizer.json data."""

import json
from pathlib import Path
from typing import Any

from genai_runtime.text_files import TextFiles
from genai_runtime.tokenizer import Tokenizer, open_tokenizer

CORPUS = ["Hello world, hello there", "the quick brown fox says hello", "don't stop: O P Q", "a b a b ab"]


def byte_level(specials: tuple[str, ...] = ("<|end|>", "<s>", "<tool>")) -> dict[str, Any]:
    """Trained byte-level BPE; `<s>` is put before a text when special tokens are asked for."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, pre_tokenizers, processors, trainers

    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=list(specials), initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(CORPUS, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", backend.token_to_id("<s>"))]
    )
    data: dict[str, Any] = json.loads(backend.to_str())
    return data


def sentence_piece(strip: bool = True) -> dict[str, Any]:
    """BPE over text with `▁` for a space and byte fallback; strip: its decoder drops the first space."""
    pieces = ["<unk>", "<s>", "</s>"]
    pieces += [f"<0x{byte:02X}>" for byte in range(256)]
    words = ["▁", "H", "e", "l", "o", "w", "r", "d", "x", "y", "▁H", "el", "lo", "▁Hello", "▁world", "hi", "▁x"]
    words += ["He", "Hel", "Hello", "▁w", "or", "ld", "wor", "world"]
    pieces += words
    merges = [["▁", "H"], ["e", "l"], ["l", "o"], ["H", "e"], ["▁", "w"], ["o", "r"], ["l", "d"], ["▁", "x"]]
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if strip:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "version": "1.0",
        "added_tokens": [special(i, pieces[i]) for i in range(3)],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "decoder": {"type": "Sequence", "decoders": steps},
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "byte_fallback": True,
            "fuse_unk": True,
            "vocab": {piece: i for i, piece in enumerate(pieces)},
            "merges": merges,
        },
    }


def special(token_id: int, content: str, **flags: bool) -> dict[str, Any]:
    """One entry of added_tokens, marked special."""
    base = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": token_id, "content": content, **base, **flags}


def opened(folder: Path, data: dict[str, Any], config: dict[str, Any] | None = None) -> Tokenizer:
    """The tokenizer of a folder written from `data`."""
    (folder / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    if config is None:
        return open_tokenizer(folder, TextFiles(tokenizer="tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return open_tokenizer(folder, TextFiles(tokenizer="tokenizer.json", tokenizer_config="tokenizer_config.json"))
