"""Graphs that change their tables behind a length, with a session behind the loop that reads what their last run gave.

What is expected comes of a loop of bare ONNX Runtime sessions: the first run behind the length is one over the whole
sequence where caches are computed again, and each other run one over the tokens that are new.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import compile_package
from genai_runtime import RequestError
from onnx import ModelProto, TensorProto, helper

from tests.lower.packages import HIDDEN
from tests.lower.pipelines import Document, package
from tests.lower.test_pipeline_final import model_of
from tests.runtime.test_length_switch import LAST, switching

Array = np.ndarray[Any, Any]
PROMPTS = [
    [5, 6, 7],
    [4, 4, 8, 1, 2, 9, 13],
    [3 + at % 7 for at in range(LAST)],
    [3 + at % 7 for at in range(LAST + 2)],
]
STATED: Document = {
    "version": 2,
    "pipeline": {
        "sessions": {"decoder": {"file": "model.onnx"}, "judge": {"file": "judge.onnx"}},
        "flow": [{"run": "decoder", "when": "always"}, {"run": "judge", "when": "final"}],
    },
    "tokens": {"eos": 23},
    "generation": {"max_length": 64},
}


def decoder(op: str) -> ModelProto:
    """One that gives what its head takes, too."""
    model = switching(op)
    taken = next(node for node in model.graph.node if "raw_logits" in node.output).input[0]
    model.graph.node.append(helper.make_node("Identity", [taken], ["hidden_states"]))
    shape = ["batch", "sequence", HIDDEN]
    model.graph.output.append(helper.make_tensor_value_info("hidden_states", TensorProto.FLOAT, shape))
    return model


def judge() -> ModelProto:
    """The sum over all positions of a run: as many as the run had tell."""
    node = helper.make_node("ReduceSum", ["hidden_states", "axis"], ["score"], keepdims=0)
    return model_of([node], {"hidden_states": ["rows", "positions", HIDDEN]}, {"score": ["rows", HIDDEN]})


def by_hand(model: ModelProto, prompt: Sequence[int], count: int, again: bool) -> tuple[list[int], Array]:
    """(tokens, the sum over what the last run gave). again: the first run behind the length is one over all tokens."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    empty = {f"past_key_values.0.{part}": np.zeros((1, 1, 0, 8), np.float32) for part in ("key", "value")}
    past, ids, fresh, hidden = empty, list(prompt), list(prompt), np.zeros(0)
    for _ in range(count):
        if again and len(ids) > LAST >= len(ids) - len(fresh) and len(fresh) < len(ids):
            past, fresh = empty, list(ids)
        feeds = {"input_ids": np.array([fresh]), "attention_mask": np.ones((1, len(ids)), np.int64), **past}
        told = dict(zip(names, session.run(names, feeds), strict=True))
        past = {name: told[name.replace("past_key_values", "present")] for name in past}
        hidden, fresh = told["hidden_states"], [int(told["logits"][0, -1].argmax())]
        ids += fresh
    return ids[len(prompt) :], hidden.sum(axis=1)


@pytest.fixture(scope="module", params=["attention", "gqa"])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ModelProto]:
    folder, model = tmp_path_factory.mktemp(request.param), decoder(request.param)
    compile_package(package(folder / "p", STATED, {"model.onnx": model, "judge.onnx": judge()}), out=folder / "out")
    return folder / "out", model


@pytest.mark.parametrize("choice", ["recompute", "keep"])
@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
def test_what_is_read_behind_the_loop_is_of_the_last_run(
    compiled: tuple[Path, ModelProto], prompt: list[int], choice: str
) -> None:
    """Ended before the length, by the run that is done again, right behind it and further on."""
    crossing = max(LAST + 1 - len(prompt), 0)
    counts = sorted({1, 2, crossing, crossing + 1, crossing + 2, crossing + 6} - {0})
    with genai_runtime.load(compiled[0], threads=1, length_switch=choice) as model:
        for count in counts:
            tokens, score = by_hand(compiled[1], prompt, count, again=choice == "recompute")
            asked: dict[str, Any] = {"request.input_ids": [prompt], "request.temperature": 0.0}
            made = model.run({**asked, "request.max_iterations": [count]}, stop_on_eos=False)
            assert made["tokens"].reshape(-1).tolist() == tokens, count
            np.testing.assert_allclose(made["score"], score, rtol=1e-4, atol=1e-4, err_msg=str(count))


def test_the_case_tells_a_run_of_all_tokens_from_one_of_the_last(compiled: tuple[Path, ModelProto]) -> None:
    count = LAST + 2 - len(PROMPTS[0])
    scores = [by_hand(compiled[1], PROMPTS[0], count, again)[1] for again in (True, False)]
    assert not np.allclose(*scores)


def test_refused_it_runs_nothing(compiled: tuple[Path, ModelProto]) -> None:
    with genai_runtime.load(compiled[0], threads=1, length_switch="refuse") as model:
        asked: dict[str, Any] = {"request.input_ids": [PROMPTS[0]], "request.max_iterations": [LAST + 2]}
        with pytest.raises(RequestError, match="length-switch"):
            model.run(asked, stop_on_eos=False)
