"""SmolLM2 in both forms, compiled and run: against the plain onnxruntime loop over the same graph."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import genai_runtime
import pytest
from genai_compiler import compile_package

from tests.data import ROOT
from tools.smollm2.plain_loop import greedy, open_session
from tools.smollm2.prompts import CAPITAL_QUESTION, PROMPTS

BUILT = ROOT / "build" / "smollm2"
FORMS = ("v1", "workflow")
END = 2
"""<|im_end|>, the end token that both forms name."""
_ABSENT = [form for form in FORMS if not (BUILT / form).is_dir()]
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(bool(_ABSENT), reason=f"not built: {', '.join(_ABSENT)} (python -m tools.smollm2)"),
]
Models = Callable[[str], genai_runtime.Model]
SAMPLED: dict[str, Any] = {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "max_new_tokens": 32}
"""top_k is said because the workflow form's own default for it is 1, which is greedy."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """A form, compiled and loaded once."""

    @cache
    def get(form: str) -> genai_runtime.Model:
        out = Path(tmp_path_factory.mktemp("smollm2") / form)
        compile_package(BUILT / form, out=out)
        return genai_runtime.load(out)

    return get


@pytest.fixture(scope="module")
def wanted(models: Models) -> dict[str, list[int]]:
    """64 greedy tokens of each prompt by the plain loop, an end token being the last."""
    session = open_session(BUILT / "v1" / "model.onnx")
    encode = models("v1").tokenizer.encode
    return {prompt: greedy(session, encode(prompt), 64, end_ids=[END]) for prompt in PROMPTS}


@pytest.mark.parametrize("form", FORMS)
def test_greedy_tokens_equal_the_plain_loop(models: Models, wanted: dict[str, list[int]], form: str) -> None:
    for prompt, tokens in wanted.items():
        generation = models(form).generate(prompt, max_new_tokens=64, temperature=0)
        assert generation.tokens == tokens, prompt
        assert generation.finish_reason == ("stop" if tokens[-1] == END else "length")


@pytest.mark.parametrize("form", FORMS)
def test_a_stream_is_the_text(models: Models, wanted: dict[str, list[int]], form: str) -> None:
    model = models(form)
    for prompt in PROMPTS[:4]:
        generation = model.generate(prompt, max_new_tokens=64, temperature=0)
        tokens = wanted[prompt]
        text = model.tokenizer.decode(tokens)
        assert "".join(generation) == generation.text == text


@pytest.mark.parametrize("form", FORMS)
def test_sampling_is_repeated_by_its_seed(models: Models, form: str) -> None:
    def drawn(seed: int) -> list[int]:
        return models(form).generate(PROMPTS[0], seed=seed, **SAMPLED).tokens

    assert drawn(7) == drawn(7)
    assert len({tuple(drawn(seed)) for seed in (7, 8, 9)}) == 3


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_a_batch_equal_their_solo_runs(models: Models, wanted: dict[str, list[int]], form: str) -> None:
    for start in range(0, len(PROMPTS) if form == "v1" else 5, 5):  # a workflow runs its rows one by one
        batch = PROMPTS[start : start + 5]
        rows = models(form).generate(batch=batch, max_new_tokens=64, temperature=0).rows
        assert [row.tokens for row in rows] == [wanted[prompt] for prompt in batch]


def test_a_sampled_row_of_a_batch_equals_its_solo_run(models: Models) -> None:
    model, seeds = models("v1"), [7, 8, 9]
    rows = model.generate(batch=PROMPTS[:3], seed=seeds, **SAMPLED).rows
    solo = [
        model.generate(prompt, seed=seed, **SAMPLED).tokens for prompt, seed in zip(PROMPTS[:3], seeds, strict=True)
    ]
    assert [row.tokens for row in rows] == solo


@pytest.mark.parametrize("form", FORMS)
def test_the_capital_is_paris(models: Models, form: str) -> None:
    answer = models(form).chat([{"role": "user", "content": CAPITAL_QUESTION}], max_new_tokens=60, temperature=0)
    assert "Paris" in answer.text
    assert answer.finish_reason == "stop"
    assert answer.tokens[-1] == END


def test_more_tokens_than_a_buffer_starts_with(models: Models) -> None:
    """540 tokens, past the room that the shared buffers are given at first."""
    session = open_session(BUILT / "v1" / "model.onnx")
    prompt = models("v1").tokenizer.encode(PROMPTS[0])
    generation = models("v1").generate(prompt, max_new_tokens=540, temperature=0, stop_on_eos=False)
    assert generation.tokens == greedy(session, prompt, 540)


@pytest.mark.parametrize("size", [16, 100])
def test_a_long_prompt_in_chunks_is_the_same_prompt(models: Models, size: int, tmp_path: Path) -> None:
    """Some 400 tokens of the prompts one after another."""
    compile_package(BUILT / "v1", out=tmp_path / "made")
    prompt = models("v1").tokenizer.encode(" ".join(PROMPTS))
    wanted = greedy(open_session(BUILT / "v1" / "model.onnx"), prompt, 24)
    with genai_runtime.load(tmp_path / "made", prefill_chunk=size) as model:
        made = model.generate(prompt, max_new_tokens=24, temperature=0, stop_on_eos=False)
        assert made.tokens == wanted
