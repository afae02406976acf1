"""JSON of side files: what Python's library reads, else what is wrong with it, in the words of who wrote the file."""

from pathlib import Path

import pytest
from genai_compiler.problem import CompileError, Severity
from genai_compiler.read.json_file import json_of

MOST = 1 << 20
MARK = b"\xef\xbb\xbf"


@pytest.mark.parametrize("before", [b"", MARK, b" \n"])
def test_a_mark_and_white_space_before_the_text_are_read(before: bytes, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(before + '{"a": "é"}'.encode())
    assert json_of(tmp_path / "f", "f", MOST) == {"a": "é"}


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (MARK + MARK + b"{}", "a second byte order mark stands before the text"),
        ('{"a": "é"}'.encode("latin-1"), "it is not UTF-8 at byte 7"),
        ("{}".encode("utf-16"), "it is not UTF-8 at byte 0"),
        (b"[" * MOST, "its values are nested too deep"),
        (b'{"a": ' + b"9" * 5000 + b"}", "it holds a number of more digits than are read"),
        (b" " * (MOST + 1), "it has more than 1048576 bytes"),
        (b"{}\0", "Extra data"),
        (b"", "Expecting value"),
    ],
)
def test_a_damaged_file_is_told_in_plain_words(data: bytes, what: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(CompileError) as caught:
        json_of(tmp_path / "f", "side/f.json", MOST, Severity.WARNING)
    (found,) = caught.value.problems
    assert (found.code, found.where.file, found.what, found.severity) == (
        "malformed-json",
        "side/f.json",
        what,
        Severity.WARNING,
    )


def test_a_file_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="it can't be read: No such file"):
        json_of(tmp_path / "f", "f", MOST)
