"""Conformance packages that hold a bare `model.io` document: no workflow packages, but decoders that must run.

Expected tokens and the logits of every pass come from the suite, which computed them without this project.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import CompileError, compile_package
from genai_runtime.request import Request
from genai_runtime.values import to_value

from tests.data import DATA, needs_data

pytestmark = needs_data
CONFORMANCE = DATA / "conformance"
NAMES = [
    "tiny-llm",
    "tiny-llm-explicit-io",
    "tiny-llm-sharedbuffer",
    "tiny-gemma4-assistant",
    "tiny-mtp-full",
    "tiny-native-engine",
    "tiny-reasoning",
]
# name, code of the refusal, words of it
REFUSED = [
    ("tiny-native-sub4-engine", "custom-operators", "pkg.nxrt"),
    ("tiny-native-scalar-gqa", "no-workflow", "model.io"),
    ("tiny-deepseek-v2-qmoe-attention", "wrong-port", "new tokens and positions"),
]


@cache
def expected(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CONFORMANCE / "expected" / f"{name}.json").read_text("utf-8"))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_tokens_and_the_logits_of_every_pass_are_the_expected_ones(name: str, tmp_path: Path) -> None:
    compile_package(CONFORMANCE / "packages" / name, out=tmp_path / "out")
    assert expected(name)["format"] == "bare-decoder-1"
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.describe()["dialect"] == "model.io"
        for case in expected(name)["cases"]:
            made = model.generate(case["prompt"], max_new_tokens=case["new_tokens"], temperature=0, stop_on_eos=False)
            assert made.tokens == case["expected_tokens"]
            _check_passes(model, case)


def _check_passes(model: Any, case: dict[str, Any]) -> None:
    """The logits of the last position of each pass, fed with the expected tokens."""
    request = Request({}, prompt_lengths=(len(case["prompt"]),))
    decoding = model._executor.decoder.start(to_value(np.array([case["prompt"]])), request, case["new_tokens"])
    decoding.prompt()
    for at, wanted in enumerate(case["last_position_logits"]):
        if at:
            decoding.tokens[:] = case["expected_tokens"][at - 1]
            decoding.advance()
        logits = np.array(wanted["data"], np.float32)
        np.testing.assert_allclose(decoding.logits[0], logits, rtol=wanted["rtol"], atol=wanted["atol"])


def test_the_suite_has_no_other_bare_case() -> None:
    files = (CONFORMANCE / "expected").glob("*.json")
    assert sorted(each.stem for each in files if '"bare-decoder-1"' in each.read_text("utf-8")[:400]) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_provenance_is_reported(name: str, tmp_path: Path) -> None:
    notes = compile_package(CONFORMANCE / "packages" / name, out=tmp_path / "out").notes
    assert any("provenance: lowered" in each for each in notes)


@pytest.mark.parametrize(("name", "code", "words"), REFUSED)
def test_refused_with_its_reason(name: str, code: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as refused:
        compile_package(CONFORMANCE / "packages" / name, out=tmp_path / "out")
    assert any(each.code == code and words in f"{each.what} {each.help}" for each in refused.value.problems)
    assert not (tmp_path / "out").exists()
