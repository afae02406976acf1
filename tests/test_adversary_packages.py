"""Odd packages: names, permissions and links, threads, tokenizers that are none."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import genai_runtime
import pytest
from genai_compiler import compile_package
from genai_compiler.cli import main
from genai_compiler.problem import CompileError, Severity
from genai_runtime import LoadError, abi
from genai_runtime.manifest import read_manifest
from genai_runtime.opening import _executor_class
from genai_runtime.text_files import TextFiles
from genai_runtime.tokenizer import open_tokenizer

from tests.conftest import FIXTURES
from tests.test_adversary_files import shell

WRITTEN = ["executor.py", "manifest.json", "plan.txt"]
posix = pytest.mark.skipif(os.name != "posix", reason="process ids and streams of POSIX")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package alone in a folder."""
    return shutil.copytree(FIXTURES / "tiny-gqa-v1", tmp_path / "package")


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def codes(package: Path, out: Path) -> list[str]:
    """Codes of the errors that compiling ends with; nothing may be written."""
    with pytest.raises(CompileError) as caught:
        compile_package(package, out)
    return [each.code for each in caught.value.problems if each.severity is Severity.ERROR]


# ---- names, permissions, links ---------------------------------------------------------------------------------------


@posix
def test_a_folder_name_that_is_no_unicode(package: Path) -> None:
    home = package.parent / os.fsdecode(b"caf\xe9")
    try:
        home.mkdir()
    except OSError:
        pytest.skip("this file system has Unicode names only")
    moved = package.rename(home / "package")
    for options in ("", "--bundle"):
        ended = shell(f'"$PY" -m genai_compiler "$1" -q --force {options}', moved)
        assert (ended.returncode, ended.stderr) == (0, "")
        ended = shell('"$PY" -m genai_runtime "$1.compiled" --tokens 7 -n 2', moved)
        assert ended.returncode == 2
        assert "bad-path" in ended.stderr, "ONNX Runtime's own binding takes UTF-8 alone"


@posix
def test_a_module_name_is_made_of_any_path(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor itself loads from there: only graphs cannot."""
    manifest = read_manifest(compile_package(package).out or package, abi.ABI_VERSION)
    monkeypatch.setattr(Path, "resolve", lambda self: Path(os.fsdecode(b"/caf\xe9")) / self.name)
    assert _executor_class(manifest) is not None


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes files of a name unreadable, also for a user whom no permission stops."""
    access, names = os.access, set[str]()

    def guarded(path: str | Path, mode: int) -> bool:
        return Path(path).name not in names and access(path, mode)

    monkeypatch.setattr(os, "access", guarded)
    return names.add


def test_unreadable_files_are_named_all_at_once(package: Path, forbidden: Callable[[str], None]) -> None:
    for each in ("model.onnx", "tokenizer.json"):
        forbidden(each)
    with pytest.raises(CompileError) as caught:
        compile_package(package)
    found = {each.where.file: each for each in caught.value.problems if each.code == "unreadable-file"}
    assert "model.onnx" in found["genai_config.json"].what
    assert found["genai_config.json"].path == "model.decoder.filename"


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json", "genai_config.json"])
def test_an_unreadable_file_is_a_problem_like_any_other(
    package: Path, forbidden: Callable[[str], None], capsys: pytest.CaptureFixture[str], file: str
) -> None:
    forbidden(file)
    assert main([str(package), "--format", "json"]) == 2
    found = json.loads(capsys.readouterr().out)["problems"]
    assert [each["file"] for each in found if each["code"] == "unreadable-file"] == [file]


def test_an_unreadable_graph_of_a_workflow(tmp_path: Path, forbidden: Callable[[str], None]) -> None:
    package = shutil.copytree(FIXTURES / "tiny-decoder", tmp_path / "package")
    forbidden("model.onnx")
    with pytest.raises(CompileError) as caught:
        compile_package(package)
    problem = next(each for each in caught.value.problems if each.code == "unreadable-file")
    assert problem.path.endswith("implementation.artifact")
    assert problem.where.line > 0


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="permissions do not stop this user")
def test_real_permissions(package: Path) -> None:
    compile_package(package)
    (package / "tokenizer.json").chmod(0)
    assert codes(package, package.parent / "other") == ["unreadable-file"]
    with pytest.raises(LoadError):
        genai_runtime.load(package.parent / "package.compiled")


def test_loading_what_may_not_be_read(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_package(package)
    opened = Path.open

    def refusing(self: Path, *arguments: str, **options: str) -> object:
        if self.name == "executor.py":
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return opened(self, *arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refusing)
    with pytest.raises(LoadError) as caught:
        genai_runtime.load(package.parent / "package.compiled")
    assert caught.value.code == "unreadable-file"
    assert "executor.py" in caught.value.what


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("target", ["nowhere", "itself"])
@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-decoder"])
def test_a_link_to_nowhere_is_mentioned(tmp_path: Path, file: str, target: str, case: str) -> None:
    package = shutil.copytree(FIXTURES / case, tmp_path / "package")
    (package / file).unlink(missing_ok=True)
    (package / file).symlink_to(file if target == "itself" else target)
    problems = compile_package(package).problems
    found = [each for each in problems if each.where.file == file and "link" in each.what]
    assert [(each.code, each.severity) for each in found] == [("missing-file", Severity.WARNING)]


# ---- threads and tokenizers ------------------------------------------------------------------------------------------


def test_a_user_asks_for_a_sensible_number_of_threads(package: Path) -> None:
    compile_package(package)
    for threads in (0, 1025, 10**9):
        with pytest.raises(LoadError) as caught:
            genai_runtime.load(package.parent / "package.compiled", threads=threads)
        assert caught.value.code == "bad-threads"
    assert main([str(package), "-q"]) == 0


@pytest.mark.parametrize("merges", [5, "x", {"a": 1}, True, [5], [[]]])
def test_merges_that_are_none(package: Path, merges: object) -> None:
    data = json.loads((package / "tokenizer.json").read_text("utf-8"))
    data["model"] = {"type": "BPE", "vocab": {"a": 0}, "merges": merges}
    (package / "tokenizer.json").write_text(json.dumps(data), "utf-8")
    with pytest.raises(LoadError) as caught:
        open_tokenizer(package, TextFiles("tokenizer.json", None, None, None))
    assert caught.value.code == "bad-tokenizer"
    assert "bad-tokenizer" in [each.code for each in compile_package(package).problems]


class PanicException(BaseException):
    """Named as the tokenizers library names a panic of its Rust code."""


@pytest.mark.parametrize("failure", [PanicException("index out of bounds"), Exception("WordLevel error")])
def test_a_tokenizer_that_panics_while_it_works(
    package: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    class Broken:
        def encode(self, *_: object, **__: object) -> object:
            raise failure

        decode = encode

    tokenizer = open_tokenizer(package, TextFiles("tokenizer.json", None, None, None))
    monkeypatch.setattr(tokenizer, "_backend", Broken())
    for work in (lambda: tokenizer.encode("a"), lambda: tokenizer.decode([1]), lambda: tokenizer.added_prefix):
        with pytest.raises(LoadError) as caught:
            work()
        assert caught.value.code == "bad-tokenizer"


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), SystemExit(3), TypeError("ids")])
def test_what_is_no_fault_of_the_tokenizer_passes(
    package: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    class Broken:
        def encode(self, *_: object, **__: object) -> object:
            raise failure

    tokenizer = open_tokenizer(package, TextFiles("tokenizer.json", None, None, None))
    monkeypatch.setattr(tokenizer, "_backend", Broken())
    with pytest.raises(type(failure)):
        tokenizer.encode("a")
