"""Graphs of different versions of operators: linked where nothing that they use changed in between, else apart."""

from pathlib import Path

import onnx
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.plan.text import plan_text
from genai_compiler.problem import errors
from genai_compiler.read.opsets import NO_OPSETS, opsets_of
from onnx import ModelProto, NodeProto, TensorProto, defs, helper

from tests.conftest import FIXTURES
from tests.test_adversary_islands import NUMBERS, judged, op, pair, port

Versions = tuple[int, int]


def model(*nodes: NodeProto, versions: dict[str, int], function: tuple[NodeProto, int] | None = None) -> ModelProto:
    """x float32 [n] -> y. function: the body of local.F (p -> q), and the version that it imports."""
    imports = [helper.make_opsetid(*each) for each in versions.items()]
    graph = helper.make_graph(list(nodes), "g", [port("x", "n")], [port("y", "n")])
    functions = []
    if function is not None:
        own = [helper.make_opsetid("", function[1])]
        functions = [helper.make_function("local", "F", ["p"], ["q"], [function[0]], own)]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=10)


def two(root: Path, first: ModelProto, second: ModelProto) -> Path:
    root.mkdir()
    onnx.save(first, root / "a.onnx")
    onnx.save(second, root / "b.onnx")
    return pair(root, "a.onnx", "b.onnx")


def plain(versions: Versions, operators: tuple[str, str] = ("Exp", "Neg")) -> list[ModelProto]:
    made = zip(versions, operators, strict=True)
    return [model(op(operator, ["x"], ["y"]), versions={"": version}) for version, operator in made]


@pytest.mark.parametrize("versions", [(17, 21), (21, 17), (13, 22)])
def test_unchanged_operators_are_linked_at_the_highest_version(versions: Versions, tmp_path: Path) -> None:
    """Exp and Neg are what they were since version 13: the values are those of the reference, and one graph runs."""
    made = judged(two(tmp_path / "package", *plain(versions)), NUMBERS, tmp_path)
    assert made.out is not None
    linked = onnx.load(made.out / "graphs" / "island_1.onnx")
    assert [(each.domain, each.version) for each in linked.opset_import] == [("", max(versions))]
    onnx.checker.check_model(linked, full_check=True)


@pytest.mark.parametrize("versions", [(17, 21), (21, 17)])
def test_a_changed_operator_keeps_them_apart(versions: Versions, tmp_path: Path) -> None:
    """Identity got further types in 19 and 21. The plan names it."""
    lower = "Identity"
    names = ("Exp", lower) if versions[1] == 17 else (lower, "Exp")
    made = judged(two(tmp_path / "package", *plain(versions, names)), NUMBERS, tmp_path, members=())
    assert made.plan is not None
    why = "'Identity' of ONNX 17 is another operator since version 21, and others are of version 21"
    assert f"boundary a | b: {why}" in plan_text(made.plan).splitlines()


def test_a_changed_operator_of_the_highest_version_is_no_hindrance(tmp_path: Path) -> None:
    judged(two(tmp_path / "package", *plain((17, 21), ("Exp", "Identity"))), NUMBERS, tmp_path)


def test_versions_of_functions_count(tmp_path: Path) -> None:
    """A function states its own; linked, it is called in a graph of version 21."""
    call, both = op("F", ["x"], ["y"], domain="local"), {"": 17, "local": 1}
    (later,) = plain((21, 21))[1:]
    for operator, members in (("Exp", ("a", "b")), ("Identity", ())):
        first = model(call, versions=both, function=(op(operator, ["p"], ["q"]), 17))
        made = judged(two(tmp_path / operator, first, later), NUMBERS, tmp_path / f"out {operator}", members)
        assert made.out is not None
        if members:
            linked = onnx.load(made.out / "graphs" / "island_1.onnx")
            onnx.checker.check_model(linked, full_check=True)


def test_branches_are_looked_into() -> None:
    made = [helper.make_tensor_value_info("r", TensorProto.FLOAT, ["n"])]
    bodies = [helper.make_graph([op(each, ["x"], ["r"])], each, [], made) for each in ("Exp", "Reshape")]
    nodes = [op("If", ["c"], ["y"], then_branch=bodies[0], else_branch=bodies[1])]
    assert ("", "Reshape", 17) in opsets_of(model(*nodes, versions={"": 17})).used


@pytest.mark.parametrize(
    ("domain", "versions", "why"),
    [
        ("com.example", (1, 2), "nothing says whether 'Thing' of com.example 1 is the same in version 2"),
        ("ai.onnx", (17, 21), "nothing says whether 'Thing' of ONNX 17 is the same in version 21"),
        ("com.example", (2, 2), ""),
    ],
)
def test_what_is_not_known_is_not_assumed(domain: str, versions: Versions, why: str) -> None:
    found = NO_OPSETS
    for version in versions:
        node = op("Thing", ["x"], ["y"], domain=domain)
        found = found.joined(opsets_of(model(node, versions={domain: version})))
    assert found.conflict() == why


def test_versions_that_the_library_does_not_know_are_not_assumed() -> None:
    beyond = int(defs.onnx_opset_version()) + 1
    found = opsets_of(plain((21, 21))[0]).joined(opsets_of(plain((beyond, beyond))[1]))
    assert found.conflict() == f"nothing says whether 'Exp' of ONNX 21 is the same in version {beyond}"


def test_stages_of_versions_that_differ_are_refused(tmp_path: Path) -> None:
    """Stages are always linked: their operators would have run as those of another version. The odd one is named."""
    root = tmp_path / "package"
    root.mkdir()
    for each in (FIXTURES / "tiny-stages-v1").iterdir():
        (root / each.name).write_bytes(each.read_bytes())
    head = onnx.load(root / "lm_head.onnx")
    assert {each.op_type for each in head.graph.node}
    head.opset_import[0].version = 12
    onnx.save(head, root / "lm_head.onnx")
    with pytest.raises(CompileError, match=r"can't be linked with the others: .* of ONNX 12 is") as refused:
        compile_package(root, tmp_path / "out")
    assert [each.path for each in errors(refused.value.problems)] == ["pipeline.workflow.components.lm_head"]
