"""genai-compile as a command: exit codes, what goes to which stream, and that it writes all, or nothing."""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import genai_runtime
import pytest
from genai_compiler import cli, convert_command, driver
from genai_compiler.cli import main
from genai_compiler.driver import STAGES
from genai_compiler.emit import folder as folder_module
from genai_runtime import cli as run_cli

from tests.conftest import FIXTURES

WRITTEN = ["executor.py", "graphs", "manifest.json", "plan.txt", "policy"]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package alone in a folder."""
    return shutil.copytree(FIXTURES / "tiny-gqa-v1", tmp_path / "package")


def state(folder: Path) -> dict[str, tuple[str, int]]:
    """Every file below a folder: its content and time stamp."""
    return {
        each.relative_to(folder).as_posix(): (hashlib.sha256(each.read_bytes()).hexdigest(), each.stat().st_mtime_ns)
        for each in folder.rglob("*")
        if each.is_file()
    }


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def refused(capsys: pytest.CaptureFixture[str], code: str, *arguments: object) -> str:
    """stderr of a run that must end with exit code 2 and name `code`; stdout must be empty."""
    assert main([str(each) for each in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f" {code}: " in err
    return err


# ---- what is written -------------------------------------------------------------------------------------------------


def test_a_package_is_compiled_beside_itself(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = state(package)
    assert main([str(package)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for said in (
        "request.input_ids",
        "tokens int64",
        "decoder (model.onnx)",
        "shared-buffer",
        "1 session run a token",
    ):
        assert said in out
    assert names(package.parent) == ["package", "package.compiled"]
    assert names(package.parent / "package.compiled") == WRITTEN
    assert state(package) == before


def test_output_goes_where_it_is_told(package: Path) -> None:
    out = package.parent / "a" / "b c"
    assert main([str(package), "-o", str(out), "-q"]) == 0
    assert names(out) == WRITTEN


def test_quiet_says_nothing(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(package), "-q"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("arguments", [["--check"], *(["--stop-after", each] for each in STAGES)])
def test_check_and_stop_after_write_nothing(package: Path, arguments: list[str]) -> None:
    assert main([str(package), *arguments]) == 0
    assert names(package.parent) == ["package"]


@pytest.mark.parametrize(("stage", "file"), [("emit", "executor.py"), (STAGES[-2], "plan.txt")])
def test_print_shows_what_would_be_written(
    package: Path, capsys: pytest.CaptureFixture[str], stage: str, file: str
) -> None:
    assert main([str(package), "-q"]) == 0
    assert main([str(package), "--print", stage, "-o", str(package.parent / "other")]) == 0
    assert names(package.parent) == ["package", "package.compiled"]
    assert capsys.readouterr().out == (package.parent / "package.compiled" / file).read_text("utf-8")


def test_a_stage_that_is_not_reached_cannot_be_printed(package: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(package), "--stop-after", "read", "--print", "emit"])
    assert ended.value.code == 2
    assert names(package.parent) == ["package"]


@pytest.mark.parametrize("form", ["json", "sarif"])
def test_a_stage_is_not_printed_among_data(package: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(package), "--print", "build", "--format", form])
    assert ended.value.code == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert f"--format {form} writes data" in shown.err


def test_a_bundle_runs_without_its_package(package: Path) -> None:
    out = package.parent / "bundle"
    assert main([str(package), "-q"]) == 0
    assert main([str(package), "-o", str(out), "--bundle", "-q"]) == 0
    with genai_runtime.load(package.parent / "package.compiled") as model:
        wanted = model.generate([7, 8], max_new_tokens=6).tokens
    shutil.rmtree(package)
    with genai_runtime.load(out) as model:
        assert model.generate([7, 8], max_new_tokens=6).tokens == wanted


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_what_is_no_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(capsys, "no-package", tmp_path / "absent")
    assert f"the package '{(tmp_path / 'absent').as_posix()}' does not exist" in told
    (tmp_path / "file").write_text("x")
    refused(capsys, "no-package", tmp_path / "file")
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("asked", "near"),
    [("tiny-gqa", "tiny-gqa-v1"), ("tiny-gka-v1/model", "tiny-gqa-v1"), ("elsewhere", None), ("file-v", None)],
)
def test_a_folder_that_is_not_there_has_a_near_one(
    asked: str, near: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The nearest folder beside the first part that is missing; a file is none."""
    (tmp_path / "tiny-gqa-v1").mkdir()
    (tmp_path / "file-v1").write_text("x")
    told = refused(capsys, "no-package", tmp_path / asked)
    assert ("did you mean" in told) == (near is not None)
    assert near is None or f"did you mean {(tmp_path / near).as_posix()}?" in told


def test_all_problems_at_once_with_a_count(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.loads((package / "genai_config.json").read_text("utf-8"))
    config["model"]["decoder"]["filename"] = "absent.onnx"
    config["model"]["nonsense"] = 1
    config["search"]["top_p"] = "much"
    (package / "genai_config.json").write_text(json.dumps(config, indent=1), "utf-8")
    assert main([str(package)]) == 2
    err = capsys.readouterr().err
    assert err.count("genai_config.json:") >= 2
    assert err.rstrip().endswith("nothing was written")
    assert names(package.parent) == ["package"]
    assert main([str(package), "--format", "json"]) == 2
    out, nothing = capsys.readouterr()
    assert nothing == ""
    said = json.loads(out)
    found = said["problems"]
    assert said["missing"] == []
    assert {"code", "severity", "file", "line", "column", "path", "what", "help"} == set(found[0])
    assert len([each for each in found if each["severity"] == "error"]) >= 2
    assert main([str(package), "--check"]) == 2


def test_json_of_a_good_package_has_empty_lists(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(package), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"problems": [], "missing": []}


@pytest.mark.parametrize("out", ["package", "package/inside", "."])
def test_output_and_package_lie_apart(package: Path, capsys: pytest.CaptureFixture[str], out: str) -> None:
    before = state(package)
    refused(capsys, "bad-output", package, "-o", package.parent / out, "--force")
    assert state(package) == before


def test_a_foreign_folder_is_replaced_only_with_force(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = package.parent / "mine"
    out.mkdir()
    (out / "letter.txt").write_text("dear")
    assert "--force" in refused(capsys, "output-exists", package, "-o", out)
    assert names(out) == ["letter.txt"]
    assert main([str(package), "-o", str(out), "--force", "-q"]) == 0
    assert names(out) == WRITTEN
    assert main([str(package), "-o", str(out), "-q"]) == 0, "a compiled folder is ours to replace"


def test_a_file_is_never_replaced(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (package.parent / "file").write_text("x")
    refused(capsys, "output-exists", package, "-o", package.parent / "file", "--force")
    assert main([str(package), "-o", str(package.parent / "file" / "below")]) == 2
    assert "can't read or write" in capsys.readouterr().err
    assert main([str(package), "-o", str(package.parent / "file" / "below"), "--format", "json"]) == 2
    (told,) = json.loads(capsys.readouterr().out)["problems"]
    assert (told["code"], told["file"]) == ("disk-failed", str(package.parent / "file" / "below"))
    assert main(["convert", str(package), "-o", str(package.parent / "file" / "below")]) == 2
    assert "disk-failed" in (said := capsys.readouterr().err) or "bad-output" in said
    assert (package.parent / "file").read_text() == "x"


def test_convert_alone_asks_for_a_package(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(["convert"])
    assert left.value.code == 2
    assert "usage: genai-compile convert" in capsys.readouterr().err
    (tmp_path / "convert").mkdir()
    refused(capsys, "no-package", Path("convert"))


def test_an_unknown_option_is_the_command_lines_fault(package: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(package), "--fast"])
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--bundel"], "--bundel; did you mean --bundle?"),
        (["--stop_after=read"], "--stop_after=read; did you mean --stop-after?"),
        (["out"], "out; the place to write to goes in as -o"),
        (["--zzzz"], "--zzzz"),
        (["--outptu", "a.yaml"], "--outptu a.yaml; did you mean --output?"),
    ],
    ids=str,
)
def test_a_slip_is_told_with_what_was_meant(
    package: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(package), *words])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"unrecognized arguments: {said}\n")


def test_a_slip_of_convert_is_told_so(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["convert", str(package), "--quite"])
    assert capsys.readouterr().err.endswith("unrecognized arguments: --quite; did you mean --quiet?\n")


def test_a_bug_is_called_one(
    package: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "verify", lambda plan: ["%x is read before it is written"])
    assert main([str(package)]) == 1
    err = capsys.readouterr().err
    for said in (
        "internal error in build",
        "%x is read before it is written",
        "bug of genai-compile",
        "plan tiny-gqa-v1",
    ):
        assert said in err.replace("plan package", "plan tiny-gqa-v1")
    assert names(package.parent) == ["package"]


def test_too_little_memory_is_no_bug_of_ours(
    package: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(driver, "emit_executor", full)
    monkeypatch.setattr(convert_command, "convert_package", full)
    for command in ([str(package)], ["convert", str(package), "-o", str(package.parent / "made.yaml")]):
        assert main(command) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert "this machine's memory does not suffice" in err
        assert "Traceback" not in err
    assert names(package.parent) == ["package"]


# ---- interruption ----------------------------------------------------------------------------------------------------


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def no_space(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(("failure", "code"), [(interrupt, 3), (no_space, 2)])
@pytest.mark.parametrize("place", ["_write_files", "_copy_package", "_replace"])
def test_nothing_half_written(
    package: Path, monkeypatch: pytest.MonkeyPatch, failure: Callable[..., None], code: int, place: str
) -> None:
    arguments = [str(package), "--bundle", "-q"]
    with monkeypatch.context() as patched:
        patched.setattr(folder_module, place, failure)
        assert main(arguments) == code
        assert names(package.parent) == ["package"]
    assert main(arguments) == 0
    before = state(package.parent)
    monkeypatch.setattr(folder_module, place, failure)
    assert main(arguments) == code
    assert state(package.parent) == before, "what an earlier run made is still there, and nothing else is"


@pytest.mark.parametrize(("failure", "code"), [(interrupt, 3), (no_space, 2)])
def test_an_old_folder_survives_a_failing_exchange(
    package: Path, monkeypatch: pytest.MonkeyPatch, failure: Callable[..., None], code: int
) -> None:
    assert main([str(package), "-q"]) == 0
    before = state(package.parent)
    monkeypatch.setattr(Path, "rename", failure)
    assert main([str(package), "-q"]) == code
    monkeypatch.undo()
    assert state(package.parent) == before


SLOW = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts with it ignored
from genai_compiler.emit import folder
def slow(*_):
    print("writing", flush=True)
    time.sleep(60)
folder._write_files = slow
from genai_compiler.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_real_interrupt(package: Path) -> None:
    command = [sys.executable, "-c", SLOW, str(package)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "writing\n"
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=30)
    assert (running.returncode, err) == (3, "interrupted: nothing was written\n")
    assert names(package.parent) == ["package"]


class Cut:
    """CPython 3.11 raises another error for one that is raised here."""

    def __set_name__(self, *_: object) -> None:
        raise KeyboardInterrupt


def made(*_: object) -> type:
    return type("Made", (), {"field": Cut()})


def test_an_interrupt_while_a_class_is_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As imports do, many times: it is an interrupt, no bug of ours."""
    monkeypatch.setattr(cli, "_run", made)
    monkeypatch.setattr(run_cli, "_hold_files", made)
    assert cli.main([str(tmp_path)]) == 3
    assert run_cli.main([str(tmp_path), "--prompt", "a"]) == 3
    assert capsys.readouterr().err == "interrupted: nothing was written\n\ninterrupted\n"
