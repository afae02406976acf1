"""What a caller gives to `load`, `run` and a result in Python's own types: taken where it is clear, else told how."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_runtime import LoadError, Model, RequestError
from genai_runtime.given import as_tensors
from genai_runtime.given_numbers import numbers_as

from tests.conftest import Traced
from tests.images.pictures import encoded, picture
from tests.runtime.profile_packages import profiled
from tests.runtime.test_odd_requests import CASE, refused
from tools.fixtures.document import tensor

Models = Callable[[str], Model]
Compiled = Callable[[str], tuple[Path, Traced]]
FLOATS, WHOLE = ("float16", "float32", "float64"), ("int8", "int32", "int64", "uint8", "uint64")


# ---- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("value", [0.25, 3, [0.5, 2], [[1, 2.5], (3, 4)], [], float("nan"), [float("inf")]])
def test_numbers_take_a_float_type(dtype: str, value: Any) -> None:
    made = numbers_as(value, dtype)
    assert made.dtype == dtype
    np.testing.assert_array_equal(made, np.asarray(value, dtype=np.float64))


@pytest.mark.parametrize("dtype", WHOLE)
def test_whole_numbers_take_a_whole_type(dtype: str) -> None:
    assert numbers_as([[1, 2], [3, 4]], dtype).dtype == dtype
    assert numbers_as([[1, 2], [3, 4]], dtype).tolist() == [[1, 2], [3, 4]]
    assert numbers_as([1.0], dtype).dtype == np.float64, "floats never become whole numbers"
    assert numbers_as([True], dtype).dtype == np.bool_


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(300, "uint8"), (-1, "uint64"), (2**80, "int64"), ([1, 2**40], "int32"), (1e300, "float32"), (1e6, "float16"),
     (10**400, "float64"), (2**200, "float32"), ([[1], [1, 2]], "int64")],
)  # fmt: skip
def test_numbers_that_a_type_can_not_hold(value: Any, dtype: str) -> None:
    declared = [{"name": "x", "application": "", "dtype": dtype}]
    refused(lambda: as_tensors({"x": value}, declared), "bad-value")


def test_lists_without_an_end_are_no_numbers() -> None:
    endless: list[Any] = []
    endless.append(endless)
    refused(lambda: as_tensors({"x": endless}, [{"name": "x", "application": "", "dtype": "float32"}]), "bad-value")


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16", "int32", "int8"])
def test_run_takes_pythons_numbers_and_holds_arrays_to_their_type(tmp_path: Path, dtype: str) -> None:
    whole = dtype.startswith("int")
    numbers: list[Any] = [1, 2] if whole else [0.5, 2]
    with profiled(tmp_path / "p", {"x": tensor(dtype, "n")}, {}) as model:
        assert model.run({"in.x": numbers})["x"].tolist() == numbers
        assert model.run({"x": numbers})["x"].tolist() == numbers, "by its application name"
        other = np.array(numbers, np.int64)
        assert dtype in refused(lambda: model.run({"x": other}), "wrong-dtype").help
        if whole:
            refused(lambda: model.run({"x": [0.5]}), "wrong-dtype")
        refused(lambda: model.run({"x": np.array([0.5])}), "wrong-dtype")


def test_a_wrong_form_says_which_is_right(tmp_path: Path) -> None:
    with profiled(tmp_path / "p", {"x": tensor("float32", "n", 3)}, {}) as model:
        for value, code in ((np.ones(3, np.float32), "wrong-rank"), ([[1.0, 2.0]], "wrong-shape"), (1.0, "wrong-rank")):
            assert "[n, 3]" in refused(lambda value=value: model.run({"x": value}), code).help  # type: ignore[misc]
        assert "text" in str(refused(lambda: model.run({"x": "cat.png"}), "bad-value"))
        assert refused(lambda: model.run({"x": ["cat.png"]}), "bad-value").help
        refused(lambda: model.run({"x": np.array(["cat"])}), "bad-value")


# ---- files -----------------------------------------------------------------------------------------------------------


def test_the_text_of_a_path_is_a_file(tmp_path: Path) -> None:
    data = encoded(picture(3, 4))
    file = tmp_path / "cat.png"
    file.write_bytes(data)
    with profiled(tmp_path / "p", {"x": tensor("uint8", "n")}, {}) as model:
        for given in (str(file), [str(file)], file, data):
            assert model.run({"x": given})["x"].tobytes() == data
        both = [str(file), data]
        assert model.run({"x": both})["x"].tolist() == model.run({"x": [data, file]})["x"].tolist()
        for absent in (str(tmp_path / "none.png"), "a\0b", ""):
            refused(lambda absent=absent: model.run({"x": absent}), "no-such-file")  # type: ignore[misc]
        refused(lambda: model.run({"x": "x" * 100_000}), "unreadable-file")


# ---- loading ---------------------------------------------------------------------------------------------------------


def test_one_provider_needs_no_list(compiled: Compiled) -> None:
    folder = compiled(CASE)[0]
    for spelling in ("cpu", "CPUExecutionProvider", ["cpu"], ("cpu",)):
        with genai_runtime.load(folder, providers=spelling) as model:
            assert model.generate([1], max_new_tokens=1).tokens
    wrong: list[Any] = [[1], 5, {"cpu": 1}, [None]]
    for each in wrong:
        with pytest.raises(LoadError, match="unknown-provider") as refusal:
            genai_runtime.load(folder, providers=each)
        assert "cpu" in refusal.value.help


@pytest.mark.parametrize("threads", ["2", 2.0, True, [2], 0, -1, 10**9])
def test_threads_are_a_whole_number(compiled: Compiled, threads: Any) -> None:
    with pytest.raises(LoadError, match="bad-threads") as refusal:
        genai_runtime.load(compiled(CASE)[0], threads=threads)
    assert refusal.value.help


# ---- results ---------------------------------------------------------------------------------------------------------


def test_an_output_that_is_not_there(model: Models) -> None:
    result = model("session-counter").run({"times": np.array([2]), "step": np.array([2])})
    assert "'count'" in refused(lambda: result["cuont"], "no-output").help
    assert "count" in refused(lambda: result["nothing alike"], "no-output").help
    with pytest.raises(KeyError):
        result["cuont"]
    with pytest.raises(RequestError, match="no-output: the run has no output 'cuont'"):
        result.rows("cuont")
    rows = model("ragged-emit").run({"x": np.array([[4], [1]]), "limit": np.array([4]), "live": np.array([True, True])})
    several = next(name for name, slots in rows.row_slots.items() if len(slots) == 2)
    assert "rows(" in refused(lambda: rows[several], "no-output").help
