"""Sliding windows (known traps D): which layers have one, and what can be taken back after positions have left it."""

from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import onnxruntime
import pytest
from genai_compiler.lower.genai_config_v1 import lower_genai_config
from genai_runtime.block_decoding import BlockDecoding
from onnx import helper

from tests.lower.packages import Layer, Recipe, decoder
from tests.lower.test_windows import TWO, whole, windowed
from tests.speculative_packages import BLOCK, drafted, in_place, variant, width
from tests.traps.packages import FREE, gives_plain_tokens, loaded, package, told
from tools.fixtures.document import Document, tensor
from tools.fixtures.network import HEAD, KV_HEADS, VOCABULARY
from tools.fixtures.runtime_decoder import CELLS

PROMPT = [3, 7, 11, 20, 9, 4, 5, 8]


def config(**window: Any) -> dict[str, Any]:
    stated = {"window_size": 4, "slide_inputs": False, "slide_key_value_cache": False, **window}
    return {"model": {"decoder": {"num_hidden_layers": 2, "sliding_window": stated}}}


def run_whole(graph: Path, prompt: list[int], count: int) -> list[int]:
    """Greedy tokens, each from a first run over the whole sequence, where no operator has dropped anything yet."""
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(whole(session, tokens).argmax()))
    return tokens[len(prompt) :]


# ---- D1, D3: a window per layer --------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [[1], [0, 1], []])
def test_d1_a_window_belongs_to_its_layer(tmp_path: Path, layers: list[int]) -> None:
    """Layer 0 full, layer 1 window 4, a prompt of 8: whatever layers the file lists, the operators say which.

    The same weights with a window on both layers, or on none, say something else.
    """
    folder = package(tmp_path / "p", config(layers=layers), windowed(layers=(1,), window=4))
    model = loaded(folder)
    wanted = run_whole(folder / "model.onnx", PROMPT, 20)
    assert model.generate(PROMPT, max_new_tokens=20, **FREE).tokens == wanted
    for name, other in (("both", windowed(layers=(0, 1), window=4)), ("none", decoder(TWO))):
        onnx.save(other, tmp_path / f"{name}.onnx")
        assert run_whole(tmp_path / f"{name}.onnx", PROMPT, 20) != wanted
    facts = lower_genai_config(folder).decoder
    assert ({each.layer for each in facts.states}, {each.layer for each in facts.windows}) == ({0}, {1})
    contradicted = [path for _, code, path in told(folder) if code == "config-contradicts-graph"]
    assert contradicted == ([] if layers in ([1], []) else ["model.decoder.sliding_window.layers"])


@pytest.mark.parametrize("window", [{"window_size": 64}, {"window_size": 4}, {"window_size": 4, "cache_slack": 1}])
@pytest.mark.parametrize("op", ["gqa", "attention"])
def test_d3_a_window_that_only_the_file_has_bounds_no_cache(tmp_path: Path, window: dict[str, Any], op: str) -> None:
    """The key made every layer's cache 80 slots; here a layer without a window of its own keeps every position."""
    recipe = Recipe(op=op, layers=(Layer(0), Layer(1)))
    folder = package(tmp_path / "p", config(**window), recipe)
    assert told(folder) == [("warning", "config-contradicts-graph", "model.decoder.sliding_window")]
    gives_plain_tokens(loaded(folder), folder / "model.onnx", count=40)


def test_d3_fixed_and_growing_layers_each_keep_their_own_form(tmp_path: Path) -> None:
    """Layer 0 in 8 slots of the graph's own (window 4), layer 1 growing, and a file that speaks of 64."""
    graph = windowed(layers=(0,), window=4)
    for port in (*graph.graph.input, *graph.graph.output):
        if port.name.split(".")[1:2] == ["0"]:
            port.type.tensor_type.shape.dim[2].dim_value = 8
    folder = package(tmp_path / "p", config(window_size=64), graph)
    facts = lower_genai_config(folder).decoder
    assert {(each.layer, each.capacity) for each in facts.windows} == {(0, 8)}
    onnx.save(windowed(layers=(0,), window=4), tmp_path / "open.onnx")
    wanted = run_whole(tmp_path / "open.onnx", PROMPT, 40)
    assert loaded(folder).generate(PROMPT, max_new_tokens=40, **FREE).tokens == wanted


# ---- D2: going back --------------------------------------------------------------------------------------------------


def with_a_window(window: int, capacity: int) -> Any:
    """The first layer keeps `window` positions in `capacity` slots."""

    def edit(folder: Path, document: Document) -> None:
        model = onnx.load(folder / "model.onnx")
        node = next(each for each in model.graph.node if each.op_type == "GroupQueryAttention")
        node.attribute.append(helper.make_attribute("sliding_window_cache", 1))
        node.attribute.append(helper.make_attribute("local_window_size", window))
        onnx.save(model, folder / "model.onnx")
        workflow = document["pipeline"]["workflow"]
        held, ports = tensor("float32", "batch", KV_HEADS, capacity, HEAD, rows=True), workflow["components"]["decoder"]
        groups = workflow["serving"]["state_service"]["groups"]
        whole_group = groups["decoder_kv"]
        first = dict(list(whole_group["ports"]["decoder"].items())[:2])
        workflow["inputs"]["package.window_seed"] = {**workflow["inputs"]["package.state_seed"], "contract": held}
        for name, alias in first.items():
            del whole_group["ports"]["decoder"][name]
            workflow["state"][name] |= {"contract": held, "initializer": "package.window_seed",
                                        "service_group": "decoder_window_kv"}  # fmt: skip
            ports["ports"]["inputs"][alias["input"]] = ports["ports"]["outputs"][alias["output"]] = held
        groups["decoder_window_kv"] = {
            "kind": "sliding_attention", "update": {"kind": "replace"}, "layout": "head_major_bnsh",
            "aliasing": "permitted", "reuse": {"prefix_reusable": False, "evictable_prefix": True},
            "capabilities": {**whole_group["capabilities"]}, "ports": {"decoder": first},
        }  # fmt: skip
        assert list(first) == list(CELLS[:2])

    return edit


def shared(aliasing: str) -> Any:
    """Whether past and present of the caches may be one buffer."""

    def edit(_: Path, document: Document) -> None:
        for group in document["pipeline"]["workflow"]["serving"]["state_service"]["groups"].values():
            group["aliasing"] = aliasing

    return edit


@pytest.mark.parametrize("aliasing", ["permitted", "forbidden"])
@pytest.mark.parametrize("most", [2, 4])
@pytest.mark.parametrize("capacity", [4, 6, 20])
def test_d2_rejected_drafts_leave_no_trace_in_a_window(tmp_path: Path, capacity: int, most: int, aliasing: str) -> None:
    """Drafts put tokens into the window that are taken back again, also where they pushed others out of it."""
    edits = (in_place(hidden=False), with_a_window(4, capacity), width(most), shared(aliasing))
    model: Any = variant(tmp_path, BLOCK, *edits)
    assert model._executor.decoder.spec.shared == (aliasing == "permitted")
    session = onnxruntime.InferenceSession(tmp_path / "package" / "model.onnx", providers=["CPUExecutionProvider"])
    for prompt in ([1, 10, 20, 30], [5], [3, 40, 41, 42, 43, 44, 5, 4]):
        wanted = list(prompt)
        for _ in range(30):
            wanted.append(whole_window_run(session, wanted))
        generation = drafted(model, prompt, max_new_tokens=30)
        assert generation.tokens == wanted[len(prompt) :]
        assert 0 < generation.stats.accepted < generation.stats.drafted


@pytest.mark.parametrize("aliasing", ["permitted", "forbidden"])
@pytest.mark.parametrize("capacity", [4, 6, 20])
def test_d2_back_to_what_is_held_and_no_further(tmp_path: Path, capacity: int, aliasing: str) -> None:
    """Window 4, 8 tokens: back to 6 of them, then to 2, which is refused with the oldest; and on it goes."""
    edits = (in_place(hidden=False), with_a_window(4, capacity), width(2), shared(aliasing))
    model: Any = variant(tmp_path, BLOCK, *edits)
    session = onnxruntime.InferenceSession(tmp_path / "package" / "model.onnx", providers=["CPUExecutionProvider"])
    ids = np.array([PROMPT[:5]])
    decoder = model._executor.decoder
    state = BlockDecoding(decoder, ids, np.array([5]), 20, 64, {})
    state.prompt()
    state.run(PROMPT[5:])
    state.take_back(2)
    assert state.filled == 6
    for refused in (4, 5, 1):
        with pytest.raises(genai_runtime.ExecutionError) as caught:
            state.take_back(refused)
        assert caught.value.code == "rewind"
        assert f"can't go back to {6 - refused} tokens: the oldest that it holds is 6" in caught.value.what
    so_far = PROMPT[:6]
    for token in (9, 30, 2, 17, 17, 41):
        logits = state.run([token])
        so_far.append(token)
        assert int(logits[0].argmax()) == whole_window_run(session, so_far)
    state.run([5, 6, 7])
    with pytest.raises(genai_runtime.ExecutionError, match="to 11 tokens: the oldest that it holds is 13"):
        state.take_back(4)


def lending(folder: Path, document: Document) -> None:
    """The proposer reads the first cache of the window."""
    workflow = document["pipeline"]["workflow"]
    draft = workflow["components"][document["speculative"]["proposer"]]
    graph = onnx.load(folder / draft["implementation"]["artifact"])
    graph.graph.input.append(helper.make_tensor_value_info("lent", 1, ["batch", KV_HEADS, 6, HEAD]))
    onnx.save(graph, folder / draft["implementation"]["artifact"])
    draft["ports"]["inputs"]["lent"] = workflow["state"][CELLS[0]]["contract"]
    ports = workflow["serving"]["state_service"]["groups"]["decoder_window_kv"]["ports"]
    ports[document["speculative"]["proposer"]] = {CELLS[0]: {"input": "lent", "access": "read_only"}}


def test_d2_a_proposer_can_not_borrow_a_window(tmp_path: Path) -> None:
    """Which slot holds which position is the operator's own matter."""
    model = variant(tmp_path, BLOCK, in_place(hidden=False), with_a_window(4, 6), width(2), lending)
    with pytest.raises(genai_runtime.RequestError) as refused:
        drafted(model, PROMPT, max_new_tokens=4)
    assert refused.value.code == "no-proposer"
    assert f"'lent' borrows the cell '{CELLS[0]}', whose operator drops what left its window" in refused.value.what


def whole_window_run(session: Any, ids: list[int]) -> int:
    """The token after all of these, by one run from empty buffers of 64 positions."""
    feeds = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
    caches = [each.name for each in session.get_inputs() if each.name not in feeds]
    feeds |= {each: np.zeros((1, KV_HEADS, 64, HEAD), np.float32) for each in caches}
    logits = np.asarray(session.run(["logits"], feeds)[0])
    assert logits.shape[-1] == VOCABULARY
    return int(logits[0, -1].argmax())
