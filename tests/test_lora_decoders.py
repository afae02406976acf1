"""Decoders whose graphs take factors: each way in which the runtime drives one, against weights with the deltas in."""

import re
from collections.abc import Mapping
from pathlib import Path

import genai_runtime
import numpy as np
import onnxruntime
import pytest

from tests.lora_packages import (
    Adapter,
    Seam,
    compiled,
    decoder_package,
    merged_model,
    random_factors,
    selected,
)
from tests.reference.plain_loop import greedy
from tests.two_routes import TwoRoutes

PROMPTS = [[1, 9, 14], [7]]
WEIGHTS = ("layers.0.query", "layers.1.down", "head")
FIXTURES = ("tiny-runtime-policy", "tiny-gqa-v1", "tiny-decoder", "tiny-held-state")
"""The runtime's own decoding, growing and in place; graphs for everything; cells held in place."""


def two(features: Mapping[str, tuple[int, int]]) -> dict[str, Adapter]:
    """One adapter for every target, and one of another rank for the last of them only."""
    last = dict(list(features.items())[-1:])
    return {
        "all": Adapter(random_factors(1, 2, features), alpha=3.0),
        "head": Adapter(random_factors(2, 3, last), alpha=1.5, format="safetensors"),
    }


def seams(**how: bool) -> list[Seam]:
    return [Seam(each, **how) for each in WEIGHTS]


@pytest.mark.parametrize(
    ("fixture", "how"),
    [
        *((fixture, {}) for fixture in FIXTURES),
        ("tiny-runtime-policy", {"rank_first": True}),
        ("tiny-gqa-v1", {"scale": False}),
        ("tiny-gqa-v1", {"rows": False}),
    ],
    ids=str,
)
def test_tokens_are_those_of_weights_with_the_deltas_in(fixture: str, how: dict[str, bool], tmp_path: Path) -> None:
    root = decoder_package(tmp_path / "p", fixture, seams(**how), two)
    adapters = two({"layers.0.query": (16, 64), "layers.1.down": (24, 16), "head": (16, 64)})
    wishes = [{}, {"all": 1.0}, {"head": -2.0}, {"all": 0.5, "head": 1.0}]
    seen = set()
    with genai_runtime.load(compiled(root)) as model:
        for prompt in PROMPTS:
            for wish in wishes:
                merged = merged_model(tmp_path, fixture, [(adapters[name], scale) for name, scale in wish.items()])
                wanted = greedy(merged, prompt, 8)
                assert model.generate(prompt, max_new_tokens=8, stop_on_eos=False, adapters=wish).tokens == wanted
                seen.add(tuple(wanted))
    assert len(seen) > len(PROMPTS), "the adapters change what comes out"


@pytest.mark.parametrize(
    ("fixture", "rows"),
    [("tiny-runtime-policy", True), ("tiny-gqa-v1", True), ("tiny-gqa-v1", False)],
)
def test_rows_with_adapters_of_their_own_are_their_solo_runs(fixture: str, rows: bool, tmp_path: Path) -> None:
    root = decoder_package(tmp_path / "p", fixture, seams(rows=rows), two)
    prompts, wishes = [[1, 9, 14], [7, 8, 9], [30, 31, 4]], [["all"], None, {"head": -2.0, "all": 0.5}]
    with genai_runtime.load(compiled(root)) as model:
        solo = [
            model.generate(prompt, max_new_tokens=6, adapters=wish).tokens
            for prompt, wish in zip(prompts, wishes, strict=True)
        ]
        together = model.generate(batch=prompts, max_new_tokens=6, adapters=wishes)
        assert [row.tokens for row in together.rows] == solo
        assert len({tuple(each) for each in solo}) == 3


@pytest.mark.parametrize("fixture", ["tiny-decoder", "tiny-held-state"])
def test_rows_of_one_run_of_the_workflow_have_adapters_of_their_own(fixture: str, tmp_path: Path) -> None:
    root = decoder_package(tmp_path / "p", fixture, seams(), two)
    prompts, slots = [[1, 9, 14], [7, 8, 9], [30, 31, 4]], [[(0, 1.0)], [], [(1, -2.0), (0, 0.5)]]
    wishes = [{"all": 1.0}, {}, {"head": -2.0, "all": 0.5}]
    with genai_runtime.load(compiled(root)) as model:
        solo = [
            model.generate(prompt, max_new_tokens=6, adapters=wish).tokens
            for prompt, wish in zip(prompts, wishes, strict=True)
        ]
        inputs = {"request.input_ids": np.array(prompts), "request.max_iterations": np.array([6])}
        result = model.run(inputs | selected(*slots))
        assert [[int(each) for each in row.ravel()] for row in result.rows("tokens") if row is not None] == solo


@pytest.mark.parametrize("fixture", ["tiny-held-state", "tiny-runtime-policy"])
def test_both_routes_agree(fixture: str, tmp_path: Path) -> None:
    def json_only(features: Mapping[str, tuple[int, int]]) -> dict[str, Adapter]:
        return {name: Adapter(each.factors, each.alpha) for name, each in two(features).items()}

    root = decoder_package(tmp_path / "p", fixture, seams(), json_only)
    inputs = {
        "request.input_ids": np.array([[1, 9, 14], [7, 8, 9], [30, 31, 4]]),
        "request.max_iterations": np.array([5]),
    }
    with genai_runtime.load(compiled(root)) as model:
        both = TwoRoutes(model, root)
        both.agree(inputs | selected([(0, 1.0)], [], [(1, -2.0), (0, 0.5)]), stop_on_eos=False)
        both.agree(inputs | selected([], [], []), stop_on_eos=False)
        both.agree(inputs | selected([(0, 1.0)], [(1, 1.0)], [], active=[False, True, True]), stop_on_eos=False)


def test_logits_are_those_of_a_plain_session_fed_the_same_factors(tmp_path: Path) -> None:
    root = decoder_package(tmp_path / "p", "tiny-held-state", [Seam("head")], two)
    adapter = two({"head": (16, 64)})["all"]
    a, b = adapter.factors["head"]
    with genai_runtime.load(compiled(root)) as model:
        got = model.generate([1, 9, 14], max_new_tokens=6, stop_on_eos=False, adapters={"all": 0.75}).tokens
    extra = {"head.a": a.T[None], "head.b": np.float32(0.75 * 1.5) * b.T[None]}
    assert got == greedy(root / "model.onnx", [1, 9, 14], 6, extra=extra)


def test_each_way_of_driving_a_decoder_is_reached(tmp_path: Path) -> None:
    text = {}
    for fixture in FIXTURES:
        compiled(decoder_package(tmp_path / fixture, fixture, [Seam("head")], two))
        text[fixture] = (tmp_path / f"{fixture}.compiled" / "executor.py").read_text("utf-8")
    assert "shared=False" in text["tiny-runtime-policy"]
    assert "decoding.row_at" in text["tiny-gqa-v1"]
    assert "adapted=model_factors" in text["tiny-decoder"]
    assert re.search(r"\.hold\([^=]*inputs\.symbols,\s+model_factors,", text["tiny-held-state"])


@pytest.mark.parametrize("rows", [False, True])
def test_onnx_runtimes_own_adapter_route_gives_the_same(rows: bool, tmp_path: Path) -> None:
    """An adapter file that ONNX Runtime itself activates, and ours: one session, one run."""

    def baked(features: Mapping[str, tuple[int, int]]) -> dict[str, Adapter]:
        return {"one": Adapter(random_factors(5, 2, features), format="ort_genai", baked=True, more={"rows": rows})}

    root = decoder_package(tmp_path / "p", "tiny-runtime-policy", seams(rows=rows), baked)
    with genai_runtime.load(compiled(root)) as model:
        got = model.generate([1, 9, 14], max_new_tokens=1, stop_on_eos=False, adapters=["one"]).tokens
    session = onnxruntime.InferenceSession(root / "model.onnx", providers=["CPUExecutionProvider"])
    adapter, options = onnxruntime.LoraAdapter(), onnxruntime.RunOptions()
    adapter.Load(str(root / "adapters" / "one" / "w.onnx_adapter"))
    options.add_active_adapter(adapter)
    feeds = {each.name: np.zeros((1, 2, 0, 16), np.float32) for each in session.get_inputs() if "past" in each.name}
    feeds |= {"input_ids": np.array([[1, 9, 14]]), "attention_mask": np.ones((1, 3), np.int64)}
    logits = session.run(["logits"], feeds | {"position_ids": np.arange(3)[None]}, options)[0]
    assert got == [int(logits[0, -1].argmax())]
    base = session.run(["logits"], feeds | {"position_ids": np.arange(3)[None]})[0]
    assert np.abs(base - logits).max() > 0.1


def test_rows_that_the_graph_cannot_tell_apart_are_refused_before_a_step_runs(tmp_path: Path) -> None:
    root = decoder_package(tmp_path / "p", "tiny-runtime-policy", seams(rows=False), two)
    with genai_runtime.load(compiled(root)) as model:
        inputs = {"request.input_ids": np.array([[1, 9], [7, 8]]), "lora.active": np.array([True, True])}
        inputs |= {"lora.segments": np.array([[0, -1], [-1, -1]]), "lora.counts": np.array([1, 0])}
        inputs |= {"lora.scales": np.array([[1, 0], [0, 0]], np.float32)}
        with pytest.raises(genai_runtime.RequestError, match="rows 0 and 1 use different adapters") as refused:
            model.run(inputs)
        assert refused.value.code == "adapter-batching"


def test_a_rank_that_the_graph_fixes_is_filled_or_refused(tmp_path: Path) -> None:
    def both(features: Mapping[str, tuple[int, int]]) -> dict[str, Adapter]:
        return {"one": Adapter(random_factors(1, 2, features)), "two": Adapter(random_factors(2, 2, features))}

    root = decoder_package(tmp_path / "p", "tiny-runtime-policy", [Seam("head", rank=3)], both)
    adapters = both({"head": (16, 64)})
    with genai_runtime.load(compiled(root)) as model:
        got = model.generate([1, 9], max_new_tokens=6, stop_on_eos=False, adapters=["two"]).tokens
        assert got == greedy(merged_model(tmp_path, "tiny-runtime-policy", [(adapters["two"], 1.0)]), [1, 9], 6)
        with pytest.raises(genai_runtime.RequestError, match=r"rank 4 together, 'head\.a'") as refused:
            list(model.generate([1, 9], max_new_tokens=6, adapters=["one", "two"]))
        assert refused.value.code == "adapter-selection"
