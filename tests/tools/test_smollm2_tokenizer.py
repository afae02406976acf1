"""The rebuilt tokenizer, on a tiny vocabulary whose ids can be worked out by hand."""

import json
from pathlib import Path

from tests.tools.tiny_checkpoint import TOKENS, VOCABULARY
from tools.smollm2.tokenizer import build_tokenizer, specials, write_text_files


def ids(text: str) -> list[int]:
    return [int(token) for token in build_tokenizer(VOCABULARY).encode(text, add_special_tokens=False).ids]


def test_merges_apply_in_order_and_keep_the_space() -> None:
    assert ids("ab ab") == [TOKENS.index("ab"), TOKENS.index("Ġab")]


def test_digits_are_single_tokens() -> None:
    assert ids("ab12") == [TOKENS.index("ab"), TOKENS.index("1"), TOKENS.index("2")]


def test_control_tokens_are_found_in_text_and_nothing_is_added() -> None:
    assert ids("<|im_start|>ab<|im_end|>") == [1, TOKENS.index("ab"), 2]
    assert specials(VOCABULARY) == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def test_decoding_gives_the_text_back() -> None:
    tokenizer = build_tokenizer(VOCABULARY)
    assert tokenizer.decode(ids(" ab1 ab")) == " ab1 ab"
    assert tokenizer.decode([1, 8, 2]) == "ab"
    assert tokenizer.decode([1, 8, 2], skip_special_tokens=False) == "<|im_start|>ab<|im_end|>"


def test_the_companion_files_name_tokens_and_template(tmp_path: Path) -> None:
    write_text_files(tmp_path, VOCABULARY, 128)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert config["eos_token"] == "<|im_end|>"
    assert config["chat_template"] == VOCABULARY.chat_template
    generation = json.loads((tmp_path / "generation_config.json").read_text(encoding="utf-8"))
    assert generation["eos_token_id"] == 2
    assert (tmp_path / "tokenizer.json").is_file()
