"""A prompt in several runs of its decoder: the tokens of the prompt in one run, and as many runs as were asked for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime as ort
import pytest
from genai_runtime.growing import GrowingDecoding
from genai_runtime.in_place import InPlaceDecoding
from genai_runtime.request import Request
from genai_runtime.values import Array, to_value

from tests.conftest import FIXTURES, Traced
from tests.reference.plain_loop import HEAD, KV_HEADS

CASES = {"tiny-gqa-v1": InPlaceDecoding, "tiny-concat-v1": GrowingDecoding}
PROMPT = [1, 9, 14, 3, 60, 22, 7, 31, 5, 44, 18]
Compiled = Callable[[str], tuple[Path, Traced]]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tokens of each run of a prompt behind the first."""
    seen = list[int]()
    for kind in CASES.values():

        def counted(self: InPlaceDecoding, feeds: dict[str, Array], run: Callable[..., None] = kind.run_chunk) -> None:
            seen.append(feeds["input_ids"].shape[1])
            run(self, feeds)

        monkeypatch.setattr(kind, "run_chunk", counted)
    return seen


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", [1, 4, 5, 10, 11, 100])
def test_the_tokens_are_those_of_the_whole_prompt(compiled: Compiled, runs: list[int], case: str, size: int) -> None:
    folder, _ = compiled(case)
    with genai_runtime.load(folder) as whole, genai_runtime.load(folder, prefill_chunk=size) as chunked:
        wanted = whole.generate(PROMPT, max_new_tokens=20, stop_on_eos=False).tokens
        assert runs == []
        assert chunked.generate(PROMPT, max_new_tokens=20, stop_on_eos=False).tokens == wanted
    rest = max(len(PROMPT) - size, 0)
    assert sum(runs) == rest
    assert len(runs) == -(-rest // size)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("second", [PROMPT[::-1], PROMPT[:5]])
def test_several_rows_go_in_as_a_whole(compiled: Compiled, runs: list[int], case: str, second: list[int]) -> None:
    folder, _ = compiled(case)
    batch = [PROMPT, second]
    with genai_runtime.load(folder) as whole, genai_runtime.load(folder, prefill_chunk=4) as chunked:
        wanted = [row.tokens for row in whole.generate(batch=batch, max_new_tokens=9, stop_on_eos=False).rows]
        made = chunked.generate(batch=batch, max_new_tokens=9, stop_on_eos=False)
        assert [row.tokens for row in made.rows] == wanted
    assert runs == []


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", [1, 3, 7])
def test_the_logits_are_those_of_the_whole_prompt(compiled: Compiled, case: str, size: int) -> None:
    """Of a bare session's one run over the prompt, at the last position; sums in another order differ by less."""
    session = ort.InferenceSession(FIXTURES / case / "model.onnx")
    empty = np.zeros((1, KV_HEADS, 0, HEAD), np.float32)
    feeds: dict[str, Array] = {each.name: empty for each in session.get_inputs() if each.name.startswith("past")}
    feeds |= {"input_ids": np.array([PROMPT]), "attention_mask": np.ones((1, len(PROMPT)), np.int64)}
    if case == "tiny-concat-v1":
        feeds["position_ids"] = np.arange(len(PROMPT))[None]
    (logits,) = session.run(["logits"], feeds)
    with genai_runtime.load(compiled(case)[0], prefill_chunk=size) as model:
        decoder: Any = model._executor
        ids = to_value(np.array([PROMPT]))
        decoding = decoder.decoder.start(ids, Request({}, prompt_lengths=(len(PROMPT),)), 1)
        decoding.prompt()
        np.testing.assert_allclose(decoding.logits[0], logits[0, -1], rtol=0, atol=1e-6 * np.abs(logits).max())
