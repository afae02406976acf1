"""The comparer itself: it accepts what was expected and names every kind of difference."""

from typing import Any

import numpy as np
import pytest

from tests.reference.cases import compare
from tests.reference.values import Array, Document, Events, Published, Rows

INTS: Document = {"dtype": "int64", "shape": [1, 2], "data": [4, 5]}
FLOATS: Document = {"dtype": "float32", "shape": [2], "data": [1.0, 2.0], "rtol": 1e-4, "atol": 1e-5}


def expect(**outputs: Document) -> Document:
    return {"status": "ok", "outputs": outputs, "loop_iterations": 2}


def ints(*values: int) -> Array:
    return np.array([values], np.int64)


GOOD: list[tuple[Document, dict[str, Published]]] = [
    (expect(t={"kind": "tensor", **INTS}), {"t": ints(4, 5)}),
    (expect(t={"kind": "tensor", **FLOATS}), {"t": np.array([1.00001, 2.0], np.float32)}),
    (expect(t={"kind": "rows", "rows": [INTS, None]}), {"t": Rows((ints(4, 5), None))}),
    (expect(t={"kind": "events", "events": [INTS, INTS]}), {"t": Events((ints(4, 5), ints(4, 5)))}),
    (expect(), {}),
]
BAD: list[tuple[Document, dict[str, Published], str]] = [
    (expect(t={"kind": "tensor", **INTS}), {}, "missing"),
    (expect(), {"t": ints(4, 5)}, "not expected"),
    (expect(t={"kind": "tensor", **INTS}), {"t": ints(4, 6)}, "1 of 2 differ"),
    (expect(t={"kind": "tensor", **INTS}), {"t": ints(4, 5).astype(np.int32)}, "dtype"),
    (expect(t={"kind": "tensor", **INTS}), {"t": ints(4, 5)[0]}, "shape"),
    (expect(t={"kind": "tensor", **INTS}), {"t": Rows((ints(4, 5),))}, "expected tensor"),
    (expect(t={"kind": "tensor", **FLOATS}), {"t": np.array([1.001, 2.0], np.float32)}, "differ"),
    (expect(t={"kind": "tensor", **FLOATS}), {"t": np.array([np.nan, 2.0], np.float32)}, "differ"),
    (expect(t={"kind": "rows", "rows": [INTS, None]}), {"t": Rows((ints(4, 5),))}, "1 entries"),
    (expect(t={"kind": "rows", "rows": [INTS, None]}), {"t": Rows((ints(4, 5), ints(1)))}, "expected None"),
    (expect(t={"kind": "rows", "rows": [INTS]}), {"t": Rows((None,))}, "is None"),
    (expect(t={"kind": "rows", "rows": [INTS]}), {"t": Events((ints(4, 5),))}, "expected rows"),
]


@pytest.mark.parametrize(("wanted", "got"), GOOD)
def test_what_was_expected_passes(wanted: Document, got: Any) -> None:
    assert compare(wanted, got, 2) == []


@pytest.mark.parametrize(("wanted", "got", "word"), BAD)
def test_a_difference_is_named(wanted: Document, got: Any, word: str) -> None:
    faults = compare(wanted, got, None)
    assert len(faults) == 1
    assert word in faults[0]


def test_iterations_are_compared() -> None:
    assert compare(expect(), {}, 3) == ["3 loop iterations, expected 2"]


def test_large_tensors_are_judged_by_probes_or_hash() -> None:
    floats = {"dtype": "float32", "shape": [4], "sha256": "0", "probes": [[0, 1.0], [3, 2.0]], "rtol": 1e-4}
    near = np.array([1.0, 9.0, 9.0, 2.0], np.float32)
    assert compare(expect(t={"kind": "tensor", **floats}), {"t": near}, 2) == []
    assert compare(expect(t={"kind": "tensor", **floats}), {"t": near[::-1]}, 2) != []
    exact = {"dtype": "int64", "shape": [1, 2], "sha256": "0", "probes": [[0, 4]]}
    assert compare(expect(t={"kind": "tensor", **exact}), {"t": ints(4, 5)}, 2) != []
