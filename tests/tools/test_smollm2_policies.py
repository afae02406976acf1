"""The policy graphs, each against the same rule written in plain Python."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from tools import policies
from tools.smollm2.plain_loop import open_session

WORD = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("policies")
    policies.write_policies(folder, heads=2, head_size=8)
    sessions: dict[str, Any] = {}

    def call(role: str, **inputs: Any) -> dict[str, Any]:
        if role not in sessions:
            onnx.checker.check_model(str(folder / f"{role}.onnx"), full_check=True)
            sessions[role] = open_session(folder / f"{role}.onnx")
        names = [output.name for output in sessions[role].get_outputs()]
        return dict(zip(names, sessions[role].run(names, inputs), strict=True))

    return call


def uniform(seed: int, counter: int) -> float:
    """SplitMix64 seeded with the mix of `seed`, at position `counter`, in Python integers."""

    def mix(word: int) -> int:
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & WORD
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB & WORD
        return word ^ (word >> 31)

    stream = mix(seed + GAMMA & WORD)
    return float(mix(stream + GAMMA * (counter + 1) & WORD) >> 11) / 2**53


def sample(logits: Any, temperature: float, top_k: int, top_p: float, min_p: float, seed: int, counter: int) -> int:
    """One row's token, in float64 and without haste."""
    order = np.argsort(-logits, kind="stable")
    if top_k == 1 or temperature <= 0:
        return int(order[0])
    scaled = logits[order].astype(np.float64) / temperature
    probabilities = np.exp(scaled - scaled[0])
    keep = np.ones(len(order), bool)
    if top_k > 0:
        keep[top_k:] = False
    keep &= probabilities >= min_p
    probabilities = np.where(keep, probabilities, 0)
    probabilities /= probabilities.sum()
    before = np.cumsum(probabilities) - probabilities
    probabilities[(before >= top_p) & (np.arange(len(order)) > 0)] = 0 if top_p < 1 else probabilities[-1]
    cumulative = np.cumsum(probabilities)
    return int(order[np.searchsorted(cumulative, uniform(seed, counter) * cumulative[-1], side="right")])


def rows(count: int, **changes: Any) -> dict[str, Any]:
    """Sampler inputs for `count` live rows, plain sampling unless changed."""
    defaults: dict[str, tuple[Any, Any]] = {
        "temperature": (1, np.float32),
        "top_k": (0, np.int64),
        "top_p": (1, np.float32),
        "min_p": (0, np.float32),
        "seed": (0, np.int64),
        "counter": (0, np.int64),
        "active": (True, np.bool_),
        "done": (False, np.bool_),
    }
    return {
        name: np.broadcast_to(np.asarray(changes.get(name, value), dtype), (count,)).copy()
        for name, (value, dtype) in defaults.items()
    }


CONTROLS = [
    {},
    {"temperature": 0.6},
    {"top_k": 5},
    {"top_p": 0.5},
    {"min_p": 0.2},
    {"temperature": 1.7, "top_k": 20, "top_p": 0.8, "min_p": 0.02},
    {"top_p": 0.0},
    {"temperature": 0.0},
    {"top_k": 1},
    {"top_k": 1000},
]


@pytest.mark.parametrize("controls", CONTROLS, ids=str)
def test_the_sampler_draws_what_the_rule_says(run: Any, controls: dict[str, float]) -> None:
    rng = np.random.default_rng(3)
    count = 200
    logits = (3 * rng.standard_normal((count, 50))).astype(np.float32)
    inputs = rows(count, **controls, seed=rng.integers(-(2**63), 2**63 - 1, count), counter=np.arange(count))
    got = run("token_sampler", logits=logits, **inputs)
    names = ("temperature", "top_k", "top_p", "min_p", "seed", "counter")
    expected = [sample(logits[row], *(inputs[name][row].item() for name in names)) for row in range(count)]
    assert got["token"].tolist() == expected
    assert got["next_counter"].tolist() == list(range(1, count + 1))


def test_a_row_draws_alone_what_it_draws_among_others(run: Any) -> None:
    logits = np.random.default_rng(5).standard_normal((4, 300)).astype(np.float32)
    inputs = rows(4, top_k=[0, 1, 7, 50], top_p=[0.9, 1, 1, 0.5], seed=[1, 2, 3, 4])
    together = run("token_sampler", logits=logits, **inputs)["token"]
    for row in range(4):
        alone = {name: value[row : row + 1] for name, value in inputs.items()}
        assert run("token_sampler", logits=logits[row : row + 1], **alone)["token"][0] == together[row]


def test_draws_follow_the_distribution(run: Any) -> None:
    count = 20000
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    inputs = rows(count, seed=np.arange(count) % 7, counter=np.arange(count))
    drawn = run("token_sampler", logits=np.tile(logits, (count, 1)), **inputs)["token"]
    # Four standard deviations of a binomial count.
    for token, probability in enumerate(np.exp(logits)):
        bound = 4 * np.sqrt(count * probability * (1 - probability))
        assert abs((drawn == token).sum() - count * probability) < bound


def test_equal_logits_give_the_lowest_id_and_idle_rows_no_token(run: Any) -> None:
    logits = np.zeros((3, 9), np.float32)
    logits[:, 4:6] = 1
    inputs = rows(3, top_k=1, counter=8, active=[True, False, True], done=[False, False, True])
    got = run("token_sampler", logits=logits, **inputs)
    assert got["token"].tolist() == [4, policies.NO_TOKEN, policies.NO_TOKEN]
    assert got["next_counter"].tolist() == [9, 8, 8]


def test_termination_by_end_id_by_limit_and_not_by_padding_of_the_table(run: Any) -> None:
    got = run(
        "termination",
        tokens=np.array([7, 7, 3, 3, 7]),
        eos_ids=np.array([[7, 0], [0, 7], [0, 3], [1, 2], [7, 0]]),
        eos_lengths=np.array([1, 1, 2, 2, 1]),
        iteration=np.array([4]),
        max_iterations=np.array([9, 9, 9, 5, 9]),
        active=np.array([True, True, True, True, False]),
    )
    assert got["next_active"].tolist() == [False, True, False, False, False]
    assert got["done"].tolist() == [True, False, True, True, True]
    assert got["continue"].tolist() == [True]


def test_rows_without_their_own_end_ids_take_the_package_list(run: Any) -> None:
    got = run(
        "termination_batch_initializer",
        input_eos_ids=np.array([[5], [-1], [6]]),
        input_eos_lengths=np.array([1, -1, 0]),
        package_eos_ids=np.array([2, 3]),
        input_max_iterations=np.array([4, -1, 0]),
        fallback_max_iterations=np.array([30]),
        active=np.ones(3, bool),
    )
    assert got["eos_lengths"].tolist() == [1, 2, 0]
    assert got["row_eos_ids"][0, :1].tolist() == [5]
    assert got["row_eos_ids"][1, :2].tolist() == [2, 3]
    assert got["max_iterations"].tolist() == [4, 30, 30]


def test_initial_state_is_as_wide_as_the_whole_generation(run: Any) -> None:
    got = run(
        "decoder_state_initializer",
        prompt_tokens=np.zeros((2, 4), np.int64),
        prompt_lengths=np.array([3, -1]),
        max_iterations=np.array([2]),
    )
    assert got["attention_mask"].tolist() == [[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0]]
    assert got["cache_lengths"].tolist() == [3, 4]
    assert got["generated_lengths"].tolist() == [0, 0]
    assert got["token_slot"].tolist() == [[0], [0]]
    assert got["empty_cache"].shape == (2, 2, 6, 8)
    assert not got["empty_cache"].any()


@pytest.mark.parametrize(("width", "lengths", "expected"), [(3, [1, 3], [0, 2]), (1, [9, 12], [0, 0])])
def test_each_row_is_read_at_its_own_last_token(run: Any, width: int, lengths: list[int], expected: list[int]) -> None:
    logits = np.random.default_rng(0).standard_normal((2, width, 5)).astype(np.float32)
    got = run("last_token_logits", logits=logits, lengths=np.array(lengths))["last_logits"]
    np.testing.assert_array_equal(got, logits[[0, 1], expected])


def test_updates_touch_only_live_rows(run: Any) -> None:
    flags = {"active": np.array([True, True, False]), "done": np.array([False, True, False])}
    slots = {"current": np.array([[1], [2], [3]]), "update": np.array([[7], [8], [9]])}
    assert run("token_state_update", **slots, **flags)["next"].tolist() == [[7], [2], [3]]
    for role in ("cache_length_update", "generated_length_update"):
        got = run(role, left=np.array([5, 6, 7]), right=np.array([1, 1, 1]), **flags)
        assert got["total"].tolist() == [6, 6, 7]
    mask = np.array([[1, 0, 0], [1, 1, 0]])
    got = run("decoder_step_update", attention_mask=mask, logical_length=np.array([1, 2]))
    assert got["next_attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert run("token_to_slot", token=np.array([4, 5]))["slot"].tolist() == [[4], [5]]


def test_the_ten_roles_are_written(tmp_path: Path) -> None:
    policies.write_policies(tmp_path, heads=1, head_size=8)
    assert len(list(tmp_path.glob("*.onnx"))) == 10
    for path in tmp_path.glob("*.onnx"):
        assert ir.load(path).graph.name == path.stem
