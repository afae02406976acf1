"""`generation.defaults` of an authored document: each field honoured, refused or spoken of (standard, 1.8)."""

from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
import yaml
from genai_compiler import CompileError, compile_package
from genai_compiler.problem import Severity
from genai_compiler.read.document import GenerationDefaults
from genai_runtime import RequestError

from tests.conftest import FIXTURES
from tests.reference.plain_loop import greedy
from tests.runtime.test_options import echo
from tools.fixtures.document import write_document


def said(folder: Path, case: str, generation: Any) -> list[tuple[str, str, Severity]]:
    """(code, path, severity) of what compiling a fixture with this `generation` section says."""
    document = yaml.safe_load((FIXTURES / case / "inference_metadata.yaml").read_text("utf-8"))
    write_document(folder, {**document, "generation": generation})
    for file in (FIXTURES / case).rglob("*"):
        if file.is_file() and file.name != "inference_metadata.yaml":
            target = folder / file.relative_to(FIXTURES / case)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    try:
        found = compile_package(folder, out=folder.with_suffix(".compiled")).problems
    except CompileError as refused:
        found = refused.problems
    return [(each.code, each.path, each.severity) for each in found]


REFUSED = [
    ("bad-value", "temperature", -0.5),
    ("bad-value", "temperature", 1e-31),
    ("bad-value", "temperature", float("inf")),
    ("bad-value", "top_p", 1.5),
    ("bad-value", "top_p", -0.1),
    ("bad-value", "min_p", 2),
    ("bad-value", "min_p", "x"),
    ("bad-value", "repetition_penalty", 0.0),
    ("bad-value", "random_seed", 0.5),
    ("wrong-type", "logit_bias", [7, 2.5]),
    ("bad-value", "logit_bias", {"64": 1.0}),
    ("bad-value", "logit_bias", {"-1": 1.0}),
    ("bad-value", "logit_bias", {"7": float("nan")}),
    ("bad-value", "logit_bias", {"7": float("inf")}),
    ("bad-value", "logit_bias", {"7": "x"}),
    ("unsupported-search", "num_beams", 4),
    ("unsupported-search", "num_return_sequences", 2),
]
WITHOUT_EFFECT = [("length_penalty", 0.5), ("diversity_penalty", 0.5), ("early_stopping", True), ("typical_p", 0.5)]
HONOURED: dict[str, Any] = {
    "do_sample": True, "temperature": 0.5, "top_k": 3, "top_p": 0.5, "min_p": 0.1, "random_seed": 3, "min_length": 4,
    "max_length": 9, "repetition_penalty": 1.5, "no_repeat_ngram_size": 2, "num_beams": 1, "num_return_sequences": 1,
    "length_penalty": 1.0, "diversity_penalty": 0.0, "logit_bias": {"7": 2.5},
}  # fmt: skip


@pytest.mark.parametrize(("code", "field", "value"), REFUSED)
def test_values_that_no_run_can_take_are_refused(tmp_path: Path, code: str, field: str, value: Any) -> None:
    found = said(tmp_path / "p", "tiny-runtime-policy", {"defaults": {field: value}})
    assert found == [(code, f"generation.defaults.{field}", Severity.ERROR)]


@pytest.mark.parametrize(("field", "value"), WITHOUT_EFFECT)
def test_values_without_effect_are_spoken_of(tmp_path: Path, field: str, value: Any) -> None:
    found = said(tmp_path / "p", "tiny-runtime-policy", {"defaults": {field: value}})
    assert found == [("ignored-key", f"generation.defaults.{field}", Severity.WARNING)]


def test_nothing_is_said_of_what_is_honoured(tmp_path: Path) -> None:
    assert said(tmp_path / "p", "tiny-runtime-policy", {"defaults": HONOURED}) == []
    spoken = {field for _, field, _ in REFUSED} | {field for field, _ in WITHOUT_EFFECT}
    assert set(GenerationDefaults.model_fields) <= set(HONOURED) | spoken, "every field of the standard is in a test"
    found = said(tmp_path / "long", "tiny-runtime-policy", {"defaults": {"max_length": 65, "min_length": 66}})
    assert [code for code, _, _ in found] == ["length-over-context", "ignored-key"]


def test_a_package_with_its_own_sampler_honours_what_it_has_an_input_for(tmp_path: Path) -> None:
    defaults = {"do_sample": True, "temperature": 0.5, "repetition_penalty": 1.5, "no_repeat_ngram_size": 2,
                "logit_bias": {"7": 1.0}}  # fmt: skip
    found = said(tmp_path / "p", "tiny-decoder", {"defaults": defaults})
    fields = ["logit_bias", "no_repeat_ngram_size", "repetition_penalty"]
    assert sorted(found) == [("ignored-key", f"generation.defaults.{each}", Severity.WARNING) for each in fields]


def test_the_default_seed_and_min_p_reach_the_sampler(tmp_path: Path) -> None:
    """Two models of one document with a seed say the same; another seed says something else."""
    texts: list[list[int]] = []
    for at, seed in enumerate((3, 3, 4)):
        folder = tmp_path / str(at)
        defaults = {"do_sample": True, "temperature": 1.5, "random_seed": seed}
        assert said(folder, "tiny-runtime-policy", {"defaults": defaults}) == []
        with genai_runtime.load(folder.with_suffix(".compiled")) as model:
            texts.append(model.generate([1, 9, 14], max_new_tokens=24, stop_on_eos=False).tokens)
    assert texts[0] == texts[1] != texts[2]


def test_the_default_bias_reaches_the_sampler_unless_a_request_has_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    assert said(folder, "tiny-runtime-policy", {"defaults": {"logit_bias": {"7": 1e9, "9": 5e8}}}) == []
    with genai_runtime.load(folder.with_suffix(".compiled")) as model:
        assert model.generate([1, 9, 14], max_new_tokens=3).tokens == [7, 7, 7]
        assert model.generate([1, 9, 14], max_new_tokens=2, logit_bias={11: 1e9}).tokens == [11, 11]
        plain = greedy(FIXTURES / "tiny-runtime-policy" / "model.onnx", [1, 9, 14], 4)
        assert model.generate([1, 9, 14], max_new_tokens=4, logit_bias={}, stop_on_eos=False).tokens == plain


def test_an_override_that_names_another_input_is_warned_of(tmp_path: Path) -> None:
    overrides = {"temperature": {"input": "request.top_p"}, "top_p": {"input": "request.top_p"}}
    found = said(tmp_path / "p", "tiny-decoder", {"overrides": overrides})
    assert found == [("override-role", "generation.overrides.temperature.input", Severity.WARNING)]


def test_a_section_that_is_empty_is_a_contract_too(tmp_path: Path) -> None:
    model = echo(tmp_path / "p", generation={})
    with pytest.raises(RequestError, match="option-not-allowed"):
        model.generate([3, 4], temperature=0.5)


def test_run_holds_every_listed_input_to_its_bounds(tmp_path: Path) -> None:
    """Also under a field name that is no option of generate: what counts is the input."""
    bounds = {"length_of_answer": {"input": "limit", "constraint": {"minimum": 2, "maximum": 8}}}
    model = echo(tmp_path / "p", ("limit",), generation={"overrides": bounds})
    prompt = {"prompt": np.array([[3, 4]])}
    assert model.run({**prompt, "limit": np.array([8])})["out.limit"].tolist() == [8]
    for wrong in (1, 9):
        with pytest.raises(RequestError, match="option-out-of-bounds"):
            model.run({**prompt, "limit": np.array([wrong])})
