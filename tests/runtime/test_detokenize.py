"""Streamed text against the library's whole decode, for every kind of decoder."""

import codecs
from pathlib import Path
from typing import Any

import pytest
from genai_runtime.detokenize import Detokenizer
from genai_runtime.text_files import TextFiles
from genai_runtime.tokenizer import Tokenizer, open_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data import DATA, needs_data
from tests.runtime.tiny_tokenizers import byte_level, opened, sentence_piece, special

BAD = "\ufffd"


def streamed(tokenizer: Tokenizer, prompt: list[int], ids: list[int], skip: bool = True) -> list[str]:
    detokenizer = Detokenizer(tokenizer, prompt, skip)
    return [*(detokenizer.push(i) for i in ids), detokenizer.finish()]


def whole(tokenizer: Tokenizer, prompt: list[int], ids: list[int], skip: bool = True) -> str:
    before, after = tokenizer.decode(prompt, skip), tokenizer.decode(prompt + ids, skip)
    assert after.startswith(before)
    return after[len(before) :]


@pytest.fixture(scope="module")
def byte_bpe(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return opened(tmp_path_factory.mktemp("b"), byte_level())


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return opened(tmp_path_factory.mktemp("s"), sentence_piece())


def byte_ids(tokenizer: Tokenizer, data: bytes) -> list[int]:
    found = [tokenizer.token_id(f"<0x{byte:02X}>") for byte in data]
    return [i for i in found if i is not None]


def byte_level_ids(tokenizer: Tokenizer, data: bytes) -> list[int]:
    """One id a byte; the ids of bytes above 127 are found in the encoding of characters that hold them."""
    shown = {"é": b"\xc3\xa9", "あ": b"\xe3\x81\x82", "こ": b"\xe3\x81\x93", "À": b"\xc3\x80", "ÿ": b"\xc3\xbf"}
    known = {byte: i for char, code in shown.items()
             for byte, i in zip(code, tokenizer.encode(char, add_special_tokens=False), strict=True)}  # fmt: skip
    return [known[byte] if byte > 127 else tokenizer.encode(chr(byte), add_special_tokens=False)[0] for byte in data]


def test_h1_a_character_over_two_tokens_comes_whole(byte_bpe: Tokenizer) -> None:
    prompt = byte_bpe.encode("hello")
    ids = byte_bpe.encode("日本語", add_special_tokens=False)
    assert len(ids) == 9
    assert streamed(byte_bpe, prompt, ids) == ["", "", "日", "", "", "本", "", "", "語", ""]


def test_h1_fallback_bytes_come_whole(pieces: Tokenizer) -> None:
    assert streamed(pieces, [1], byte_ids(pieces, "é🙂\n".encode())) == ["", "é", "", "", "", "🙂", "\n", ""]


def test_h2_spaces_of_a_metaspace_tokenizer_stay(pieces: Tokenizer) -> None:
    vocab = pieces.token_id
    ids = [i for i in (vocab("▁Hello"), vocab("▁world"), vocab("▁"), vocab("▁x")) if i is not None]
    assert streamed(pieces, [], ids) == ["Hello", " world", " ", " x", ""]
    assert streamed(pieces, [ids[0]], ids) == [" Hello", " world", " ", " x", ""]
    assert streamed(pieces, [1, ids[2]], ids)[0] == " Hello"


def test_h2_a_leading_space_token_is_context_enough(pieces: Tokenizer) -> None:
    space, x = pieces.token_id("▁"), pieces.token_id("▁x")
    assert space is not None
    assert x is not None
    ids = [space, space, x, space, x]
    assert "".join(streamed(pieces, [], ids)) == whole(pieces, [], ids) == "  x  x"


def test_h3_invalid_bytes_are_replaced_and_the_text_goes_on(pieces: Tokenizer) -> None:
    hello = pieces.encode("Hello")
    x = pieces.token_id("▁x")
    assert x is not None
    ids = [*byte_ids(pieces, b"\xe3\x81"), x, *byte_ids(pieces, b"\xff"), x]
    assert "".join(streamed(pieces, hello, ids)) == whole(pieces, hello, ids) == f"{BAD}{BAD} x{BAD} x"


def test_h3_good_characters_before_a_bad_byte_are_already_out(pieces: Tokenizer) -> None:
    x = pieces.token_id("x")
    assert x is not None
    ids = [*byte_ids(pieces, "こ".encode() + b"\xff\xe3"), x]
    assert streamed(pieces, [], ids) == ["", "", "こ", BAD, "", f"{BAD}x", ""]


def test_h3_invalid_bytes_of_a_byte_level_tokenizer(byte_bpe: Tokenizer) -> None:
    ids = byte_level_ids(byte_bpe, b"\xe3\x81a\x81b\xe3")
    assert streamed(byte_bpe, [], ids) == ["", "", f"{BAD}a", BAD, "b", "", BAD]


def test_h6_specials_are_kept_on_request(byte_bpe: Tokenizer, pieces: Tokenizer) -> None:
    ids = byte_bpe.encode("a<tool> b<|end|>", add_special_tokens=False)
    assert "".join(streamed(byte_bpe, [], ids, skip=False)) == "a<tool> b<|end|>"
    assert "".join(streamed(byte_bpe, [], ids)) == "a b"
    ids = [1, *pieces.encode("Hello</s>")]
    assert "".join(streamed(pieces, [], ids, skip=False)) == whole(pieces, [], ids, skip=False)
    assert "</s>" in "".join(streamed(pieces, [], ids, skip=False))


def test_h6_an_added_token_with_a_space_is_itself(tmp_path: Path) -> None:
    data = byte_level()
    data["added_tokens"].append(special(max(data["model"]["vocab"].values()) + 1, "<a b é>"))
    tokenizer = opened(tmp_path, data)
    ids = tokenizer.encode("x<a b é>y", add_special_tokens=False)
    assert len(ids) == 3
    assert "".join(streamed(tokenizer, [], ids, skip=False)) == "x<a b é>y"


def test_ids_without_a_token_give_no_text(byte_bpe: Tokenizer, pieces: Tokenizer) -> None:
    for tokenizer in (byte_bpe, pieces):
        ids = tokenizer.encode("Hello world", add_special_tokens=False)
        assert "".join(streamed(tokenizer, [-1, 99999], [99999, *ids, 99999])).strip() == "Hello world"


def test_a_character_begun_by_the_prompt_is_completed_or_dropped(byte_bpe: Tokenizer, pieces: Tokenizer) -> None:
    for tokenizer, ids in ((byte_bpe, byte_level_ids(byte_bpe, "あx".encode())),
                           (pieces, byte_ids(pieces, "あx".encode()))):  # fmt: skip
        assert "".join(streamed(tokenizer, ids[:1], ids[1:])) == "あx"
        assert "".join(streamed(tokenizer, ids[:2], ids[3:])) == "x"
        assert "".join(streamed(tokenizer, ids[:2], [])) == ""


UTF8_PIECES = st.lists(st.sampled_from([0x61, 0xC3, 0xE3, 0x81, 0x93, 0xA9, 0x20, 0x80, 0xBF]), max_size=12)


@given(data=UTF8_PIECES, cut=st.integers(0, 12))
@settings(max_examples=300, deadline=None)
def test_any_bytes_of_a_byte_level_tokenizer_give_the_whole_decode(
    byte_bpe: Tokenizer, data: list[int], cut: int
) -> None:
    ids = byte_level_ids(byte_bpe, bytes(data))
    prompt, rest = ids[:cut], ids[cut:]
    before, after = byte_bpe.decode(prompt), byte_bpe.decode(ids)
    if after.startswith(before):
        assert "".join(streamed(byte_bpe, prompt, rest)) == after[len(before) :]
    assert "".join(streamed(byte_bpe, [], ids)) == byte_bpe.decode(ids)


TOKENS = ["▁", "H", "▁Hello", "▁x", "x", "</s>"]


@given(tokens=st.lists(st.sampled_from([*TOKENS, "é", "日", "\n", "bad", "worse"]), max_size=10), keep=st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_tokens_of_a_fallback_tokenizer_give_the_whole_decode(
    pieces: Tokenizer, tokens: list[str], keep: bool
) -> None:
    """The oracle replaces byte by byte: a run of bytes is decoded greedily, and the text between by the library."""
    bad = {"bad": b"\xe3\x81", "worse": b"\xff"}
    ids: list[int] = []
    expected, run = "", b""
    for token in tokens:
        if token in TOKENS:
            found = pieces.token_id(token)
            assert found is not None
            if token == "</s>" and not keep:
                ids.append(found)
                continue
            expected, run = expected + greedy(run), b""
            ids.append(found)
            expected += token.replace("▁", " ")
        else:
            data = bad.get(token, token.encode())
            ids += byte_ids(pieces, data)
            run += data
    expected += greedy(run)
    expected = expected.removeprefix(" ")  # what this decoder strips from the start of a whole text
    assert "".join(streamed(pieces, [], ids, skip=not keep)) == expected


def greedy(data: bytes) -> str:
    """UTF-8 with one replacement for each byte that belongs to no character."""

    def each(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeDecodeError)
        return BAD * (error.end - error.start), error.end

    codecs.register_error("each", each)
    return data.decode("utf-8", "each")


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        {"type": "WordPiece", "prefix": "##", "cleanup": True},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        {"type": "BPEDecoder", "suffix": "</w>"},
        {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "▁",
                                                                     "prepend_scheme": "first", "split": False}]},
        {"type": "CTC", "pad_token": "<s>", "word_delimiter_token": "|", "cleanup": True},
    ],
)  # fmt: skip
@given(choice=st.lists(st.integers(0, 5), max_size=9))
@settings(max_examples=40, deadline=None)
def test_other_decoders(tmp_path_factory: pytest.TempPathFactory, decoder: Any, choice: list[int]) -> None:
    words = ["▁hello", "##ing", "end</w>", "a", "▁", "b"]
    data = {
        "version": "1.0", "added_tokens": [], "decoder": decoder,
        "model": {"type": "WordLevel", "unk_token": "a", "vocab": {word: i for i, word in enumerate(words)}},
    }  # fmt: skip
    tokenizer = opened(tmp_path_factory.mktemp("d"), data)
    text = tokenizer.decode(choice)
    assert "".join(streamed(tokenizer, [], choice)) == text
    if text.startswith(tokenizer.decode(choice[:3])):
        assert "".join(streamed(tokenizer, choice[:3], choice[3:])) == whole(tokenizer, choice[:3], choice[3:])


def test_byte_level_mixed_with_other_steps_holds_and_never_grows(tmp_path: Path) -> None:
    data = byte_level()
    data["decoder"] = {"type": "Sequence", "decoders": [data["decoder"], {"type": "Fuse"}]}
    tokenizer = opened(tmp_path, data)
    ids = tokenizer.encode("日本 hello 🙂", add_special_tokens=False)
    assert "".join(streamed(tokenizer, [], ids)) == "日本 hello 🙂"
    endless = byte_level_ids(tokenizer, b"\xe3" * 40)
    assert "".join(streamed(tokenizer, [], endless)) == BAD * 40


@needs_data
def test_shipped_tokenizers_stream_what_they_decode() -> None:
    text = "Hello world, naïve 日本語 🙂\n  indented\ttext."
    for path in sorted(DATA.glob("realpkgs/*/tokenizer.json")) + sorted(DATA.glob("conformance/**/tokenizer.json")):
        tokenizer = open_tokenizer(path.parent, TextFiles(tokenizer="tokenizer.json"))
        ids = tokenizer.encode(text, add_special_tokens=False)
        for cut in (0, 1, len(ids) // 2):
            assert "".join(streamed(tokenizer, ids[:cut], ids[cut:])) == whole(tokenizer, ids[:cut], ids[cut:]), path
