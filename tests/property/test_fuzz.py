"""The front end under damaged packages: a second of it always, a minute in the long run, ten with `make fuzz`."""

from pathlib import Path

import pytest

fuzz = pytest.importorskip("tests.property.fuzz", reason="the fuzzer bounds memory with the Unix module resource")


def test_damaged_packages_are_refused_by_name(tmp_path: Path) -> None:
    found = fuzz.fuzz(runs=60, seed=1, findings=tmp_path / "findings")
    assert found.counts.total() == 60
    assert not found.found


@pytest.mark.long
def test_many_damaged_packages_are_refused_by_name(tmp_path: Path) -> None:
    found = fuzz.fuzz(runs=3000, seed=2, findings=tmp_path / "findings")
    assert found.counts.total() == 3000
    assert found.counts["compiled"] > 100
    assert not found.found, "\n".join(each.read_text() for each in tmp_path.rglob("FINDING.txt"))
