"""genai-run as a command: text, ids and JSON; stop strings and seeds; exit codes; streams that are not as expected."""

import io
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_runtime import ExecutionError, Generation, Model, RequestError
from genai_runtime.cli import main
from tokenizers import Tokenizer

from tests.conftest import FIXTURES, Traced
from tests.reference.plain_loop import greedy

PACKAGE = FIXTURES / "tiny-gqa-v1"
END_IDS = (2, 5)
PROMPT = "the hat"


@pytest.fixture
def folder(compiled: Callable[[str], tuple[Path, Traced]]) -> str:
    return str(compiled("tiny-gqa-v1")[0])


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(PACKAGE / "tokenizer.json"))


def expected(prompt: list[int], count: int) -> list[int]:
    """Greedy tokens by a bare ONNX Runtime loop."""
    return greedy(PACKAGE / "model.onnx", prompt, count, END_IDS)


def decoded(tokenizer: Tokenizer, ids: list[int]) -> str:
    """Text by the tokenizers library; an end token is not text."""
    return str(tokenizer.decode([each for each in ids if each not in END_IDS]))


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """stdout of a run that must end with `code`."""
    assert main(list(arguments)) == code
    return capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    line, rest = said(capsys, *arguments, "--json").split("\n")
    assert rest == ""
    found: dict[str, Any] = json.loads(line)
    return found


# ---- what is printed -------------------------------------------------------------------------------------------------


def test_ids_in_ids_out(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = expected([1, 9, 14], 8)
    assert said(capsys, folder, "--tokens", "1,9,14", "-n", "8") == ",".join(map(str, wanted)) + "\n"


def test_text_in_text_out(folder: str, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = decoded(tokenizer, expected(tokenizer.encode(PROMPT).ids, 12))
    assert said(capsys, folder, "--prompt", PROMPT, "-n", "12") == wanted + "\n"


def test_standard_input_is_the_prompt(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = said(capsys, folder, "--prompt", PROMPT, "-n", "12")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PROMPT.encode())))
    assert said(capsys, folder, "-n", "12") == wanted


@pytest.mark.parametrize(("behind", "kept"), [("\n", ""), ("\r\n", ""), ("\n\n", "\n"), ("\r", "\r"), (" \n", " ")])
def test_one_line_end_behind_standard_input_is_not_of_the_prompt(
    behind: str,
    kept: str,
    folder: str,
    tokenizer: Tokenizer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = tokenizer.encode(PROMPT + kept).ids
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((PROMPT + behind).encode())))
    found = as_json(capsys, folder, "-n", "6")
    assert (found["prompt_tokens"], found["tokens"]) == (len(ids), expected(ids, 6))


def test_json_is_one_line(folder: str, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = tokenizer.encode(PROMPT).ids
    wanted = expected(prompt, 6)
    found = as_json(capsys, folder, "--prompt", PROMPT, "-n", "6")
    assert found["tokens"] == wanted
    assert found["text"] == decoded(tokenizer, wanted)
    assert (found["prompt_tokens"], found["new_tokens"]) == (len(prompt), len(wanted))
    assert found["finish_reason"] == ("stop" if wanted[-1] in END_IDS else "length")
    assert found["ttft_s"] > 0
    assert "text" not in as_json(capsys, folder, "--tokens", "1,9", "-n", "3")


def test_stats_go_to_stderr(folder: str, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([folder, "--prompt", PROMPT, "-n", "6", "--stats", "--threads", "1"]) == 0
    out, err = capsys.readouterr()
    assert "threads inside an operator: 1 (asked for)" in err
    new = len(expected(tokenizer.encode(PROMPT).ids, 6))
    assert f"prompt {len(tokenizer.encode(PROMPT).ids)} tokens, new {new} tokens, finish reason " in err
    assert "first token after" in err
    shown = re.search(r"; peak resident memory (\d+) MB$", err, re.MULTILINE)
    assert shown
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
    assert int(shown[1]) == pytest.approx(peak, rel=0.02)
    assert "tokens" not in out


def test_describe(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, folder, "--describe"))
    assert found["context_length"] == 64
    assert [each["name"] for each in found["outputs"]] == ["tokens"]


# ---- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", ["tiny-decoder", "tiny-runtime-policy", "branch-joins", "session-counter", "tiny-gqa-v1"]
)
def test_describe_calls_required_what_a_run_asks_for(compiled: Callable[[str], tuple[Path, Traced]], case: str) -> None:
    """An empty run is refused for what is missing; what has a value of its own, as literals have, is not asked for."""
    with genai_runtime.load(compiled(case)[0]) as model:
        inputs = model.describe()["inputs"]
        assert {each["name"] for each in inputs if each["source"] == "literal" and each["required"]} == set()
        given: dict[str, Any] = {}
        while True:
            try:
                model.run(given)
            except RequestError as refused:
                if refused.code != "missing-input":
                    break
                (name,) = re.findall(r"input '([^']+)'", refused.what)
                (spec,) = (each for each in inputs if each["name"] == name)
                assert name not in given
                given[name] = np.ones([each if isinstance(each, int) else 1 for each in spec["shape"]], spec["dtype"])
            else:
                break
        assert {each["name"] for each in inputs if each["required"]} == set(given)


def test_a_stop_string_ends_the_text_before_it(
    folder: str, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    text = as_json(capsys, folder, "--prompt", PROMPT, "-n", "20", "--ignore-eos")["text"]
    stop = next(text[at : at + 3] for at in range(4, len(text) - 3) if text.find(text[at : at + 3]) == at)
    found = as_json(
        capsys, folder, "--prompt", PROMPT, "-n", "20", "--ignore-eos", "--stop", "never this", "--stop", stop
    )
    assert found["text"] == text[: text.index(stop)]
    assert found["finish_reason"] == "stop_string"
    assert said(capsys, folder, "--prompt", PROMPT, "-n", "20", "--ignore-eos", "--stop", stop) == found["text"] + "\n"


def test_end_tokens_stop_unless_ignored(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    starts = [[each] for each in range(64)]
    start = next(each for each in starts if expected(each, 40)[-1] in END_IDS)
    tokens, prompt = expected(start, 40), str(start[0])
    found = as_json(capsys, folder, "--tokens", prompt, "-n", "40")
    assert (found["tokens"], found["finish_reason"]) == (tokens, "stop")
    found = as_json(capsys, folder, "--tokens", prompt, "-n", "40", "--ignore-eos")
    assert found["tokens"] == greedy(PACKAGE / "model.onnx", start, 40)
    assert found["finish_reason"] == "length"


def test_the_context_ends_what_asks_for_more(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, folder, "--tokens", "1,9,14", "-n", "500", "--ignore-eos")
    assert (found["finish_reason"], found["new_tokens"]) == ("context", 64 - 3)


@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-decoder"])
def test_a_seed_gives_its_tokens_again(
    compiled: Callable[[str], tuple[Path, Traced]], capsys: pytest.CaptureFixture[str], case: str
) -> None:
    def sampled(seed: int) -> tuple[int, ...]:
        arguments = ["--tokens", "1,9,14", "-n", "8", "--temperature", "2.0", "--top-k", "40", "--ignore-eos"]
        return tuple(as_json(capsys, str(compiled(case)[0]), *arguments, "--seed", str(seed))["tokens"])

    first = [sampled(seed) for seed in range(6)]
    assert first == [sampled(seed) for seed in range(6)]
    assert len(set(first)) > 1


def test_a_conversation_keeps_what_was_said(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[list[str]] = []
    chat = Model.chat

    def listen(self: Model, messages: Any, **options: Any) -> Generation:
        heard.append([each["content"] for each in messages])
        return chat(self, messages, **options)

    monkeypatch.setattr(Model, "chat", listen)
    monkeypatch.setattr(sys, "stdin", io.StringIO("hi\n\nand then\n"))
    said(capsys, folder, "--chat", "-n", "4")
    assert [len(each) for each in heard] == [1, 3]
    assert heard[1][0] == "hi"
    assert heard[1][2] == "and then"


def test_one_token_has_no_rate(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert as_json(capsys, folder, "--tokens", "1,5", "-n", "1")["tokens_per_s"] is None
    assert as_json(capsys, folder, "--tokens", "1,5", "-n", "4", "--ignore-eos")["tokens_per_s"] > 0
    assert main([folder, "--tokens", "1,5", "-n", "1", "--stats"]) == 0
    assert "tokens/s" not in capsys.readouterr().err


# ---- exit codes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("bad-token", ["--tokens", "1,x"]),
        ("bad-token", ["--tokens", "1,64"]),
        ("bad-token", ["--tokens", "-1"]),
        ("empty-prompt", ["--prompt", ""]),
        ("bad-text", ["--prompt", "\udcff"]),
        ("bad-sampling-options", ["--prompt", "a", "--temperature", "nan"]),
        ("bad-sampling-options", ["--prompt", "a", "--temperature", "1", "--seed", str(1 << 70)]),
        ("bad-length", ["--prompt", "a", "-n", "-1"]),
        ("bad-stop", ["--prompt", "a", "--stop", ""]),
        ("context-exceeded", ["--tokens", ",".join(["7"] * 64)]),
        ("chat-template-refused", ["--chat", "hi", "--system", "be brief"]),
        ("unknown-provider", ["--prompt", "a", "--provider", "cudda"]),
        ("provider-unavailable", ["--prompt", "a", "--provider", "qnn"]),
        ("bad-threads", ["--prompt", "a", "--threads", "0"]),
    ],
)
def test_a_request_that_cannot_be_served(
    folder: str, capsys: pytest.CaptureFixture[str], code: str, arguments: list[str]
) -> None:
    assert main([folder, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"genai-run: {code}: ")
    if "--system" in arguments:
        assert "write it into the user's turn" in err, "a way out that the command has"


def test_what_was_not_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(PACKAGE), "--prompt", "a"]) == 2
    assert "run genai-compile" in capsys.readouterr().err


def test_a_value_that_the_packages_own_sampler_cannot_hold(
    compiled: Callable[[str], tuple[Path, Traced]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(compiled("tiny-decoder")[0]), "--prompt", "a", "--seed", str(1 << 63)]) == 2
    assert "bad-value" in capsys.readouterr().err


def test_a_failing_step_is_our_fault_and_an_interrupt_is_not(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(failure: BaseException) -> Callable[..., Generation]:
        def generate(*_: object, **__: object) -> Generation:
            raise failure

        return generate

    monkeypatch.setattr(Model, "generate", fail(ExecutionError("step-failed", "no memory", origin="steps[0]")))
    assert main([folder, "--prompt", "a"]) == 1
    assert "steps[0]: step-failed: no memory" in capsys.readouterr().err
    monkeypatch.setattr(Model, "generate", fail(KeyboardInterrupt()))
    assert main([folder, "--prompt", "a"]) == 3
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize(("lost", "asked"), [("jinja2", "--chat"), ("numpy", "--prompt")])
def test_a_library_that_is_not_installed_is_named(folder: str, lost: str, asked: str) -> None:
    code = (
        f"import sys; sys.modules[{lost!r}] = None\n"
        f"from genai_runtime.cli import main\nraise SystemExit(main([{folder!r}, {asked!r}, 'a', '-n', '2']))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    wanted = f"genai-run needs {lost}, which is not installed: pip install genai-compile\n"
    assert (ended.returncode, ended.stderr) == (2, wanted)


def test_a_missing_module_of_ours_is_a_bug(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def generate(*_: object, **__: object) -> Generation:
        raise ModuleNotFoundError("No module named 'genai_runtime.lost'", name="genai_runtime.lost")

    monkeypatch.setattr(Model, "generate", generate)
    with pytest.raises(ModuleNotFoundError):
        main([folder, "--prompt", "a"])


# ---- streams and environment -----------------------------------------------------------------------------------------


def command(*arguments: str, script: str = "") -> list[str]:
    """The command line of genai-run in a process of its own, after `script` has run there."""
    start = f"import sys\n{script}\nfrom genai_runtime.cli import main\nsys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-c", start, *arguments]


def test_a_reader_that_goes_away_is_no_failure_of_ours(folder: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as out:
        ended = subprocess.run(command(folder, "--prompt", "a"), stdout=out, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (3, "")


def test_bytes_that_are_not_utf8_on_standard_input(folder: str) -> None:
    ended = subprocess.run(command(folder), input=b"\xff\xfe", capture_output=True)
    assert ended.returncode == 2
    assert ended.stderr.startswith(b"genai-run: bad-text: ")


def test_a_terminal_without_the_character(folder: str) -> None:
    script = "sys.modules['genai_runtime.cli'] = __import__('genai_runtime.cli').cli\n"
    script += "from genai_runtime.generation import Generation; Generation.__iter__ = lambda self: iter(['caf\\u00e9'])"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ended = subprocess.run(command(folder, "--prompt", "a", script=script), capture_output=True, env=environment)
    assert (ended.returncode, ended.stdout) == (0, b"caf?\n")


@pytest.mark.parametrize("arguments", [["--prompt", "a"], ["--describe"]])
def test_without_onnx_runtime_it_says_what_to_install(folder: str, arguments: list[str]) -> None:
    script = "sys.modules['onnxruntime'] = None"
    ended = subprocess.run(command(folder, *arguments, script=script), capture_output=True, text=True)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert "genai-compile[cpu]" in ended.stderr
    assert "genai-compile[gpu]" in ended.stderr


def test_every_option_has_a_help() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "genai_runtime", "--help"], capture_output=True, text=True, check=True,
        env={**os.environ, "COLUMNS": "240"},
    ).stdout  # fmt: skip
    options = re.findall(r"^  (-.*(?:\n {24}.*)?)$", told, re.MULTILINE)
    assert len(options) > 30
    assert [each for each in options if not re.search(r"\S(  +|\n +)\S", each)] == []


def test_help_needs_nothing(folder: str) -> None:
    script = "sys.modules['onnxruntime'] = None"
    ended = subprocess.run(command("--help", script=script), capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
