"""Files, folders and streams that are not as one expects: links, names, permissions, killed and concurrent runs."""

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import genai_runtime
import pytest
from genai_compiler import compile_package
from genai_compiler.cli import main
from genai_compiler.emit import leftovers
from genai_compiler.problem import CompileError, Severity
from genai_runtime import LoadError, abi
from genai_runtime.load import _executor_class
from genai_runtime.manifest import read_manifest
from genai_runtime.text_files import TextFiles
from genai_runtime.tokenizer import open_tokenizer

from tests.conftest import FIXTURES

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


# ---- what counts as a compiled folder --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "manifest",
    ["{}", "[]", "not json", '{"name": "site", "version": 1}', '{"format": 1, "abi": 1}', "[" * 100_000, "\udc80"],
)
@pytest.mark.parametrize("executor", [True, False])
def test_a_folder_with_some_manifest_is_not_ours(package: Path, manifest: str, executor: bool) -> None:
    out = package.parent / "site"
    out.mkdir()
    (out / "manifest.json").write_bytes(manifest.encode("utf-8", "surrogateescape"))
    (out / "letter.txt").write_text("dear")
    if executor:
        (out / "executor.py").write_text("")
    assert codes(package, out) == ["output-exists"]
    assert (out / "letter.txt").read_text() == "dear"


def test_our_manifest_without_an_executor_is_not_ours(package: Path) -> None:
    out = package.parent / "out"
    compile_package(package, out)
    (out / "executor.py").unlink()
    assert codes(package, out) == ["output-exists"]
    assert main([str(package), "-o", str(out), "-q", "--force"]) == 0
    assert names(out) == WRITTEN


def test_a_folder_of_another_version_is_ours(package: Path) -> None:
    out = package.parent / "out"
    compile_package(package, out)
    data = json.loads((out / "manifest.json").read_text("utf-8"))
    (out / "manifest.json").write_text(json.dumps({**data, "format": 0, "abi": 99}), "utf-8")
    compile_package(package, out)
    assert json.loads((out / "manifest.json").read_text("utf-8")) == data


# ---- where the output goes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exists", [True, False])
def test_an_output_that_is_a_link_stays_one(package: Path, exists: bool) -> None:
    real, link = package.parent / "deep" / "real", package.parent / "link"
    real.parent.mkdir()
    link.symlink_to(real)
    if exists:
        compile_package(package, real)
    compile_package(package, link)
    assert link.readlink() == real
    assert names(real) == WRITTEN
    assert not real.is_symlink()
    with genai_runtime.load(link, threads=1) as model:
        assert model.generate([7], max_new_tokens=1).tokens


def test_a_link_to_a_foreign_folder_is_followed_before_it_is_judged(package: Path) -> None:
    real, link = package.parent / "real", package.parent / "link"
    real.mkdir()
    (real / "letter.txt").write_text("dear")
    link.symlink_to(real)
    assert codes(package, link) == ["output-exists"]
    assert names(real) == ["letter.txt"]


def test_a_looping_link_is_named(package: Path) -> None:
    (package.parent / "loop").symlink_to("loop")
    with pytest.raises(CompileError) as caught:
        compile_package(package, package.parent / "loop")
    assert caught.value.problems[0].code in ("bad-output", "output-exists")
    assert (package.parent / "loop").is_symlink()


@pytest.mark.parametrize("out", [".", "x/.."])
def test_an_output_without_a_name_is_refused(package: Path, monkeypatch: pytest.MonkeyPatch, out: str) -> None:
    work = package.parent / "work"
    (work / "x").mkdir(parents=True)
    monkeypatch.chdir(work)
    assert codes(package, Path(out)) == ["bad-output"]


@pytest.mark.parametrize("name", ["o" * 250, "ä" * 125, "o" * 255])
def test_an_output_may_have_the_longest_name(package: Path, name: str) -> None:
    for _ in range(2):
        compile_package(package, package.parent / name)
    assert names(package.parent) == sorted([name, "package"])


def test_the_summary_names_the_package_that_is_the_working_folder(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(package)
    assert main(["."]) == 0
    assert capsys.readouterr().out.startswith("package: ")


# ---- killed and concurrent runs --------------------------------------------------------------------------------------

SLOW = """
import sys, time
from pathlib import Path
from genai_compiler.emit import folder
def slow(*_):
    print("here", flush=True)
    time.sleep(60)
{patch} = slow
from genai_compiler.cli import main
sys.exit(main(sys.argv[1:]))
"""


def killed_at(patch: str, package: Path, *options: str) -> None:
    """A compilation that is killed when it calls `patch`."""
    command = [sys.executable, "-c", SLOW.format(patch=patch), str(package), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "here\n"
        running.send_signal(signal.SIGKILL)


@posix
@pytest.mark.parametrize("place", ["folder._convert_graphs", "folder._replace", "Path.rename"])
def test_what_a_killed_run_leaves_is_cleared(package: Path, place: str) -> None:
    compile_package(package)
    killed_at(place, package)
    assert len([each for each in names(package.parent) if each.startswith(".package.compiled.")]) == 1
    compile_package(package)
    assert names(package.parent) == ["package", "package.compiled"]
    assert names(package.parent / "package.compiled") == WRITTEN


@posix
def test_an_output_that_a_killed_run_moved_aside_comes_back(package: Path) -> None:
    out = package.parent / "mine"
    out.mkdir()
    (out / "letter.txt").write_text("dear")
    killed_at("Path.rename", package, "-o", str(out), "--force")
    assert not out.exists(), "the run was killed between its two renames"
    assert codes(package, out) == ["output-exists"]
    assert names(package.parent) == ["mine", "package"]
    assert (out / "letter.txt").read_text() == "dear"


@posix
def test_only_our_work_folders_of_dead_processes_are_cleared(package: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    here = {"output": "package.compiled", "host": socket.gethostname()}
    kept = {
        f".package.compiled.{ended.pid}.nomarker": None,
        f".package.compiled.{os.getpid()}.alive": here,
        f".package.compiled.{ended.pid}.elsewhere": {**here, "host": here["host"] + "x"},
        f".package.compiled.{ended.pid}.other": {**here, "output": "other"},
        ".package.compiled.backup": here,
    }
    for name, marker in {**kept, f".package.compiled.{ended.pid}.stale": here}.items():
        (package.parent / name).mkdir()
        if marker is not None:
            (package.parent / name / leftovers.MARKER).write_text(json.dumps(marker))
    compile_package(package)
    assert names(package.parent) == sorted([*kept, "package", "package.compiled"])


@posix
def test_concurrent_runs_into_one_output_all_succeed(package: Path) -> None:
    """Each of two processes compiles and replaces many times."""
    script = f"""
from genai_compiler import compile_package
from genai_compiler.emit import folder
kept = {{}}
def once(*arguments):
    kept["arguments"] = arguments
folder_write = folder.write_folder
import genai_compiler.driver as driver
driver.write_folder = once
compile_package({str(package)!r}, {str(package.parent / "out")!r})
for _ in range(150):
    folder_write(*kept["arguments"])
"""
    runs = [subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [(each.communicate(timeout=120)[1], each.returncode) for each in runs] == [("", 0)] * 2
    assert names(package.parent / "out") == WRITTEN
    assert names(package.parent) == ["out", "package"]


def test_an_exchange_that_another_run_wins_is_tried_again(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_package(package)
    rename, calls = Path.rename, list[Path]()

    def taken_once(self: Path, target: Path) -> Path:
        calls.append(self)
        if len(calls) == 1:
            target.mkdir()
            (target / "theirs").write_text("x")
            raise OSError(errno.ENOTEMPTY, "Directory not empty")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", taken_once)
    compile_package(package)
    assert len(calls) == 2
    assert names(package.parent / "package.compiled") == WRITTEN
    assert names(package.parent) == ["package", "package.compiled"]


# ---- streams ---------------------------------------------------------------------------------------------------------


def shell(line: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A shell command in which $PY is this Python and $1 ... are the arguments."""
    command = ["sh", "-c", line, "sh", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PY": sys.executable})


full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")


@full
def test_a_report_that_cannot_be_written_is_no_bug(package: Path) -> None:
    ended = shell('"$PY" -m genai_compiler "$1" >/dev/full', package)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert "No space left" in ended.stderr
    assert "is written" in ended.stderr
    assert names(package.parent / "package.compiled") == WRITTEN


@full
@pytest.mark.parametrize("options", ["--check --format json", "--print emit", "--explain V231"])
def test_other_output_that_cannot_be_written(package: Path, options: str) -> None:
    ended = shell(f'"$PY" -m genai_compiler "$1" {options} >/dev/full', package)
    assert (ended.returncode, "Traceback" in ended.stderr, "Exception ignored" in ended.stderr) == (2, False, False)


@full
def test_a_run_whose_output_cannot_be_written(package: Path) -> None:
    compile_package(package)
    ended = shell('"$PY" -m genai_runtime "$1.compiled" --tokens 7 -n 2 >/dev/full', package)
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False)
    assert "No space left" in ended.stderr


@posix
def test_closed_streams(package: Path) -> None:
    assert shell('"$PY" -m genai_compiler "$1" 2>&-', package).returncode == 0
    assert names(package.parent / "package.compiled") == WRITTEN
    assert shell('"$PY" -m genai_compiler "$1" >&- 2>&- <&-', package).returncode == 0
    ended = shell('"$PY" -m genai_runtime "$1.compiled" <&-', package)
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False), "an empty prompt"
    ended = shell('"$PY" -m genai_runtime "$1.compiled" --chat <&-', package)
    assert "Traceback" not in ended.stderr


@posix
def test_a_refusal_with_stderr_closed_does_not_go_to_stdout(package: Path) -> None:
    ended = shell('"$PY" -m genai_compiler "$1/absent" 2>&-', package)
    assert (ended.returncode, ended.stdout) == (2, "")


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
    found = json.loads(capsys.readouterr().out)
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
