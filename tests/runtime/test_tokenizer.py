"""Opening a package's tokenizer, its ids and its named tokens."""

import json
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from genai_runtime.problem import LoadError
from genai_runtime.text_files import TextFiles, find_text_files
from genai_runtime.tokenizer import open_tokenizer

from tests.data import DATA, needs_data
from tests.runtime.tiny_tokenizers import byte_level, opened, sentence_piece, special


def test_encode_adds_specials_only_when_asked(tmp_path: Path) -> None:
    tokenizer = opened(tmp_path, byte_level())
    start = tokenizer.token_id("<s>")
    plain = tokenizer.encode("hello", add_special_tokens=False)
    assert tokenizer.encode("hello") == [start, *plain]
    assert tokenizer.added_prefix == (start,)
    assert tokenizer.decode(plain) == "hello"


def test_decode_keeps_or_skips_specials(tmp_path: Path) -> None:
    tokenizer = opened(tmp_path, byte_level())
    ids = tokenizer.encode("a<tool>b", add_special_tokens=False)
    assert tokenizer.decode(ids) == "ab"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "a<tool>b"
    assert tokenizer.special_ids == {0, 1, 2}


def test_named_tokens_as_text_and_as_objects(tmp_path: Path) -> None:
    config = {"bos_token": "<s>", "eos_token": {"content": "<|end|>", "lstrip": False}, "pad_token": None}
    tokenizer = opened(tmp_path, byte_level(), config)
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == ("<s>", "<|end|>", None)
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id) == (1, 0, None)


def test_special_tokens_map_is_the_second_source(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(byte_level()), encoding="utf-8")
    (tmp_path / "c.json").write_text('{"bos_token": "<s>", "eos_token": null}', encoding="utf-8")
    (tmp_path / "m.json").write_text('{"bos_token": "no", "eos_token": {"content": "<|end|>"}}', encoding="utf-8")
    tokenizer = open_tokenizer(tmp_path, TextFiles("tokenizer.json", "c.json", None, "m.json"))
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "<|end|>")


def test_g6_ids_without_a_token(tmp_path: Path) -> None:
    data = sentence_piece()
    count = len(data["model"]["vocab"])
    tokenizer = opened(tmp_path, data)
    assert tokenizer.id_count == count
    assert tokenizer.valid_ids(count + 6) == count
    assert tokenizer.missing_ids(count + 3) == (count, count + 1, count + 2)
    assert tokenizer.valid_ids(10) == 10


def test_g6_ids_with_a_gap(tmp_path: Path) -> None:
    data = sentence_piece()
    count = len(data["model"]["vocab"])
    data["model"]["vocab"]["late"] = count + 3
    tokenizer = opened(tmp_path, data)
    valid = tokenizer.valid_ids(count + 6)
    assert isinstance(valid, np.ndarray)
    assert tokenizer.missing_ids(count + 6) == (count, count + 1, count + 2, count + 4, count + 5)
    assert np.flatnonzero(valid).tolist() == [*range(count), count + 3]


def test_a11_merges_as_pairs_and_as_strings(tmp_path: Path) -> None:
    pairs = sentence_piece()
    strings = json.loads(json.dumps(pairs))
    strings["model"]["merges"] = [" ".join(pair) for pair in pairs["model"]["merges"]]
    ids = opened(tmp_path, pairs).encode("Hello world")
    assert opened(tmp_path, strings).encode("Hello world") == ids


def test_a11_an_old_library_is_told_from_a_bad_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def from_buffer(data: bytes) -> None:
        raise Exception("data did not match any variant of untagged enum ModelWrapper")

    old = types.SimpleNamespace(__version__="0.19.1", Tokenizer=types.SimpleNamespace(from_buffer=from_buffer))
    monkeypatch.setitem(sys.modules, "tokenizers", old)
    with pytest.raises(LoadError, match=r"(?s)tokenizers 0\.19\.1 does not accept.*merges are pairs.*>=0\.20"):
        opened(tmp_path, sentence_piece())


def test_i10_strip_flags_of_a_special_token(tmp_path: Path) -> None:
    """`rstrip` swallows the white space on the right of the token, as the reference library documents it."""
    data = sentence_piece()
    data["added_tokens"][1] = special(1, "<s>", rstrip=True)
    tokenizer = opened(tmp_path, data)
    vocab = data["model"]["vocab"]
    assert tokenizer.encode("<s> x", add_special_tokens=False) == [1, vocab["x"]]
    assert tokenizer.encode("</s> x", add_special_tokens=False) == [2, vocab["▁x"]]


def test_i10_truncation_and_padding_of_the_file_are_off(tmp_path: Path) -> None:
    data = byte_level()
    data["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    data["padding"] = {
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "<|end|>",
    }  # fmt: skip
    tokenizer = opened(tmp_path, data)
    text = "the quick brown fox says hello, and more"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"missing-file.*tokenizer\.json"):
        open_tokenizer(tmp_path, TextFiles(tokenizer="tokenizer.json"))
    with pytest.raises(LoadError, match="no-tokenizer"):
        open_tokenizer(tmp_path, TextFiles())


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"model": 3}', '{"version": "1.0", "model": {"type": "BPE"}}', "[" * 9999]
)
def test_a_damaged_file_is_one_load_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
    with pytest.raises(LoadError, match="bad-tokenizer"):
        open_tokenizer(tmp_path, TextFiles(tokenizer="tokenizer.json"))


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    ids = opened(tmp_path, byte_level()).encode("hello world")
    file = tmp_path / "tokenizer.json"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert open_tokenizer(tmp_path, TextFiles(tokenizer="tokenizer.json")).encode("hello world") == ids


@pytest.mark.parametrize("bad", [b"\xff", b"\xed\xa0\x80", b"\xc3"])
def test_bytes_that_are_no_utf8_are_named(tmp_path: Path, bad: bytes) -> None:
    """In the text of a token, where the library would be the one to see them: half a pair, and a character cut off."""
    text = json.dumps(byte_level()).encode()
    at = text.index(b"hello") if b"hello" in text else text.index(b"<tool>") + 1
    (tmp_path / "tokenizer.json").write_bytes(text[:at] + bad + text[at:])
    with pytest.raises(LoadError, match=f"not-utf8.*byte {at}"):
        open_tokenizer(tmp_path, TextFiles(tokenizer="tokenizer.json"))


def test_the_library_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(LoadError, match=r"does not accept tokenizer\.json: Model missing"):
        open_tokenizer(tmp_path, TextFiles(tokenizer="tokenizer.json"))


def test_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(byte_level()), encoding="utf-8")
    monkeypatch.setattr("genai_runtime.tokenizer.MAX_TOKENIZER_BYTES", 100)
    with pytest.raises(LoadError, match="file-too-large"):
        open_tokenizer(tmp_path, TextFiles(tokenizer="tokenizer.json"))


@pytest.mark.parametrize("text", ["[1]", "{", "[" * 100_000, '{"a": "\\'])
def test_a_bad_config_is_a_load_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(byte_level()), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(text, encoding="utf-8")
    with pytest.raises(LoadError, match="bad-json"):
        open_tokenizer(tmp_path, TextFiles("tokenizer.json", "tokenizer_config.json"))


def test_the_libraries_are_imported_only_when_needed() -> None:
    code = (
        "import sys, genai_runtime.tokenizer, genai_runtime.detokenize, genai_runtime.chat_template;"
        "print([m for m in ('tokenizers', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_text_files_round_trip_and_stay_inside() -> None:
    files = TextFiles("a/tokenizer.json", None, "chat_template.jinja", None)
    assert TextFiles.from_dict(json.loads(json.dumps(files.to_dict()))) == files
    for name in ("../t.json", "/t.json", "a\\..\\t.json", "C:\\t.json", "C:t.json", "", "a\0b", "\\\\host\\t"):
        with pytest.raises(LoadError, match="bad-text-file"):
            TextFiles(tokenizer=name)
    with pytest.raises(LoadError, match="unknown keys"):
        TextFiles.from_dict({"tokeniser": "x"})
    with pytest.raises(LoadError, match="bad-text-file"):
        TextFiles.from_dict({"tokenizer": 3})


def test_i4_the_search_order_of_files() -> None:
    names = {"tokenizer.json", "chat_template.json", "chat_template.jinja", "m/tokenizer.json"}
    assert find_text_files(names) == TextFiles("tokenizer.json", None, "chat_template.jinja", None)
    assert find_text_files(names - {"chat_template.jinja"}).chat_template == "chat_template.json"
    assert find_text_files(names, "m") == TextFiles("m/tokenizer.json")


@needs_data
def test_every_shipped_tokenizer_opens_and_reads_back_its_text() -> None:
    seen = 0
    for path in sorted(DATA.glob("realpkgs/*/tokenizer.json")):
        tokenizer = open_tokenizer(path.parent, TextFiles(tokenizer="tokenizer.json"))
        vocab = json.loads(path.read_text(encoding="utf-8"))
        ids = {*vocab["model"]["vocab"].values(), *(each["id"] for each in vocab["added_tokens"])}
        size = max(ids) + 5
        assert set(range(size)) - set(tokenizer.missing_ids(size)) == ids
        if tokenizer.decoder_kinds == ("ByteLevel",):  # the others' vocabularies lack a token for a space
            assert tokenizer.decode(tokenizer.encode("Hello wörld", add_special_tokens=False)) == "Hello wörld"
        seen += 1
    assert seen > 20
