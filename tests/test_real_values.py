"""The rest of what the data states of packages: ids of a sentence, features of a picture, where the end token ends.

Expected values are those of `tokenizers`, the exporter's own vision graphs, and plain loops (INDEX.md of the data).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from genai_compiler import compile_package
from genai_runtime.sessions import Runner
from genai_runtime.values import Value

from tests.data import needs_data
from tests.real_packages import DRAWN, ENCODED, MEDIA, PACKAGES, RUN, SINGLE, Compiled, cases, once_each
from tests.test_real_stages import media_inputs

pytestmark = needs_data


def stated(name: str) -> dict[str, Any]:
    """The sentence and its ids; {} where the data has none."""
    found: dict[str, Any] = json.loads((PACKAGES / name / "expected.json").read_text("utf-8"))
    return found.get("tokenizer_check") or {}


SAID = [name for name in (*RUN, *ENCODED, *MEDIA, *SINGLE, *DRAWN) if stated(name)]
"""Those that a CPU loads."""
ENDED = [name for name in MEDIA if any("greedy_until_eos" in case for case in cases(name, "text", "image"))]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """A package, compiled and loaded once."""
    return once_each(tmp_path_factory)


@pytest.mark.parametrize("name", SAID)
def test_the_sentence_has_the_ids_that_were_stated(compiled: Compiled, name: str) -> None:
    check = stated(name)
    assert compiled(name).tokenizer.encode(check["text"]) == check["tokenizers"]


@pytest.mark.parametrize("name", MEDIA)
def test_features_of_the_picture_are_the_stated_ones(
    compiled: Compiled, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 1e-4 of the largest number; 1e-2 where the data keeps the pixels in half precision."""
    (case,) = cases(name, "image")
    seen: list[np.ndarray[Any, Any]] = []
    original = Runner.__call__

    def noted(runner: Runner, *values: Value, **adapted: Any) -> Sequence[Value]:
        results = original(runner, *values, **adapted)
        seen.extend(
            each.numpy() for port, each in zip(runner._outputs, results, strict=True) if port == "image_features"
        )
        return results

    monkeypatch.setattr(Runner, "__call__", noted)
    compiled(name).run({**media_inputs(name, case), "request.max_iterations": np.array([1])})
    with np.load(PACKAGES / name / case["inputs"]) as held:
        wanted, rounded = held["image_features"], held["pixel_values"].dtype == np.float16
    assert len(seen) == 1
    made = seen[0].reshape(wanted.shape)
    assert np.abs(made - wanted).max() <= (1e-2 if rounded else 1e-4) * np.abs(wanted).max()


@pytest.mark.parametrize("name", ENDED)
def test_the_end_token_ends_a_row_with_a_picture_too(compiled: Compiled, name: str) -> None:
    """Where the package names one. Two name none, which the compiler warns of: there a row goes on behind it."""
    for case in cases(name, "text", "image"):
        if until := case.get("greedy_until_eos"):
            inputs = {**media_inputs(name, case), "request.max_iterations": np.array([16])}
            rows = compiled(name).run(inputs).rows("tokens")
            made = [int(token) for each in rows if each is not None for token in each.reshape(-1)]
            assert made[: len(until)] == until
            assert (len(made) == len(until)) == bool(compiled(name).describe()["end_ids"])


def test_two_packages_name_no_end_token(tmp_path: Path) -> None:
    found = set()
    for name in ENDED:
        problems = compile_package(PACKAGES / name, out=tmp_path / name).problems
        found |= {name for each in problems if each.code == "no-end-token"}
    assert found == {"mobius-gemma3_vl-comp", "mobius-llava-comp"}
