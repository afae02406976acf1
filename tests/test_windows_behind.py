"""Prompts that go by windows into a decoder behind a graph of embeddings: padding is embedded apart, media all at once.

Expected tokens come from the uncut graphs in plain ONNX Runtime loops, without windows or padding; 8-bit caches that
move are held against the whole sequence computed anew for every token.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from onnx import helper, numpy_helper

from tests.real_packages import GREEDY
from tests.staged_packages import NEW, PROMPTS, Graphs, converts, refused, three, tokens, two_phases, wanted
from tests.test_stage_windows import KEPT, LENGTHS, MOVED, anew
from tests.test_stages_beside import decoded
from tests.test_vision_stages import behind, changed, features, pictures, written_over
from tools.fixtures.network import CONTEXT, HIDDEN, gqa_decoder, gqa_lengths
from tools.fixtures.shifted import NAMES, shifted_stages
from tools.fixtures.stages import EMBEDDED, FINAL, WINDOW, cut, save, stage, write_config
from tools.fixtures.vision_stages import IMAGE, vision_entries, vision_graphs


def lengths() -> Graphs:
    """Layers that are told lengths: of a window's tokens for the prompt, of one later."""
    _, _, closed = cut(gqa_lengths("sequence").proto(), EMBEDDED, FINAL)
    opened, *_ = cut(gqa_decoder().proto(), EMBEDDED)
    context, iterator = (cut(gqa_lengths(size).proto(), EMBEDDED, FINAL)[1] for size in (WINDOW, 1))
    return {"embeddings": opened, "context": context, "iterator": iterator, "lm_head": closed}


def entries_of(graphs: Graphs) -> list[dict[str, Any]]:
    found = {name: stage(name, each) for name, each in graphs.items()}
    if "context" in found:
        found["context"]["run_on_token_gen"] = False
        found["iterator"]["run_on_prompt"] = False
    return [{name: each} for name, each in found.items()]


def embedding_apart(folder: Path, graphs: Graphs, decoder: dict[str, Any]) -> Path:
    """A package whose first graph is `model.embedding`, and the others stages of the decoder."""
    save(folder, graphs)
    stages = entries_of({name: each for name, each in graphs.items() if name != "embeddings"})
    inputs = {"inputs": {**decoder.get("inputs", {}), "inputs_embeds": EMBEDDED}}
    model = {"embedding": {"filename": "embeddings.onnx", "outputs": {"inputs_embeds": EMBEDDED}}}
    write_config(folder, stages, {**decoder, **inputs}, model)
    return folder


@pytest.mark.parametrize("size", [2, 3, WINDOW])
@pytest.mark.parametrize("cutting", [three, two_phases])
def test_a_mask_tells_where_a_window_stands(cutting: Callable[..., Graphs], size: int, tmp_path: Path) -> None:
    window = {"sliding_window": {**KEPT, "window_size": size}}
    package = embedding_apart(tmp_path / "p", cutting(gqa_decoder()), window)
    assert tokens(package) == wanted(tmp_path / "whole", gqa_decoder())


def test_numbers_tell_where_a_window_of_a_fixed_size_stands(tmp_path: Path) -> None:
    package = embedding_apart(tmp_path / "p", lengths(), {"inputs": LENGTHS, "sliding_window": KEPT})
    assert tokens(package) == wanted(tmp_path / "whole", gqa_decoder())
    converts(package, tmp_path)


def moving(size: int = WINDOW) -> Graphs:
    """Layers with caches that move, which take nothing of the tokens but their embeddings."""
    graphs = shifted_stages(size)
    for name in ("context", "iterator"):
        graph = graphs[name].graph
        graph.input.remove(next(each for each in graph.input if each.name == "input_ids"))
        graph.initializer.append(numpy_helper.from_array(np.array([-1]), "last.axis"))
        like = [
            helper.make_node("ReduceSum", [EMBEDDED, "last.axis"], ["like.ids"], keepdims=0),
            helper.make_node("Cast", ["like.ids"], ["input_ids"], to=7),
        ]
        kept = [type(each).FromString(each.SerializeToString()) for each in graph.node]
        del graph.node[:]
        graph.node.extend([*like, *kept])
    return graphs


@pytest.mark.parametrize("alignment", ["left", "right"])
@pytest.mark.parametrize("size", [2, WINDOW, 5])
def test_caches_that_move_take_embeddings(size: int, alignment: str, tmp_path: Path) -> None:
    """Padding before the prompt or behind it."""
    window = {**MOVED, "window_size": size, "alignment": alignment}
    package = embedding_apart(tmp_path / "p", moving(size), {**NAMES, "sliding_window": window})
    assert tokens(package) == [anew(each, NEW) for each in PROMPTS]


def test_requests_one_after_another_find_nothing_of_each_other(tmp_path: Path) -> None:
    package = embedding_apart(tmp_path / "p", moving(), {**NAMES, "sliding_window": MOVED})
    compile_package(package, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        for _ in range(2):
            rows = model.generate(batch=list(PROMPTS), max_new_tokens=NEW, **GREEDY).rows
            assert [row.tokens for row in rows] == [anew(each, NEW) for each in PROMPTS]


# ---- features over rows of the first stage ---------------------------------------------------------------------------


def seeing(folder: Path, graphs: Graphs, decoder: dict[str, Any], **more: Any) -> Path:
    """A package of three vision stages and these stages of a decoder."""
    seen = vision_graphs()
    save(folder, {**seen, **graphs})
    model = {"image_token_id": IMAGE, "vision": vision_entries(seen), **more}
    write_config(folder, entries_of(graphs), decoder, model)
    return folder


def ran(folder: Path, prompt: list[int], given: dict[str, Any]) -> list[int]:
    out = folder.with_name("out")
    compile_package(folder, out=out)
    with genai_runtime.load(out, threads=1) as model:
        inputs = {"request.input_ids": [prompt], "request.max_iterations": [NEW], **given}
        (row,) = model.run(inputs, stop_on_eos=False).rows("tokens")
    return [int(each) for each in np.ravel(row)]


PICTURES = [(4, 6), (2, 6)]
SEEN = [1, 5, *[IMAGE] * 6, 9, *[IMAGE] * 3, 14]
"""A prompt whose pictures' entries stand in several windows."""


@pytest.mark.parametrize("pad", [0, IMAGE])
@pytest.mark.parametrize("prompt", [SEEN, SEEN[:-1], [*SEEN, 7, 8]])
def test_entries_of_pictures_stand_in_several_windows(prompt: list[int], pad: int, tmp_path: Path) -> None:
    """Also where the padding's token is the one that stands for an entry."""
    decoder = {"inputs": LENGTHS, "sliding_window": KEPT}
    package, given = seeing(tmp_path / "p", lengths(), decoder, pad_token_id=pad), pictures(PICTURES)
    feeds = written_over(package / "embeddings.onnx", features(package, given["pixel_values"], PICTURES))
    assert ran(package, prompt, given) == decoded(behind(tmp_path / "w"), feeds, prompt, NEW)


REFERENCE = {
    (4, 6): [13, 20, 63, 46, 63, 57, 63, 25],
    (2, 4): [32, 13, 43, 32, 43, 32, 63, 43],
    (8, 8): [4, 60, 28, 62, 6, 63, 6, 6],
}
"""Grid of a picture -> greedy tokens of onnxruntime-genai 0.18 for this package, as in test_vision_stages.py."""


@pytest.mark.parametrize("grid", REFERENCE)
def test_a_picture_in_windows_gives_the_tokens_of_the_reference(grid: tuple[int, int], tmp_path: Path) -> None:
    """Of a prompt that comes out even in windows, and of two that don't."""
    package = seeing(tmp_path / "p", lengths(), {"inputs": LENGTHS, "sliding_window": KEPT})
    prompt = [1, 5, *[IMAGE] * (grid[0] * grid[1] // 4), 9, 14]
    assert ran(package, prompt, pictures([grid]))[:8] == REFERENCE[grid]


def placed() -> Graphs:
    """Layers that add learned vectors for positions of three axes to what they take."""
    opened, layers, closed = cut(gqa_decoder().proto(), EMBEDDED, FINAL)
    rng = np.random.default_rng(8)
    nodes, total = [], EMBEDDED
    for node in layers.graph.node:
        node.input[:] = ["placed.2" if each == EMBEDDED else each for each in node.input]
    for axis in range(3):
        table = rng.normal(size=(CONTEXT, HIDDEN)).astype(np.float32)
        layers.graph.initializer.append(numpy_helper.from_array(table, f"places.{axis}"))
        layers.graph.initializer.append(numpy_helper.from_array(np.array(axis), f"axis.{axis}"))
        nodes += [
            helper.make_node("Gather", ["position_ids", f"axis.{axis}"], [f"at.{axis}"]),
            helper.make_node("Gather", [f"places.{axis}", f"at.{axis}"], [f"vector.{axis}"]),
            helper.make_node("Add", [total, f"vector.{axis}"], [total := f"placed.{axis}"]),
        ]
    kept = [type(each).FromString(each.SerializeToString()) for each in layers.graph.node]
    del layers.graph.node[:]
    layers.graph.node.extend([*nodes, *kept])
    layers.graph.input.append(helper.make_tensor_value_info("position_ids", 7, [3, "batch", "sequence"]))
    return {"embeddings": opened, "layers": layers, "lm_head": closed}


def by_hand(graphs: Graphs, rows: np.ndarray[Any, Any], places: np.ndarray[Any, Any]) -> list[int]:
    """Greedy tokens, every one from a run of the whole sequence over no cache. places: of the prompt, [3, n]."""
    import onnxruntime as ort

    layers, head, first = (
        ort.InferenceSession(graphs[name].SerializeToString(), providers=["CPUExecutionProvider"])
        for name in ("layers", "lm_head", "embeddings")
    )
    found: list[int] = []
    for _ in range(NEW):
        length = rows.shape[1]
        nothing = np.zeros((1, 2, 0, 16), np.float32)
        caches = {f"past_key_values.{at}.{part}": nothing for at in (0, 1) for part in _PARTS}
        feeds = {EMBEDDED: rows, "attention_mask": np.ones((1, length), np.int64), "position_ids": places[:, None]}
        final = layers.run([FINAL], {**feeds, **caches})[0]
        found.append(int(head.run(None, {FINAL: final})[0][0, -1].argmax()))
        rows = np.concatenate([rows, first.run(None, {"input_ids": np.array([[found[-1]]])})[0]], axis=1)
        places = np.concatenate([places, np.full((3, 1), places.max() + 1)], axis=1)
    return found


_PARTS = ("key", "value")


@pytest.mark.parametrize("windows", [False, True])
def test_positions_of_three_axes_go_in_by_windows(windows: bool, tmp_path: Path) -> None:
    graphs = placed()
    decoder = {"sliding_window": {**KEPT, "window_size": 5}} if windows else {}
    package, given = seeing(tmp_path / "p", graphs, decoder), pictures(PICTURES)
    places = np.random.default_rng(2).integers(0, 9, size=(3, len(SEEN)))
    entries = features(package, given["pixel_values"], PICTURES)
    rows = written_over(package / "embeddings.onnx", entries)(np.array([SEEN]))[EMBEDDED]
    assert ran(package, SEEN, {**given, "position_ids": places[:, None]}) == by_hand(graphs, rows, places)


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_later_tokens_into_a_window_are_refused(tmp_path: Path) -> None:
    graphs = lengths()
    del graphs["iterator"]
    graphs = {"embeddings": graphs["embeddings"], "layers": graphs["context"], "lm_head": graphs["lm_head"]}
    package = embedding_apart(tmp_path / "p", graphs, {"inputs": LENGTHS, "sliding_window": KEPT})
    assert "later tokens come in runs of 1" in refused(package)["wrong-port"]


def test_a_window_of_another_size_is_refused(tmp_path: Path) -> None:
    package = embedding_apart(
        tmp_path / "p", lengths(), {"inputs": LENGTHS, "sliding_window": {**KEPT, "window_size": 3}}
    )
    assert "the prompt come in runs of 3" in refused(package)["wrong-port"]


def test_a_fixed_number_of_rows_without_windows_is_refused(tmp_path: Path) -> None:
    package = embedding_apart(tmp_path / "p", lengths(), {"inputs": LENGTHS})
    assert "one run of any length" in refused(package)["wrong-port"]


@pytest.mark.parametrize("before", ["an embedding", "a stage that features are written over"])
def test_a_window_that_is_refused_is_refused_with_its_reason(before: str, tmp_path: Path) -> None:
    window: dict[str, Any] = {"sliding_window": {**KEPT, "window_size": 1}}
    if before == "an embedding":
        package = embedding_apart(tmp_path / "p", three(gqa_decoder()), window)
    else:
        package = changed(tmp_path / "p", lambda model: model["decoder"].update(window))
    assert "model.decoder.sliding_window" in " ".join(refused(package).values())
