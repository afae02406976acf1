"""A prompt that is longer than what a workflow's cells hold is refused before anything runs, with the numbers.

What the cells hold is written in the document; that a prompt of this length still fits is shown by running it.
"""

import shutil
from pathlib import Path

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_compiler.check.context import context_of
from genai_compiler.check.held_tokens import held_tokens
from genai_compiler.cli import main as compile_main
from genai_compiler.read.load import load_package
from genai_runtime import ExecutionError, Model, RequestError, binding
from genai_runtime.cli import main

from tests.conftest import FIXTURES
from tests.reference.document import read_document
from tools.fixtures.document import write_document

HELD = 20
AUTHORED = ["tiny-decoder", "tiny-held-state", "tiny-runtime-policy"]


def bounded(case: str, folder: Path) -> Path:
    """The package with caches of HELD tokens, which its graph's table of positions does not know of."""
    package = shutil.copytree(FIXTURES / case, folder / "package")
    document = read_document(FIXTURES / case)
    inputs = document["pipeline"]["workflow"]["inputs"]
    (name,) = {"package.max_context", "package.sequence_capacity"} & set(inputs)
    inputs[name]["default"] = HELD
    write_document(package, document)
    return package


@pytest.fixture(params=AUTHORED)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    compile_package(bounded(request.param, tmp_path), tmp_path / "made")
    return tmp_path / "made"


def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> object:
        raise AssertionError("a session has run")

    for name in ("run_bound", "run_with_values"):
        monkeypatch.setattr(binding, name, lambda *_: refused)


def run(model: Model, prompt: int, new: int) -> genai_runtime.Result:
    inputs = {"request.input_ids": np.ones((1, prompt), np.int64), "request.max_iterations": np.array([new])}
    return model.run(inputs, stop_on_eos=False)


def test_the_command_says_tokens_context_and_way_out(
    made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_runs(monkeypatch)
    assert main([str(made), "--tokens", ",".join(["7"] * (HELD + 5)), "-n", "3"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("genai-run: context-exceeded: the prompt has 25 tokens and max_new_tokens is 3; the context ")
    assert "holds 20 in all" in err
    assert f"shorten the prompt to {HELD - 1} tokens or fewer" in err
    assert "recurrence" not in err


def test_so_does_the_api(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        nothing_runs(patched)
        with genai_runtime.load(made, threads=1) as model:
            for ask in (lambda: model.generate([1] * HELD, max_new_tokens=3).tokens, lambda: run(model, HELD + 1, 1)):
                with pytest.raises(RequestError, match=rf"the prompt has \d+ tokens.* holds {HELD} in all") as said:
                    ask()
                assert said.value.code == "context-exceeded"
            assert model.describe()["context_length"] == HELD


def test_what_fits_runs_and_ends_with_the_context(made: Path) -> None:
    with genai_runtime.load(made, threads=1) as model:
        whole = model.generate([1] * (HELD - 4), max_new_tokens=50, stop_on_eos=False)
        assert (len(whole.tokens), whole.finish_reason) == (4, "context")
        assert run(model, HELD - 4, 4)["tokens"].shape[-1] == 4


def test_a_run_that_goes_on_behind_it_is_told_the_numbers(tmp_path: Path) -> None:
    """The document's own loop decides how far it goes: its cells break then, not the prompt."""
    compile_package(bounded("tiny-decoder", tmp_path), tmp_path / "made")
    with genai_runtime.load(tmp_path / "made", threads=1) as model, pytest.raises(ExecutionError) as said:
        run(model, 10, 30)
    assert said.value.code == "recurrence"
    assert f"have {HELD} positions together: the prompt has 10 tokens, and 30 more" in said.value.help


def test_the_summary_says_who_bounds_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = bounded("tiny-decoder", tmp_path)
    assert compile_main([str(package), "--check"]) == 0
    assert "prompt and output: 20 tokens at most, for 'package.max_context' bounds" in capsys.readouterr().out


@pytest.mark.parametrize(("case", "wanted"), [
    ("tiny-decoder", (64, "package.max_context")),
    ("tiny-runtime-policy", (64, "package.sequence_capacity")),
    ("bounded-growing", None),
    ("session-counter", None),
])  # fmt: skip
def test_whose_cells_count(case: str, wanted: tuple[int, str] | None) -> None:
    """A cell that no token goes to, whatever its bound, says nothing of prompts."""
    assert held_tokens(load_package(FIXTURES / case).workflow) == wanted


def test_a_lowered_package_states_its_context_itself() -> None:
    found = context_of(load_package(FIXTURES / "tiny-gqa-v1"))
    assert found.held == (found.length, "package.sequence_capacity")
