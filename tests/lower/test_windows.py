"""Caches whose operator drops what left its window: told by its attributes, run in buffers of one size."""

import dataclasses
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime as ort
import pytest
from genai_compiler import compile_package
from genai_compiler.lower.genai_config_v1 import lower_genai_config
from genai_compiler.problem import CompileError
from onnx import ModelProto, helper

from tests.lower.packages import Layer, Recipe, decoder, warned, write_package

WINDOW = 5
TWO = Recipe(layers=(Layer(0), Layer(1)))


def windowed(recipe: Recipe = TWO, layers: tuple[int, ...] = (0,), window: int = WINDOW) -> ModelProto:
    """The recipe's graph, whose operators of some layers keep a window (0: without its width)."""
    model = decoder(recipe)
    found = [node for node in model.graph.node if node.op_type == "GroupQueryAttention"]
    for node in (found[each] for each in layers):
        node.attribute.append(helper.make_attribute("sliding_window_cache", 1))
        if window:
            node.attribute.append(helper.make_attribute("local_window_size", window))
    return model


def config(**window: Any) -> dict[str, Any]:
    whole = {"window_size": WINDOW, "slide_inputs": False, "slide_key_value_cache": False, "layers": [0], **window}
    return {"model": {"decoder": {"num_hidden_layers": 2, "sliding_window": whole}}}


@pytest.mark.parametrize("layers", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("length", [1, 4, 5, 6, 30])
def test_tokens_equal_those_of_prompts_run_whole(tmp_path: Path, layers: tuple[int, ...], length: int) -> None:
    """The other way: each token from a first run over the whole sequence, where the operator drops nothing it needs."""
    write_package(tmp_path / "package", windowed(layers=layers), config(layers=list(layers)))
    compile_package(tmp_path / "package", out=tmp_path / "out")
    prompt = [int(each) for each in np.random.default_rng(length).integers(3, 24, length)]
    session = ort.InferenceSession(tmp_path / "package" / "model.onnx", providers=["CPUExecutionProvider"])
    wanted = list(prompt)
    for _ in range(30):
        wanted.append(int(whole(session, wanted).argmax()))
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        asked: dict[str, Any] = {"max_new_tokens": 30, "temperature": 0, "stop_on_eos": False}
        assert model.generate(prompt, **asked).tokens == wanted[length:]
        rows = model.generate(batch=[prompt, [7] * 9], **asked).rows
        assert rows[0].tokens == wanted[length:]
        assert rows[1].tokens == model.generate([7] * 9, **asked).tokens


def whole(session: ort.InferenceSession, ids: list[int]) -> Any:
    feeds: dict[str, Any] = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
    caches = [each.name for each in session.get_inputs() if each.name not in feeds]
    return session.run(["logits"], feeds | {each: np.zeros((1, 1, 64, 8), np.float32) for each in caches})[0][0, -1]


@pytest.mark.parametrize(("slack", "capacity"), [(0, WINDOW + 16), (3, WINDOW + 3)])
def test_room_beyond_the_window_is_the_configs_or_the_references(tmp_path: Path, slack: int, capacity: int) -> None:
    lowered = lower_genai_config(write_package(tmp_path, windowed(), config(cache_slack=slack)))
    assert [(each.layer, each.role, each.capacity) for each in lowered.decoder.windows] == [
        (0, "key", capacity), (0, "value", capacity)
    ]  # fmt: skip
    assert {each.layer for each in lowered.decoder.states} == {1}
    assert "config-contradicts-graph" not in warned(lowered)


@pytest.mark.parametrize(
    ("stated", "path", "word"),
    [({"window_size": 9}, "window_size", "windows are 5"), ({"layers": [1]}, "layers", "in layers 0")],
)
def test_the_operators_windows_win_over_the_configs(
    tmp_path: Path, stated: dict[str, Any], path: str, word: str
) -> None:
    lowered = lower_genai_config(write_package(tmp_path, windowed(), config(**stated)))
    problem = warned(lowered)["config-contradicts-graph"]
    assert problem.path == f"model.decoder.sliding_window.{path}"
    assert word in problem.what
    assert {each.layer for each in lowered.decoder.windows} == {0}


@pytest.mark.parametrize(
    ("window", "past", "code", "word"),
    [
        (0, "past_sequence_length", "unsupported-package-class", "has no window"),
        (WINDOW, 4, "wrong-port", "holds 4 positions"),
    ],
)
def test_windows_that_cant_be_kept_are_refused(
    tmp_path: Path, window: int, past: str | int, code: str, word: str
) -> None:
    recipe = dataclasses.replace(TWO, past_length=past)
    write_package(tmp_path, windowed(recipe, (0, 1), window), config(layers=[0, 1]))
    with pytest.raises(CompileError) as caught:
        lower_genai_config(tmp_path)
    found = [each for each in caught.value.problems if each.code == code]
    assert any(word in each.what and each.help for each in found)
