"""Values that contradict each other or the graph (genai-config, traps 21 to 40), end to end."""

import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from genai_compiler.lower.genai_config_v1 import lower_genai_config
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.lower.packages import HIDDEN, Recipe, decoder
from tests.traps.loop import plain_logits, plain_tokens
from tests.traps.packages import FREE, PROMPTS, gives_plain_tokens, loaded, package, told
from tests.traps.toy import Table, toy

# ---- 24, 26: lengths and vocabularies --------------------------------------------------------------------------------


@pytest.mark.parametrize("stated", [0, -1, ...])
@pytest.mark.parametrize(("beside", "length"), [({"config.json": '{"max_position_embeddings": 48}'}, 48), ({}, 4096)])
def test_24_a_context_length_that_is_none(
    tmp_path: Path, stated: object, beside: dict[str, str | bytes], length: int
) -> None:
    folder = package(tmp_path / "p", {"model": {"context_length": stated}}, files=beside)
    assert ("warning", "missing-context-length", "model.context_length") in told(folder)
    model = loaded(folder)
    assert model.describe()["context_length"] == length
    gives_plain_tokens(model, folder / "model.onnx")


@pytest.mark.parametrize("stated", [20, 24, 30])
def test_26_another_vocabulary_than_the_graphs(tmp_path: Path, stated: int) -> None:
    """Rows stay 24 wide; a smaller number is a limit on what is chosen. The reference refuses at the first run."""
    folder = package(tmp_path / "p", {"model": {"vocab_size": stated}})
    assert (told(folder) == []) is (stated == 24)
    model, limit = loaded(folder), min(stated, 24)

    def within(row: Any) -> int:
        return int(row[:limit].argmax())

    for prompt in PROMPTS:
        wanted = [token for token, _ in islice(plain_logits(folder / "model.onnx", prompt, within), 20)]
        assert model.generate(prompt, max_new_tokens=20, **FREE).tokens == wanted


# ---- 30, 31: caches of other kinds -----------------------------------------------------------------------------------


def with_wider_values(width: int) -> ModelProto:
    """An appending decoder whose values are `width` wide and its keys 8, as in multi-head latent attention."""
    model = decoder(Recipe(op="attention"))
    graph, rng = model.graph, np.random.default_rng(4)
    for name, shape in (("v.0", (HIDDEN, width)), ("o.0", (width, HIDDEN))):
        held = next(each for each in graph.initializer if each.name == name)
        held.CopyFrom(numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    for port in (*graph.input, *graph.output):
        if port.name.endswith("value"):
            port.type.tensor_type.shape.dim[3].dim_value = width
    return model


@pytest.mark.parametrize("width", [4, 12])
@pytest.mark.parametrize("head_size", [8, 12, 0, 5])
def test_30_keys_and_values_of_different_width(tmp_path: Path, width: int, head_size: int) -> None:
    """One head_size can't say both: each tensor's own shape counts."""
    folder = package(tmp_path / "p", {"model": {"decoder": {"head_size": head_size}}}, with_wider_values(width))
    model = loaded(folder)
    gives_plain_tokens(model, folder / "model.onnx")
    assert model.describe()["state_groups"][0]["bytes_per_token"] == (8 + width) * 4


def with_integer_caches(kind: int) -> ModelProto:
    """An appending decoder that keeps its caches as 8-bit integers, in steps of 1/16."""
    model = decoder(Recipe(op="attention"))
    graph = model.graph
    at = next(at for at, each in enumerate(graph.node) if each.op_type == "Attention")
    attention, before, after = graph.node[at], [], []
    point = np.array(0 if kind == TensorProto.INT8 else 128, helper.tensor_dtype_to_np_dtype(kind))
    graph.initializer.extend(
        [numpy_helper.from_array(point, "point"), numpy_helper.from_array(np.float32(0.0625), "step")]
    )
    for side, ports in ((attention.input, graph.input), (attention.output, graph.output)):
        for place, name in enumerate(side):
            if "past" not in name and "present" not in name:
                continue
            next(each for each in ports if each.name == name).type.tensor_type.elem_type = kind
            side[place] = f"{name}.float"
            if side is attention.input:
                before.append(helper.make_node("DequantizeLinear", [name, "step", "point"], [f"{name}.float"]))
            else:
                after.append(helper.make_node("QuantizeLinear", [f"{name}.float", "step", "point"], [name]))
    nodes = [*graph.node[:at], *before, *graph.node[at:], *after]
    del graph.node[:]
    graph.node.extend(nodes)
    return model


@pytest.mark.parametrize(("kind", "name"), [(TensorProto.INT8, "int8"), (TensorProto.UINT8, "uint8")])
def test_31_caches_of_integers(tmp_path: Path, kind: int, name: str) -> None:
    folder = package(tmp_path / "p", {}, with_integer_caches(kind))
    model = loaded(folder)
    assert {each.dtype for each in lower_genai_config(folder).decoder.states} == {name}
    assert model.describe()["state_groups"][0]["bytes_per_token"] == 2 * 8 * 1
    gives_plain_tokens(model, folder / "model.onnx")


# ---- 32 to 34: sampling ----------------------------------------------------------------------------------------------

PIECES = ["<go>", "a", "b", "c", "d", "<end>"]


def chances(*shares: float) -> Table:
    """Scores under which a, b, c, d follow anything with these chances."""
    table = np.full((len(PIECES), len(PIECES)), -30, np.float32)
    table[:, 1 : 1 + len(shares)] = np.log(shares)
    return table


def drawn(folder: Path, search: dict[str, Any], table: Table) -> set[int]:
    """What 60 seeds draw after <go>."""
    model = toy(folder, PIECES, table=table, config={"search": search}).model
    return {model.generate([0], seed=seed, max_new_tokens=1).tokens[0] for seed in range(60)}


def test_32_sampling_of_one_token_is_greedy(tmp_path: Path) -> None:
    """do_sample true with top_k 1, as most exporters write it: the best token, without a random number."""
    folder = package(tmp_path / "p", {"search": {"do_sample": True, "top_k": 1, "top_p": 0.9, "temperature": 0.6}})
    model = loaded(folder)
    for prompt in PROMPTS:
        wanted = plain_tokens(folder / "model.onnx", prompt, 10)
        for options in ({}, {"seed": 1}, {"seed": 2}):
            assert model.generate(prompt, max_new_tokens=10, stop_on_eos=False, **options).tokens == wanted


@pytest.mark.parametrize(
    ("search", "kept"),
    [
        ({"top_k": 0, "top_p": 0.6}, {1, 2}),
        ({"top_k": 0, "top_p": 0.45}, {1, 2}),
        ({"top_k": 0, "top_p": 0.35}, {1}),
        ({"top_k": 0, "top_p": 1.0}, {1, 2, 3, 4}),
        ({"top_k": 0, "top_p": 0.0}, {1}),
        ({"top_k": 0}, {1}),
        ({"top_p": 0.0}, {1, 2, 3, 4}),
        ({"top_k": 3, "top_p": 0.0}, {1, 2, 3}),
    ],
)
def test_33_what_zero_means_to_each_of_two_cuts(tmp_path: Path, search: dict[str, Any], kept: set[int]) -> None:
    """Chances 0.4, 0.3, 0.2, 0.1: top_k 0 keeps all; top_p 0 keeps one beside that, and all beside a top_k."""
    assert drawn(tmp_path, {"do_sample": True, **search}, chances(0.4, 0.3, 0.2, 0.1)) == kept


@pytest.mark.parametrize("temperature", [1e-6, 1e-10, 1e-30, 0])
@pytest.mark.parametrize("cuts", [{}, {"top_k": 0, "top_p": 0.9}, {"top_k": 0, "top_p": 1.0}, {"top_k": 3}])
def test_34_hardly_any_temperature_is_greedy(tmp_path: Path, temperature: float, cuts: dict[str, Any]) -> None:
    """Chances that differ by a thousandth, scores that reach 1e30 below: no overflow, and the best token."""
    table = chances(0.334, 0.333, 0.333)
    table[:, 4] = -1e30
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert drawn(tmp_path, {"do_sample": True, "temperature": temperature, **cuts}, table) == {1}


# ---- 35, 36: padding -------------------------------------------------------------------------------------------------

PADDED = [[0, 0, 5], [7, 0], [0], [3, 0, 0, 7, 0], [9, 5, 5]]


@pytest.mark.parametrize("op", ["gqa", "attention"])
@pytest.mark.parametrize(("eos", "pad"), [(0, 0), (5, 5), (2, ...), (..., 0)])
def test_35_36_77_pads_in_a_prompt_are_ordinary_tokens(tmp_path: Path, op: str, eos: object, pad: object) -> None:
    """End and padding token are one id, or padding is 0 because nobody says: what is real is told by lengths alone."""
    folder = package(tmp_path / "p", {"model": {"eos_token_id": eos, "pad_token_id": pad}}, Recipe(op=op))
    model = loaded(folder)
    gives_plain_tokens(model, folder / "model.onnx", prompts=PADDED)
    ends = model.describe()["end_ids"]
    for prompt in PADDED:
        wanted = plain_tokens(folder / "model.onnx", prompt, 12, ends)
        kept = wanted[:-1] if wanted[-1] in ends else wanted
        assert [
            each for each in model.generate(prompt, temperature=0, max_new_tokens=12).tokens if each not in ends
        ] == kept


# ---- 39: graph capture -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "capture",
    [
        {"cuda": {"enable_cuda_graph": "1"}},
        {"NvTensorRtRtx": {"enable_cuda_graph": "1"}},
        {"WebGPU": {"enableGraphCapture": "1"}},
        {"dml": {"enable_graph_capture": "1"}},
    ],
)
def test_39_graph_capture_changes_no_shape(tmp_path: Path, capture: dict[str, Any]) -> None:
    """It would make every buffer as long as max_length; here the option is left out and the plan stays."""
    options = {"session_options": {"provider_options": [capture]}}
    folder = package(tmp_path / "p", {"model": {"decoder": options}})
    plain = lower_genai_config(package(tmp_path / "plain")).document
    lowered = lower_genai_config(folder)
    assert lowered.document == plain
    assert [each.options for each in lowered.providers] == [()]
    assert [(severity, code) for severity, code, _ in told(folder)] == [("warning", "ignored-key")]
