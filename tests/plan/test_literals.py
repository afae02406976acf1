"""Literals of inputs against their contracts (standard, 3.2)."""

from pathlib import Path

import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.plan.ir import Type
from genai_compiler.plan.literals import Written, literal

from tests.flow_packages import flow_package
from tools.fixtures.document import emit, tensor
from tools.fixtures.document import literal as literal_input

KINDS: list[tuple[Written, str, str]] = [
    (True, "bool", ""),
    (1, "bool", "1 is an integer"),
    (True, "int64", "true is a bool"),
    (1.0, "bool", "1.0 is a float"),
    (1, "int8", ""),
    (1.0, "int8", "1.0 is a float"),
    (1, "float32", "write 1.0"),
    (1.0, "float32", ""),
    (0.5, "bfloat16", ""),
    (0.5, "float8_e5m2", "0.5 is a float"),
    (1, "float8_e5m2", "1 is an integer"),
    ("1", "int64", "a string is no tensor"),
    ((1, "2"), "int64", "a string is no tensor"),
    ((1, 2.0), "int64", "2.0 is a float"),
    ((1, True), "int64", "true is a bool"),
    ((), "int64", "an empty list"),
    ((1, 2), "int64", ""),
]
RANGES = [("int8", -128, 127), ("uint8", 0, 255), ("int32", -(2**31), 2**31 - 1), ("uint64", 0, 2**64 - 1)]


@pytest.mark.parametrize(("written", "dtype", "fault"), KINDS)
def test_each_kind_of_literal_has_dtypes_of_its_own(written: Written, dtype: str, fault: str) -> None:
    value, found = literal(written, Type(dtype, 1, ("n",)), True)
    assert fault in found
    assert bool(found) == bool(fault)
    assert value == (None if fault else written)


@pytest.mark.parametrize(("dtype", "low", "high"), RANGES)
def test_integers_have_a_range(dtype: str, low: int, high: int) -> None:
    assert [literal(each, Type(dtype, 0, ()), True)[0] for each in (low, high)] == [low, high]
    for each in (low - 1, high + 1):
        assert f"{each} is outside {dtype}, {low} to {high}" in literal(each, Type(dtype, 0, ()), True)[1]


def test_a_literal_without_a_shape_is_a_scalar() -> None:
    assert literal(1, Type("int64", 0), False) == (1, "")
    assert "shape" in literal(1, Type("int64", 1), False)[1]
    assert literal(None, Type("int64", 1), False) == (None, "")


def test_a_literal_that_its_contract_cannot_hold_refuses_the_package(tmp_path: Path) -> None:
    inputs = {"word": literal_input(tensor("int64", 1), "seven")}
    package = flow_package(tmp_path / "package", [emit("word", "out")], inputs=inputs)
    with pytest.raises(CompileError) as refused:
        compile_package(package, tmp_path / "compiled")
    (problem,) = refused.value.problems
    assert (problem.code, problem.path) == ("bad-literal", "pipeline.workflow.inputs.word.default")
    assert "a string is no tensor" in problem.what
