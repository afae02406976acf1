"""Making the fixtures again gives the files that are checked in, byte for byte."""

from pathlib import Path

import pytest

from tests.data import ROOT

pytest.importorskip("onnxscript", reason="onnxscript is absent: the fixtures can't be made again")

from tools.make_fixtures import FIXTURES, MAKERS, make_fixtures


def _files(root: Path) -> dict[str, bytes]:
    """Contents by relative name of every package the maker owns."""
    found = (path for name in MAKERS for path in (root / name).rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


def test_fixtures_are_what_the_maker_writes(tmp_path: Path) -> None:
    assert ROOT / "fixtures" == FIXTURES
    make_fixtures(tmp_path)
    made, kept = _files(tmp_path), _files(FIXTURES)
    assert sorted(made) == sorted(kept)
    assert [name for name in made if made[name] != kept[name]] == []
