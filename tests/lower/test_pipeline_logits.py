"""`generation.logits`: an order of changes to the scores, against numpy over the scores of a plain loop."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from genai_compiler import compile_package
from genai_compiler.lower.genai_config_v2 import lower_pipeline_config
from genai_compiler.problem import Severity
from genai_runtime import RequestError

from tests.lower.packages import VOCABULARY
from tests.lower.pipelines import MINIMAL, Document, by_hand, lone, package, problems
from tests.lower.test_pipeline import PLAIN
from tests.test_convert import converted, same_plan
from tests.wording import smells

PROMPT = [3, 1, 7]
BIAS, MINIMUM = {"op": "logit_bias", "map": {"5": 2.5, "9": -4}}, {"op": "min_length", "value": 12}
PENALTY, COOL = {"op": "repetition_penalty", "value": 1.7}, {"op": "temperature", "value": 0.8}
HOT = {"op": "temperature", "value": 3}
TOP_K, TOP_P, SAMPLE = {"op": "top_k", "value": 6}, {"op": "top_p", "value": 0.9}, {"op": "sample"}
Row = npt.NDArray[np.float64]


def document(*operations: Any, **over: Any) -> Document:
    return {**PLAIN, "tokens": {"eos": 2}, "generation": {"max_length": 64, "logits": list(operations), **over}}


def model(folder: Path, *operations: Any, **over: Any) -> genai_runtime.Model:
    compile_package(package(folder / "p", document(*operations, **over), lone()), out=folder / "out")
    return genai_runtime.load(folder / "out", threads=1)


def search(folder: Path, *operations: Any, **over: Any) -> Document:
    """The defaults of a request that a list comes to."""
    found = lower_pipeline_config(package(folder, document(*operations, **over), lone()))
    made = found.document["generation"]["defaults"]
    return {key: made[key] for key in sorted({*made} - {"max_length"})}


def said(folder: Path) -> dict[str, str]:
    """path -> code of the warnings, but for the tokenizer that these packages lack."""
    return {each.path: each.code for each in lower_pipeline_config(folder).problems if each.path}


def scores(folder: Path, ids: list[int]) -> Row:
    """The scores behind a text, by one run of the graph."""
    session = onnxruntime.InferenceSession(folder / "p" / "model.onnx")
    names = [each.name for each in session.get_inputs()]
    past = [np.zeros((1, 1, 0, 8), np.float32)] * 2
    feeds = dict(zip(names, [np.array([ids]), np.ones((1, len(ids)), np.int64), *past], strict=True))
    row: Row = session.run(["logits"], feeds)[0][0, -1].astype(np.float64)
    return row


def changed(row: Row, ids: list[int], operations: tuple[Any, ...]) -> Row:
    """The scores after the operations, one after the other as they are listed."""
    row = row.copy()
    for each in operations:
        if each["op"] == "logit_bias":
            for token, delta in each["map"].items():
                row[int(token)] += delta
        elif each["op"] == "min_length" and len(ids) < each["value"]:
            row[2] = -np.inf
        elif each["op"] == "repetition_penalty":
            for token in set(ids):
                row[token] = row[token] * each["value"] if row[token] < 0 else row[token] / each["value"]
    return row


ORDERS = {
    "bias": (BIAS,),
    "bias, penalty": (BIAS, PENALTY),
    "penalty, length": (PENALTY, MINIMUM),
    "length, bias, penalty": (MINIMUM, BIAS, PENALTY),
    "bias of the end, length": ({"op": "logit_bias", "map": {"2": 90}}, MINIMUM),
    "length, bias of the end": (MINIMUM, {"op": "logit_bias", "map": {"2": 90}}),
    "penalty, no bias": (PENALTY, {"op": "logit_bias", "map": {"5": 0}}),
    "no penalty, bias": ({"op": "repetition_penalty", "value": 1}, BIAS),
}


@pytest.mark.parametrize("name", ORDERS)
def test_greedy_tokens_are_those_of_the_listed_order(name: str, tmp_path: Path) -> None:
    operations, ids = ORDERS[name], list(PROMPT)
    with model(tmp_path, *operations) as made:
        found = made.generate(PROMPT, max_new_tokens=16).tokens
    while len(ids) < len(PROMPT) + 16 and ids[-1] != 2:
        ids.append(int(changed(scores(tmp_path, ids), ids, operations).argmax()))
    assert found == ids[len(PROMPT) :]
    assert "end" not in name or (len(ids), ids[-1]) == (13, 2), "the bias ends the text where the length allows it"


def test_the_operations_change_tokens(tmp_path: Path) -> None:
    """Else the expectations above would hold for a list that is not read."""
    plain = by_hand(package(tmp_path / "p", MINIMAL, lone()), "model.onnx", PROMPT, 16)
    for name in ("bias", "bias, penalty"):
        with model(tmp_path / name, *ORDERS[name]) as made:
            assert made.generate(PROMPT, max_new_tokens=16, stop_on_eos=False).tokens != plain


@pytest.mark.parametrize("choice", [(HOT, TOP_K, TOP_P, SAMPLE), (TOP_P, HOT, TOP_K), (TOP_K, SAMPLE), (HOT, SAMPLE)])
def test_frequencies_are_those_of_the_changed_scores(choice: tuple[Any, ...], tmp_path: Path) -> None:
    """Pearson's chi-square below its 1e-6 point; the order of what the choice gathers has no say. Seeds are fixed."""
    operations = ({"op": "logit_bias", "map": {"6": -3, "15": 2.5, "22": 2}}, PENALTY)  # of the likeliest
    draws, stated = 1500, {each["op"]: each.get("value") for each in choice}
    with model(tmp_path, *operations, *choice) as made:
        seeds = range(draws)
        counts = Counter(made.generate(PROMPT, max_new_tokens=1, seed=seed).tokens[0] for seed in seeds)
    row = changed(scores(tmp_path, PROMPT), PROMPT, operations)
    order = np.argsort(-row, kind="stable")[: int(stated.get("top_k") or 50)]
    weights = np.exp((row[order] - row[order[0]]) / (stated.get("temperature") or 1))
    kept = np.searchsorted(np.cumsum(weights) / weights.sum(), stated.get("top_p") or 1.0) + 1
    exact = weights[:kept] / weights[:kept].sum()
    assert set(counts) <= set(order[:kept].tolist())
    likely = [at for at in range(len(exact)) if exact[at] * draws >= 5]
    assert len(likely) > 1
    chi = sum((counts[int(order[at])] - exact[at] * draws) ** 2 / (exact[at] * draws) for at in likely)
    freedom = len(likely) - 1
    assert chi < freedom * (1 - 2 / (9 * freedom) + 4.75 * math.sqrt(2 / (9 * freedom))) ** 3


def test_top_k_top_p_and_sample_ask_for_sampling_and_a_temperature_does_not(tmp_path: Path) -> None:
    for at, (operations, samples) in enumerate(
        (((TOP_K,), True), ((TOP_P,), True), ((SAMPLE,), True), ((COOL,), False))
    ):
        assert search(tmp_path / str(at), *operations)["do_sample"] is samples
    assert said(package(tmp_path / "p", document(COOL), lone())) == {"generation.logits[0].value": "config-read-as"}


def test_operations_and_sampling_come_to_the_same_defaults(tmp_path: Path) -> None:
    stated = {"temperature": 0.8, "top_k": 6, "top_p": 0.9, "do_sample": True, "repetition_penalty": 1.7}
    one = search(tmp_path / "a", PENALTY, COOL, TOP_K, TOP_P, SAMPLE)
    assert one == search(tmp_path / "b", sampling=stated)
    assert one["top_k"] == 6


def test_where_both_speak_the_operations_are_taken_and_the_difference_said(tmp_path: Path) -> None:
    over = {"sampling": {"top_k": 9, "do_sample": False, "temperature": 0.8}}
    found = lower_pipeline_config(package(tmp_path, document(COOL, TOP_K, **over), lone()))
    defaults = found.document["generation"]["defaults"]
    assert (defaults["top_k"], defaults["do_sample"], defaults["temperature"]) == (6, True, 0.8)
    assert said(tmp_path) == {
        "generation.logits[1].value": "config-read-as",
        "generation.logits[1]": "config-read-as",
    }


def test_a_request_takes_another_bias_or_none(tmp_path: Path) -> None:
    plain = by_hand(package(tmp_path / "plain", MINIMAL, lone()), "model.onnx", PROMPT, 8)
    with model(tmp_path, BIAS) as made:
        assert made.generate(PROMPT, max_new_tokens=8, logit_bias={}, stop_on_eos=False).tokens == plain
        assert made.generate(PROMPT, max_new_tokens=3, logit_bias={6: 99.0}).tokens == [6, 6, 6]
        with pytest.raises(RequestError, match="bad-logit-bias"):
            made.generate(PROMPT, max_new_tokens=1, logit_bias={VOCABULARY: 1.0}).tokens[0]


@pytest.mark.parametrize("operations", [(BIAS, PENALTY, COOL, TOP_K, SAMPLE), (MINIMUM,)])
def test_the_converted_document_is_the_same_package(operations: tuple[Any, ...], tmp_path: Path) -> None:
    folder = package(tmp_path / "p", document(*operations), lone())
    before = compile_package(folder, out=tmp_path / "before")
    same_plan(before, compile_package(converted(folder, tmp_path / "q" / "p"), out=tmp_path / "after"))
    made = []
    for out in ("before", "after"):
        with genai_runtime.load(tmp_path / out, threads=1) as one:
            made.append(one.generate(PROMPT, max_new_tokens=12, seed=5).tokens)
    assert made[0] == made[1]


AT = "generation.logits"
REFUSED: dict[str, tuple[list[Any], str, str, str]] = {
    "scores of several sessions": (
        [{"op": "combine", "mode": "contrastive", "alpha": 0.5, "expert": "decoder", "amateur": "small"}],
        "unsupported-search", f"{AT}[0]", "combine mixes the scores of several sessions",
    ),
    "a grammar": (
        [{"op": "grammar", "backend": "llguidance", "grammar": "start: /a+/", "stateful": True}],
        "unsupported-search", f"{AT}[0]", "grammar needs a grammar in the runtime's own sampler",
    ),
    "a penalty before a bias": (
        [PENALTY, MINIMUM, BIAS], "unsupported-search", f"{AT}[2]",
        "the runtime adds logit_bias before repetition_penalty",
    ),
    "behind the choice": ([SAMPLE, BIAS], "unsupported-search", f"{AT}[1]", "logit_bias stands behind sample"),
    "a word that is none": (
        [{"op": "top-k", "value": 3}], "bad-value", f"{AT}[0].op", 'Unknown logits operation "top-k"',
    ),
    "twice": ([COOL, COOL], "bad-value", f"{AT}[1].op", "temperature stands twice: entry 0 has it too"),
    "a number too many": (
        [{"op": "sample", "value": 3}], "bad-value", f"{AT}[0].value", "'value' means nothing to sample",
    ),
    "a mode of sampling": (
        [{"op": "sample", "mode": "greedy"}], "bad-value", f"{AT}[0].mode", "'mode' means nothing to sample",
    ),
    "no number": ([{"op": "top_k"}], "missing-key", f"{AT}[0]", "top_k lacks its value"),
    "no map": ([{"op": "logit_bias"}], "missing-key", f"{AT}[0]", "logit_bias lacks its map"),
    "half a token": (
        [{"op": "top_k", "value": 2.5}], "fractional-number", f"{AT}[0].value", "top_k is 2.5; it is a whole number",
    ),
    "no id": (
        [{"op": "logit_bias", "map": {"x": 1}}], "bad-value", f"{AT}[0].map.x", "'x' is no token id",
    ),
    "an id below 0": (
        [{"op": "logit_bias", "map": {"-1": 1}}], "bad-value", f'{AT}[0].map["-1"]', "'-1' is no token id",
    ),
    "an id spelt twice": (
        [{"op": "logit_bias", "map": {"07": 1}}], "bad-value", f'{AT}[0].map["07"]', "'07' is no token id",
    ),
    "an id beyond": (
        [{"op": "logit_bias", "map": {str(VOCABULARY): 1}}], "bad-value", f'{AT}[0].map["{VOCABULARY}"]',
        f"there is no token {VOCABULARY}: ids are 0 to {VOCABULARY - 1}",
    ),
    "a bias beyond": (
        [{"op": "logit_bias", "map": {"1": 1e31}}], "bad-value", f'{AT}[0].map["1"]', "lies within -1e30 and 1e30",
    ),
    "a temperature below 0": (
        [{"op": "temperature", "value": -1}, SAMPLE], "bad-value", f"{AT}[0].value", "must not be negative",
    ),
    "a penalty of 0": (
        [{"op": "repetition_penalty", "value": 0}], "bad-value", f"{AT}[0].value", "it must be above 0",
    ),
    "a mass beyond 1": ([{"op": "top_p", "value": 1.5}], "bad-value", f"{AT}[0].value", "lies between 0 and 1"),
    "many": ([COOL] * 65, "too-many-values", AT, "there are 65 operations; at most 64 are read"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_place_in_the_runtimes_order_is_refused_by_name(name: str, tmp_path: Path) -> None:
    operations, code, path, what = REFUSED[name]
    found = problems(package(tmp_path / "p", document(*operations), lone()))
    (told,) = [each for each in found if (each.code, each.path) == (code, path)]
    assert what in told.what
    assert told.help
    assert told.severity is Severity.ERROR
    assert smells(found) == []


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(number: str, tmp_path: Path) -> None:
    text = (
        MINIMAL.rstrip().removesuffix("}") + f', "generation": {{"logits": [{{"op": "top_p", "value": {number}}}]}}}}'
    )
    assert [each for each in problems(package(tmp_path / "p", text, lone())) if each.severity is Severity.ERROR]


@pytest.mark.parametrize(
    ("operation", "help"),
    [
        ({"op": "top_k", "vale": 3}, "did you mean value?"),
        ({"op": "top_k", "value": 3, "zzz": 1}, "known here: op, value"),
        ({"op": "logit_bias", "map": {}, "zzz": 1}, "known here: op, map"),
        ({"op": "sample", "zzz": 1}, "known here: op"),
        ({"op": "logit_bias", "maps": {}}, "did you mean map?"),
        (
            {"op": "topk", "zzz": 1},
            "known here: op, value, map, backend, mode, alpha, expert, amateur, grammar, stateful",
        ),
        ({"zzz": 1}, "known here: op, value, map, backend, mode, alpha, expert, amateur, grammar, stateful"),
    ],
)
def test_a_field_that_is_none_is_held_against_those_of_its_operation(
    operation: dict[str, Any], help: str, tmp_path: Path
) -> None:
    found = problems(package(tmp_path / "p", document(operation), lone()))
    (told,) = [each for each in found if each.code == "unknown-field"]
    assert told.help == help
