"""Rules of the reference interpreter that no shared case reaches, on documents written here."""

from pathlib import Path

import numpy as np
import pytest

from tests.reference.document import read_document
from tests.reference.interpreter import interpret
from tests.reference.values import Array, ReferenceError, Scope, literal

ROWS = "batch_layout: {kind: request_aligned, axis: 0}"
ROW_SYMBOLS = f"""
pipeline:
  workflow:
    manifest: {{capabilities: [workflow_ssa, typed_emit]}}
    inputs:
      a: {{contract: {{dtype: int64, rank: 2, shape: [batch, n], {ROWS}}}, role: {{kind: opaque}},
          source: {{kind: application, name: a}}}}
      b: {{contract: {{dtype: int64, rank: 2, shape: [batch, m], {ROWS}}}, role: {{kind: opaque}},
          source: {{kind: application, name: b}}}}
      live: {{contract: {{dtype: bool, rank: 1, shape: [batch], {ROWS}}}, role: {{kind: opaque}},
             source: {{kind: literal}}, required: false, default: true}}
    outputs:
      out: {{contract: {{dtype: int64, rank: 2, shape: [batch, n], {ROWS}}}, role: tensor, stage: pre_adapter}}
    components: {{}}
    steps: [{{kind: emit, value: b, output: out, mode: replace, when: live}}]
"""


def write(folder: Path, text: str) -> Path:
    (folder / "inference_metadata.yaml").write_text(text, encoding="utf-8")
    return folder


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.int64)


def test_a_row_may_not_contradict_a_bound_symbol(tmp_path: Path) -> None:
    package = write(tmp_path, ROW_SYMBOLS)
    interpret(package, {"a": zeros(2, 3), "b": zeros(2, 3)})
    with pytest.raises(ReferenceError, match=r"symbol: .*'n' to 4, already 3"):
        interpret(package, {"a": zeros(2, 3), "b": zeros(2, 4)})


def test_keys_are_strings_and_scalars_follow_yaml_1_2(tmp_path: Path) -> None:
    package = write(tmp_path, "true: yes\n3: 1e-5\n-1: 0x10\nfalse: true\n")
    assert read_document(package) == {"true": "yes", "3": 1e-5, "-1": 16, "false": True}


def test_an_expanded_literal_takes_the_factor() -> None:
    layout = {"kind": "request_expanded", "axis": 0, "factor": 2}
    contract = {"dtype": "int64", "rank": 1, "shape": ["batch"], "batch_layout": layout}
    assert literal("x", 7, contract, Scope(bound={"batch": 3})).tolist() == [7] * 6
    assert literal("x", 7, contract, Scope()).tolist() == [7] * 2


@pytest.mark.parametrize(
    ("dtype", "default"), [("float32", 1), ("int8", 200), ("bool", 1), ("int64", True), ("int64", [1, 2])]
)
def test_a_literal_must_fit_its_contract(dtype: str, default: object) -> None:
    with pytest.raises(ReferenceError, match="literal"):
        literal("x", default, {"dtype": dtype, "rank": 1, "shape": [3]}, Scope())
