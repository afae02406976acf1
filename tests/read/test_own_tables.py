"""Extents that a graph's own tables of positions bound: ONNX Runtime runs at the limit, and fails beside it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
from genai_compiler.read.own_tables import Limit, grown_rows, own_limits, shifted_rows
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

ROWS, WIDTH = 7, 4
Built = tuple[list[NodeProto], dict[str, Any], str]
"""Nodes, constants, and what the graph gives."""
node = helper.make_node


def graph(
    built: Built, takes: tuple[str, int, list[Any]] = ("ids", TensorProto.INT64, ["rows", "length"])
) -> ModelProto:
    nodes, held, gives = built
    value = helper.make_tensor_value_info
    tensors = [numpy_helper.from_array(np.asarray(each), name) for name, each in held.items()]
    made = helper.make_graph(nodes, "g", [value(*takes)], [value(gives, TensorProto.FLOAT, None)], tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(made, opset_imports=opsets, ir_version=10)


def table(rows: int = ROWS) -> Any:
    return np.random.default_rng(0).normal(size=(rows, WIDTH)).astype(np.float32)


WORDS = {"words": table(20), "zero": np.array(0), "one": np.array(1), "ones": np.array([1]), "zeros": np.array([0])}
HELD = {
    **WORDS,
    "table": table(),
    "places": np.arange(ROWS).reshape(1, ROWS),
    "two": np.array(2),
    "six": np.array(6),
    "back": np.array(-1),
    "twos": np.array([2]),
}
EMBED = node("Gather", ["words", "ids"], ["x"])
SUM = node("Add", ["x", "p"], ["y"])


def by_range(add: str = "") -> Built:
    """Range up to the length, moved by a constant."""
    nodes = [EMBED, node("Shape", ["ids"], ["s"]), node("Gather", ["s", "one"], ["n"])]
    nodes += [node("Range", ["zero", "n", "one"], ["r"])]
    nodes += [node("Add", ["r", add], ["m"])] if add else []
    return [*nodes, node("Gather", ["table", "m" if add else "r"], ["p"]), SUM], HELD, "y"


def by_shape_slice() -> Built:
    """The length as a part of the shape, cut out of it."""
    nodes = [EMBED, node("Shape", ["x"], ["s"]), node("Slice", ["s", "ones", "twos"], ["n1"])]
    nodes += [node("Squeeze", ["n1"], ["n"]), node("Range", ["zero", "n", "one"], ["r"])]
    return [*nodes, node("Unsqueeze", ["r", "zeros"], ["u"]), node("Gather", ["table", "u"], ["p"]), SUM], HELD, "y"


def by_head_of_numbers() -> Built:
    """The first numbers of a stored list of positions."""
    nodes = [EMBED, node("Shape", ["ids"], ["n"], start=1, end=2)]
    nodes += [node("Slice", ["places", "zeros", "n", "ones"], ["r"]), node("Gather", ["table", "r"], ["p"])]
    return [*nodes, SUM], HELD, "y"


def by_head_of_table() -> Built:
    nodes = [EMBED, node("Shape", ["ids"], ["n"], start=1, end=2)]
    return [*nodes, node("Slice", ["table", "zeros", "n", "zeros"], ["p"]), SUM], HELD, "y"


def by_running_sum() -> Built:
    """Positions counted over what is no padding, and moved behind it."""
    nodes = [EMBED, node("Equal", ["ids", "two"], ["e"]), node("Not", ["e"], ["t"])]
    nodes += [node("Cast", ["t"], ["c"], to=TensorProto.INT64), node("CumSum", ["c", "one"], ["k"])]
    nodes += [node("Mul", ["k", "c"], ["l"]), node("Add", ["l", "two"], ["m"]), node("Gather", ["table", "m"], ["p"])]
    return [*nodes, SUM], HELD, "y"


def looked_up(*made: NodeProto) -> Built:
    """What the nodes make of the length n, as `i`, looks into the table."""
    nodes = [node("Shape", ["ids"], ["s"]), node("Gather", ["s", "one"], ["n"]), *made]
    return [*nodes, node("Gather", ["table", "i"], ["y"])], HELD, "y"


UP = node("Range", ["zero", "n", "one"], ["r"])
"""0, 1, ... up to the length."""


def by_convolutions(stride: int, dilation: int) -> Built:
    """The whole table beside what two convolutions leave of a sound."""
    random = np.random.default_rng(1)
    held = {"table": table(), "a": random.normal(size=(WIDTH, 2, 3)), "b": random.normal(size=(WIDTH, WIDTH, 3))}
    nodes = [
        node("Conv", ["sound", "a"], ["c"], kernel_shape=[3], pads=[1, 1]),
        node("Gelu", ["c"], ["g"]),
        node("Conv", ["g", "b"], ["d"], kernel_shape=[3], pads=[1, 0], strides=[stride], dilations=[dilation]),
        node("Transpose", ["d"], ["x"], perm=[0, 2, 1]),
        node("Add", ["table", "x"], ["y"]),
    ]
    return nodes, {name: np.asarray(each, np.float32) for name, each in held.items()}, "y"


IDS = ("ids", TensorProto.INT64, ["rows", "length"])
SOUND = ("sound", TensorProto.FLOAT, ["rows", 2, "frames"])
CASES: list[tuple[str, Built, Any]] = [
    ("range", by_range(), IDS),
    ("range, moved by two", by_range("two"), IDS),
    ("a part of the shape", by_shape_slice(), IDS),
    ("head of a list of positions", by_head_of_numbers(), IDS),
    ("head of the table", by_head_of_table(), IDS),
    ("running sum", by_running_sum(), IDS),
    ("numbers taken from a constant", looked_up(UP, node("Sub", ["six", "r"], ["i"])), IDS),
    ("a constant taken away", looked_up(UP, node("Sub", ["r", "two"], ["i"])), IDS),
    ("downwards", looked_up(node("Sub", ["n", "one"], ["l"]), node("Range", ["l", "back", "back"], ["i"])), IDS),
    (
        "downwards, from behind",
        looked_up(node("Range", ["n", "zero", "back"], ["d"]), node("Sub", ["one", "d"], ["i"])),
        IDS,
    ),
    ("every other one", looked_up(node("Range", ["one", "n", "two"], ["i"])), IDS),
    ("twice as far", looked_up(UP, node("Mul", ["two", "r"], ["t"]), node("Add", ["t", "one"], ["i"])), IDS),
    (
        "a length that a constant is added to",
        looked_up(node("Add", ["two", "n"], ["l"]), node("Range", ["zero", "l", "one"], ["i"])),
        IDS,
    ),
    ("convolutions", by_convolutions(2, 1), SOUND),
    ("dilated convolutions", by_convolutions(3, 2), SOUND),
]


def opened(model: ModelProto) -> onnxruntime.InferenceSession:
    """As the graph is: a Gather by a Range, optimised, is a Slice, which gives fewer rows than were asked for."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def runs(model: ModelProto, takes: Any) -> Callable[[int], bool]:
    """Whether ONNX Runtime runs the graph on an input so long."""
    session = opened(model)

    def at(length: int) -> bool:
        given = np.ones((1, length), np.int64) if takes == IDS else np.ones((1, 2, length), np.float32)
        try:
            session.run(None, {takes[0]: given})
        except Exception:
            return False
        return True

    return at


@pytest.mark.parametrize(("built", "takes"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_run_works_up_to_the_limit_and_no_further(built: Built, takes: Any) -> None:
    model = graph(built, takes)
    (limit,) = own_limits(model)
    assert (limit.input, limit.axis) == (takes[0], len(takes[2]) - 1)
    at = runs(model, takes)
    least = limit.least or 2
    assert [at(each) for each in (least, limit.most, limit.most + 1)] == [True, True, False]
    assert not limit.least or not at(limit.least - 1)


MASK = [node("Equal", ["ids", "six"], ["e"]), node("Not", ["e"], ["t"]), node("Cast", ["t"], ["m"], to=7)]
"""1 for every number but 6."""
MOVED: dict[str, list[NodeProto]] = {
    "as they are": [node("Identity", ["ids"], ["i"])],
    "times a mask": [*MASK, node("Mul", ["ids", "m"], ["i"])],
    "a mask times them": [*MASK, node("Mul", ["m", "ids"], ["k"]), node("Add", ["k", "two"], ["i"])],
    "times a constant": [node("Mul", ["ids", "two"], ["i"])],
    "two taken away": [node("Sub", ["ids", "two"], ["i"])],
    "taken from a constant": [node("Sub", ["six", "ids"], ["i"])],
}


@pytest.mark.parametrize("name", MOVED)
def test_an_inputs_own_numbers_look_into_the_table(name: str) -> None:
    """So many positions, from 0 on, as ONNX Runtime finds rows for."""
    model = graph(([*MOVED[name], node("Gather", ["table", "i"], ["y"])], HELD, "y"))
    most = shifted_rows(model, "ids")
    assert most is not None
    session = opened(model)
    session.run(None, {"ids": np.array([[0, most - 1]])})
    with pytest.raises(Exception, match="indices element out of data bounds"):
        session.run(None, {"ids": np.array([[most]])})


def behind_past(*made: NodeProto, step: str = "one") -> ModelProto:
    """Numbers `r` from what a cache holds on, one for each of the new tokens; `i` of them looks into the table."""
    value = helper.make_tensor_value_info
    length = [node("Shape", ["past"], ["p"]), node("Gather", ["p", "one"], ["q"]), node("Add", ["q", "n"], ["e"])]
    model = graph(looked_up(*length, node("Range", ["q", "e", step], ["r"]), *made))
    model.graph.input.append(value("past", TensorProto.FLOAT, ["rows", "held"]))
    return model


@pytest.mark.parametrize(
    "made",
    [node("Identity", ["r"], ["i"]), node("Add", ["two", "r"], ["i"]), node("Sub", ["r", "two"], ["i"]),
     node("Sub", ["six", "r"], ["i"]), node("Mul", ["r", "two"], ["i"])],
    ids=["as they are", "two added", "two taken away", "taken from six", "doubled"],
)  # fmt: skip
def test_what_counts_on_from_a_cache(made: NodeProto) -> None:
    model = behind_past(made)
    most = grown_rows(model)
    assert most is not None
    session = opened(model)

    def at(held: int) -> None:
        session.run(None, {"ids": np.ones((1, 1), np.int64), "past": np.zeros((1, held), np.float32)})

    at(most - 1)
    with pytest.raises(Exception, match="indices element out of data bounds"):
        at(most)


@pytest.mark.parametrize("step", ["two", "back"])
def test_other_strides_count_no_positions(step: str) -> None:
    assert grown_rows(behind_past(node("Identity", ["r"], ["i"]), step=step)) is None


def test_the_shortest_of_two_tables_counts() -> None:
    nodes, held, _ = by_range()
    nodes = [*nodes, node("Gather", ["short", "r"], ["q"]), node("Add", ["y", "q"], ["z"])]
    assert own_limits(graph((nodes, {**held, "short": table(3)}, "z"))) == (Limit("ids", 1, 3),)


def unbounded() -> dict[str, Built]:
    """Graphs in which no table bounds a length."""
    scaled, clipped = by_range(), by_range()
    by_ids = ([node("Gather", ["table", "ids"], ["y"])], HELD, "y")
    one_row = ([EMBED, node("Add", ["x", "line"], ["y"])], {**HELD, "line": table(1)}, "y")
    scaled = (
        [*scaled[0][:4], node("Mul", ["r", "zero"], ["m"]), node("Gather", ["table", "m"], ["p"]), SUM],
        HELD,
        "y",
    )
    nodes = [*clipped[0][:4], node("Min", ["r", "two"], ["m"]), node("Gather", ["table", "m"], ["p"]), SUM]
    return {"ids": by_ids, "one row": one_row, "scaled": scaled, "clipped": (nodes, HELD, "y")}


@pytest.mark.parametrize("name", list(unbounded()))
def test_what_is_no_limit(name: str) -> None:
    model = graph(unbounded()[name])
    assert own_limits(model) == ()
    if name != "ids":  # there it is the ids' own values that must have rows
        assert runs(model, IDS)(ROWS + 5)


def test_a_fixed_length_needs_no_limit() -> None:
    assert own_limits(graph(by_range(), ("ids", TensorProto.INT64, ["rows", 5]))) == ()
