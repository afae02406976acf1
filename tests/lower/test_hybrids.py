"""Decoders with states of one size, three-axis positions, and graphs of one token a call."""

import json
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import CompileError, Problem, compile_package
from genai_compiler.lower.decoder_facts import DecoderFacts
from genai_compiler.lower.genai_config_v1 import lower_genai_config
from genai_compiler.read.places import Places
from genai_compiler.read.validate import parse_metadata
from genai_runtime import RequestError
from genai_runtime.request import Request
from genai_runtime.values import to_value
from onnx import ModelProto, TensorProto, save

from tests.data import DATA, needs_data
from tests.lower.hybrids import RECURRENT_NAMES, State, hybrid, one_token, recomputed, with_three_axes
from tests.lower.packages import Recipe, decoder, write_package

REAL = DATA / "realpkgs"
PROMPTS = [[3, 7, 11, 20, 9], [5, 2, 8, 1, 1], [21, 14, 8]]
FREE: dict[str, Any] = {"temperature": 0, "stop_on_eos": False}
NUMPY = {"int64": np.int64, "int32": np.int32, "float32": np.float32, "float16": np.float16}


def built(folder: Path, model: ModelProto, config: dict[str, Any] | None = None) -> genai_runtime.Model:
    write_package(folder / "package", model, config)
    compile_package(folder / "package", out=folder / "compiled")
    return genai_runtime.load(folder / "compiled", threads=1)


def refused(folder: Path, model: ModelProto, config: dict[str, Any] | None = None) -> dict[str, Problem]:
    write_package(folder / "package", model, config)
    with pytest.raises(CompileError) as caught:
        compile_package(folder / "package", out=folder / "compiled")
    return {each.code: each for each in caught.value.problems}


# ---- states of one size ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["gqa", "attention"])
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_states_carry_what_recomputing_everything_gives(tmp_path: Path, op: str, dtype: int) -> None:
    """float32 states, in a float16 package too; zeros at the start of every request."""
    model = built(tmp_path, hybrid(Recipe(op=op, dtype=dtype), State(), State(RECURRENT_NAMES, 3)))
    for prompt in PROMPTS:
        wanted = recomputed(tmp_path / "package" / "model.onnx", prompt, 12)
        assert model.generate(prompt, max_new_tokens=12, **FREE).tokens == wanted


def test_equal_rows_share_a_run_and_others_do_not(tmp_path: Path) -> None:
    model = built(tmp_path, hybrid(Recipe(), State()))
    solo = [model.generate(prompt, max_new_tokens=12, **FREE).tokens for prompt in PROMPTS]
    for rows in ([0, 1], [0, 1, 2]):
        batch = model.generate(batch=[PROMPTS[row] for row in rows], max_new_tokens=12, **FREE).rows
        assert [each.tokens for each in batch] == [solo[row] for row in rows]
    executor: Any = model._executor
    padded = np.array([[3, 7, 11], [5, 2, 0]])
    with pytest.raises(RequestError) as told:
        executor.decoder.start(to_value(padded), Request({}, prompt_lengths=(3, 2)), 1)
    assert told.value.code == "ragged-rows"


def test_states_alone_make_a_decoder(tmp_path: Path) -> None:
    """No attention and no cache: the mask goes too."""
    model = hybrid(Recipe(layers=()), State())
    keep = [node for node in model.graph.node if not {*node.input} & {"attention_mask", "row_sums", "mask_shape"}]
    keep = [node for node in keep if not {*node.input} & {"last_positions", "total_length"}]
    del model.graph.node[:], model.graph.input[1]
    model.graph.node.extend(keep)
    compiled = built(tmp_path, model, {"model": {"decoder": {"num_hidden_layers": ...}}})
    (group,) = compiled.describe()["state_groups"]
    facts = [group[each] for each in ("name", "storage", "bytes_per_token", "bytes_per_row")]
    assert facts == ["decoder_recurrent", "constant", 0, 8 * 2 * 4]
    text = (tmp_path / "compiled" / "plan.txt").read_text("utf-8")
    assert "group decoder_recurrent of decoder: constant, 64 bytes a row\n" in text
    assert "growing" not in text
    session = onnxruntime.InferenceSession(tmp_path / "package" / "model.onnx", providers=["CPUExecutionProvider"])
    ids = [3, 7]
    for _ in range(6):
        feeds = {"input_ids": np.array([ids]), "past_key_values.3.conv_state": np.zeros((1, 8, 2), np.float32)}
        ids.append(int(np.asarray(session.run(["logits"], feeds)[0])[0, -1].argmax()))
    assert compiled.generate([3, 7], max_new_tokens=6, **FREE).tokens == ids[2:]


def test_the_document_has_the_groups_of_the_standard(tmp_path: Path) -> None:
    """Section 10.3: recurrent, no sequence axis, no role, the index for a layer; one seed a contract."""
    convolutions = [State((f"past.{layer}.conv", f"present.{layer}.conv")) for layer in (4, 6)]
    states = (convolutions[0], State(RECURRENT_NAMES), convolutions[1])
    names = {"inputs": {"past_conv_names": "past.%d.conv"}, "outputs": {"present_conv_names": "present.%d.conv"}}
    write_package(tmp_path, hybrid(Recipe(), *states), {"model": {"decoder": names}})
    lowered = lower_genai_config(tmp_path)
    workflow = lowered.document["pipeline"]["workflow"]
    groups = workflow["serving"]["state_service"]["groups"]
    assert list(groups) == ["decoder_kv", "decoder_recurrent"]
    replaced = groups["decoder_recurrent"]
    assert (replaced["kind"], replaced["aliasing"], "sequence_axis" in replaced) == ("recurrent", "forbidden", False)
    aliases = replaced["ports"]["decoder"]
    assert [each["input"] for each in aliases.values()] == [each.names[0] for each in states]
    assert [each["layer"] for each in aliases.values()] == [0, 1, 2]
    assert not any("role" in each for each in aliases.values())
    assert workflow["state"]["decoder_recurrent.0001"]["contract"]["shape"] == ["batch", 8, 2]
    assert [name for name in workflow["inputs"] if "seed" in name] == ["package.state_seed", "package.state_seed.1"]
    assert [each.layer for each in lowered.decoder.fixed_states] == [4, 3, 6]
    assert parse_metadata(lowered.document, Places("genai_config.json")).pipeline is not None


@pytest.mark.parametrize(
    "names",
    [
        ("past_key_values.0.anything", "present.0.anything"),
        ("past_key_values.3.conv_state", "next"),
        ("past_states.3.x", "present.3.x"),
        ("memory", "remembered"),
    ],
)
def test_a_state_of_any_name_is_found(tmp_path: Path, names: tuple[str, str]) -> None:
    """The cache template with another last part; and what only the graph says, which is noted."""
    model = built(tmp_path, hybrid(Recipe(), State(names)))
    wanted = recomputed(tmp_path / "package" / "model.onnx", [3, 7], 8)
    assert model.generate([3, 7], max_new_tokens=8, **FREE).tokens == wanted
    told = [each for each in lower_genai_config(tmp_path / "package").notes if "told by the graph" in each]
    assert told == ([] if names[1] == "present.0.anything" else [
        f"state that no name finds, told by the graph: {names[0]!r} -> {names[1]!r}"
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        (State(width_in="window"), "unknown-state-shape", "its extents are not numbers"),
        (State(width_out=5), "wrong-port", "axis 2 has another extent"),
        (State(width_out="sequence + 1"), "wrong-port", "axis 2 grows with the tokens of a call"),
    ],
)
def test_states_that_are_none_are_refused(tmp_path: Path, state: State, code: str, words: str) -> None:
    told = refused(tmp_path, hybrid(Recipe(), state))[code]
    assert words in told.what
    assert told.help


# ---- positions on three axes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["gqa", "attention"])
def test_text_has_one_position_on_all_three_axes(tmp_path: Path, op: str) -> None:
    """Arithmetic: after n tokens the favourite is (n - 1) * 111 mod 24."""
    model = built(tmp_path, with_three_axes(decoder(Recipe(op=op))))
    wanted = [(place * 111) % 24 for place in range(4, 14)]
    assert model.generate(PROMPTS[0], max_new_tokens=10, **FREE).tokens == wanted
    rows = model.generate(batch=PROMPTS, max_new_tokens=10, **FREE).rows
    assert rows[1].tokens == wanted
    assert rows[2].tokens == [(place * 111) % 24 for place in range(2, 12)]


@pytest.mark.parametrize("copies", [2, "axes"])
def test_other_ranks_of_positions_are_refused(tmp_path: Path, copies: int | str) -> None:
    told = refused(tmp_path, with_three_axes(decoder(Recipe()), copies=copies))["wrong-port"]
    assert "'position_ids'" in told.what


# ---- one token a call ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("squeezed", [True, False])
@pytest.mark.parametrize("op", ["gqa", "attention"])
def test_a_prompt_goes_in_token_by_token(tmp_path: Path, op: str, squeezed: bool) -> None:
    """The oracle is the same decoder without the limit."""
    save(hybrid(Recipe(op=op), State()), tmp_path / "whole.onnx")
    model = built(tmp_path, one_token(hybrid(Recipe(op=op), State()), squeezed))
    with pytest.raises(Exception, match=r"(?i)squeeze|expected: 1"):
        recomputed(tmp_path / "package" / "model.onnx", [3, 7], 1)
    for prompt in [*PROMPTS, [6]]:
        wanted = recomputed(tmp_path / "whole.onnx", prompt, 12)
        assert model.generate(prompt, max_new_tokens=12, **FREE).tokens == wanted
    batch = model.generate(batch=PROMPTS[:2], max_new_tokens=12, **FREE).rows
    assert [each.tokens for each in batch] == [recomputed(tmp_path / "whole.onnx", each, 12) for each in PROMPTS[:2]]


@pytest.mark.parametrize("op", ["gqa", "attention"])
def test_one_token_a_call_without_states(tmp_path: Path, op: str) -> None:
    """With GroupQueryAttention the cache is one buffer, and the mask of one row stays bound."""
    save(decoder(Recipe(op=op)), tmp_path / "whole.onnx")
    model = built(tmp_path, one_token(decoder(Recipe(op=op)), squeezed=False))
    for prompt in PROMPTS:
        wanted = recomputed(tmp_path / "whole.onnx", prompt, 12)
        assert model.generate(prompt, max_new_tokens=12, **FREE).tokens == wanted
    rows = model.generate(batch=PROMPTS, max_new_tokens=12, **FREE).rows
    assert rows[2].tokens == model.generate(PROMPTS[2], max_new_tokens=12, **FREE).tokens


def test_positions_of_one_token_a_call_go_on(tmp_path: Path) -> None:
    model = with_three_axes(decoder(Recipe()))
    model.graph.input[-1].type.tensor_type.shape.dim[2].dim_value = 1
    tokens = built(tmp_path, one_token(model, squeezed=False)).generate(PROMPTS[0], max_new_tokens=10, **FREE).tokens
    assert tokens == [(place * 111) % 24 for place in range(4, 14)]


def test_other_fixed_lengths_are_refused(tmp_path: Path) -> None:
    model = decoder(Recipe())
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 16
    assert "a fixed number of positions" in refused(tmp_path, model)["unsupported-package-class"].what


# ---- packages of the field -------------------------------------------------------------------------------------------

_NAMES = """
    og-lfm2-int4 og-qwen3_5 og-qwen2_5_vl-int4 mobius-qwen3_5_text-og mobius-qwen3_next-og mobius-jamba-og
"""


@needs_data
@pytest.mark.parametrize("name", _NAMES.split())
def test_facts_drive_the_graph_to_the_expected_tokens(name: str) -> None:
    facts = lower_genai_config(REAL / name).decoder
    expected = json.loads((REAL / name / "expected.json").read_text("utf-8"))
    assert facts.one_token == expected.get("prefill", "").startswith("one token per call")
    session = onnxruntime.InferenceSession(REAL / name / facts.artifact, providers=["CPUExecutionProvider"])
    bound = 0.05 if "int4" in name else 0.01
    for case in expected["cases"]:
        count = next((at for at, each in enumerate(case["margins"]) if each < bound), len(case["greedy"]))
        assert _greedy(session, facts, case["prompt"], count) == case["greedy"][:count]


def _greedy(session: Any, facts: DecoderFacts, prompt: list[int], count: int) -> list[int]:
    """Tokens of a plain loop by the facts alone."""
    held = {each.input: np.zeros((1, each.heads, 0, each.head_dim), NUMPY[each.dtype]) for each in facts.states}
    held |= {each.input: np.zeros((1, *each.shape), NUMPY[each.dtype]) for each in facts.fixed_states}
    states: tuple[Any, ...] = (*facts.states, *facts.fixed_states)
    pending, tokens, total = list(prompt), list[int](), 0
    while len(tokens) < count:
        fed, pending = (pending[:1], pending[1:]) if facts.one_token else (pending, [])
        total += len(fed)
        feeds = {facts.token_ids.name: np.array([fed]), **held}
        if facts.attention_mask is not None:
            feeds[facts.attention_mask.name] = np.ones((1, total), np.int64)
        if facts.position_ids is not None:
            places = np.arange(total - len(fed), total)[None]
            three = facts.position_ids.shape is not None and len(facts.position_ids.shape) == 3
            feeds[facts.position_ids.name] = np.stack([places] * 3) if three else places
        logits, *made = session.run([facts.logits.name, *(each.output for each in states)], feeds)
        held = {each.input: value for each, value in zip(states, made, strict=True)}
        if not pending:
            pending = [int(logits[0, -1].argmax())]
            tokens += pending
    return tokens
