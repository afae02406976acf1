"""Graphs of single numbers: what Python makes of them is what ONNX Runtime makes of the graph, bit by bit."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from genai_compiler.emit.names import Names
from genai_compiler.emit.number_views import NumberViews
from genai_compiler.read.single_numbers import GraphOfNumbers, NotNumbers, NumberProgram, number_program
from onnx import ModelProto, NodeProto, TensorProto, helper

INT, SHORT, BOOL = TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL
PORTS = {"a": INT, "b": INT, "s": SHORT, "t": SHORT, "p": BOOL, "q": BOOL}
DTYPES = {INT: "int64", SHORT: "int32", BOOL: "bool"}
WIDTH = 5
Values = Mapping[str, np.ndarray[Any, Any]]


def graph(nodes: list[NodeProto], results: Mapping[str, int], inputs: Mapping[str, int] = PORTS) -> ModelProto:
    """Inputs of one element; `row` int64 [1, 5]; some constants."""
    ports = [helper.make_tensor_value_info(name, type, [1]) for name, type in inputs.items()]
    ports += [helper.make_tensor_value_info("row", INT, [1, WIDTH]), helper.make_tensor_value_info("slot", INT, [1, 1])]
    outputs = [helper.make_tensor_value_info(name, type, None) for name, type in results.items()]
    constants = [helper.make_tensor(f"c{each}", INT, [1], [each]) for each in (0, 1, 3)]
    constants.append(helper.make_tensor("pair", INT, [2], [1, 1]))
    made = helper.make_graph(nodes, "g", ports, outputs, constants)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def read(model: ModelProto, results: list[str]) -> NumberProgram:
    ports = {each.name: each.name for each in model.graph.input}
    numbers = {
        name: DTYPES[each.type.tensor_type.elem_type] for each in model.graph.input if (name := each.name) != "row"
    }
    outputs = {each.name: each.name for each in model.graph.output}
    return number_program([GraphOfNumbers(model, "", ports, outputs)], numbers, {"row": "int64"}, results)


def by_python(program: NumberProgram, values: Values) -> dict[str, Any] | None:
    """What the lines that are written for it compute; None where they leave it to a session."""
    flat = {name: each.reshape(-1).data for name, each in values.items()}
    given = {name: f"flat[{name!r}][0]" for name in values if name != "row"}
    made = {port: [None] for port, _ in program.outputs}
    rows = {"row": "flat['row']", **{put.gives: f"made_rows[{put.gives!r}]" for put in program.puts}}
    lengths = {name: f"len({row})" for name, row in rows.items()}
    names = Names(frozenset({"flat", "made", "made_rows"}))
    views = NumberViews(program, given, rows, "", names, lengths=lengths)
    held: dict[str, Any] = {"flat": flat, "made": made, "made_rows": {put.gives: [0] * WIDTH for put in program.puts}}
    exec("\n".join(views.computing()), held)
    if not eval(" and ".join(views.fitting()) or "True", held):
        return None
    exec("\n".join(views.writing({port: f"made[{port!r}]" for port in made})), held)
    return {**{port: each[0] for port, each in made.items()}, **held["made_rows"]}


def session_of(model: ModelProto) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


WHOLE = {"Add": 2, "Sub": 2, "Mul": 2, "Neg": 1, "Abs": 1, "Min": 2, "Max": 3,
         "BitwiseAnd": 2, "BitwiseOr": 2, "BitwiseXor": 2, "BitwiseNot": 1,
         "ReduceSum": 1, "ReduceProd": 1, "ReduceMax": 1, "ReduceMin": 1}  # fmt: skip
COMPARED = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
LOGICAL = {"And": 2, "Or": 2, "Xor": 2, "Not": 1}
EDGES = (0, 1, -1, 2, 3, 7, -8, 2**31 - 1, -(2**31))
LONG = (*EDGES, 2**31, 2**40, 2**53 + 1, -(2**60) - 1, 2**63 - 1, -(2**63), 2**62)


def any_nodes(draw: np.random.Generator) -> tuple[list[NodeProto], dict[str, int]]:
    """Operators on what is there so far; the types of the last results."""
    known = {**PORTS, "c0": INT, "c1": INT, "c3": INT}
    nodes = list[NodeProto]()

    def some(type: int, count: int) -> list[str]:
        return [str(draw.choice([name for name, each in known.items() if each == type])) for _ in range(count)]

    for at in range(int(draw.integers(2, 9))):
        type, kind = int(draw.choice([INT, INT, SHORT])), draw.integers(0, 6)
        if kind < 2:
            op = str(draw.choice(list(WHOLE)))
            taken, made, more = some(type, WHOLE[op]), type, {}
        elif kind == 2:
            op, made, more = str(draw.choice(COMPARED)), BOOL, {}
            taken = some(BOOL if op == "Equal" and draw.random() < 0.3 else type, 2)
        elif kind == 3:
            op = str(draw.choice(list(LOGICAL)))
            taken, made, more = some(BOOL, LOGICAL[op]), BOOL, {}
        elif kind == 4:
            op, made, more = "Where", type, {}
            taken = [*some(BOOL, 1), *some(type, 2)]
        else:
            op, made = "Cast", int(draw.choice([INT, SHORT, BOOL]))
            taken, more = some(int(draw.choice([INT, SHORT, BOOL])), 1), {"to": made}
        nodes.append(helper.make_node(op, taken, [f"v/{at}"], **more))
        known[f"v/{at}"] = made
    return nodes, {name: type for name, type in known.items() if name.startswith("v/")}


def any_values(draw: np.random.Generator) -> Values:
    small = draw.random() < 0.5
    numbers = {name: draw.choice([0, 1, 2, 3, 4, -1] if small else LONG) for name in ("a", "b", "slot")}
    shorts = {name: draw.choice([0, 1, 2, -3] if small else EDGES) for name in ("s", "t")}
    flags = {name: np.array([draw.random() < 0.5]) for name in ("p", "q")}
    return {
        **{name: np.array([each], np.int64) for name, each in numbers.items() if name != "slot"},
        "slot": np.array([[numbers["slot"]]], np.int64),
        **{name: np.array([each], np.int32) for name, each in shorts.items()},
        **flags,
        "row": draw.integers(0, 9, (1, WIDTH)),
    }


def test_any_graph_of_numbers_gives_what_a_session_gives() -> None:
    """Extremes of the types included: where a number would leave its type, it is left to the session."""
    seen = {"computed": 0, "left": 0}
    for seed in range(300):
        draw = np.random.default_rng(seed)
        nodes, results = any_nodes(draw)
        model = graph(nodes, results)
        program, session = read(model, list(results)), session_of(model)
        for _ in range(8):
            values = any_values(draw)
            mine = by_python(program, values)
            seen["left" if mine is None else "computed"] += 1
            if mine is not None:
                wanted = zip(results, session.run(list(results), dict(values)), strict=True)
                assert mine == {name: each.item() for name, each in wanted}, (seed, nodes)
                assert all(isinstance(each, bool) == (results[name] == BOOL) for name, each in mine.items())
    assert seen["computed"] > 1000
    assert seen["left"] > 40


@pytest.mark.parametrize("place", [0, 2, WIDTH - 1, WIDTH, -1, -WIDTH - 1, 2**63 - 1])
def test_a_row_gets_a_number_at_a_place_that_it_has(place: int) -> None:
    """A place from behind, and one that is not there, are the session's."""
    nodes = [
        helper.make_node("Shape", ["slot"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["ones"], value=helper.make_tensor("v", INT, [1], [7])),
        helper.make_node("ScatterElements", ["row", "slot", "ones"], ["next"], axis=1),
    ]
    model = graph(nodes, {"next": INT})
    values = {**any_values(np.random.default_rng(1)), "slot": np.array([[place]])}
    mine = by_python(read(model, ["next"]), values)
    if 0 <= place < WIDTH:
        assert mine == {"next": session_of(model).run(["next"], dict(values))[0][0].tolist()}
    else:
        assert mine is None


def test_changes_of_shape_are_none() -> None:
    """Squeezed, reduced and expanded it is one number still."""
    nodes = [
        helper.make_node("Squeeze", ["slot", "c1"], ["flat"]),
        helper.make_node("Reshape", ["flat", "pair"], ["wide"]),
        helper.make_node("ReduceMax", ["wide"], ["most"], keepdims=0),
        helper.make_node("Unsqueeze", ["most", "c0"], ["more"]),
        helper.make_node("Shape", ["wide"], ["shape"]),
        helper.make_node("Expand", ["most", "shape"], ["end"]),
    ]
    program = read(graph(nodes, {"more": INT, "end": INT}), ["more", "end"])
    assert (program.steps, program.outputs) == ((), (("more", "slot"), ("end", "slot")))


def test_what_nobody_asks_for_is_not_computed() -> None:
    nodes = [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Not", ["p"], ["not"])]
    program = read(graph(nodes, {"sum": INT, "not": BOOL}), ["not"])
    assert [step.operator for step in program.steps] == ["Not"]
    assert program.reads() == {"p"}


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([helper.make_node("Div", ["a", "b"], ["x"])], "its operator Div"),
        ([helper.make_node("Add", ["row", "a"], ["x"])], "its operator Add"),
        ([helper.make_node("Cast", ["a"], ["x"], to=TensorProto.FLOAT)], "its operator Cast"),
        ([helper.make_node("Less", ["p", "q"], ["x"])], "its operator Less"),
        ([helper.make_node("Reshape", ["a", "b"], ["x"])], "its operator Reshape"),
        ([helper.make_node("Add", ["a", "b"], ["x"], domain="elsewhere")], "its operator Add"),
        ([helper.make_node("Identity", ["row"], ["x"])], "its operator Identity"),
        ([helper.make_node("ScatterElements", ["row", "slot", "slot"], ["x"], axis=1, reduction="add")],
         "ScatterElements writes more than one number into a row"),
        ([helper.make_node("ScatterElements", ["row", "slot", "slot"], ["y"], axis=1),
          helper.make_node("Identity", ["y"], ["x"])], "what ScatterElements gives goes on inside the graph"),
    ],
)  # fmt: skip
def test_what_is_more_than_numbers(nodes: list[NodeProto], why: str) -> None:
    with pytest.raises(NotNumbers) as raised:
        read(graph(nodes, {"x": INT}), ["x"])
    assert raised.value.args[0] == why


def squares(count: int) -> list[NodeProto]:
    """`a` squared so many times over."""
    names = ["a", *(f"v/{at}" for at in range(count))]
    return [helper.make_node("Mul", [one, one], [other]) for one, other in pairwise(names)]


def test_products_that_would_grow_without_bound_are_the_sessions() -> None:
    """Each square has twice the bits: 24 take Python some 20 seconds, 40 its memory; a session none."""
    program = read(graph(squares(6), {"v/5": INT}), ["v/5"])
    assert by_python(program, {**any_values(np.random.default_rng(1)), "a": np.array([2])}) is None
    assert by_python(program, {**any_values(np.random.default_rng(1)), "a": np.array([1])}) == {"v/5": 1}
    with pytest.raises(NotNumbers, match="its products may come to more than 4096 bits"):
        read(graph(squares(24), {"v/23": INT}), ["v/23"])


def test_a_bound_port_is_no_constant() -> None:
    """A graph may have a default of an input; what is bound to it counts."""
    model = graph([helper.make_node("Add", ["a", "c1"], ["x"])], {"x": INT})
    ports = {each.name: each.name for each in model.graph.input} | {"c1": "one"}
    given = GraphOfNumbers(model, "", ports, {"x": "x"})
    program = number_program([given], {"a": "int64", "one": "int64"}, {}, ["x"])
    assert program.steps[0].takes == ("a", "one")
    with pytest.raises(NotNumbers, match="its operator Add"):
        number_program([given], {"a": "int64"}, {}, ["x"])
