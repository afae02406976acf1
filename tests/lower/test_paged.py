"""Packed rows and paged caches: the values of a step by arithmetic, and whole packages by their expected tokens."""

import json
import shutil
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import CompileError, compile_package
from genai_runtime import LoadError, packing
from onnx import TensorProto

from tests.data import needs_data
from tests.lower.packages import Recipe, write_package
from tests.lower.plain_folders import undeclared
from tests.paged_graphs import write_out
from tests.real_packages import GREEDY, PACKAGES, PAGED, cases

# ---- arithmetic ------------------------------------------------------------------------------------------------------


def test_rows_of_a_run_by_arithmetic() -> None:
    """Three rows with 3, 1 and 2 new tokens behind 0, 5 and 7 positions, written down by hand."""
    past, new = np.array([0, 5, 7]), np.array([3, 1, 2])
    ids = np.array([[11, 12, 13], [21, 0, 0], [31, 32, 0]])
    np.testing.assert_array_equal(packing.packed(ids, new), [11, 12, 13, 21, 31, 32])
    np.testing.assert_array_equal(packing.boundaries(new), [0, 3, 4, 6])
    np.testing.assert_array_equal(packing.places(past, new), [0, 1, 2, 5, 7, 8])


def test_the_bounds_are_most_new_tokens_and_the_longest_row() -> None:
    pages = packing.Pages(("c", "int32"), ("p", "int32"), ("t", "int32"), ("b", "int32", 3), 4, True)
    feeds = packing.described(pages, np.array([0, 5, 7]), np.array([3, 1, 2]))
    assert {name: (each.dtype.name, each.tolist()) for name, each in feeds.items()} == {
        "c": ("int32", [0, 3, 4, 6]),
        "p": ("int32", [0, 5, 7]),
        "b": ("int32", [3, 9, 9]),
    }


def test_every_position_of_every_row_has_a_slot_of_its_own() -> None:
    rows, most, block = 3, 9, 4
    table = packing.page_table(rows, most, block)
    slots = {int(table[row, at // block]) * block + at % block for row in range(rows) for at in range(most)}
    assert table.shape == (3, 3)
    assert len(slots) == rows * most
    assert max(slots) < table.size * block


# ---- whole packages --------------------------------------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize("name", PAGED)
def test_the_written_out_graph_gives_the_expected_tokens(name: str, tmp_path: Path) -> None:
    """Tokens of another framework in float32, none of them near a tie; a page is small, so that rows need several."""
    package = write_out(PACKAGES / name, tmp_path / "package")
    config = json.loads((package / "genai_config.json").read_text())
    config["engine"]["dynamic_batching"]["block_size"] = 4
    (package / "genai_config.json").write_text(json.dumps(config))
    compile_package(package, out=tmp_path / "out")
    expected = cases(name)
    assert len(expected) > 1
    with genai_runtime.load(tmp_path / "out") as model:
        solo = [model.generate(each["prompt"], max_new_tokens=16, **GREEDY).tokens for each in expected]
        rows = model.generate(batch=[each["prompt"] for each in expected], max_new_tokens=16, **GREEDY).rows
    for case, alone, row in zip(expected, solo, rows, strict=True):
        assert case["min_margin"] > 0.03, "near a tie another kernel may choose another token"
        assert alone == case["greedy"]
        assert row.tokens == alone


@needs_data
@pytest.mark.parametrize("name", PAGED)
def test_where_nothing_is_declared_the_operators_tell_the_ports(name: str, tmp_path: Path) -> None:
    """The same plan but for where it was read from: pages, ports, state and decisions."""
    config = {"vocab_size": 320, "max_position_embeddings": 256, "eos_token_id": 2}
    undeclared(PACKAGES / name, tmp_path / "plain", config)
    compile_package(tmp_path / "plain", out=tmp_path / "out")
    compile_package(PACKAGES / name, out=tmp_path / "declared")
    texts = [(tmp_path / each / "plan.txt").read_text().splitlines()[1:] for each in ("out", "declared")]
    plain, declared = ([line for line in text if not line.startswith("input")] for text in texts)
    assert plain == declared


@needs_data
@pytest.mark.parametrize("name", PAGED)
def test_loading_says_which_operator_has_no_kernel_before_a_weight_is_read(name: str, tmp_path: Path) -> None:
    """The weights are still checked to be there, but no session is opened."""
    compile_package(PACKAGES / name, out=tmp_path / "out")
    with pytest.raises(LoadError) as refused:
        genai_runtime.load(tmp_path / "out", providers=["cpu"])
    assert refused.value.code == "no-kernel"
    for words in ("com.microsoft.PagedAttention", "CPUExecutionProvider", "model.onnx", "CUDAExecutionProvider"):
        assert words in str(refused.value)


@needs_data
@pytest.mark.parametrize("name", PAGED)
def test_a_row_that_fills_the_context_ends_beside_one_that_does_not(name: str, tmp_path: Path) -> None:
    """Neither writes into the other's pages, also when one has to wait at its last position."""
    compile_package(write_out(PACKAGES / name, tmp_path / "package"), out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out") as model:
        context = model.describe()["context_length"]
        long, short = [7] * (context - 3), cases(name)[0]["prompt"]
        rows = model.generate(batch=[long, short], max_new_tokens=9, **GREEDY).rows
        assert [(len(row.tokens), row.finish_reason) for row in rows] == [(3, "context"), (9, "length")]
        assert rows[1].tokens == cases(name)[0]["greedy"][:9]
        assert rows[0].tokens == model.generate(long, max_new_tokens=9, **GREEDY).tokens


# ---- what a configuration says of them -------------------------------------------------------------------------------


def config_of(package: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((package / "genai_config.json").read_text())
    return config


def told(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """Code -> text of every problem of a paged package with this configuration."""
    shutil.copytree(PACKAGES / "og-qwen3_5-paged", folder)
    (folder / "genai_config.json").write_text(json.dumps(config))
    try:
        problems = compile_package(folder, out=folder.with_name("out")).problems
    except CompileError as refused:
        problems = refused.problems
    return {each.code: f"{each.path}: {each.what}" for each in problems}


@needs_data
def test_state_groups_are_held_against_the_graph(tmp_path: Path) -> None:
    config = config_of(PACKAGES / "og-qwen3_5-paged")
    groups = config["model"]["decoder"]["state_groups"]
    groups[0]["layer_ids"] = [0, 1]
    found = told(tmp_path / "layers", config)
    assert list(found) == ["config-contradicts-graph"]
    assert "state_groups[0].layer_ids: layer_ids is [0, 1] here" in found["config-contradicts-graph"]
    assert "layers 1" in found["config-contradicts-graph"]
    groups[0] = {"kind": "fixed", "layer_ids": [1]}
    assert "state_groups[0].kind: 'fixed' is no kind" in told(tmp_path / "kind", config)["bad-value"]


@needs_data
def test_a_name_that_the_graph_lacks_does_not_hide_its_operators(tmp_path: Path) -> None:
    """The operators themselves say which input is the table of pages."""
    config = config_of(PACKAGES / "og-qwen3_5-paged")
    config["model"]["decoder"]["inputs"]["block_table"] = "pages"
    found = told(tmp_path / "package", config)
    assert set(found) <= {"config-contradicts-graph", "missing-input"}
    assert "block_table (int32)" in (tmp_path / "out" / "plan.txt").read_text()


def test_a_table_of_pages_asks_for_packed_tokens(tmp_path: Path) -> None:
    ports = {
        "block_table": (TensorProto.INT32, ["rows", "pages"]),
        "cumulative_sequence_lengths": (TensorProto.INT32, ["ends"]),
        "past_sequence_lengths": (TensorProto.INT64, ["rows", 1]),
    }
    with pytest.raises(CompileError) as refused:
        compile_package(write_package(tmp_path / "package", Recipe(extra_inputs=ports)), out=tmp_path / "out")
    text = str(refused.value)
    assert "beside a table of pages token ids are int64 [tokens]" in text
    assert "need no mask" in text
    assert "'past_sequence_lengths' is int64 [rows, 1]; it must be int32 [rows]" in text
