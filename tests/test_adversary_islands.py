"""Packages whose graphs make linking them, or proving their extents, go wrong: the values are those of single runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import pytest
from genai_compiler import Compiled, CompileError, compile_package
from genai_runtime import ExecutionError
from onnx import FunctionProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from tests.reference.interpreter import interpret
from tests.reference.values import ReferenceError
from tools.fixtures.document import Document, application, emit, invoke, output, package, tensor, write_document
from tools.fixtures.document import onnx as component

X, FLAG = tensor("float32", "n"), tensor("bool")
DTYPES = {"float32": TensorProto.FLOAT, "bool": TensorProto.BOOL, "int64": TensorProto.INT64}
op = helper.make_node


def port(name: str, *shape: int | str, dtype: str = "float32") -> ValueInfoProto:
    return helper.make_tensor_value_info(name, DTYPES[dtype], shape)


def save(
    file: Path,
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto] = (port("x", "n"),),
    outputs: Sequence[ValueInfoProto] = (port("y", "n"),),
    functions: Sequence[FunctionProto] = (),
    ir_version: int = 8,
    **weights: Any,
) -> None:
    held = [numpy_helper.from_array(np.asarray(each), name) for name, each in weights.items()]
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), held)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    model = helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=ir_version)
    file.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, file, "textproto" if file.name.endswith("textproto") else None)


def write(
    folder: Path,
    components: Document,
    steps: Sequence[Document],
    inputs: Document | None = None,
    outputs: Document | None = None,
) -> Path:
    """A package of these steps; what they make is emitted by name."""
    emits = [emit(name, f"out {name}") for name in outputs or ()]
    made = {f"out {name}": output(each) for name, each in (outputs or {}).items()}
    capabilities = ["workflow_ssa", "typed_emit"]
    write_document(folder, package(capabilities, inputs or {}, made, components, [*steps, *emits]))
    return folder


def judged(root: Path, inputs: dict[str, Any], tmp_path: Path, members: Sequence[str] = ("a", "b")) -> Compiled:
    """Compile, run, and hold against the reference; `members` are one island, none where there are no names."""
    made = compile_package(root, tmp_path / "compiled")
    assert made.plan is not None
    assert [str(each.component) for each in islands(made)] == list(members)
    given = {name: np.asarray(each) for name, each in inputs.items()}
    wanted = interpret(root, given).outputs
    with genai_runtime.load(tmp_path / "compiled", threads=1) as model:
        result = model.run(given)
        for name, value in wanted.items():
            np.testing.assert_array_equal(result[name], value, strict=True)
    return made


def islands(made: Compiled) -> list[Any]:
    edits = [each.edit for each in made.plan.components if each.name.startswith("island")] if made.plan else []
    return [member for each in edits for member in getattr(each, "members", ())]


def refused(root: Path, inputs: dict[str, Any], tmp_path: Path, words: str) -> None:
    """The reference refuses to run it, and so does what was compiled."""
    given = {name: np.asarray(each) for name, each in inputs.items()}
    with pytest.raises(ReferenceError):
        interpret(root, given)
    compile_package(root, tmp_path / "compiled")
    with (
        genai_runtime.load(tmp_path / "compiled", threads=1) as model,
        pytest.raises(ExecutionError, match=words),
    ):
        model.run(given)


def pair(root: Path, first: str, second: str, names: tuple[str, str] = ("a", "b")) -> Path:
    """y = second(first(x)), both results emitted."""
    one, two = names
    components = {one: component(first, {"x": X}, {"y": X}), two: component(second, {"x": X}, {"y": X})}
    steps = [invoke(one, {"x": "in"}, {"y": "u"}), invoke(two, {"x": "u"}, {"y": "v"})]
    return write(root, components, steps, {"in": application(X, "in")}, {"u": X, "v": X})


NUMBERS = {"in": np.array([1, -2, 3], np.float32)}


# ---- names and files -------------------------------------------------------------------------------------------------


def test_an_output_that_is_an_input_as_it_is(tmp_path: Path) -> None:
    root = tmp_path / "package"
    save(root / "a.onnx", [op("Neg", ["x"], ["y"])])
    save(root / "b.onnx", [op("Abs", ["x"], ["z"])], outputs=[port("x", "n"), port("z", "n")])
    components = {
        "a": component("a.onnx", {"x": X}, {"y": X}),
        "b": component("b.onnx", {"x": X}, {"x": X, "z": X}),
    }
    steps = [invoke("a", {"x": "in"}, {"y": "u"}), invoke("b", {"x": "u"}, {"x": "same", "z": "v"})]
    write(root, components, steps, {"in": application(X, "in")}, {"u": X, "same": X, "v": X})
    judged(root, NUMBERS, tmp_path)


@pytest.mark.parametrize("files", [("island_1", "b"), ("s/b", "s__b"), ("A", "a"), ("a.edited", "a_edited")])
def test_files_of_graphs_never_meet(tmp_path: Path, files: tuple[str, str]) -> None:
    root = tmp_path / "package"
    save(root / f"{files[0]}.onnx.textproto", [op("Neg", ["x"], ["y"])])
    save(root / f"{files[1]}.onnx.textproto", [op("Exp", ["x"], ["y"])])
    made = judged(pair(root, *(f"{each}.onnx.textproto" for each in files)), NUMBERS, tmp_path)
    assert made.out is not None
    names = [each.name.lower() for each in (made.out / "graphs").iterdir()]
    assert len(set(names)) == len(names) == 3


def test_a_graph_in_text_form_may_have_a_long_name(tmp_path: Path) -> None:
    root, name = tmp_path / "package", f"{'d' * 100}/{'e' * 100}/{'f' * 100}.onnx.textproto"
    save(root / name, [op("Neg", ["x"], ["y"])])
    save(root / "b.onnx", [op("Exp", ["x"], ["y"])])
    judged(pair(root, name, "b.onnx"), NUMBERS, tmp_path)


def test_a_branch_that_is_never_taken_keeps_a_graph_apart(tmp_path: Path) -> None:
    """It drops an axis of one entry. Linked, ONNX Runtime knows that there are three, and opens the graph no more."""
    root = tmp_path / "package"
    save(
        root / "a.onnx",
        [op("Concat", ["one", "x"], ["y"], axis=0)],
        [port("x", 2)],
        [port("y", 3)],
        one=[np.float32(1)],
    )
    drops = helper.make_graph([op("Squeeze", ["x", "axis"], ["d"])], "drops", [], [port("d")])
    keeps = helper.make_graph([op("ReduceSum", ["x"], ["k"], keepdims=0)], "keeps", [], [port("k")])
    nodes = [op("Size", ["x"], ["n"]), op("Equal", ["n", "single"], ["alone"])]
    nodes.append(op("If", ["alone"], ["y"], then_branch=drops, else_branch=keeps))
    save(root / "b.onnx", nodes, outputs=[port("y")], axis=np.array([0]), single=np.array(1))
    components = {
        "a": component("a.onnx", {"x": tensor("float32", 2)}, {"y": tensor("float32", 3)}),
        "b": component("b.onnx", {"x": X}, {"y": tensor("float32")}),
    }
    steps = [invoke("a", {"x": "in"}, {"y": "u"}), invoke("b", {"x": "u"}, {"y": "v"})]
    write(root, components, steps, {"in": application(tensor("float32", 2), "in")}, {"v": tensor("float32")})
    judged(root, {"in": np.array([2, 3], np.float32)}, tmp_path, members=())


@pytest.mark.parametrize("name", ["0.a/t", "1.b/y", "0.a/Neg.0", "0.a/x", ".0.a/t"])
def test_values_may_be_named_like_what_is_inside(tmp_path: Path, name: str) -> None:
    root = tmp_path / "package"
    save(root / "a.onnx", [op("Neg", ["x"], ["t"]), op("Exp", ["t"], ["y"])])
    components = {each: component("a.onnx", {"x": X}, {"y": X}) for each in "ab"}
    steps = [invoke("a", {"x": name}, {"y": "u"}), invoke("b", {"x": "u"}, {"y": "1.b/t"})]
    write(root, components, steps, {name: application(X, name)}, {"u": X, "1.b/t": X})
    judged(root, {name: NUMBERS["in"]}, tmp_path)


# ---- functions and kinds of weights ----------------------------------------------------------------------------------


def function(name: str, *body: NodeProto) -> FunctionProto:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["p"], ["q"], list(body), imports)


def either(name: str, then: NodeProto, otherwise: NodeProto) -> list[NodeProto]:
    """q = one of two nodes that make r, by the sign of the sum of p."""
    made = [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)]
    graphs = [helper.make_graph([each], each.op_type, [], made) for each in (then, otherwise)]
    choice = op("If", ["c"], ["q"], name=name, then_branch=graphs[0], else_branch=graphs[1])
    return [op("ReduceSum", ["p"], ["s"], keepdims=0), op("Sign", ["s"], ["g"]), op("Relu", ["g"], ["h"]),
            op("Cast", ["h"], ["c"], to=TensorProto.BOOL), choice]  # fmt: skip


@pytest.mark.parametrize("sign", [1, -1])
def test_branches_in_functions_call_functions(tmp_path: Path, sign: int) -> None:
    root, call = tmp_path / "package", op("F", ["x"], ["y"], domain="local")
    for name, inner in (("a", "Neg"), ("b", "Exp")):
        body = either("i", op("G", ["p"], ["r"], domain="local"), op("Abs", ["p"], ["r"]))
        save(root / f"{name}.onnx", [call], functions=[function("F", *body), function("G", op(inner, ["p"], ["q"]))])
    components = {each: component(f"{each}.onnx", {"x": X}, {"y": X}) for each in "ab"}
    steps = [invoke("a", {"x": "in"}, {"y": "u"}), invoke("b", {"x": "in"}, {"y": "v"})]
    write(root, components, steps, {"in": application(X, "in")}, {"u": X, "v": X})
    judged(root, {"in": sign * NUMBERS["in"]}, tmp_path)


def test_a_function_that_calls_itself_is_for_onnx_runtime_to_refuse(tmp_path: Path) -> None:
    root = tmp_path / "package"
    again = function("F", op("F", ["p"], ["q"], domain="local"))
    save(root / "a.onnx", [op("F", ["x"], ["y"], domain="local")], functions=[again])
    save(root / "b.onnx", [op("Neg", ["x"], ["y"])])
    compile_package(pair(root, "a.onnx", "b.onnx"), tmp_path / "compiled")
    with pytest.raises(genai_runtime.LoadError, match="recursive"):
        genai_runtime.load(tmp_path / "compiled", threads=1)


def test_functions_in_the_domain_of_operators_stay_alone(tmp_path: Path) -> None:
    """ONNX Runtime runs its own operator."""
    root = tmp_path / "package"
    mine = helper.make_function("", "Relu", ["p"], ["q"], [op("Neg", ["p"], ["q"])], [helper.make_opsetid("", 17)])
    save(root / "a.onnx", [op("Relu", ["x"], ["y"])], functions=[mine])
    save(root / "b.onnx", [op("Relu", ["x"], ["y"])])
    judged(pair(root, "a.onnx", "b.onnx"), NUMBERS, tmp_path, members=())


def test_sparse_constants_stay_alone(tmp_path: Path) -> None:
    root = tmp_path / "package"
    values, places = helper.make_tensor("v", 1, [1], [3.0]), helper.make_tensor("i", 7, [1], [1])
    sparse = helper.make_sparse_tensor(values, places, [3])
    save(root / "a.onnx", [op("Constant", [], ["c"], sparse_value=sparse), op("Add", ["x", "c"], ["y"])])
    save(root / "b.onnx", [op("Neg", ["x"], ["y"])])
    judged(pair(root, "a.onnx", "b.onnx"), NUMBERS, tmp_path, members=())


def test_a_name_that_only_the_island_has_is_no_operand(tmp_path: Path) -> None:
    """Alone, a graph that reads what it does not have is refused; linked, it would find a value of that name."""
    root = tmp_path / "package"
    save(root / "a.onnx", [op("Neg", ["x"], ["y"])])
    save(root / "b.onnx", [op("Add", ["x", "u"], ["y"])])
    compile_package(pair(root, "a.onnx", "b.onnx"), tmp_path / "compiled")
    with pytest.raises(genai_runtime.LoadError, match="session-failed"):
        genai_runtime.load(tmp_path / "compiled", threads=1)


# ---- extents ---------------------------------------------------------------------------------------------------------


def test_claims_inside_branches_prove_nothing(tmp_path: Path) -> None:
    """Names of extents in a graph's inner claims may be anything, those that inference is given among them."""
    root = tmp_path / "package"
    kept = [op("Compress", ["x", "m"], ["r"], axis=0)]
    graphs = [helper.make_graph(kept, name, [], [port("r", "s0")]) for name in ("then", "else")]
    nodes = [op("Greater", ["x", "zero"], ["m"]), op("If", ["c"], ["y"], then_branch=graphs[0], else_branch=graphs[1])]
    save(root / "a.onnx", nodes, [port("x", "n"), port("c", dtype="bool")], zero=np.float32(0))
    save(root / "b.onnx", [op("Concat", ["p", "q"], ["y"], axis=0)], [port("p", "n"), port("q", "n")], [port("y", "k")])
    joined = tensor("float32", "k")
    components = {
        "a": component("a.onnx", {"x": X, "c": FLAG}, {"y": X}),
        "b": component("b.onnx", {"p": X, "q": X}, {"y": joined}),
    }
    steps = [invoke("a", {"x": "in", "c": "c"}, {"y": "u"}), invoke("b", {"p": "in", "q": "u"}, {"y": "v"})]
    inputs = {"in": application(X, "in"), "c": application(FLAG, "c")}
    refused(write(root, components, steps, inputs, {"v": joined}), {**NUMBERS, "c": True}, tmp_path, "symbol-conflict")


def test_the_content_of_a_default_proves_nothing_where_something_is_given(tmp_path: Path) -> None:
    root = tmp_path / "package"
    one, two, k, j = (tensor("float32", each) for each in (1, 2, "k", "j"))
    ports = [port("x", 1), port("w", 1, dtype="int64")]
    save(root / "a.onnx", [op("Expand", ["x", "w"], ["y"])], ports, [port("y", "k")], w=[2])
    save(root / "b.onnx", [op("Concat", ["p", "q"], ["y"], axis=0)], [port("p", "k"), port("q", "k")], [port("y", "j")])
    components = {
        "a": component("a.onnx", {"x": one, "w": tensor("int64", 1)}, {"y": k}),
        "b": component("b.onnx", {"p": k, "q": k}, {"y": j}),
    }
    steps = [invoke("a", {"x": "in", "w": "w"}, {"y": "u"}), invoke("b", {"p": "two", "q": "u"}, {"y": "v"})]
    inputs = {"in": application(one, "in"), "w": application(tensor("int64", 1), "w"), "two": application(two, "two")}
    given = {"in": np.ones(1, np.float32), "w": np.array([3]), "two": np.ones(2, np.float32)}
    refused(write(root, components, steps, inputs, {"v": j}), given, tmp_path, "symbol-conflict")


def test_constants_of_old_models_are_no_ports(tmp_path: Path) -> None:
    """Up to IR version 3 every initializer is listed as an input, and ONNX Runtime takes nothing in its place."""
    root, one = tmp_path / "package", tensor("float32", 1)
    save(root / "a.onnx", [op("Add", ["x", "w"], ["y"])], [port("x", "n"), port("w", 1)], ir_version=3, w=np.ones(1))
    components = {"a": component("a.onnx", {"x": X, "w": one}, {"y": X})}
    steps = [invoke("a", {"x": "in", "w": "w"}, {"y": "u"})]
    write(root, components, steps, {"in": application(X, "in"), "w": application(one, "w")}, {"u": X})
    with pytest.raises(CompileError, match="port-not-in-graph"):
        compile_package(root, tmp_path / "compiled")


@pytest.mark.parametrize(("value", "symbol"), [("$b", "b[0]"), ("u", "$u"), ("@0 u", "n"), ("n*2", "n"), ("u", "@0 u")])
def test_symbols_and_values_may_have_any_names(tmp_path: Path, value: str, symbol: str) -> None:
    """No spelling makes an extent that nothing is known of equal to another."""
    root, declared, free = tmp_path / "package", tensor("float32", symbol), tensor("float32", "k")
    nodes = [op("NonZero", ["x"], ["i"]), op("Cast", ["i"], ["f"], to=1), op("Reshape", ["f", "s"], ["y"])]
    save(root / "a.onnx", nodes, outputs=[port("y", "k")], s=[-1])
    save(root / "b.onnx", [op("Concat", ["p", "q"], ["y"], axis=0)], [port("p", "k"), port("q", "k")], [port("y", "j")])
    components = {
        "a": component("a.onnx", {"x": declared}, {"y": free}),
        "b": component("b.onnx", {"p": declared, "q": declared}, {"y": free}),
    }
    steps = [invoke("a", {"x": "in"}, {"y": value}), invoke("b", {"p": "in", "q": value}, {"y": "v"})]
    write(root, components, steps, {"in": application(declared, "in")}, {"v": free})
    refused(root, {"in": np.array([1, 0, 2], np.float32)}, tmp_path, "symbol-conflict")


def test_every_port_that_takes_a_value_is_heeded(tmp_path: Path) -> None:
    """A fixed extent that only the second member's graph states, and two that no value has at once."""
    root = tmp_path / "package"
    save(root / "a.onnx", [op("Neg", ["x"], ["y"])])
    save(root / "b.onnx", [op("Exp", ["x"], ["y"])], [port("x", 2)])
    save(root / "c.onnx", [op("Abs", ["x"], ["y"])], [port("x", 3)])
    components = {each: component(f"{each}.onnx", {"x": X}, {"y": X}) for each in "abc"}
    steps = [invoke(each, {"x": "in"}, {"y": f"of {each}"}) for each in "abc"]
    inputs = {"in": application(X, "in")}
    two = write(tmp_path / "package", components, steps[:2], inputs, {"of a": X, "of b": X})
    refused(two, NUMBERS, tmp_path, "step-failed")
    judged(two, {"in": NUMBERS["in"][:2]}, tmp_path)
    write(root, components, steps, inputs, {f"of {each}": X for each in "abc"})
    refused(root, NUMBERS, tmp_path, "step-failed")
    refused(root, {"in": NUMBERS["in"][:2]}, tmp_path, "step-failed")


def test_members_that_name_different_extents_alike(tmp_path: Path) -> None:
    """Each file calls the extent of its result `m`. ONNX Runtime took results of one name for equally large, and put
    the longer one where the shorter one had been."""
    root, any_length = tmp_path / "package", {"dtype": "float32", "rank": 1}
    length, result = [port("x", "k")], [port("y", "m")]
    for name in ("sum", "sum2"):
        save(root / f"{name}.onnx", [op("CumSum", ["x", "axis"], ["y"])], length, result, axis=np.int64(0))
    save(root / "exp.onnx", [op("Exp", ["x"], ["y"])], length, result)
    save(root / "twice.onnx", [op("Concat", ["x", "x"], ["y"], axis=0)], length, result)
    names = ("exp", "sum", "twice", "sum2")
    components = {each: component(f"{each}.onnx", {"x": any_length}, {"y": any_length}) for each in names}
    values = ("in", "u", "v", "w", "end")
    steps = [invoke(each, {"x": values[at]}, {"y": values[at + 1]}) for at, each in enumerate(names)]
    write(root, components, steps, {"in": application(X, "in")}, {"end": any_length})
    judged(root, NUMBERS, tmp_path, names)
