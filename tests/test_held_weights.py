"""Which session holds the weights, and why, as compiling and --memory say it.

Bytes are counted from the graphs that the compiled folder opens, by onnx and numpy.
"""

import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest
from genai_compiler import held_weights, memory
from genai_compiler.cli import main
from genai_compiler.read.weights import held_bytes
from onnx import numpy_helper

from tests.conftest import FIXTURES

SAID = {
    "tiny-gqa-v1": {"decoder": "one session for prompt and steps"},
    "tiny-stages-v1": {
        "decoder": "for the steps alone, linked of embeddings, iterator, lm_head",
        "decoder_prompt": "for the prompt alone, linked of embeddings, context, lm_head",
    },
    "tiny-encoder-decoder-v1": {"encoder": "one session", "decoder": "one session for prompt and steps"},
    "tiny-media-v2": {
        "embedding": "one session for prompt and steps",
        "decoder": "one session for prompt and steps",
        "vision": "one session",
        "speech": "one session",
    },
    "tiny-turns": {"model_linked": ""},
}


def held(folder: Path) -> dict[str, int]:
    """Bytes of the weights in the graph that each session opens."""
    facts: dict[str, Any] = json.loads((folder / "manifest.json").read_text("utf-8"))
    found = dict[str, int]()
    for name in (*facts["opens"], *facts["on_demand"]):
        graph = facts["graphs"][name]
        home = folder / facts["package"]["path"]
        model = onnx.load((folder if graph["in"] == "compiled" else home) / graph["file"], load_external_data=False)
        onnx.load_external_data_for_model(model, str(home / graph["weights"]))
        found[name] = sum(numpy_helper.to_array(each).nbytes for each in model.graph.initializer)
    return found


def told(lines: str, start: str) -> dict[str, tuple[int, str]]:
    found = re.findall(rf"^  {start}(\S+): (\d+) bytes, (.*)$", lines, re.M)
    return {name: (int(size), why) for name, size, why in found}


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little it is."""
    monkeypatch.setattr(held_weights, "NOTEWORTHY", 1)
    monkeypatch.setattr(memory, "NOTEWORTHY", 1)


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("case", SAID)
def test_each_session_is_said_to_hold_what_its_graph_holds(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(FIXTURES / case), "-o", str(tmp_path / "out"), "--memory"]) == 0
    shown = capsys.readouterr().out
    compiled, noted = told(shown, "weights     "), told(shown, "note: weights of ")
    assert compiled == noted, "both reports say the same"
    wanted = {name: size for name, size in held(tmp_path / "out").items() if size}
    assert {name: size for name, (size, _) in compiled.items()} == wanted
    assert list(compiled) == sorted(compiled, key=lambda each: -wanted[each]), "the largest first"
    for name, why in SAID[case].items():
        assert compiled[name][1] == why or not why


@pytest.mark.usefixtures("everything")
def test_what_two_sessions_hold_is_said_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its bytes are held in test_shared_weights.py."""
    assert main([str(FIXTURES / "tiny-stages-v1"), "-o", str(tmp_path / "out")]) == 0
    lines = [each for each in capsys.readouterr().out.splitlines() if each.startswith("  weights ")]
    assert len(lines) == 3
    assert "of weights are in the sessions of decoder and decoder_prompt: other stages run with the prompt" in lines[-1]


def test_small_weights_are_not_spoken_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(FIXTURES / "tiny-gqa-v1"), "-o", str(tmp_path / "out"), "--memory"]) == 0
    assert "weights of" not in (shown := capsys.readouterr().out)
    assert "  weights     " not in shown


def test_weights_of_one_place_count_once() -> None:
    """A table and a projection that name the same 48 bytes in two shapes, and 16 bytes behind them."""
    graph = onnx.helper.make_graph([], "g", [], [])
    for name, dims, offset in (("table", (4, 3), 0), ("head", (3, 4), 0), ("bias", (4,), 48)):
        tensor = graph.initializer.add(name=name, dims=dims, data_type=onnx.TensorProto.FLOAT)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "weights"), ("offset", str(offset)), ("length", "0")):
            tensor.external_data.add(key=key, value=value)
    assert held_bytes(onnx.helper.make_model(graph)) == 48 + 16
