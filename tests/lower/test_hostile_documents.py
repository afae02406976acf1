"""Damaged documents from before workflows: whatever is wrong with them is a report at a place, never a crash."""

import copy
import os
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from genai_compiler import CompileError
from genai_compiler.driver import Options, compile_package
from genai_compiler.passes import PASSES
from genai_compiler.problem import errors
from onnx import save

from tests.lower import test_composite, test_front_model
from tests.lower.packages import Recipe, decoder
from tests.lower.test_bare import NAMED
from tests.read.mutations import damaged
from tests.wording import smells

ROUNDS = int(os.environ.get("HOSTILE_ROUNDS", "60"))
NOTES = {"inputs": [{"name": "input_ids", "dtype": "int64", "rank": 2, "shape": ["b", "s"]}], "kv_update": "append"}
BARE = {
    "required_capabilities": ["kv_cache"],
    "model": {
        "attention": {"type": "gqa", "num_kv_heads": 1, "head_dim": 8},
        "max_sequence_length": 64,
        "vocab_size": 24,
        "io": {
            **NAMED,
            **NOTES,
            "kv_ownership": "owned",
            "aliasing": "permitted",
            "sequence_source": "token_ids",
            "state_pairs": [{"input": "a", "output": "b", "init": "zeros", "update": "replace"}],
            "static_cache": {
                "write_indices_input": "input_ids",
                "kv_sequence_length_input": "attention_mask",
                "key_cache_inputs": ["past_key_values.0.key"],
                "value_cache_inputs": ["past_key_values.0.value"],
                "key_cache_outputs": ["present.0.key"],
                "value_cache_outputs": ["present.0.value"],
            },
        },
    },
    "kv_cache": {"native_dtype": "float32"},
}
PHASES = {"phases": {"embed": {"run_on": "prompt_only"}}, "positions": {"generation": "processor_coordinates"}}


def bare(folder: Path) -> dict[str, Any]:
    folder.mkdir()
    save(decoder(Recipe()), folder / "model.onnx")
    return copy.deepcopy(BARE)


def encoded(folder: Path) -> dict[str, Any]:
    test_composite.package(folder)
    return copy.deepcopy(test_composite.DOCUMENT)


def with_media(folder: Path) -> dict[str, Any]:
    test_front_model.package(folder)
    document: dict[str, Any] = copy.deepcopy(test_front_model.DOCUMENT)
    document["pipeline"] |= copy.deepcopy(PHASES)
    return document


@pytest.mark.parametrize("make", [bare, encoded, with_media])
def test_a_damaged_document_is_compiled_or_reported(make: Any, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    document, dice = make(folder), random.Random(11)
    refused, odd = 0, list[str]()
    for _ in range(ROUNDS):
        broken = damaged(document, dice, dice.choice([1, 1, 2, 4]))
        (folder / "inference_metadata.yaml").write_text(yaml.safe_dump(broken))
        try:
            compile_package(folder, options=Options(stop_after=PASSES[-1].__name__))
        except CompileError as refusal:
            refused += 1
            found = errors(refusal.problems)
            assert found, broken
            assert all(each.code and each.what and each.where.file for each in found)
            odd += smells(refusal.problems, empty=False)
    assert odd == []
    assert refused > ROUNDS // 4
