"""Which steps the runtime supplies, and how often: none where the package declares graphs (standard, 4.3).

The other count is made at ONNX Runtime's own calls. That every conformance package counts none is in test_conformance.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_runtime import binding

from tests.conftest import FIXTURES
from tests.reference.plain_loop import greedy

Models = Callable[[str], genai_runtime.Model]
DECODE, POLICY = "onnx-genai.autoregressive-decode", "onnx-genai.token-policy"
CONTRACTS = {DECODE, POLICY, "onnx-genai.speculative-block", "onnx-genai.continuous-batch"}
PROMPT = [3, 40, 41, 42, 43, 44, 5, 4]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry a session run."""
    seen: list[int] = []
    for name in ("run_bound", "run_with_values"):
        real = getattr(binding, name)

        def counting(session: Any, origin: str = "", real: Any = real) -> Any:
            run = real(session)

            def call(*given: Any) -> Any:
                seen.append(1)
                return run(*given)

            return call

        monkeypatch.setattr(binding, name, counting)
    return seen


def ask(model: genai_runtime.Model, count: int, rows: int = 1) -> genai_runtime.Result:
    inputs = {"request.input_ids": np.array([PROMPT] * rows), "request.max_iterations": np.array([count])}
    return model.run(inputs, stop_on_eos=False)


@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-concat-v1", "tiny-runtime-policy"])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("count", [1, 9])
def test_a_decoder_of_the_runtime_counts_its_passes_and_choices(
    model: Models, runs: list[int], case: str, rows: int, count: int
) -> None:
    result = ask(model(case), count, rows)
    assert set(result.runtime_steps) == CONTRACTS
    assert result.runtime_steps[DECODE] == len(runs) == count, "the prompt, and every token but the last"
    assert result.runtime_steps[POLICY] == count
    assert sum(result.runtime_steps.values()) == 2 * count


@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-concat-v1"])
def test_a_row_that_ends_early_counts_what_it_took(model: Models, case: str) -> None:
    tokens = greedy(FIXTURES / case / "model.onnx", PROMPT, 30, (2, 5) if case == "tiny-gqa-v1" else (2,))
    generation = model(case).generate(PROMPT, max_new_tokens=30, temperature=0)
    assert generation.tokens == tokens
    assert generation.result is not None
    assert generation.result.runtime_steps[POLICY] == len(tokens)
    assert generation.result.runtime_steps[DECODE] == len(tokens)


@pytest.mark.parametrize("case", ["tiny-decoder", "tiny-held-state"])
def test_a_package_whose_policy_is_graphs_counts_none(
    compiled: Callable[[str], tuple[Path, Any]], runs: list[int], case: str
) -> None:
    with genai_runtime.load(compiled(case)[0], threads=1) as model:  # anew: sessions are watched from their opening on
        result = ask(model, 9)
    assert len(runs) > 9, "it ran its graphs"
    assert result.runtime_steps == dict.fromkeys(CONTRACTS, 0)


def test_describe_names_the_contracts_that_the_runtime_supplies(model: Models) -> None:
    assert model("tiny-gqa-v1").describe()["runtime_steps"] == [DECODE, POLICY]
    assert model("tiny-decoder").describe()["runtime_steps"] == []


def test_a_plan_names_its_steps_by_contract(compiled: Callable[[str], tuple[Path, Any]]) -> None:
    """Nothing of the kind in a plan whose policy is graphs."""
    for case, named in (("tiny-gqa-v1", True), ("tiny-decoder", False)):
        text = (compiled(case)[0] / "plan.txt").read_text("utf-8")
        assert ("autoregressive-decode decoder(" in text, " = token-policy(" in text) == (named, named)
