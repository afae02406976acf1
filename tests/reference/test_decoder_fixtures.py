"""The reference interpreter on the decoder fixtures, against a bare decoding loop over the same graph."""

from typing import Any

import numpy as np
import pytest

from tests.data import ROOT
from tests.reference.interpreter import interpret
from tests.reference.plain_loop import greedy
from tests.reference.values import Array, Rows

FIXTURES = ROOT / "fixtures"
PROMPTS = [[1, 10, 20, 30], [5], [3, 40, 41, 42, 43, 44, 5, 4]]
GRAPH = FIXTURES / "tiny-concat-v1" / "model.onnx"
STOP = [2, 5]


def tokens(package: str, prompt: Array, count: int, **options: Any) -> list[list[int] | None]:
    """The published tokens of each row."""
    stop = options.pop("stop_on_eos", True)
    inputs = {"request.input_ids": prompt, "request.max_iterations": np.array([count]), **options}
    outputs = interpret(FIXTURES / package, inputs, stop_on_eos=stop).outputs
    rows = outputs["tokens"]
    assert isinstance(rows, Rows)
    return [None if row is None else row[0].tolist() for row in rows.items]


def padded(prompts: list[list[int]]) -> Array:
    """Rows of one width, padded on the right with a token that would matter if it were read."""
    width = max(len(prompt) for prompt in prompts)
    return np.array([prompt + [17] * (width - len(prompt)) for prompt in prompts])


@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
def test_both_graphs_of_the_network_decode_alike(prompt: list[int]) -> None:
    gqa = FIXTURES / "tiny-gqa-v1" / "model.onnx"
    assert greedy(gqa, prompt, 20) == greedy(GRAPH, prompt, 20)


@pytest.mark.parametrize("package", ["tiny-decoder", "tiny-runtime-policy"])
def test_the_workflow_packages_hold_the_same_graph(package: str) -> None:
    assert (FIXTURES / package / "model.onnx").read_bytes() == GRAPH.read_bytes()


@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
def test_policy_graphs_decode_greedily(prompt: list[int]) -> None:
    assert tokens("tiny-decoder", np.array([prompt]), 20) == [greedy(GRAPH, prompt, 20, stop=[2])]


def test_padded_rows_equal_their_solo_runs() -> None:
    lengths = np.array([len(prompt) for prompt in PROMPTS])
    options = {"prompt_lengths": lengths, "eos_ids": np.array([[2, 5]] * 3), "eos_lengths": np.array([2] * 3)}
    controls = {
        "request.temperature": np.ones(3, np.float32),
        "request.top_k": np.ones(3, np.int64),
        "request.top_p": np.ones(3, np.float32),
        "request.min_p": np.zeros(3, np.float32),
        "request.seed": np.arange(3),
    }
    got = tokens("tiny-decoder", padded(PROMPTS), 20, **options, **controls)
    wanted = [greedy(GRAPH, prompt, 20, stop=STOP) for prompt in PROMPTS]
    assert [len(row) for row in wanted] == [20, 20, 9]
    assert got == wanted


def test_rows_end_at_their_own_limits() -> None:
    prompts = [PROMPTS[0], PROMPTS[0][::-1]]
    options = {"row_max_iterations": np.array([3, -1])}
    got = tokens("tiny-decoder", np.array(prompts), 6, **options)
    assert got == [greedy(GRAPH, prompts[0], 3), greedy(GRAPH, prompts[1], 6, stop=[2])]


def test_sampling_depends_on_seed_and_counter_only() -> None:
    prompt = np.array([PROMPTS[0]] * 3)
    options: dict[str, Array] = {
        "request.temperature": np.full(3, 1.5, np.float32),
        "request.top_k": np.zeros(3, np.int64),
        "request.seed": np.array([4, 9, 4]),
        "eos_lengths": np.zeros(3, np.int64),
    }
    first, second, third = tokens("tiny-decoder", prompt, 12, **options)
    assert first == third != second
    alone = {name: value[:1] for name, value in options.items()}
    assert tokens("tiny-decoder", prompt[:1], 12, **alone) == [first]


@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
def test_the_canonical_form_decodes_greedily(prompt: list[int]) -> None:
    got = tokens("tiny-runtime-policy", np.array([prompt]), 20)
    assert got == [greedy(GRAPH, prompt, 20, stop=STOP)]


def test_the_canonical_form_can_ignore_end_tokens() -> None:
    got = tokens("tiny-runtime-policy", np.array([PROMPTS[2]]), 20, stop_on_eos=False)
    assert got == [greedy(GRAPH, PROMPTS[2], 20)]


def test_the_canonical_form_takes_the_mask_of_padded_rows() -> None:
    mask = np.zeros((3, 8), np.int64)
    for row, prompt in enumerate(PROMPTS):
        mask[row, : len(prompt)] = 1
    got = tokens("tiny-runtime-policy", padded(PROMPTS), 12, attention_mask=mask)
    assert got == [greedy(GRAPH, prompt, 12, stop=STOP) for prompt in PROMPTS]
