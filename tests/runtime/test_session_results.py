"""What a session run gives is taken by index: iterating over ONNX Runtime's own list costs more than a small graph."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_runtime import binding
from genai_runtime.steady import WORTH_BINDING

from tests.conftest import Traced
from tests.renaming import REQUESTS

Models = Callable[[str], genai_runtime.Model]


class Indexed:
    """ONNX Runtime's list, but nobody may iterate over it."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def __getitem__(self, at: int) -> Any:
        assert isinstance(at, int), "a slice is a list of the same kind"
        return self.made[at]

    def __len__(self) -> int:
        return len(self.made)

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("somebody iterates over what a session gave")


@pytest.fixture
def indexed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every run from now on gives such a list; how many values each gave."""
    real, seen = binding.run_with_values, list[int]()

    def watched(session: Any, origin: str = "") -> Any:
        run = real(session, origin)

        def counted(*arguments: Any) -> Any:
            made = Indexed(run(*arguments))
            seen.append(len(made))
            return made

        return counted

    monkeypatch.setattr(binding, "run_with_values", watched)
    return seen


@pytest.fixture
def fresh(compiled: Callable[[str], tuple[Path, Traced]]) -> Models:
    """A fixture's model, loaded while runs are watched."""
    return lambda case: genai_runtime.load(compiled(case)[0], threads=1)


@pytest.mark.parametrize("case", REQUESTS)
def test_workflows(case: str, indexed: list[int], fresh: Models) -> None:
    short = {"limit": np.array([WORTH_BINDING - 1])} if case == "ragged-emit" else {}  # else all its runs are bound
    fresh(case).run({**REQUESTS[case], **short})
    assert indexed


@pytest.mark.parametrize("case", ["tiny-decoder", "tiny-held-state", "tiny-concat-v1", "tiny-chained-drafts"])
def test_decoders(case: str, indexed: list[int], fresh: Models) -> None:
    model = fresh(case)
    more = {"speculate": True} if case == "tiny-chained-drafts" else {}
    assert len(model.generate([1, 10, 20, 30], max_new_tokens=6, stop_on_eos=False, **more).tokens) == 6
    assert max(indexed) > 1
