"""Lists in graphs of numbers: what Python finds in them is what ONNX Runtime finds, with nothing left out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from genai_compiler.emit.names import Names
from genai_compiler.emit.number_views import NumberViews
from genai_compiler.read.single_numbers import GraphOfNumbers, NotNumbers, NumberProgram, number_program
from onnx import ModelProto, NodeProto, TensorProto, helper

from tests.read.test_single_numbers import BOOL, INT, SHORT, session_of

FLAT, WIDE = [1], [1, 1]
PLACES = (0, 1, 2, 3, 4, 5, 6, 7, 11, 29, 99, 100, -1, -2, -100, -101, 2**31 - 1, 2**62, -(2**63))
TABLE = [3, 1, 4, 1, 5, 9, 2, 6]
SPARSE = [int(at in (5, 29)) for at in range(100)]
RARE = [4 if at in (5, 29) else -7 for at in range(100)]
CONSTANTS: dict[str, Any] = {
    "ends": np.array([2, 5, 11]),
    "wide_ends": np.array([[2, 5, 11]]),
    "high_ends": np.array([[2], [5]]),
    "twice": np.array([5, 2, 5]),
    "shorts": np.array([2, 5], np.int32),
    "many": np.arange(65),
    "table": np.array(TABLE),
    "high_table": np.array(TABLE).reshape(-1, 1),
    "flags": np.array(TABLE) > 2,
    "sparse": np.array(SPARSE) == 1,
    "rare": np.array(RARE, np.int32),
    "three": np.array([1, 2] + [0] * 98),
    "last": np.array([-1]),
    "first": np.array([0]),
    "second": np.array([1]),
    "both": np.array([0, 1]),
    "zero": np.array([0]),
}
N = helper.make_node


def model(nodes: Sequence[NodeProto], result: int, shape: list[int], opset: int = 18) -> ModelProto:
    """Input `a` int64 of one element, `s` int32, `own` a list int64; constants by name; output `x`."""
    inputs = [helper.make_tensor_value_info("a", INT, shape), helper.make_tensor_value_info("s", SHORT, shape)]
    inputs.append(helper.make_tensor_value_info("own", INT, ["count"]))
    held = [
        helper.make_tensor(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape, each.reshape(-1))
        for name, each in CONSTANTS.items()
    ]
    graph = helper.make_graph(list(nodes), "g", inputs, [helper.make_tensor_value_info("x", result, None)], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def read(given: ModelProto, bound: Sequence[str] = ()) -> NumberProgram:
    ports = {each.name: each.name for each in given.graph.input} | {name: name for name in bound}
    numbers, lists = {"a": "int64", "s": "int32"}, {"own": "int64"}
    return number_program([GraphOfNumbers(given, "", ports, {"x": "x"})], numbers, {}, ["x"], lists)


def by_python(program: NumberProgram, place: int, own: Sequence[int]) -> Any:
    """What the lines that are written for it compute; None where they leave it to a session."""
    made = [None]
    views = NumberViews(program, {"a": "a[0]", "s": "s[0]"}, {}, "", Names(frozenset("as")), {"own": "own"})
    held: dict[str, Any] = {"a": [place], "s": [place], "own": tuple(own), "made": made}
    exec("\n".join([*views.lasting(), *views.computing()]), held)
    if not eval(" and ".join(views.fitting()) or "True", held):
        return None
    exec("\n".join(views.writing({"x": "made"})), held)
    return made[0]


def by_session(session: Any, place: int, own: Sequence[int], shape: list[int]) -> Any:
    """The element; None where the run fails."""
    short = place if -(2**31) <= place < 2**31 else 0
    feeds = {"a": np.full(shape, place), "s": np.full(shape, short, np.int32), "own": np.array(own, np.int64)}
    needed = {each.name for each in session.get_inputs()}
    try:
        (made,) = session.run(["x"], {name: each for name, each in feeds.items() if name in needed})
    except Exception:
        return None
    return made.item()


def any_of(*behind: NodeProto, equal: Sequence[str] = ("a", "ends"), to: int = SHORT) -> list[NodeProto]:
    return [N("Equal", equal, ["same"]), N("Cast", ["same"], ["hits"], to=to), *behind]


FORMS: dict[str, tuple[list[NodeProto], int, list[list[int]], int]] = {
    "largest, all axes": (any_of(N("ReduceMax", ["hits"], ["x"], keepdims=0)), SHORT, [FLAT, WIDE], 18),
    "largest, last axis": (any_of(N("ReduceMax", ["hits", "last"], ["x"])), SHORT, [FLAT, WIDE], 18),
    "largest, second axis": (any_of(N("ReduceMax", ["hits", "second"], ["x"])), SHORT, [WIDE], 18),
    "largest, first axis": (any_of(N("ReduceMax", ["hits", "first"], ["x"])), SHORT, [FLAT], 18),
    "largest, both axes": (any_of(N("ReduceMax", ["hits", "both"], ["x"])), SHORT, [WIDE], 18),
    "largest, axes of an attribute": (any_of(N("ReduceMax", ["hits"], ["x"], axes=[-1])), SHORT, [FLAT, WIDE], 13),
    "a truth value again": (
        any_of(N("ReduceMax", ["hits"], ["most"]), N("Cast", ["most"], ["x"], to=BOOL)), BOOL, [FLAT, WIDE], 18
    ),
    "largest truth value": (
        [N("Equal", ["ends", "a"], ["hits"]), N("ReduceMax", ["hits", "last"], ["x"])], BOOL, [FLAT, WIDE], 20
    ),
    "none of them": (
        [N("Equal", ["a", "wide_ends"], ["same"]), N("Not", ["same"], ["other"]),
         N("Cast", ["other"], ["hits"], to=INT), N("ReduceMin", ["hits", "second"], ["x"])], INT, [FLAT, WIDE], 18
    ),
    "the product of what differs": (
        [N("Equal", ["a", "ends"], ["same"]), N("Not", ["same"], ["other"]),
         N("Cast", ["other"], ["hits"], to=INT), N("ReduceProd", ["hits", "last"], ["x"])], INT, [FLAT, WIDE], 18
    ),
    "counted": (any_of(N("ReduceSum", ["hits", "last"], ["x"]), equal=("a", "twice"), to=INT), INT, [FLAT, WIDE], 18),
    "a list that stands": (
        any_of(N("ReduceMax", ["hits", "first"], ["x"]), equal=("a", "high_ends")), SHORT, [WIDE], 18
    ),
    "unsqueezed": (
        [N("Unsqueeze", ["ends", "first"], ["lying"]), N("Identity", ["lying"], ["there"]),
         *any_of(N("ReduceMax", ["hits", "second"], ["x"]), equal=("a", "there"))], SHORT, [FLAT, WIDE], 18
    ),
    "short numbers": (any_of(N("ReduceMax", ["hits"], ["x"]), equal=("shorts", "s")), SHORT, [FLAT, WIDE], 18),
    "a list of its own": (any_of(N("ReduceMax", ["hits", "last"], ["x"]), equal=("a", "own")), SHORT, [FLAT, WIDE], 18),
    "counted in its own": (
        any_of(N("ReduceSum", ["hits", "last"], ["x"]), equal=("own", "a"), to=INT), INT, [FLAT, WIDE], 18
    ),
    "a table": ([N("Gather", ["table", "a"], ["x"])], INT, [FLAT, WIDE], 18),
    "a table that stands": ([N("Gather", ["high_table", "s"], ["x"], axis=-2)], INT, [FLAT, WIDE], 18),
    "flags": ([N("Gather", ["flags", "a"], ["x"])], BOOL, [FLAT, WIDE], 18),
    "a long table of few flags": ([N("Gather", ["sparse", "a"], ["x"])], BOOL, [FLAT, WIDE], 18),
    "its opposite": ([N("Gather", ["sparse", "a"], ["f"]), N("Not", ["f"], ["x"])], BOOL, [FLAT, WIDE], 18),
    "a long table of two numbers": ([N("Gather", ["rare", "a"], ["x"])], SHORT, [FLAT, WIDE], 18),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_what_is_found_is_what_a_session_finds(form: str) -> None:
    """At every place; where a table has not it, or a list is empty, it is the session's to say so."""
    nodes, result, shapes, opset = FORMS[form]
    for shape in shapes:
        given = model(nodes, result, shape, opset)
        program, session = read(given), session_of(given)
        computed = 0
        for place in PLACES:
            for own in ([2, 5, 11], [5], [5, 5, 29, -1]):
                mine, wanted = by_python(program, place, own), by_session(session, place, own, shape)
                if mine is not None:
                    computed += 1
                    assert (mine, type(mine)) == (wanted, type(wanted)), (place, own)
                else:
                    assert wanted is None or place < 0 or abs(place) >= 2**31, (place, own)
        assert computed > 20
        assert by_python(program, 5, []) is None or not program.lists()
        assert by_python(program, 5, [5] * 65) is None or not program.lists()


@pytest.mark.parametrize(
    ("nodes", "bound", "operator"),
    [
        ([N("Equal", ["a", "ends"], ["x"])], (), ""),
        (any_of(N("ReduceMax", ["hits", "first"], ["x"])), (), "ReduceMax"),
        (any_of(N("ReduceMax", ["hits"], ["x"], noop_with_empty_axes=1)), (), "ReduceMax"),
        (any_of(N("ReduceMin", ["hits"], ["x"])), (), "ReduceMin"),
        (any_of(N("ReduceMax", ["hits", "last"], ["x"])), ("last",), "ReduceMax"),
        (any_of(N("ReduceMax", ["hits"], ["x"]), equal=("a", "many")), (), "Equal"),
        (any_of(N("ReduceMax", ["hits"], ["x"]), equal=("a", "shorts")), (), "Equal"),
        (any_of(N("Neg", ["hits"], ["x"])), (), "Neg"),
        (any_of(to=TensorProto.FLOAT), (), "Cast"),
        ([N("Gather", ["high_table", "a"], ["x"], axis=1)], (), "Gather"),
        ([N("Gather", ["three", "a"], ["x"])], (), "Gather"),
        ([N("Gather", ["own", "a"], ["x"])], (), "Gather"),
        ([N("Gather", ["table", "a"], ["x"])], ("table",), "Gather"),
        ([N("Add", ["a", "ends"], ["x"])], (), "Add"),
    ],
)  # fmt: skip
def test_what_is_more_than_a_number(nodes: list[NodeProto], bound: tuple[str, ...], operator: str) -> None:
    """Of two axes the first is no list's; a constant that something is bound to is none."""
    with pytest.raises(NotNumbers) as raised:
        read(model(nodes, INT, WIDE), bound)
    assert raised.value.args[0] == (f"its operator {operator}" if operator else "%x is no single number")


def test_a_place_that_a_table_has_not_counts_although_nobody_reads_the_entry() -> None:
    given = model([N("Gather", ["table", "a"], ["entry"]), N("Add", ["a", "zero"], ["x"])], INT, FLAT)
    program = read(given)
    assert by_python(program, 3, []) == 3
    assert by_python(program, 8, []) is None
