"""Decoders whose activations are rounded while they run, by one scale for all rows: no row may depend on the others.

Expected tokens come from a plain loop over the graph, a row alone.
"""

import json
from pathlib import Path

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_compiler.read.graph_facts import scale_of_all

from tests.lower.packages import VOCABULARY, Layer, Recipe, decoder
from tests.rounded_graphs import rounded
from tests.traps.loop import plain_tokens
from tests.traps.packages import FREE, package

COUNT = 16


@pytest.mark.parametrize("op", ["gqa", "attention"])
def test_rows_are_what_they_are_alone(op: str, tmp_path: Path) -> None:
    model = rounded(decoder(Recipe(op=op, layers=(Layer(0), Layer(1)))))
    assert scale_of_all(model) == "DynamicQuantizeLinear"
    folder = package(tmp_path / "p", model=model)
    made = compile_package(folder, tmp_path / "out")
    assert any("DynamicQuantizeLinear in 'decoder'" in each for each in made.notes)
    draw = np.random.default_rng(5)
    with genai_runtime.load(tmp_path / "out", threads=1) as compiled:
        for same in (False, True):
            lengths = [7] * 4 if same else draw.integers(1, 12, 4)
            prompts = [draw.integers(3, VOCABULARY, each).tolist() for each in lengths]
            wanted = [plain_tokens(folder / "model.onnx", each, COUNT) for each in prompts]
            rows = compiled.generate(batch=prompts, max_new_tokens=COUNT, **FREE).rows
            assert [each.tokens for each in rows] == wanted


def test_rows_of_other_decoders_share_a_run(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", model=Recipe())
    made = compile_package(folder, tmp_path / "out")
    assert not any("rounds all rows" in each for each in made.notes)
    assert json.loads((tmp_path / "out" / "manifest.json").read_text("utf-8"))["generation"]["alone"] is False
