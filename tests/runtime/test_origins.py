"""A step that fails in a package that was lowered is told by the place in the package's own document.

Where the graph's file is named is read from the document's own lines.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_runtime import ExecutionError, GenaiError, RequestError, binding
from genai_runtime.cli import main
from genai_runtime.origins import in_own_terms

from tests.conftest import FIXTURES, Traced

Compiled = Callable[[str], tuple[Path, Traced]]


def named_at(file: Path, artifact: str) -> int:
    """The first line that names the graph's file."""
    lines = file.read_text("utf-8").splitlines()
    return next(at for at, line in enumerate(lines, 1) if f'"{artifact}"' in line)


LOWERED = {
    "tiny-gqa-v1": ("model.onnx", "model.decoder.filename"),
    "tiny-concat-v1": ("model.onnx", "model.decoder.filename"),
    "tiny-media-v2": ("decoder.onnx", ""),
    "tiny-minimal-v2": ("model.onnx", ""),
}


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run of a session fails."""

    def fail(*_: object) -> None:
        raise binding.RUN_FAILURES[0]("no such luck")

    for name in ("run_bound", "run_with_values"):
        monkeypatch.setattr(binding, name, lambda *_: fail)


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("case", LOWERED)
@pytest.mark.parametrize("level", ["generate", "run", "stream"])
def test_a_failing_decoder_is_told_where_its_file_is_named(case: str, level: str, compiled: Compiled) -> None:
    artifact, path = LOWERED[case]
    config = FIXTURES / case / "genai_config.json"
    inputs = {"request.input_ids": np.array([[1, 5]]), "request.max_iterations": np.array([2])}
    with genai_runtime.load(compiled(case)[0], threads=1) as model:
        ask: dict[str, Callable[[], object]] = {
            "generate": lambda: model.generate([1, 5], max_new_tokens=2).tokens,
            "run": lambda: model.run(inputs),
            "stream": lambda: list(model.stream(inputs)),
        }
        with pytest.raises(ExecutionError) as said:
            ask[level]()
    assert said.value.code == "step-failed"
    assert "pipeline.workflow" not in str(said.value)
    said_files = (each.get("filename", each.get("file")) for each in _objects(json.loads(config.read_text("utf-8"))))
    names = {each for each in said_files if each is not None}
    told = re.match(r"genai_config\.json:(\d+) ([\w.]+)", said.value.origin)
    assert told is not None
    named = [each for each in names if named_at(config, each) == int(told[1])]
    assert len(named) == 1
    if path:
        assert (named, told[2]) == ([artifact], path)


@pytest.mark.usefixtures("broken")
def test_the_command_says_it_so(compiled: Compiled, capsys: pytest.CaptureFixture[str]) -> None:
    line = named_at(FIXTURES / "tiny-gqa-v1" / "genai_config.json", "model.onnx")
    assert main([str(compiled("tiny-gqa-v1")[0]), "--tokens", "1,5", "-n", "2"]) == 1
    assert f"genai-run: genai_config.json:{line} model.decoder.filename: step-failed: " in capsys.readouterr().err


@pytest.mark.usefixtures("broken")
def test_an_authored_workflow_is_told_by_line_and_path(compiled: Compiled) -> None:
    with genai_runtime.load(compiled("tiny-decoder")[0], threads=1) as model, pytest.raises(ExecutionError) as said:
        model.generate([1, 5], max_new_tokens=2).tokens  # noqa: B018
    told = re.match(r"inference_metadata\.yaml:(\d+) pipeline\.workflow\.steps\[0\]\.setup\[0\]", said.value.origin)
    assert told is not None
    lines = (FIXTURES / "tiny-decoder" / "inference_metadata.yaml").read_text("utf-8").splitlines()
    assert lines[int(told[1]) - 2].strip() == "setup:", "its first item begins on the next line"


@pytest.mark.usefixtures("broken")
def test_a_folder_of_before_says_what_it_can(tmp_path: Path) -> None:
    """The entry is no condition of loading."""
    package = shutil.copytree(FIXTURES / "tiny-gqa-v1", tmp_path / "package")
    compile_package(package, tmp_path / "made")
    file = tmp_path / "made" / "manifest.json"
    data = json.loads(file.read_text("utf-8"))
    del data["origins"]
    del data["generation"]["held"]
    file.write_text(json.dumps(data), "utf-8")
    with genai_runtime.load(tmp_path / "made", threads=1) as model, pytest.raises(GenaiError) as said:
        model.generate([1, 5], max_new_tokens=2).tokens  # noqa: B018
    assert said.value.origin.startswith("pipeline.workflow.steps[0]")


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(each)


def test_the_rest_of_a_place_stays() -> None:
    failure = RequestError("bad-image", "it is none", help="give another", origin="steps[0] (component 'vision')")
    told = in_own_terms(failure, {"steps[0]": "genai_config.json:7 model.vision.filename"})
    assert isinstance(told, RequestError)
    assert (told.code, told.what, told.help) == ("bad-image", "it is none", "give another")
    assert told.origin == "genai_config.json:7 model.vision.filename (component 'vision')"
    assert in_own_terms(failure, {}) is failure


def test_a_failure_in_a_linked_graph_names_the_first_member_and_counts_the_others() -> None:
    step = "pipeline.workflow.steps[0] (component 'island_1')"
    failure = ExecutionError("step-failed", "it failed", origin=step)
    told = in_own_terms(failure, {step: "a.yaml:3 one, a.yaml:7 two, a.yaml:9 three"})
    assert told.origin == "a.yaml:3 one and 2 more (component 'island_1')"
