"""A package that somebody writes to while it is compiled: no program of one version beside files of another."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from genai_compiler import CompileError, compile_package, driver
from genai_compiler.cli import main
from genai_compiler.problem import InternalError
from genai_compiler.read import unchanged

from tests.conftest import FIXTURES

HOW: dict[str, Callable[[Path], object]] = {
    "rewritten": lambda file: file.write_bytes(file.read_bytes().replace(b'"top_k": 50', b'"top_k": 51') + b"\n"),
    "emptied": lambda file: file.write_bytes(b""),
    "gone": lambda file: file.unlink(),
    "another one": lambda file: shutil.copy(file, f"{file}.new") and Path(f"{file}.new").replace(file),
}


def package(folder: Path, case: str = "tiny-gqa-v1") -> Path:
    return Path(shutil.copytree(FIXTURES / case, folder / "p"))


@pytest.mark.parametrize("stage", ["read", "build", "emit"])
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("file", ["genai_config.json", "model.onnx", "tokenizer.json"])
def test_a_file_that_was_read(tmp_path: Path, stage: str, how: str, file: str) -> None:
    root = package(tmp_path)

    def change(name: str, _: str) -> None:
        if name == stage:
            HOW[how](root / file)

    with pytest.raises(CompileError) as refused:
        compile_package(root, tmp_path / "made", trace=change)
    (problem,) = refused.value.problems
    assert problem.code == "changed-meanwhile"
    assert problem.what.startswith(file)
    assert [each.name for each in tmp_path.iterdir()] == ["p"]


def test_a_file_in_a_folder_below(tmp_path: Path) -> None:
    root = package(tmp_path, "tiny-decoder")
    policy = next((root / "policies").iterdir())
    with pytest.raises(CompileError, match="changed-meanwhile"):
        compile_package(root, tmp_path / "made", trace=lambda name, _: (name == "emit" and policy.touch()) or None)


def test_a_file_that_came_meanwhile_and_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it there was none; what else has been read may be of the package as it was then."""
    root = package(tmp_path)
    tokenizer = (root / "tokenizer.json").read_bytes()
    (root / "tokenizer.json").unlink()
    load = driver.load_package

    def coming(*given: object, **named: object) -> object:
        (root / "tokenizer.json").write_bytes(tokenizer)
        return load(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(driver, "load_package", coming)
    with pytest.raises(CompileError) as refused:
        compile_package(root, tmp_path / "made")
    (problem,) = refused.value.problems
    assert problem.code == "changed-meanwhile"
    assert problem.what.startswith("tokenizer.json")
    monkeypatch.undo()
    assert compile_package(root, tmp_path / "made").out is not None


def test_a_file_behind_a_linked_folder(tmp_path: Path) -> None:
    root = package(tmp_path, "tiny-decoder")
    policy = next((root / "policies").iterdir()).name
    (root / "policies").rename(root / "kept")
    (root / "policies").symlink_to("kept")
    (root / "back").symlink_to(root)
    assert compile_package(root, tmp_path / "made").out is not None

    def touched(name: str, _: str) -> None:
        if name == "emit":
            (root / "policies" / policy).touch()

    with pytest.raises(CompileError, match="changed-meanwhile"):
        compile_package(root, tmp_path / "again", trace=touched)


def test_what_was_there_before_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = package(tmp_path)
    compile_package(root, tmp_path / "made")
    before = {each.name: each.read_bytes() for each in (tmp_path / "made").iterdir() if each.is_file()}
    planned = driver._planned

    def changed(*given: object) -> object:
        (root / "model.onnx").write_bytes(b"")
        return planned(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(driver, "_planned", changed)
    assert main([str(root), "-o", str(tmp_path / "made"), "-q"]) == 2
    assert {each.name: each.read_bytes() for each in (tmp_path / "made").iterdir() if each.is_file()} == before


def test_files_that_are_no_matter_of_the_package_may_come_and_go(tmp_path: Path) -> None:
    root = package(tmp_path)
    (root / "log").write_text("a")

    def change(name: str, _: str) -> None:
        (root / f"{name}.new").write_text("b")
        (root / "log").write_text("ab")

    assert compile_package(root, tmp_path / "made", trace=change).out is not None


def test_a_link_that_leads_to_itself_hides_no_other_file(tmp_path: Path) -> None:
    """Forty of them, so that in whatever order the system names entries one comes before a file."""
    root = package(tmp_path)
    for at in range(40):
        (root / f"{at}").symlink_to(f"{at}")
    wanted = {each for each in (FIXTURES / "tiny-gqa-v1").iterdir() if each.is_file()}
    assert {each.name for each in unchanged._stamps(root)[0]} == {each.name for each in wanted}
    with pytest.raises(CompileError, match="changed-meanwhile"):
        compile_package(root, tmp_path / "made", trace=lambda name, _: HOW["emptied"](root / "model.onnx"))


def test_a_bug_of_ours_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> object:
        raise ZeroDivisionError

    monkeypatch.setattr(driver, "build", broken)
    with pytest.raises(InternalError):
        compile_package(package(tmp_path), tmp_path / "made")


def test_a_folder_of_many_files_is_looked_at_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged, "MOST", 2)
    root = package(tmp_path)
    assert len(unchanged._stamps(root)[0]) <= 2
    assert compile_package(root, tmp_path / "made").out is not None  # the others did not come meanwhile
