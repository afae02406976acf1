"""Files, folders and streams that are not as one expects: links, names, permissions, killed and concurrent runs."""

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import genai_runtime
import pytest
from genai_compiler import compile_package
from genai_compiler.cli import main
from genai_compiler.emit import leftovers
from genai_compiler.problem import CompileError, Severity

from tests.conftest import FIXTURES

WRITTEN = ["executor.py", "graphs", "manifest.json", "plan.txt", "policy"]
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
@pytest.mark.parametrize("place", ["folder._write_files", "folder._replace", "Path.rename"])
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
    return ()
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
    unheard = shell('"$PY" -m genai_runtime "$1.compiled" --tokens 7 -n 2 --stats 2>/dev/full', package)
    assert unheard.returncode == 2


@full
def test_a_run_that_lacks_memory(package: Path) -> None:
    """Whatever it is that no room is left for: the interpreter's own modules are the first."""
    compile_package(package)
    lacking = "import genai_runtime.opening as o, genai_runtime.cli as c, sys\n"
    lacking += "def load(*_): raise MemoryError\no.load = load\nsys.exit(c.main())"
    ended = shell(f'"$PY" -c "{lacking}" "$1.compiled" --tokens 7', package)
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False)
    assert "memory does not suffice" in ended.stderr


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
