"""Compiling grows with a document as the document does: function calls are counted, which no other process disturbs."""

from pathlib import Path

import genai_runtime
import pytest
from genai_compiler import compile_package

from tools.compile_series import SHAPES, calls_of

STEPS = 100
WITHIN = 1.1
"""Four times the steps are four times the calls, and a tenth more for what grows with a logarithm, as sorting does."""


@pytest.mark.parametrize("shape", SHAPES)
def test_calls_grow_with_steps(shape: str, tmp_path: Path) -> None:
    """What does not depend on steps is the same in three documents, and goes in their differences."""
    calls = list[int]()
    for steps in (STEPS, STEPS, 2 * STEPS, 6 * STEPS):  # the first one also imports
        folder = tmp_path / str(len(calls))
        SHAPES[shape](folder / "package", steps)
        calls.append(calls_of(folder / "package", folder / "made"))
    _, least, more, most = calls
    assert most - more <= WITHIN * 4 * (more - least)


def test_the_documents_compute_what_they_say(tmp_path: Path) -> None:
    """chain: after 3 turns of 8 additions of 2, 2 + 3 * 8 * 2. loops: each adds 2 as long as the sum is below 7."""
    given = {"start": [2], "limit": [3], "ceiling": [7]}
    wanted = {"chain": 2 + 3 * 8 * 2, "loops": (2 + 3 * 2) + 2}  # 4, 6, 8 and out; then 10 and out
    for shape, make in SHAPES.items():
        make(tmp_path / shape, 8)
        compile_package(tmp_path / shape, tmp_path / f"{shape}.made")
        with genai_runtime.load(tmp_path / f"{shape}.made", threads=1) as model:
            assert model.run(given)["total"].tolist() == [wanted[shape]]
