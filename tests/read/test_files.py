"""Reading the file itself: where it lies, what it is, how large, how encoded, and which parser reads it."""

import os
from pathlib import Path

import pytest
from genai_compiler.problem import CompileError, Place
from genai_compiler.read.files import find_metadata, read_document
from genai_compiler.read.rules import RULES
from genai_compiler.read.tree import Limits


def _problem(path: Path, root: Path, limits: Limits | None = None) -> tuple[str, Place]:
    with pytest.raises(CompileError) as caught:
        read_document(path, root, *([limits] if limits else []))
    (problem,) = caught.value.problems
    assert problem.code in RULES
    return problem.code, problem.where


def _write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def test_the_preferred_name_wins(tmp_path: Path) -> None:
    assert find_metadata(tmp_path) is None
    for name in ("inference_metadata.json", "inference_metadata.yml", "inference_metadata.yaml"):
        path = _write(tmp_path, name, b"{}")
        assert find_metadata(tmp_path) == path


def test_the_extension_chooses_the_parser(tmp_path: Path) -> None:
    tabbed = b'{\n\t"a":\t"\\/"}'
    assert read_document(_write(tmp_path, "m.json", tabbed), tmp_path)[0] == {"a": "/"}
    assert _problem(_write(tmp_path, "n.json", b"a: 1"), tmp_path)[0] == "invalid-json"
    assert read_document(_write(tmp_path, "m.YML", b"a: 1"), tmp_path)[0] == {"a": 1}


def test_an_unknown_extension_is_yaml_then_json(tmp_path: Path) -> None:
    assert read_document(_write(tmp_path, "m.txt", b"a: no"), tmp_path)[0] == {"a": "no"}
    pair = b'{"a": "\\ud83d\\ude00"}'
    assert read_document(_write(tmp_path, "n", pair), tmp_path)[0] == {"a": "😀"}
    assert _problem(_write(tmp_path, "o", b"a: ["), tmp_path)[0] == "invalid-yaml"


def test_names_in_messages_are_package_relative(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    path = _write(tmp_path / "sub", "m.yaml", b"a: 1\na: 2\n")
    assert _problem(path, tmp_path) == ("duplicate-key", Place("sub/m.yaml", 2, 1))
    assert read_document(_write(tmp_path, "n.yaml", b"a: 1"), tmp_path)[1].file == "n.yaml"


def test_a_relative_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, "m.yaml", b"a: 1")
    monkeypatch.chdir(tmp_path)
    assert read_document(Path("m.yaml"), Path())[0] == {"a": 1}


@pytest.mark.parametrize(
    ("content", "code", "line", "column"),
    [
        (b"a: 1\nb: \xff\n", "not-utf8", 2, 4),
        ("é: 1\nä: ü".encode("latin-1"), "not-utf8", 1, 1),
        ("a: 1".encode("utf-16"), "not-utf8", 1, 1),
        (b"a: 1\nb: x\0y\n", "forbidden-character", 2, 5),
        ("a: é".encode() + b"\xed\xa0\x80", "not-utf8", 1, 5),
    ],
)
def test_encodings_refused(tmp_path: Path, content: bytes, code: str, line: int, column: int) -> None:
    path = _write(tmp_path, "m.yaml", content)
    assert _problem(path, tmp_path) == (code, Place("m.yaml", line, column))


@pytest.mark.parametrize("name", ["m.yaml", "m.json"])
def test_a_byte_order_mark_is_skipped(tmp_path: Path, name: str) -> None:
    data, places = read_document(_write(tmp_path, name, b'\xef\xbb\xbf{"a": 1}'), tmp_path)
    assert data == {"a": 1}
    assert places.find(("a",)) == Place(name, 1, 2)


def test_size_is_bounded(tmp_path: Path) -> None:
    path = _write(tmp_path, "m.yaml", b"a: 12345\n")
    assert read_document(path, tmp_path, Limits(size=9))[0] == {"a": 12345}
    assert _problem(path, tmp_path, Limits(size=8))[0] == "file-too-large"


def test_a_file_outside_the_package(tmp_path: Path) -> None:
    root = tmp_path / "package"
    root.mkdir()
    outside = _write(tmp_path, "secret.yaml", b"a: 1")
    assert _problem(outside, root)[0] == "outside-package"
    assert _problem(root / ".." / "secret.yaml", root)[0] == "outside-package"
    (root / "m.yaml").symlink_to(outside)
    assert _problem(root / "m.yaml", root)[0] == "outside-package"


def test_a_link_inside_the_package(tmp_path: Path) -> None:
    _write(tmp_path, "real.yaml", b"a: 1")
    (tmp_path / "m.yaml").symlink_to("real.yaml")
    assert read_document(tmp_path / "m.yaml", tmp_path)[0] == {"a": 1}


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    assert _problem(tmp_path / "folder.yaml", tmp_path)[0] == "not-a-file"
    assert _problem(tmp_path / "absent.yaml", tmp_path)[0] == "unreadable-file"
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    assert _problem(tmp_path / "loop.yaml", tmp_path)[0] == "unreadable-file"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.yaml")
    assert _problem(tmp_path / "m.yaml", tmp_path)[0] == "not-a-file"
