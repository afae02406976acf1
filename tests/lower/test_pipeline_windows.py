"""Windows in version 2: prompts that go in by windows (`windowed`), and caches that keep a window.

Tokens are those of the uncut graph in a plain loop; plans those of version 1, whose `sliding_window` says the same.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime as ort
import pytest
from genai_compiler import compile_package
from genai_compiler.lower.genai_config_v2 import lower_pipeline_config
from genai_compiler.lower.lowered import Lowered
from onnx import ModelProto

from tests.lower.pipelines import Document
from tests.lower.test_pipeline_cut import document, plan_of, refused, written
from tests.lower.test_windows import WINDOW as KEPT
from tests.lower.test_windows import whole as run_whole
from tests.lower.test_windows import windowed
from tests.real_packages import GREEDY
from tests.staged_packages import PROMPTS, Graphs, converts, three, tokens, two_phases, wanted
from tests.staged_packages import package as version_1
from tests.test_stage_windows import LENGTHS, anew
from tools.fixtures.graph import Sketch
from tools.fixtures.network import concat_decoder, gqa_decoder, gqa_lengths
from tools.fixtures.shifted import NAMES, shifted_decoder, shifted_stages
from tools.fixtures.stages import WINDOW

STATED = {"kv_cache": {"sliding_window": {"window_size": WINDOW}}, "position_ids": {"strategy": "windowed"}}
PATTERNS = {
    "past_key_pattern": "past_keys_{layer}",
    "past_value_pattern": "past_values_{layer}",
    "present_key_pattern": "keys_{layer}",
    "present_value_pattern": "values_{layer}",
}


def by_windows(size: int = WINDOW, **cache: Any) -> dict[str, Any]:
    """`pipeline.state` of prompts in windows."""
    return {**STATED, "kv_cache": {"sliding_window": {"window_size": size}, **cache}}


def alike(folder: Path, graphs: Graphs, decoder: dict[str, Any], home: Path) -> None:
    """The package is the plan of the same stages in version 1. decoder: entries of `model.decoder`."""
    (home / "one").mkdir()
    stages = version_1(home / "one" / folder.name, graphs, decoder=decoder)
    assert plan_of(folder, home / "two.out") == plan_of(stages, home / "one.out")


# ---- prompts in windows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sketch", [concat_decoder, gqa_decoder])
@pytest.mark.parametrize("cutting", [three, two_phases])
@pytest.mark.parametrize("size", [2, WINDOW])
def test_prompts_go_in_by_windows(
    size: int, cutting: Callable[[Sketch], Graphs], sketch: Callable[[], Sketch], tmp_path: Path
) -> None:
    """Caches that append take a short last window, those written in place a filled one: told by the graphs."""
    graphs = cutting(sketch())
    folder = written(tmp_path / "p", graphs, document(graphs, state=by_windows(size)))
    assert tokens(folder) == wanted(tmp_path / "whole", sketch())
    window = {"window_size": size, "alignment": "left", "slide_key_value_cache": False}
    alike(folder, graphs, {"sliding_window": window}, tmp_path)


def test_a_decoder_of_one_session_takes_windows_as_a_lone_stage(tmp_path: Path) -> None:
    graphs = {"decoder": gqa_decoder().proto()}
    folder = written(tmp_path / "p", graphs, document(graphs, state=by_windows()))
    assert tokens(folder) == wanted(tmp_path / "whole", gqa_decoder())
    window = {"window_size": WINDOW, "alignment": "left", "slide_key_value_cache": False}
    alike(folder, graphs, {"sliding_window": window}, tmp_path)


def test_lengths_are_named_by_a_block_of_version_1(tmp_path: Path) -> None:
    """Windows of four tokens, fixed in the graphs; version 2 has no word for ports of lengths."""
    opened = two_phases(gqa_lengths("sequence"))
    graphs = {**opened, "context": two_phases(gqa_lengths(WINDOW))["context"]}
    graphs["iterator"] = two_phases(gqa_lengths(1))["iterator"]
    stated = document(graphs, state=by_windows()) | {"model": {"decoder": {"inputs": LENGTHS}}}
    assert tokens(written(tmp_path / "p", graphs, stated)) == wanted(tmp_path / "whole", gqa_decoder())


@pytest.mark.parametrize("state", [by_windows(**PATTERNS), {"kv_cache": {
    "format": "windowed", "sliding_window": {"window_size": WINDOW}, **PATTERNS}}])  # fmt: skip
@pytest.mark.parametrize("opened", [False, True])
def test_caches_that_move_are_told_by_the_graphs_or_the_file(
    opened: bool, state: dict[str, Any], tmp_path: Path
) -> None:
    graphs = three(shifted_decoder("sequence", "columns")) if opened else shifted_stages()
    folder = written(tmp_path / "p", graphs, document(graphs, state=state))
    assert tokens(folder) == [anew(each, 10) for each in PROMPTS]
    alike(folder, graphs, {**NAMES, "sliding_window": {"window_size": WINDOW}}, tmp_path)


def test_the_converted_document_keeps_windows(tmp_path: Path) -> None:
    graphs = shifted_stages()
    converts(written(tmp_path / "p", graphs, document(graphs, state=by_windows(**PATTERNS))), tmp_path)


@pytest.mark.parametrize(
    ("state", "code", "path", "words"),
    [
        ({"position_ids": {"strategy": "windowed"}}, "missing-key", "pipeline.state.position_ids.strategy",
         "nothing says of how many tokens"),
        ({"kv_cache": {"format": "windowed"}}, "missing-key", "pipeline.state.kv_cache.format",
         "nothing says of how many tokens"),
        (by_windows(1), "bad-value", "pipeline.state.kv_cache.sliding_window.window_size", "two tokens or more"),
        (by_windows(1 << 30), "bad-value", "pipeline.state.kv_cache.sliding_window.window_size",
         "64 positions at most"),
        (by_windows(format="windowed"), "unsupported-package-class", "pipeline.state.kv_cache.sliding_window",
         "caches that move need a mask"),
    ],
)  # fmt: skip
def test_windows_that_do_not_fit_are_refused_in_the_words_of_version_2(
    state: dict[str, Any], code: str, path: str, words: str, tmp_path: Path
) -> None:
    graphs = three(gqa_lengths("sequence")) if words.startswith("caches that move") else three(gqa_decoder())
    block = {"model": {"decoder": {"inputs": LENGTHS}}} if words.startswith("caches that move") else {}
    said = refused(written(tmp_path / "p", graphs, document(graphs, state=state) | block))
    assert words in said[code, path]
    assert "slide_" not in said[code, path]


def test_layers_of_a_window_of_prompts_are_said_to_have_no_effect(tmp_path: Path) -> None:
    graphs = three(gqa_decoder())
    state = by_windows()
    state["kv_cache"]["sliding_window"]["layers"] = [0]
    found = compile_package(written(tmp_path / "p", graphs, document(graphs, state=state)), out=tmp_path / "out")
    where = "pipeline.state.kv_cache.sliding_window.layers"
    assert [(each.code, each.path) for each in found.problems] == [("ignored-key", where)]


# ---- caches that keep a window ---------------------------------------------------------------------------------------


def bounded(window: dict[str, Any] | None, model: ModelProto, folder: Path) -> Path:
    """A package of one decoder, whose file says that caches keep a window."""
    state: Document = {"kv_cache": {"sliding_window": window}} if window else {}
    return written(folder, {"decoder": model}, document({"decoder": model}, state=state))


@pytest.mark.parametrize("layers", [(0,), (0, 1)])
def test_caches_keep_the_window_of_their_operators(layers: tuple[int, ...], tmp_path: Path) -> None:
    """Tokens from first runs over the whole sequence, where the operator drops nothing that it needs."""
    folder = bounded({"window_size": KEPT, "layers": [*layers]}, windowed(layers=layers), tmp_path / "p")
    result = compile_package(folder, out=tmp_path / "out")
    assert not [each for each in result.problems if each.code == "config-contradicts-graph"]
    lowered = lower_pipeline_config(folder)
    assert isinstance(lowered, Lowered)
    kept = lowered.decoder.windows
    assert {(each.layer, each.capacity) for each in kept} == {(layer, KEPT + 16) for layer in layers}
    session = ort.InferenceSession(folder / "decoder.onnx", providers=["CPUExecutionProvider"])
    made = [int(each) for each in np.random.default_rng(1).integers(3, 24, 9)]
    prompt = list(made)
    for _ in range(30):
        made.append(int(run_whole(session, made).argmax()))
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        asked: dict[str, Any] = {**GREEDY, "stop_on_eos": False}
        assert model.generate(prompt, max_new_tokens=30, **asked).tokens == made[len(prompt) :]


@pytest.mark.parametrize(
    ("window", "model", "path", "words"),
    [
        ({"window_size": 9, "layers": [0]}, windowed, "window_size", "the graph's windows are 5"),
        ({"window_size": KEPT, "layers": [1]}, windowed, "layers", "in layers 0"),
        ({"window_size": KEPT, "layers": [0, 7]}, windowed, "layers", "layers lists 7"),
        ({"window_size": KEPT}, lambda: windowed(layers=()), "", "no attention operator has a window"),
    ],
)
def test_what_the_file_says_falsely_of_windows_is_said_and_the_graph_is_taken(
    window: dict[str, Any], model: Callable[[], ModelProto], path: str, words: str, tmp_path: Path
) -> None:
    said = bounded(window, model(), tmp_path / "said" / "p")
    found = compile_package(said, out=tmp_path / "out").problems
    where = "pipeline.state.kv_cache.sliding_window" + (f".{path}" if path else "")
    assert any(each.code == "config-contradicts-graph" and each.path == where and words in each.what for each in found)
    plain = bounded(None, model(), tmp_path / "plain" / "p")
    assert plan_of(said, tmp_path / "said.out") == plan_of(plain, tmp_path / "plain.out")


def test_a_window_without_its_width_is_refused(tmp_path: Path) -> None:
    folder = bounded({"window_size": KEPT, "layers": [0]}, windowed(window=0), tmp_path / "p")
    assert any("has no window" in each for each in refused(folder).values())
