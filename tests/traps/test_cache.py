"""The key-value cache (known traps C), end to end: compiled packages against a plain loop over the same graph."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import CompileError, Problem, compile_package
from genai_runtime import state
from onnx import TensorProto, save

from tests.flow_packages import add, flow_package, session_cell, traced
from tests.lower.hybrids import with_three_axes
from tests.lower.packages import VOCABULARY, Layer, Recipe, decoder, write_package
from tests.traps.loop import plain_logits, plain_tokens
from tools.fixtures.document import emit, loop

PROMPTS = [[3, 7, 11, 20, 9], [5], [21, 14, 8]]
FREE: dict[str, Any] = {"temperature": 0, "stop_on_eos": False}


def built(folder: Path, recipe: Recipe, config: dict[str, Any] | None = None) -> genai_runtime.Model:
    """The compiled package of a recipe."""
    write_package(folder / "package", recipe, config)
    compile_package(folder / "package", out=folder / "compiled")
    return genai_runtime.load(folder / "compiled", threads=1)


def refusal(folder: Path, recipe: Recipe) -> dict[str, Problem]:
    """Problems of a package that is refused, by code."""
    write_package(folder / "package", recipe)
    with pytest.raises(CompileError) as caught:
        compile_package(folder / "package", out=folder / "compiled")
    assert not (folder / "compiled").exists()
    return {each.code: each for each in caught.value.problems}


def agrees_with_plain_loop(folder: Path, model: genai_runtime.Model, count: int = 16) -> None:
    """Each prompt alone, and all of them as one batch, give the plain loop's tokens."""
    graph = folder / "package" / "model.onnx"
    wanted = [plain_tokens(graph, prompt, count) for prompt in PROMPTS]
    assert len({tuple(each) for each in wanted}) == len(wanted)
    for prompt, tokens in zip(PROMPTS, wanted, strict=True):
        assert model.generate(prompt, max_new_tokens=count, **FREE).tokens == tokens
    batch = model.generate(batch=PROMPTS, max_new_tokens=count, **FREE)
    assert [row.tokens for row in batch.rows] == wanted


# ---- C1, C2: element types -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["gqa", "attention"])
def test_c1_float16_caches_with_float32_logits(tmp_path: Path, op: str) -> None:
    recipe = Recipe(op=op, dtype=TensorProto.FLOAT16, logits_dtype=TensorProto.FLOAT)
    agrees_with_plain_loop(tmp_path, built(tmp_path, recipe))


def round_to_bfloat16(row: Any) -> Any:
    """float32 rounded to the nearest bfloat16, ties to even (IEEE 754): the upper half of the bits."""
    bits = row.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32)


ROUND: dict[int, Callable[[Any], Any]] = {
    TensorProto.FLOAT: lambda row: row,
    TensorProto.FLOAT16: lambda row: row.astype(np.float16),
    TensorProto.BFLOAT16: round_to_bfloat16,
}


@pytest.mark.parametrize("op", ["gqa", "attention"])
@pytest.mark.parametrize("dtype", ROUND, ids=TensorProto.DataType.Name)
def test_c2_logits_of_every_float_type(tmp_path: Path, dtype: int, op: str) -> None:
    """Against the float32 graph's logits, rounded here."""
    model = built(tmp_path, Recipe(op=op, logits_dtype=dtype))
    plain = tmp_path / "plain.onnx"
    save(decoder(Recipe(op=op)), plain)
    for prompt in PROMPTS:
        steps = plain_logits(plain, prompt, lambda row: int(ROUND[dtype](row).argmax()))
        wanted = [token for token, _ in islice(steps, 12)]
        assert model.generate(prompt, max_new_tokens=12, **FREE).tokens == wanted
    rows = model.generate(batch=PROMPTS, max_new_tokens=12, **FREE).rows
    assert [row.tokens for row in rows] == [model.generate(each, max_new_tokens=12, **FREE).tokens for each in PROMPTS]


def test_c2_a_logits_type_that_the_standard_lacks_is_refused_by_name(tmp_path: Path) -> None:
    assert "'float64'" in refusal(tmp_path, Recipe(logits_dtype=TensorProto.DOUBLE))["unknown-dtype"].what


# ---- C4, C5, C6: shapes and numbers of layers ------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["gqa", "attention"])
def test_c4_head_size_is_not_hidden_over_heads(tmp_path: Path, op: str) -> None:
    config = {"model": {"decoder": {"head_size": 4, "hidden_size": 8, "num_attention_heads": 2}}}
    model = built(tmp_path, Recipe(op=op, layers=(Layer(0, head_dim=16),)), config)
    agrees_with_plain_loop(tmp_path, model)
    assert model.describe()["state_groups"][0]["bytes_per_token"] == 2 * 16 * 4


@pytest.mark.parametrize("op", ["gqa", "attention"])
def test_c5_layers_differ_in_head_size_and_heads(tmp_path: Path, op: str) -> None:
    layers = (Layer(0, heads=1, head_dim=8), Layer(1, heads=2, head_dim=16))
    model = built(tmp_path, Recipe(op=op, layers=layers), {"model": {"decoder": {"num_hidden_layers": 2}}})
    agrees_with_plain_loop(tmp_path, model)
    assert model.describe()["state_groups"][0]["bytes_per_token"] == 2 * 8 * 4 + 2 * 2 * 16 * 4


@pytest.mark.parametrize("op", ["gqa", "attention"])
def test_c6_gaps_in_the_layer_numbers(tmp_path: Path, op: str) -> None:
    layers = (Layer(0), Layer(2), Layer(5))
    agrees_with_plain_loop(tmp_path, built(tmp_path, Recipe(op=op, layers=layers)))


# ---- C7: one symbol for past and present -----------------------------------------------------------------------------


def test_c7_appending_caches_with_one_symbol_are_refused_naming_both(tmp_path: Path) -> None:
    problem = refusal(tmp_path, Recipe(op="attention", past_length="length", present_length="length"))["shared-symbol"]
    assert all(each in problem.what for each in ("past_key_values.0.key", "present.0.key", "'length'"))
    assert problem.help


def test_c7_in_place_caches_with_one_symbol_run(tmp_path: Path) -> None:
    """One buffer for past and present is one length: there the shared name tells the truth."""
    model = built(tmp_path, Recipe(past_length="length", present_length="length"))
    plain = tmp_path / "plain.onnx"
    save(decoder(Recipe()), plain)
    for prompt in PROMPTS:
        assert model.generate(prompt, max_new_tokens=12, **FREE).tokens == plain_tokens(plain, prompt, 12)


# ---- C9, C10: capacity -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
def test_c9_a_fixed_past_length_ends_generations_cleanly(tmp_path: Path, prompt: list[int]) -> None:
    """16 positions: the prompt, and new tokens until prompt and output fill them."""
    model = built(tmp_path, Recipe(past_length=16, present_length=16), {"search": {"max_length": 64}})
    plain = tmp_path / "plain.onnx"
    save(decoder(Recipe()), plain)
    generation = model.generate(prompt, max_new_tokens=60, **FREE)
    room = 16 - len(prompt)
    assert generation.tokens == plain_tokens(plain, prompt, room)
    assert generation.finish_reason == "context"
    shorter = model.generate(prompt, max_new_tokens=room - 1, **FREE)
    assert (shorter.tokens, shorter.finish_reason) == (generation.tokens[:-1], "length")


def test_c9_rows_of_a_fixed_capacity_end_one_by_one(tmp_path: Path) -> None:
    model = built(tmp_path, Recipe(past_length=16, present_length=16))
    batch = model.generate(batch=PROMPTS, max_new_tokens=60, **FREE)
    solo = [model.generate(each, max_new_tokens=60, **FREE) for each in PROMPTS]
    assert [row.tokens for row in batch.rows] == [each.tokens for each in solo]
    assert {row.finish_reason for row in batch.rows} == {"context"}


def test_c9_a_prompt_as_long_as_the_capacity_is_refused_with_the_numbers(tmp_path: Path) -> None:
    model = built(tmp_path, Recipe(past_length=16, present_length=16))
    with pytest.raises(genai_runtime.RequestError, match=r"16 tokens.*holds 16") as refused:
        model.generate([3] * 16, max_new_tokens=4)
    assert refused.value.code == "context-exceeded"


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.parametrize("room", [1, 2, 5, 512])
def test_c10_capacity_is_not_valid_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, dtype: int
) -> None:
    """Buffers with any room beyond what is valid, moved to larger ones on the way: the same tokens."""
    monkeypatch.setattr(state, "FIRST_ROOM", room)
    model = built(tmp_path, Recipe(dtype=dtype, logits_dtype=TensorProto.FLOAT))
    assert model.describe()["state_groups"][0]["storage"] == "shared-buffer"
    agrees_with_plain_loop(tmp_path, model, count=24)


def test_c10_past_and_present_share_memory_only_where_the_operator_allows(tmp_path: Path) -> None:
    """The appending operator would read what it has just overwritten."""
    share = {"search": {"past_present_share_buffer": True}}
    model = built(tmp_path, Recipe(op="attention"), share)
    assert model.describe()["state_groups"][0]["storage"] == "growing"
    agrees_with_plain_loop(tmp_path, model)


# ---- C11: every request starts fresh ---------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["gqa", "attention"])
def test_c11_a_request_sees_nothing_of_the_one_before(tmp_path: Path, op: str) -> None:
    model = built(
        tmp_path, Recipe(op=op, layers=(Layer(0), Layer(1))), {"model": {"decoder": {"num_hidden_layers": 2}}}
    )
    graph = tmp_path / "package" / "model.onnx"
    for prompt in (PROMPTS[0], PROMPTS[2], PROMPTS[1], PROMPTS[0]):
        assert model.generate(prompt, max_new_tokens=10, **FREE).tokens == plain_tokens(graph, prompt, 10)


def two_stages(folder: Path) -> genai_runtime.Model:
    """Stage one adds a to `first`, stage two adds `first` to `second`; both live as long as a session."""
    body = [add("first", "a", "first.next"), add("second", "first.next", "second.next"), traced("second.next")]
    steps = [
        loop(body, "package.true", "n", {"first": "first.next", "second": "second.next"}),
        emit("second", "out"),
    ]
    cells = {"first": session_cell("b"), "second": session_cell("m")}
    compile_package(flow_package(folder / "package", steps, cells), out=folder / "compiled")
    return genai_runtime.load(folder / "compiled", threads=1)


def test_c11_a_reset_reaches_the_state_of_every_stage(tmp_path: Path) -> None:
    model = two_stages(tmp_path)

    def run(times: int, session: str) -> list[int]:
        values = {"a": 2, "b": 1, "n": times, "m": 7}
        traced = model.run({name: np.array([value]) for name, value in values.items()}, session=session)["trace"]
        assert isinstance(traced, np.ndarray)
        return [int(each) for each in traced]

    assert run(5, "s") == [10, 15, 22, 31, 42]
    assert run(1, "s") == [55], "both stages go on where they were"
    model.reset("s")
    assert run(3, "s") == run(3, "new") == [10, 15, 22]


# ---- E3: positions of three axes -------------------------------------------------------------------------------------


def test_e3_three_axis_positions_of_text_are_three_copies(tmp_path: Path) -> None:
    """Without a picture nothing moves text off the diagonal: token n stands at n on all three axes, row by row.

    The graph adds 100 to the logit of token (temporal + 10 height + 100 width) mod 24.
    """
    write_package(tmp_path / "package", with_three_axes(decoder(Recipe(op="attention"))))
    compile_package(tmp_path / "package", out=tmp_path / "compiled")
    rows = genai_runtime.load(tmp_path / "compiled", threads=1).generate(batch=PROMPTS, max_new_tokens=6, **FREE).rows
    for row, prompt in zip(rows, PROMPTS, strict=True):
        assert row.tokens == [111 * place % VOCABULARY for place in range(len(prompt) - 1, len(prompt) + 5)]
