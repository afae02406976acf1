"""What a step still checks when it runs: what the document promises and nothing has proved (standard, 3.2)."""

from types import SimpleNamespace
from typing import Any

from genai_compiler.plan.checks import input_checks, output_checks
from genai_compiler.plan.ir import Check, Component, Dim, ExtentCheck, FormCheck, SymbolCheck, Type
from genai_compiler.plan.scope import Scope, Values

Dims = tuple[Dim, ...]
Ports = dict[str, Type]
Stated = dict[str, Dims | None]


def shaped(*dims: Dim, rows: int | None = None, factor: int = 1) -> Type:
    return Type("int64", len(dims), dims, rows, factor)


def package(graph_inputs: Stated, graph_outputs: Stated, requested: str, declared: bool) -> Any:
    """A package as far as checks look at it. declared: the document writes the component's ports."""
    sides = [
        tuple(SimpleNamespace(name=name, shape=dims, dtype="int64") for name, dims in each.items())
        for each in (graph_inputs, graph_outputs)
    ]
    ports = SimpleNamespace(inputs={"any": 0} if declared else {}, outputs={})
    return SimpleNamespace(
        graphs={"f": SimpleNamespace(signature=SimpleNamespace(inputs=sides[0], outputs=sides[1], defaulted=()))},
        workflow=SimpleNamespace(
            inputs=dict.fromkeys(requested.split()), components={"f": SimpleNamespace(ports=ports)}
        ),
    )


def before(ports: Ports, values: Ports, graph: Stated, requested: str = "", declared: bool = True) -> tuple[Check, ...]:
    """Checks of an invoke that binds ports to values in their order."""
    scope = Scope(Values())
    names = [scope.define(name, type) for name, type in values.items()]
    component = Component("f", "f.onnx", tuple(ports.items()), (), True, False, "")
    pairs = tuple(zip(ports, names, strict=True))
    return input_checks(component, pairs, scope, package(graph, {}, requested, declared))


def after(ports: Ports, graph: Stated, declared: bool = True) -> tuple[Check, ...]:
    component = Component("f", "f.onnx", (), tuple(ports.items()), True, False, "")
    return output_checks(component, tuple((port, f"v.{port}") for port in ports), package({}, graph, "", declared))


def test_a_number_that_only_the_contract_gives_is_checked() -> None:
    ports = {"a": shaped("n", 4)}
    assert before(ports, {"x": shaped(None, None)}, {"a": (None, None)}) == (ExtentCheck("x", 1, 4),)
    assert before(ports, {"x": shaped("n", "m")}, {"a": ("n", "m")}) == (ExtentCheck("x", 1, 4),)
    assert before(ports, {"x": Type("int64", 2)}, {"a": (None, None)}) == (ExtentCheck("x", 1, 4),)
    assert after(ports, {"a": ("n", "m")}) == (ExtentCheck("v.a", 1, 4),)


def test_a_number_that_the_graph_has_is_onnx_runtimes_affair() -> None:
    ports = {"a": shaped("n", 4)}
    assert before(ports, {"x": shaped(None, None)}, {"a": (None, 4)}) == ()
    assert after(ports, {"a": (None, 4)}) == ()


def test_a_number_that_the_value_is_known_to_have_needs_no_check() -> None:
    assert before({"a": shaped("n", 4)}, {"x": shaped(None, 4)}, {"a": (None, None)}) == ()


def test_ports_that_share_a_symbol_are_compared() -> None:
    ports = {"a": shaped("n"), "b": shaped(2, "n")}
    graph: Stated = {"a": (None,), "b": (2, None)}
    wanted = SymbolCheck("n", (("x", 0, 1), ("y", 1, 1)))
    assert before(ports, {"x": shaped(None), "y": shaped(2, None)}, graph) == (wanted,)
    assert before(ports, {"x": shaped(3), "y": shaped(2, None)}, graph) == (wanted,)
    assert after(ports, graph) == (SymbolCheck("n", (("v.a", 0, 1), ("v.b", 1, 1))),)


def test_extents_that_are_known_to_agree_are_not_compared() -> None:
    ports = {"a": shaped("n"), "b": shaped("n")}
    graph: Stated = {"a": (None,), "b": (None,)}
    assert before(ports, {"x": shaped(3), "y": shaped(3)}, graph) == ()
    bound = {"x": shaped("batch"), "y": shaped("batch")}
    assert before(ports, bound, graph, requested="x y") == (), "binding the request has unified them"
    assert len(before(ports, bound, graph, requested="x")) == 1, "equal spelling elsewhere means nothing"


def test_expanded_rows_are_compared_by_request() -> None:
    ports = {"a": shaped("n", rows=0), "b": shaped("n", rows=0, factor=2)}
    values = {"x": shaped("batch"), "y": shaped("batch")}
    (check,) = before(ports, values, {"a": (None,), "b": (None,)}, requested="x y")
    assert check == SymbolCheck("n", (("x", 0, 1), ("y", 0, 2)))


def test_symbols_of_a_graph_without_declared_ports_are_the_graphs_own() -> None:
    ports = {"a": shaped("n"), "b": shaped("n")}
    assert before(ports, {"x": shaped(None), "y": shaped(None)}, {}, declared=False) == ()
    assert after(ports, {}, declared=False) == ()


def test_a_port_that_the_component_lacks_is_reported_elsewhere() -> None:
    scope = Scope(Values())
    scope.define("x", shaped(None))
    component = Component("f", "f.onnx", (("a", shaped(4)),), (("b", shaped(4)),), True, False, "")
    fake = package({}, {}, "", True)
    assert input_checks(component, (("other", "x"),), scope, fake) == ()
    assert output_checks(component, (("other", "y"),), fake) == ()


def test_a_rank_that_neither_graph_nor_value_says_is_checked() -> None:
    ports, open = {"a": shaped("n", "m")}, Type("int64", 0, (), ranked=False)
    assert before(ports, {"x": open}, {"a": None}) == (FormCheck("x", "", 2),)
    assert before(ports, {"x": open}, {"a": (None, None)}) == ()
    assert before(ports, {"x": shaped("n", "m")}, {"a": None}) == ()
    assert after(ports, {"a": None}) == (FormCheck("v.a", "", 2),)
    assert after({"a": open}, {"a": None}) == ()
