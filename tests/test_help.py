"""What `--help` shows: a short usage line, options in groups with an example each, and of a folder what it takes."""

import argparse
import json
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from genai_compiler import command_line as compile_line
from genai_compiler.cli import main as compile_main
from genai_compiler.driver import STAGES
from genai_runtime import command_line as run_line
from genai_runtime.cli import main as run_main
from tokenizers import Tokenizer

from tests.conftest import FIXTURES, Traced

Compiled = Callable[[str], tuple[Path, Traced]]
COMMANDS: Mapping[str, Callable[[list[str]], int]] = {"genai-compile": compile_main, "genai-run": run_main}


def helped(main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as left:
        main([*words, "--help"])
    out, err = capsys.readouterr()
    assert (left.value.code, err) == (0, "")
    return out


@pytest.mark.parametrize("command", COMMANDS)
def test_the_usage_is_short_and_every_group_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = helped(COMMANDS[command], capsys)
    usage = told.partition("\n\n")[0].splitlines()
    assert len(usage) <= 2
    assert all(len(line) <= 110 for line in usage)
    groups = re.findall(r"^([a-z ]+):\n  (for example: )?", told, re.MULTILINE)
    assert len(groups) >= 5
    assert all(example for _, example in groups), "no option stands in a group without an example"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_example_is_a_command_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(rf"for example: {command} (.*)", helped(COMMANDS[command], capsys))
    assert len(examples) >= 5
    for each in examples:
        words = shlex.split(each)
        found = run_line.parse(words) if command == "genai-run" else compile_line.parse(STAGES, words)
        assert isinstance(found, argparse.Namespace)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_slip_shows_the_short_usage(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        COMMANDS[command](["folder", "--zzzz"])
    assert left.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) <= 3


def test_an_endless_word_of_a_slip_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    for main in COMMANDS.values():
        with pytest.raises(SystemExit):
            main(["folder", f"--{'z' * 5000}"])
        assert len(capsys.readouterr().err) < 600


# ---- of a folder -----------------------------------------------------------------------------------------------------


def of_folder(compiled: Compiled, case: str, capsys: pytest.CaptureFixture[str]) -> str:
    return helped(run_main, capsys, str(compiled(case)[0]))


def test_a_package_of_text(compiled: Compiled, capsys: pytest.CaptureFixture[str]) -> None:
    told = of_folder(compiled, "tiny-gqa-v1", capsys)
    assert "tiny-gqa-v1 (genai_config v1) makes text" in told
    assert re.search(
        r"request\.input_ids +int64\[batch, \?\] rows@0 +--prompt, --chat, --tokens or standard input, req", told
    )
    assert re.search(r"request\.temperature +float32\[\] +--temperature \(default 1\.0\)", told)
    assert re.search(r"tokens +int64\[.*printed as text", told)
    assert "prompt and output have 64 tokens at most" in told
    assert "--temperature" in told
    assert "--negative-prompt" not in told, "options of pictures have no effect here"
    assert "genai-run --help has all" in told


@pytest.mark.parametrize(
    ("case", "shown", "hidden"),
    [
        ("tiny-gqa-v1", "--chat --prompt", "--image --audio --input --instructions --save --task --adapter --speech"),
        ("tiny-own-tokens-v1", "--chat --image --audio", "--input --instructions --save --speculate"),
        ("tiny-embedder-v2", "--input --save --task --tokens", "--chat --image --audio --instructions -n"),
        ("tiny-even-bands-v2", "--audio --chat", "--image"),
        ("tiny-chained-drafts", "--speculate", "--image --adapter"),
        ("tiny-denoiser", "--save --prompt --seed --input", "--image --chat --speculate --task"),
    ],
)
def test_options_without_an_effect_are_not_shown(
    case: str, shown: str, hidden: str, compiled: Compiled, capsys: pytest.CaptureFixture[str]
) -> None:
    """`(files and values)` has no heading where none of its options is left."""
    told = of_folder(compiled, case, capsys)
    listed = set(re.findall(r"^  (?:-\w(?: \w+)?, )?(--[a-z-]+)", told, re.M))
    assert set(shown.split()) - {"--seed"} <= listed
    assert not set(hidden.split()) & listed
    assert ("files and values:" in told) == bool(listed & {"--image", "--audio", "--input", "--instructions", "--save"})
    assert "genai-run --help has all" in told


def test_a_package_of_pictures(compiled: Compiled, capsys: pytest.CaptureFixture[str]) -> None:
    told = of_folder(compiled, "tiny-denoiser", capsys)
    assert "makes pictures" in told
    assert "--steps" in told
    assert "--top-k" not in told
    assert "-o FILE.png" in told


def test_a_package_with_tasks_alone(compiled: Compiled, capsys: pytest.CaptureFixture[str]) -> None:
    told = of_folder(compiled, "tiny-embedder-v2", capsys)
    assert "--task " in told


def test_inputs_that_no_option_gives_are_told_so(compiled: Compiled, capsys: pytest.CaptureFixture[str]) -> None:
    told = of_folder(compiled, "bounded-growing", capsys)
    assert re.search(r"  budget +int64.*run\(inputs\) in Python, required", told)


@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-denoiser", "tiny-embedder-v2"])
def test_the_commands_that_fit_run(
    case: str, compiled: Compiled, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = of_folder(compiled, case, capsys).partition("\nfor example\n")[2]
    commands = re.findall(r"^  genai-run (.*)", told, re.MULTILINE)
    assert commands
    ids = Tokenizer.from_file(str(FIXTURES / case / "tokenizer.json")).encode("Once upon a time").ids
    ones = json.dumps([[1] * len(ids)])
    for each in (each.replace("mask=VALUE", f"mask='{ones}'").replace("PIXELS", "32") for each in commands):
        assert run_main(shlex.split(each)) == 0, capsys.readouterr().err


def test_nothing_is_opened_for_it(
    compiled: Compiled, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genai_runtime.binding.require", lambda: pytest.fail("ONNX Runtime is asked for"))
    assert "makes text" in of_folder(compiled, "tiny-gqa-v1", capsys)


def test_of_what_is_no_compiled_folder_the_options_are_shown_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = shutil.copytree(FIXTURES / "tiny-gqa-v1", tmp_path / "package")
    told = helped(run_main, capsys, str(package))
    assert "--negative-prompt" in told
    assert f"run genai-compile {package} first" in told
    told = helped(run_main, capsys, "x" * 5000)
    assert "File name too long" in told
    assert "x" * 400 not in told
