"""Scripted models: packages whose logits are a table, looked up by the last token, with a tokenizer of its own pieces.

By default token i is followed by token i+1: the list of pieces is the text that the model says, after a prompt of [0].
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
from genai_compiler import compile_package
from genai_compiler.driver import Compiled
from numpy.typing import NDArray

from tests.lower.packages import write_config
from tools.fixtures.graph import Sketch, weights

Table = NDArray[np.float32]
HEAD = 8


@dataclass(frozen=True)
class Made:
    """A compiled toy: what the compiler said, and the loaded model."""

    compiled: Compiled
    model: genai_runtime.Model


def scripted_decoder(table: Table) -> Sketch:
    """input_ids int64 [b, s] -> logits float32 [b, s, columns] = rows of `table`; one attention layer keeps a cache."""
    sketch = Sketch("scripted")
    op = sketch.op
    ids = sketch.input("input_ids", "int64", "batch", "sequence")
    mask = sketch.input("attention_mask", "int64", "batch", "total_sequence")
    shape = ("batch", 1, "past_sequence", HEAD)
    past = [sketch.input(f"past_key_values.0.{half}", "float32", *shape) for half in ("key", "value")]
    last = op.Cast(op.Sub(op.ReduceSum(mask, [1], keepdims=0), [1]), to=6)
    total = op.Cast(op.Squeeze(op.Shape(mask, start=1, end=2), [0]), to=6)
    x = op.Gather(sketch.weight("embedding", weights(5, table.shape[0], HEAD)), ids)
    _, key, value = sketch.microsoft.GroupQueryAttention(
        x, x, x, *past, last, total, num_heads=1, kv_num_heads=1, _outputs=3
    )
    logits = op.Gather(sketch.weight("table", table), ids)
    sketch.output(logits, "logits", "float32", "batch", "sequence", table.shape[1])
    for made, half in ((key, "key"), (value, "value")):
        sketch.output(made, f"present.0.{half}", "float32", "batch", 1, "present_sequence", HEAD)
    return sketch


def chain(count: int, width: int = 0) -> Table:
    """Scores under which token i+1 follows token i, by a wide margin, and the first follows the last."""
    table = np.zeros((count, max(width, count)), np.float32)
    table[np.arange(count), (np.arange(count) + 1) % count] = 8
    return table


def toy(
    folder: Path,
    pieces: Sequence[str | bytes],
    *,
    specials: Sequence[str] = ("<go>", "<end>"),
    ends: Sequence[str] = ("<end>",),
    table: Table | None = None,
    metaspace: bool = False,
    config: Mapping[str, Any] | None = None,
    files: Mapping[str, str] | None = None,
) -> Made:
    """Write, compile and load a toy.

    pieces: what each token id says (bytes: part of a character). metaspace: pieces as a sentence-piece vocabulary has
    them (a leading space is one in the text; bytes are `<0xE3>` tokens). config: laid over genai_config.json. files:
    further files by name.
    """
    package = folder / "package"
    table = chain(len(pieces)) if table is None else table
    scripted_decoder(table).save(package / "model.onnx")
    ids = [pieces.index(each) for each in ends if each in pieces]
    shape = {"head_size": HEAD, "num_key_value_heads": 1}
    stated = {"vocab_size": table.shape[1], "eos_token_id": ids or [table.shape[1] - 1], "decoder": shape}
    write_config(package, {"model": stated, **(config or {})})
    data = _sentence_pieces(pieces, specials) if metaspace else _byte_level(pieces, specials)
    (package / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    (package / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    for name, text in (files or {}).items():
        (package / name).write_text(text, encoding="utf-8")
    compiled = compile_package(package, out=folder / "compiled")
    return Made(compiled, genai_runtime.load(folder / "compiled", threads=1))


def _byte_level(pieces: Sequence[str | bytes], specials: Sequence[str]) -> dict[str, Any]:
    names = [each if each in specials else _as_bytes(each) for each in pieces]
    kind = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return _tokenizer(names, specials, {}, pre_tokenizer=kind, decoder=kind)


def _sentence_pieces(pieces: Sequence[str | bytes], specials: Sequence[str]) -> dict[str, Any]:
    names = [each if isinstance(each, str) else f"<0x{each[0]:02X}>" for each in pieces]
    names = [each if each in specials else each.replace(" ", "\u2581") for each in names]
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    return _tokenizer(names, specials, {"byte_fallback": True}, normalizer=space,
                      decoder={"type": "Sequence", "decoders": steps})  # fmt: skip


def _tokenizer(names: Sequence[Any], specials: Sequence[str], model: dict[str, Any], **parts: Any) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": names.index(each), "content": each, **flags} for each in specials if each in names]
    vocabulary = {name: at for at, name in enumerate(names)}
    assert len(vocabulary) == len(names), "every piece must be a token of its own"
    return {"version": "1.0", "added_tokens": added, **parts,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": [], **model}}  # fmt: skip


def _as_bytes(piece: str | bytes) -> str:
    """A piece in the alphabet of byte-level vocabularies, by the tokenizers library's own table where it is text."""
    return "".join(_ALPHABET[each] for each in (piece if isinstance(piece, bytes) else piece.encode()))


def _alphabet() -> dict[int, str]:
    """Byte -> character (Radford et al. 2019): printable characters stand for themselves, the rest for 256 and on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte if byte in printable else 256 + others.index(byte)) for byte in range(256)}


_ALPHABET = _alphabet()
