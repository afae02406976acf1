"""Prompts that go into stages by windows give the tokens of the uncut graph, whatever the caches and the padding.

That graph runs in a plain ONNX Runtime loop: caches that keep every position in `greedy`, 8-bit caches by computing the
whole sequence anew for every token, without a cache, a window or padding.
"""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import compile_package
from genai_runtime import RequestError
from genai_runtime.growing import GrowingDecoding
from onnx import ModelProto, helper, numpy_helper

from tests.conftest import FIXTURES
from tests.real_packages import GREEDY
from tests.reference.plain_loop import greedy
from tests.staged_packages import (
    NEW,
    PROMPTS,
    Entries,
    Graphs,
    converts,
    package,
    refused,
    three,
    tokens,
    two_phases,
    wanted,
)
from tools.fixtures.network import CONTEXT, HIDDEN, concat_decoder, gqa_decoder, gqa_lengths
from tools.fixtures.shifted import NAMES, ZERO, shifted_decoder, shifted_stages
from tools.fixtures.stages import EMBEDDED, FINAL, WINDOW, cut

LENGTHS = {"past_sequence_length": "past_seq_len", "total_sequence_length": "total_seq_len"}
KEPT = {"window_size": WINDOW, "alignment": "left", "slide_key_value_cache": False}
MOVED = {"window_size": WINDOW, "pad_value": ZERO}
PARTS = ("key", "value")
LONG = [3 + at % 50 for at in range(CONTEXT)]


@cache
def _uncut() -> Any:
    model = shifted_decoder("sequence", "columns").proto()
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def anew(prompt: Sequence[int], count: int) -> list[int]:
    """Greedy tokens of the uncut 8-bit graph, every one from a run of the whole sequence over no cache."""
    ids = list(prompt)
    for _ in range(count):
        feeds: dict[str, Any] = {
            "input_ids": np.array([ids]),
            "attention_mask": np.ones((1, len(ids)), np.int32),
            "position_ids": np.arange(len(ids), dtype=np.int32)[None],
        }
        for layer in range(2):
            feeds[f"past_keys_{layer}"] = np.zeros((2, 1, 16, 0), np.uint8)
            feeds[f"past_values_{layer}"] = np.zeros((2, 1, 0, 16), np.uint8)
        ids.append(int(_uncut().run(["logits"], feeds)[0][0, -1].argmax()))
    return ids[len(prompt) :]


# ---- caches that move ------------------------------------------------------------------------------------------------


def shifted(folder: Path, graphs: Graphs, window: dict[str, Any], change: Callable[[Entries], object] = len) -> Path:
    return package(folder, graphs, change, {**NAMES, "sliding_window": window})


@pytest.mark.parametrize("alignment", ["left", "right", None])
@pytest.mark.parametrize("size", [2, WINDOW, 5])
def test_caches_that_move_give_the_tokens_of_the_whole(size: int, alignment: str | None, tmp_path: Path) -> None:
    """Padding before the prompt or behind it, prompts of one window and of several, some of which come out even."""
    window = {**MOVED, "window_size": size, **({"alignment": alignment} if alignment else {})}
    folder = shifted(tmp_path / "p", shifted_stages(size), window)
    assert tokens(folder) == [anew(each, NEW) for each in PROMPTS]


@pytest.mark.parametrize("alignment", ["left", "right"])
def test_caches_move_up_to_their_last_column(alignment: str, tmp_path: Path) -> None:
    """The text may have as many tokens as there are columns; padding takes none of them."""
    compile_package(shifted(tmp_path / "p", shifted_stages(), {**MOVED, "alignment": alignment}), out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        for length in (CONTEXT - 7, CONTEXT - 1):
            generation = model.generate(LONG[:length], max_new_tokens=CONTEXT, **GREEDY)
            assert generation.tokens == anew(LONG[:length], CONTEXT - length)
            assert generation.finish_reason == "context"


def test_a_prompt_that_fills_no_window_evenly_may_not_fit_with_padding_behind(tmp_path: Path) -> None:
    graphs = shifted_stages(5)
    for alignment, fits in (("right", True), ("left", False)):
        window = {**MOVED, "window_size": 5, "alignment": alignment}
        compile_package(shifted(tmp_path / alignment, graphs, window), out=tmp_path / f"{alignment}.out")
        with genai_runtime.load(tmp_path / f"{alignment}.out", threads=1) as model:
            if fits:
                assert model.generate(LONG[:-1], max_new_tokens=1, **GREEDY).tokens == anew(LONG[:-1], 1)
                continue
            with pytest.raises(RequestError) as caught:
                _ = model.generate(LONG[:-1], max_new_tokens=1, **GREEDY).tokens
            assert caught.value.code == "prompt-too-long"


@pytest.mark.parametrize(("columns", "size"), [(8, 5), (8, 8), (12, 4)])
def test_few_columns_hold_what_fits(columns: int, size: int, tmp_path: Path) -> None:
    """Fewer columns than two windows, one window that is all of them; the caches are the text's limit."""
    folder = shifted(tmp_path / "p", shifted_stages(size, columns), {**MOVED, "window_size": size})
    found = compile_package(folder, out=tmp_path / "out").problems
    assert "config-contradicts-graph" in {each.code for each in found}
    prompt = LONG[:5]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.generate(prompt, max_new_tokens=20, **GREEDY).tokens == anew(prompt, columns - len(prompt))


def test_stages_of_open_extents_move_as_many_columns_as_the_context_has(tmp_path: Path) -> None:
    """The same graphs with the prompt and later: nothing but context_length says how long they are."""
    graphs = three(shifted_decoder("sequence", "columns"))
    assert tokens(shifted(tmp_path / "p", graphs, MOVED)) == [anew(each, NEW) for each in PROMPTS]


def test_rows_and_requests_one_after_another(tmp_path: Path) -> None:
    """Rows go one by one, each equal to its own run, and a request finds nothing of the one before."""
    compile_package(FIXTURES / "tiny-shifted-v1", out=tmp_path / "out")
    expected = [anew(each, NEW) for each in PROMPTS]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        for _ in range(2):
            rows = model.generate(batch=list(PROMPTS), max_new_tokens=NEW, **GREEDY).rows
            assert [row.tokens for row in rows] == expected
        with pytest.raises(RequestError) as caught:
            model.run({"request.input_ids": [[1, 2], [3, 4]], "request.max_iterations": [2]})
        assert caught.value.code == "one-row"


def test_the_converted_document_of_moving_caches_is_the_same_plan(tmp_path: Path) -> None:
    converts(FIXTURES / "tiny-shifted-v1", tmp_path)


def _another_type(graphs: Graphs) -> None:
    for part in (graphs["context"], graphs["iterator"]):
        for port in (*part.graph.input, *part.graph.output):
            if port.name.endswith("keys_0") and port.name.startswith("past"):
                port.type.tensor_type.shape.dim[3].dim_value += 1


def _any_length(graphs: Graphs) -> None:
    graphs["context"] = three(shifted_decoder("sequence", "columns"))["layers"]


@pytest.mark.parametrize(
    ("window", "change", "code", "words"),
    [
        ({"pad_value": 300}, None, "bad-value", "300 is no uint8"),
        ({"window_size": 1}, None, "bad-value", "two tokens or more"),
        ({"alignment": "middle"}, None, "bad-value", "'middle'"),
        ({"window_size": 6}, None, "unsupported-package-class", "a fixed number of positions"),
        ({"window_size": CONTEXT + 1}, _any_length, "wrong-port", "the caches have 64 columns"),
        ({}, _another_type, "wrong-port", "not as many as the mask has"),
    ],
)
def test_moving_caches_that_do_not_fit_are_refused(
    window: dict[str, Any], change: Callable[[Graphs], None] | None, code: str, words: str, tmp_path: Path
) -> None:
    graphs = shifted_stages()
    if change is not None:
        change(graphs)
    assert words in refused(shifted(tmp_path / "p", graphs, {**MOVED, **window}))[code]


def test_phases_of_different_columns_are_refused(tmp_path: Path) -> None:
    graphs = {**shifted_stages(), "context": shifted_stages(WINDOW, CONTEXT - 4)["context"]}
    assert "the 64 columns leave 60" in refused(shifted(tmp_path / "p", graphs, MOVED))["wrong-port"]


def test_caches_that_keep_every_position_do_not_move(tmp_path: Path) -> None:
    """sliding_window without a word on the caches says that they move; these append."""
    folder = package(tmp_path / "p", three(concat_decoder()), decoder={"sliding_window": {"window_size": WINDOW}})
    assert "past and new columns" in refused(folder)["wrong-port"]


@pytest.mark.parametrize(("decoder", "ran"), [({}, "iterator"), ({"sliding_window": KEPT}, "context")])
def test_a_prompt_of_one_token_takes_the_stages_of_later_tokens_but_in_a_window(
    decoder: dict[str, Any], ran: str, tmp_path: Path
) -> None:
    """Reference, genai-config 2.13: a call of one token is no prompt; one that is filled up to a window has more.

    Layers that differ between the phases tell which of them ran: the stages, run by hand, give the first token.
    """
    graphs = two_phases(concat_decoder())
    graphs["context"] = ModelProto.FromString(graphs["context"].SerializeToString())
    (query,) = [each for each in graphs["context"].graph.initializer if each.name == "layers.0.value"]
    query.CopyFrom(numpy_helper.from_array(-2 * numpy_helper.to_array(query), query.name))
    folder = package(tmp_path / "p", graphs, decoder=decoder)
    firsts = {layers: _first_token(graphs, layers, [7]) for layers in ("context", "iterator")}
    assert firsts["context"] != firsts["iterator"]
    assert tokens(folder)[1][0] == firsts[ran]


def _first_token(graphs: Graphs, layers: str, prompt: list[int]) -> int:
    """What the embedding, these layers and the head make of a prompt."""
    feeds: dict[str, Any] = {
        "input_ids": np.array([prompt]),
        "attention_mask": np.ones((1, len(prompt)), np.int64),
        "position_ids": np.arange(len(prompt))[None],
    }
    feeds |= {f"past_key_values.{at}.{part}": np.zeros((1, 2, 0, 16), np.float32) for at in (0, 1) for part in PARTS}
    for name in ("embeddings", layers, "lm_head"):
        session = onnxruntime.InferenceSession(graphs[name].SerializeToString(), providers=["CPUExecutionProvider"])
        taken = {each.name: feeds[each.name] for each in session.get_inputs()}
        feeds |= dict(zip([each.name for each in session.get_outputs()], session.run(None, taken), strict=True))
    return int(feeds["logits"][0, -1].argmax())


# ---- caches that keep every position ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, WINDOW])
@pytest.mark.parametrize("cutting", [three, two_phases])
def test_a_mask_tells_where_a_window_stands(cutting: Callable[..., Graphs], size: int, tmp_path: Path) -> None:
    """The operators take lengths from the mask's ones."""
    window = {**KEPT, "window_size": size}
    folder = package(tmp_path / "p", cutting(gqa_decoder()), decoder={"sliding_window": window})
    assert tokens(folder) == wanted(tmp_path / "whole", gqa_decoder())


def _placed() -> ModelProto:
    """The decoder that writes in place, with learned positions added to what the embedding gives."""
    model = gqa_decoder().proto()
    gather = next(node for node in model.graph.node if "embedding" in node.input)
    table = np.random.default_rng(5).normal(size=(CONTEXT, HIDDEN)).astype(np.float32)
    for node in model.graph.node:
        node.input[:] = ["placed" if each == gather.output[0] else each for each in node.input]
    at = list(model.graph.node).index(gather) + 1
    model.graph.initializer.append(numpy_helper.from_array(table, "places"))
    model.graph.node.insert(at, helper.make_node("Gather", ["places", "position_ids"], ["place"]))
    model.graph.node.insert(at + 1, helper.make_node("Add", [gather.output[0], "place"], ["placed"]))
    model.graph.input.append(helper.make_tensor_value_info("position_ids", 7, ["batch", "sequence"]))
    return model


def test_positions_go_in_by_windows_too(tmp_path: Path) -> None:
    graphs = dict(zip(("embeddings", "layers", "lm_head"), cut(_placed(), EMBEDDED, FINAL), strict=True))
    folder = package(tmp_path / "p", graphs, decoder={"sliding_window": KEPT})
    (tmp_path / "whole.onnx").write_bytes(_placed().SerializeToString())
    assert tokens(folder) == [greedy(tmp_path / "whole.onnx", each, NEW) for each in PROMPTS]


@pytest.mark.parametrize("cutting", [three, two_phases])
def test_caches_that_append_take_windows_without_padding(
    cutting: Callable[..., Graphs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = package(tmp_path / "p", cutting(concat_decoder()), decoder={"sliding_window": KEPT})
    assert tokens(folder) == wanted(tmp_path / "whole", concat_decoder())
    sizes: list[int] = []
    run = GrowingDecoding.run_chunk

    def noted(decoding: GrowingDecoding, feeds: dict[str, Any]) -> None:
        sizes.append(feeds["input_ids"].shape[1])
        run(decoding, feeds)

    monkeypatch.setattr(GrowingDecoding, "run_chunk", noted)
    with genai_runtime.load(tmp_path / "p.out", threads=1) as model:
        assert model.generate(PROMPTS[2], max_new_tokens=1, **GREEDY).tokens
    assert sizes == [WINDOW, 1]


@pytest.mark.parametrize("stated", [{"alignment": "right"}, {}])
def test_padding_before_a_prompt_goes_behind_it_where_nothing_would_hide_it(
    stated: dict[str, str], tmp_path: Path
) -> None:
    window = {"window_size": WINDOW, "slide_key_value_cache": False, **stated}
    graphs = two_phases(gqa_lengths("sequence"))
    folder = package(tmp_path / "p", graphs, decoder={"inputs": LENGTHS, "sliding_window": window})
    found = compile_package(folder, out=tmp_path / "out").problems
    assert [(each.code, each.path) for each in found] == [("config-read-as", "model.decoder.sliding_window.alignment")]
    assert tokens(folder) == wanted(tmp_path / "whole", gqa_decoder())


def test_windows_of_a_fixed_number_of_tokens_into_caches_that_append_are_refused(tmp_path: Path) -> None:
    graphs = three(concat_decoder())
    for part in graphs.values():
        for port in part.graph.input:
            if port.name == "input_ids":
                port.type.tensor_type.shape.dim[1].dim_value = WINDOW
    folder = package(tmp_path / "p", graphs, decoder={"sliding_window": KEPT})
    assert "would stay in them" in refused(folder)["unsupported-package-class"]


@pytest.mark.parametrize("sketch", [gqa_decoder, concat_decoder])
def test_a_window_beyond_the_context_is_refused(sketch: Callable[[], Any], tmp_path: Path) -> None:
    window = {**KEPT, "window_size": 1 << 30}
    folder = package(tmp_path / "p", three(sketch()), decoder={"sliding_window": window})
    assert "64 positions at most" in refused(folder)["bad-value"]


def test_an_input_of_the_prompts_stages_alone_is_refused(tmp_path: Path) -> None:
    """A mask that only the prompt's layers take: nothing forms it for a decoder whose steps have none."""
    graphs = two_phases(gqa_lengths("sequence"))
    graphs["context"] = cut(_with_flag(gqa_lengths("sequence").proto()), EMBEDDED, FINAL)[1]
    folder = package(tmp_path / "p", graphs, decoder={"inputs": LENGTHS})
    assert "no stage of later tokens does" in refused(folder)["unsupported-package-class"]


def _with_flag(model: ModelProto) -> ModelProto:
    """A graph that takes a mask, and adds nothing of it."""
    reader = next(node for node in model.graph.node if node.op_type == "GroupQueryAttention")
    model.graph.input.append(helper.make_tensor_value_info("attention_mask", 7, [1, "total"]))
    nodes = [
        helper.make_node("ReduceSum", ["attention_mask"], ["ones"], keepdims=0),
        helper.make_node("Sub", ["ones", "ones"], ["none"]),
        helper.make_node("Cast", ["none"], ["nothing"], to=1),
        helper.make_node("Add", [reader.input[0], "nothing"], ["query.and.nothing"]),
    ]
    at = list(model.graph.node).index(reader)
    reader.input[0] = "query.and.nothing"
    for node in reversed(nodes):
        model.graph.node.insert(at, node)
    return model
