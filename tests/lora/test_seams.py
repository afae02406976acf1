"""Graph inputs that can't take factors are found when the package is compiled, each with its place."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import pytest
import yaml
from genai_compiler import CompileError, compile_package
from genai_runtime.values import to_value
from onnx import TensorProto, helper, numpy_helper

from tests.lora_packages import (
    Adapter,
    Seam,
    compiled,
    decoder_package,
    plain_delta,
    random_factors,
    selected,
    selection_inputs,
    service,
    target,
)
from tools.fixtures.document import application, emit, invoke, output, package, tensor, write_document
from tools.fixtures.document import onnx as component

Change = Callable[[onnx.GraphProto, dict[str, Any]], None]


def one(features: Mapping[str, tuple[int, int]]) -> dict[str, Adapter]:
    return {"one": Adapter(random_factors(1, 2, features))}


def changed(root: Path, change: Change, seam: Seam | None = None) -> Path:
    """A decoder with a seam at its head, after a change of the graph and of the document's target."""
    decoder_package(root, "tiny-runtime-policy", [seam or Seam("head")], one)
    model, file = onnx.load(root / "model.onnx"), root / "inference_metadata.yaml"
    document = yaml.safe_load(file.read_text("utf-8"))
    change(model.graph, document["adapters"]["target_manifest"]["targets"][0])
    onnx.save(model, root / "model.onnx")
    write_document(root, document)
    return root


def port(name: str, dims: list[int | str], default: list[int] | None, dtype: int = TensorProto.FLOAT) -> Change:
    """Give a graph input another shape; default: extents of its initializer, None for no initializer."""

    def change(graph: onnx.GraphProto, target: dict[str, Any]) -> None:
        at = next(at for at, each in enumerate(graph.input) if each.name == name)
        graph.input[at].CopyFrom(helper.make_tensor_value_info(name, dtype, dims))
        held = next(at for at, each in enumerate(graph.initializer) if each.name == name)
        del graph.initializer[held]
        if default is not None:
            zeros = np.zeros(default, helper.tensor_dtype_to_np_dtype(dtype))
            graph.initializer.append(numpy_helper.from_array(zeros, name))

    return change


def stated(**ports: str) -> Change:
    return lambda graph, target: target["graph_inputs"].update(ports)


CASES = [
    ("no default", port("head.a", ["batch", 16, "rank"], None), "a", "has no default"),
    ("no such input", stated(b="head.c"), "b", "is no input of it"),
    ("dtype", port("head.a", ["batch", 16, "rank"], [1, 16, 0], TensorProto.FLOAT16), "a", "is float16"),
    ("rank of the tensor", port("head.b", [64], [64]), "b", "factors have two axes"),
    ("features", port("head.a", ["batch", 17, "rank"], [1, 17, 0]), "a", "none of its axes has 16 features"),
    ("width", port("head.b", ["batch", "rank", 32], [1, 0, 32]), "b", "none of its axes has 64 features"),
    ("both axes", port("head.a", ["batch", 16, 16], [1, 16, 16]), "a", "both axes could be the features"),
    ("nothing fits in", port("head.a", ["batch", 16, 0], [1, 16, 0]), "a", "holds no factors at all"),
    ("other rows", port("head.a", ["others", 16, "rank"], [1, 16, 0]), "a", "its first axis is not the one"),
    ("rows of one only", port("head.b", ["rank", 64], [0, 64]), "b", "for each row, the other for all rows"),
    ("two fixed ranks", lambda graph, target: (port("head.a", ["batch", 16, 4], [1, 16, 4])(graph, target),
                                               port("head.b", ["batch", 3, 64], [1, 3, 64])(graph, target)),
     "b", "takes rank 4, 'head.b' rank 3"),
    ("scale", port("head.s", ["some"], [1]), "scale", "axis 0 has no extent"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "field", "what"), [each[1:] for each in CASES], ids=[each[0] for each in CASES])
def test_an_input_that_cannot_take_factors(change: Change, field: str, what: str, tmp_path: Path) -> None:
    root = changed(tmp_path / "p", change)
    with pytest.raises(CompileError) as refused:
        compile_package(root, out=tmp_path / "out")
    (problem,) = refused.value.problems
    assert problem.code == "adapter-input"
    assert problem.path == f"adapters.target_manifest.targets[0].graph_inputs.{field}"
    assert what in problem.what
    assert problem.where.line is not None
    assert not (tmp_path / "out").exists()


def test_two_targets_of_one_input(tmp_path: Path) -> None:
    root = decoder_package(tmp_path / "p", "tiny-runtime-policy", [Seam("head"), Seam("layers.0.query")], one)
    document = yaml.safe_load((root / "inference_metadata.yaml").read_text("utf-8"))
    second = document["adapters"]["target_manifest"]["targets"][1]
    second["graph_inputs"]["b"] = "head.b"
    write_document(root, document)
    with pytest.raises(CompileError, match=r"'head\.b' already takes factors of target 'head'"):
        compile_package(root, out=tmp_path / "out")


def test_a_graph_without_inputs_for_a_bound_target(tmp_path: Path) -> None:
    root = changed(tmp_path / "p", stated(a="none.a", b="none.b"))
    with pytest.raises(CompileError) as refused:
        compile_package(root, out=tmp_path / "out")
    assert [each.code for each in refused.value.problems] == ["adapter-not-applied"]


def test_rank_and_features_of_one_size_are_told_apart_by_the_symbol(tmp_path: Path) -> None:
    """16 features and a default of rank 16: only the declared symbol says which axis is which."""
    root = changed(tmp_path / "p", port("head.a", ["batch", 16, "rank"], [1, 16, 16]))
    manifest = (compiled(root) / "manifest.json").read_text("utf-8")
    assert '"features": 0' in manifest


def test_a_declared_port_for_factors_is_one_of_the_graph(tmp_path: Path) -> None:
    root = decoder_package(tmp_path / "p", "tiny-runtime-policy", [Seam("head")], one)
    document = yaml.safe_load((root / "inference_metadata.yaml").read_text("utf-8"))
    ports = document["pipeline"]["workflow"]["components"]["decoder"]["ports"]["inputs"]
    ports["head.a"] = {"dtype": "float32", "rank": 3, "shape": ["batch", 16, "rank"], "optional": True}
    write_document(root, document)
    compile_package(root, out=tmp_path / "out")


def test_float16_inputs_take_rounded_factors(tmp_path: Path) -> None:
    """A graph that casts its factors up: what the runtime feeds is what a plain session is fed."""

    def half(graph: onnx.GraphProto, target: dict[str, Any]) -> None:
        target["activation_dtype"] = "float16"
        default = {"batch": 1, "rank": 0}
        shapes: dict[str, list[int | str]] = {"head.a": ["batch", 16, "rank"], "head.b": ["batch", "rank", 64]}
        for name, dims in shapes.items():
            held = [default[each] if isinstance(each, str) else each for each in dims]
            port(name, dims, held, TensorProto.FLOAT16)(graph, target)
            for node in graph.node:
                node.input[:] = [f"{name}.up" if each == name else each for each in node.input]
            graph.node.insert(0, helper.make_node("Cast", [name], [f"{name}.up"], to=TensorProto.FLOAT))

    root = changed(tmp_path / "p", half, Seam("head", scale=False))
    with genai_runtime.load(compiled(root)) as model:
        feeds = model._sessions.lora.selector(("decoder",), ())(*_values(selected([(0, 0.3)])))[1]
    a, b = one({"head": (16, 64)})["one"].factors["head"]
    np.testing.assert_array_equal(feeds["head.a"].numpy(), a.T[None].astype(np.float16), strict=True)
    scaled = (np.float32(0.3) * b).T[None].astype(np.float16)
    np.testing.assert_array_equal(feeds["head.b"].numpy(), scaled, strict=True)


def test_factors_that_the_input_cannot_hold_are_refused(tmp_path: Path) -> None:
    def large(features: Mapping[str, tuple[int, int]]) -> dict[str, Adapter]:
        a, b = random_factors(1, 2, features)["head"]
        return {"one": Adapter({"head": (a, np.full_like(b, 1e38))})}

    root = decoder_package(tmp_path / "p", "tiny-runtime-policy", [Seam("head")], large)
    with genai_runtime.load(compiled(root)) as model:
        with pytest.raises(genai_runtime.RequestError, match="larger than float32 holds") as refused:
            list(model.generate([1, 9], max_new_tokens=2, adapters={"one": 16}))
        assert refused.value.code == "adapter-selection"


def test_a_slice_of_a_fused_weight_takes_factors_of_its_width(tmp_path: Path) -> None:
    """y = x w, and the delta of outputs 2 to 4 through inputs of the graph, padded there."""
    names, draw = ("w.a", "w.b"), np.random.default_rng(3)
    weight, x = draw.standard_normal((4, 6), np.float32), draw.standard_normal((2, 4), np.float32)
    shapes: list[list[int | str]] = [["n", 4, "r"], ["n", "r", 3]]
    rows = [helper.make_tensor_value_info(*each) for each in (("x", 1, ["n", 1, 4]), ("y", 1, ["n", 1, 6]))]
    ports = [helper.make_tensor_value_info(name, 1, dims) for name, dims in zip(names, shapes, strict=True)]
    held = [numpy_helper.from_array(np.zeros((1, 4, 0), np.float32), "w.a"),
            numpy_helper.from_array(np.zeros((1, 0, 3), np.float32), "w.b"),
            numpy_helper.from_array(weight, "w"),
            numpy_helper.from_array(np.array([0, 0, 2, 0, 0, 1]), "pads")]  # fmt: skip
    nodes = [helper.make_node("MatMul", ["x", "w"], ["base"], "w"), helper.make_node("MatMul", ["x", "w.a"], ["low"]),
             helper.make_node("MatMul", ["low", "w.b"], ["delta"]),
             helper.make_node("Pad", ["delta", "pads"], ["wide"]),
             helper.make_node("Add", ["base", "wide"], ["y"])]  # fmt: skip
    graph = helper.make_graph(nodes, "g", [rows[0], *ports], [rows[1]], held)
    adapter = Adapter(random_factors(1, 2, {"t": (4, 3)}))
    piece = {"role": "key", "offset": 2, "width": 3}
    spec = target("t", 4, 6, output_name="base", output_slice=piece, graph_inputs={"a": "w.a", "b": "w.b"})
    root = tmp_path / "p"
    root.mkdir()
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)]), root / "base.onnx")
    three = (tensor("float32", "batch", 1, 4, rows=True), tensor("float32", "batch", 1, 6, rows=True))
    document = package(
        ["workflow_ssa", "typed_emit", "parameter_adapters", "heterogeneous_adapter_batching"],
        {"x": application(three[0], "x"), **selection_inputs(2)},
        {"y": output(three[1])},
        {"base": component("base.onnx", {"x": three[0]}, {"y": three[1]})},
        [invoke("base", {"x": "x"}, {"y": "made"}), emit("made", "y")],
        adapters=service(root, [spec], {"one": adapter}, 2),
    )
    write_document(root, document)
    with genai_runtime.load(compiled(root)) as model:
        got = model.run({"x": x[:, None]} | selected([(0, 1.5)], []))["y"][:, 0]
        plain = model.run({"x": x[:, None]} | selected([], []))["y"][:, 0]
    wanted = x @ weight
    np.testing.assert_allclose(plain, wanted, rtol=1e-5)
    wanted[0, 2:5] += plain_delta([(adapter, 1.5)], "t", x[:1])[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def _values(arrays: Mapping[str, Any]) -> list[Any]:
    return [to_value(each) for each in arrays.values()]


def test_a_replaced_component_takes_no_adapters(tmp_path: Path) -> None:
    """The one in its place has no inputs for factors: refused when adapters are selected, else run."""
    root = decoder_package(tmp_path / "p", "tiny-decoder", [Seam("head")], one)
    document = yaml.safe_load((root / "inference_metadata.yaml").read_text("utf-8"))
    components = document["pipeline"]["workflow"]["components"]
    model = components["model"]
    ports = [*model["ports"]["inputs"], *model["ports"]["outputs"]]
    model["application_overridable"] = True
    model["contract"] = {"id": "own.model", "version": "1", "bindings": {each: each for each in ports}}
    components["other"] = {key: value for key, value in model.items() if key != "application_overridable"}
    components["other"]["implementation"] = {"kind": "onnx", "artifact": "other.onnx"}
    (root / "other.onnx").write_bytes((root / "model.onnx").read_bytes())
    write_document(root, document)
    inputs = {"request.input_ids": np.array([[1, 9]]), "request.max_iterations": np.array([2])}
    with genai_runtime.load(compiled(root)) as loaded:
        plain = loaded.run(inputs | selected([]))
        replaced = loaded.run(inputs | selected([]), overrides={"model": "other"})
        np.testing.assert_array_equal(plain["tokens"], replaced["tokens"])
        with pytest.raises(genai_runtime.GenaiError, match="stands in for one that the selected adapters change"):
            loaded.run(inputs | selected([(0, 1.0)]), overrides={"model": "other"})
