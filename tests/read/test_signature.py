"""Reading signatures: every dtype and shape as the graph has it, weights untouched, damage named."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from genai_compiler.problem import CompileError, Problem
from genai_compiler.read.artifacts import ArtifactFault, find_artifact, relative_name
from genai_compiler.read.onnx_wire import KEEP, MAX_DEPTH
from genai_compiler.read.signature import Port, load_graph, read_signature
from genai_compiler.read.textproto import MAX_DEPTH as TEXT_DEPTH
from onnx import TensorProto, helper, numpy_helper

TYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float64": TensorProto.DOUBLE,
    "float8_e4m3fn": TensorProto.FLOAT8E4M3FN,
    "float8_e5m2": TensorProto.FLOAT8E5M2,
    "int64": TensorProto.INT64,
    "int8": TensorProto.INT8,
    "uint16": TensorProto.UINT16,
    "uint64": TensorProto.UINT64,
    "bool": TensorProto.BOOL,
    "string": TensorProto.STRING,
}


def model(weight: np.ndarray | None = None, kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """y = x (and a weight that nothing reads, unless given)."""
    held = [numpy_helper.from_array(weight if weight is not None else np.zeros(4, np.float32), "w")]
    inputs = [helper.make_tensor_value_info("x", kind, ["batch", None, 3])]
    inputs += [helper.make_tensor_value_info("w", TensorProto.FLOAT, list(held[0].dims))]
    outputs = [helper.make_tensor_value_info("y", kind, None)]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", inputs, outputs, held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    helper.set_model_props(made, {"who": "me"})
    return made


def faults(path: Path, root: Path) -> tuple[Problem, ...]:
    with pytest.raises(CompileError) as caught:
        read_signature(path, root)
    return caught.value.problems


@pytest.mark.parametrize(("name", "kind"), TYPES.items())
def test_ports(tmp_path: Path, name: str, kind: int) -> None:
    onnx.save(model(kind=kind), tmp_path / "m.onnx")
    signature = read_signature(tmp_path / "m.onnx", tmp_path)
    assert signature.inputs == (Port("x", name, ("batch", None, 3)),)  # the initializer is no input
    assert signature.outputs == (Port("y", name, None),)
    assert signature.opsets == (("", 21),)
    assert signature.metadata == (("who", "me"),)
    assert signature.external_data == ()


def test_a_port_that_is_no_tensor(tmp_path: Path) -> None:
    made = model()
    made.graph.output[0].type.CopyFrom(helper.make_sequence_type_proto(made.graph.output[0].type))
    onnx.save(made, tmp_path / "m.onnx")
    assert read_signature(tmp_path / "m.onnx", tmp_path).outputs == (Port("y", "sequence", None),)


def test_weights_are_not_read_but_small_constants_are(tmp_path: Path) -> None:
    made = model(np.ones(KEEP, np.float32))
    small = numpy_helper.from_array(np.arange(8), "small")
    made.graph.initializer.append(small)
    onnx.save(made, tmp_path / "m.onnx")
    slim = load_graph(tmp_path / "m.onnx", tmp_path)
    assert not slim.graph.initializer[0].raw_data
    assert slim.graph.initializer[1] == small
    slim.graph.initializer[0].raw_data = made.graph.initializer[0].raw_data
    assert slim == made


def test_every_truncation_is_a_problem(tmp_path: Path) -> None:
    whole = model(np.ones(2 * KEEP, np.float32)).SerializeToString()
    for length in (*range(0, 200, 7), len(whole) // 2, len(whole) - 1):
        (tmp_path / "m.onnx").write_bytes(whole[:length])
        (problem,) = faults(tmp_path / "m.onnx", tmp_path)
        assert (problem.code, problem.where.file) == ("unreadable-graph", "m.onnx")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS"),
        (b"PK\x03\x04 not a model", "no protobuf field"),
        (b"\xff" * 40, "over the end"),
        (b"\x08\x07", "no graph"),
    ],
)
def test_what_is_no_model(tmp_path: Path, content: bytes, word: str) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    assert word in faults(tmp_path / "m.onnx", tmp_path)[0].what


def _same_output(made: onnx.ModelProto) -> None:
    made.graph.node.add().CopyFrom(made.graph.node[0])


def _output_of_an_input(made: onnx.ModelProto) -> None:
    made.graph.node[0].output[0] = "x"


def _nameless_attribute(made: onnx.ModelProto) -> None:
    made.graph.node[0].attribute.add(type=onnx.AttributeProto.INT, i=1)


def _other_domain(made: onnx.ModelProto) -> None:
    made.graph.node[0].domain = "com.example"


def _nested(made: onnx.ModelProto) -> None:
    inner = helper.make_graph([helper.make_node("Relu", ["x"], ["z"], domain="com.example")], "inner", [], [])
    made.graph.node[0].attribute.append(helper.make_attribute("then_branch", inner))


def _circle(made: onnx.ModelProto) -> None:
    made.graph.node.extend([helper.make_node("Identity", ["b"], ["a"]), helper.make_node("Neg", ["a"], ["b"])])


def _circle_through_a_branch(made: onnx.ModelProto) -> None:
    inner = helper.make_graph([helper.make_node("Identity", ["a"], ["z"])], "inner", [], [])
    made.graph.node.append(helper.make_node("If", ["x"], ["a"], then_branch=inner, else_branch=inner))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_circle, "node 'Identity' waits for a value that is made from its own"),
        (_circle_through_a_branch, "node 'If' waits for a value that is made from its own"),
        (_same_output, "two of its nodes or inputs are called 'y'"),
        (_output_of_an_input, "two of its nodes or inputs are called 'x'"),
        (_nameless_attribute, "node 'Identity' has an attribute without a name"),
        (_other_domain, "node 'Identity' is of the domain 'com.example', of which it imports no version"),
        (_nested, "node 'Relu' is of the domain 'com.example'"),
    ],
)
def test_a_graph_without_the_form_of_one_is_refused(
    tmp_path: Path, change: Callable[[onnx.ModelProto], None], said: str
) -> None:
    """Found by damage: linking such a graph with others ended in a traceback. ONNX Runtime refuses them too."""
    made = model()
    change(made)
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    (problem,) = faults(path, tmp_path)
    assert problem.code == "unreadable-graph"
    assert said in problem.what
    with pytest.raises(Exception):  # noqa: B017 - one of several classes of native code
        onnxruntime.InferenceSession(made.SerializeToString())


def test_nodes_in_another_order_are_no_circle(tmp_path: Path) -> None:
    made = model()
    made.graph.node[0].input[0] = "later"
    made.graph.node.append(helper.make_node("Identity", ["x"], ["later"]))
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    assert [each.name for each in read_signature(path, tmp_path).outputs] == ["y"]


def test_a_branch_may_call_its_values_as_the_outputs_are_called(tmp_path: Path) -> None:
    """So exporters write decoders that are merged of two: the branch reads its own value, not the node's output."""
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Abs", ["a"], ["y"])]
    value = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n"])
    branch = helper.make_graph(nodes, "branch", [], [value])
    flag = helper.make_tensor_value_info("flag", onnx.TensorProto.BOOL, [1])
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n"])
    other = helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, ["n"])
    again = helper.make_graph([helper.make_node("Abs", ["x"], ["a"])], "again", [], [other])
    switch = helper.make_node("If", ["flag"], ["a"], then_branch=again, else_branch=branch)
    made = helper.make_model(helper.make_graph([switch], "g", [flag, x], [other]), ir_version=8)
    made.opset_import[0].version = 17
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    assert [each.name for each in read_signature(path, tmp_path).outputs] == ["a"]


def wrapped(number: int, body: bytes) -> bytes:
    """A protobuf field of `number` that holds `body`: tag, length, bytes."""
    length, out = len(body), bytearray()
    while length > 0x7F:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes((number << 3 | 2, *out, length)) + body


def test_endless_nesting_is_refused(tmp_path: Path) -> None:
    graph = wrapped(10, b"x" * (KEEP + 1))  # a graph with a doc string
    for _ in range(40):  # three messages a level: an attribute's graph, a node's attribute, a graph's node
        graph = wrapped(1, wrapped(5, wrapped(6, graph)))
    (tmp_path / "m.onnx").write_bytes(wrapped(7, graph))
    assert str(MAX_DEPTH) in faults(tmp_path / "m.onnx", tmp_path)[0].what


def external(folder: Path, location: str = "m.data", **entries: int) -> Path:
    """A model whose weight of 400 bytes lies in external data, with the entries laid over."""
    made = model(np.arange(100, dtype=np.float32))
    tensor = made.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, location, 0, 400)
    raw = tensor.raw_data
    tensor.ClearField("raw_data")
    for key, value in entries.items():
        next(each for each in tensor.external_data if each.key == key).value = str(value)
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "m.data").write_bytes(raw)
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    return folder / "m.onnx"


def test_external_data_is_found_beside_the_model(tmp_path: Path) -> None:
    path = external(tmp_path / "decoder")
    assert read_signature(path, tmp_path).external_data == ("decoder/m.data",)


@pytest.mark.parametrize("location", ["/etc/passwd", "../m.data", "a/../../m.data", "C:\\m.data", "..\\m.data"])
def test_n6_external_data_outside_is_refused_with_the_tensor(tmp_path: Path, location: str) -> None:
    (problem,) = faults(external(tmp_path / "decoder", location), tmp_path)
    assert problem.code == "outside-package"
    assert "'w'" in problem.what
    assert repr(location) in problem.what


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ({"offset": 1}, "short-external-data"),
        ({"length": 401}, "short-external-data"),
        ({"length": -4}, "bad-external-data"),
    ],
)
def test_external_data_must_be_long_enough(tmp_path: Path, entries: dict[str, int], code: str) -> None:
    (problem,) = faults(external(tmp_path, **entries), tmp_path)
    assert problem.code == code


def test_external_data_without_a_length_has_the_tensors(tmp_path: Path) -> None:
    path = external(tmp_path, length=0)
    assert read_signature(path, tmp_path).external_data == ("m.data",)
    (tmp_path / "m.data").write_bytes(b"\0" * 399)
    assert "399" in faults(path, tmp_path)[0].what


def test_missing_external_data(tmp_path: Path) -> None:
    path = external(tmp_path)
    (tmp_path / "m.data").unlink()
    (problem,) = faults(path, tmp_path)
    assert problem.code == "missing-file"
    assert "'m.data'" in problem.what


def hub(top: Path) -> Path:
    """A package as a hub cache keeps it: a snapshot of links into `blobs`. Returns the snapshot."""
    source = external(top / "source").parent
    blobs, snapshot = top / "models--a--b" / "blobs", top / "models--a--b" / "snapshots" / "0123abcd"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for each in source.iterdir():
        blob = f"0f{len(each.name)}{each.suffix == '.data'}"
        shutil.copy(each, blobs / blob)
        (snapshot / each.name).symlink_to(f"../../blobs/{blob}")
    return snapshot


def test_n2_a_hub_snapshot_works(tmp_path: Path) -> None:
    snapshot = hub(tmp_path)
    assert read_signature(snapshot / "m.onnx", snapshot).external_data == ("m.data",)


def test_n2_a_folder_within_a_snapshot_works(tmp_path: Path) -> None:
    inner = hub(tmp_path) / "cpu"
    inner.mkdir()
    for name in ("m.onnx", "m.data"):
        (inner / name).symlink_to(".." / (inner.parent / name).readlink())
    assert read_signature(inner / "m.onnx", inner).external_data == ("m.data",)


def test_links_to_anywhere_else_do_not(tmp_path: Path) -> None:
    snapshot = hub(tmp_path)
    (snapshot / "m.data").unlink()
    (snapshot / "m.data").symlink_to(tmp_path / "source" / "m.data")
    (problem,) = faults(snapshot / "m.onnx", snapshot)
    assert problem.code == "outside-package"
    assert "source" in problem.what


def test_a_package_cannot_bring_its_own_blobs(tmp_path: Path) -> None:
    """snapshots/x inside the package is not a cache around it."""
    package = tmp_path / "package"
    (package / "snapshots" / "x").mkdir(parents=True)
    (package / "blobs").symlink_to(tmp_path)
    (tmp_path / "secret").write_text("s")
    (package / "snapshots" / "x" / "m").symlink_to(tmp_path / "secret")
    with pytest.raises(ArtifactFault, match="outside the package"):
        find_artifact(package, "snapshots/x/m")
    with pytest.raises(ArtifactFault, match="outside the package"):
        find_artifact(package / "snapshots" / "x", "m")


def test_links_inside_the_package_and_loops(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "loop").symlink_to("loop")
    assert find_artifact(tmp_path, "./b").file == (tmp_path / "a").resolve()
    with pytest.raises(ArtifactFault) as caught:
        find_artifact(tmp_path, "loop")
    assert caught.value.code == "missing-file"


@pytest.mark.parametrize(("name", "code"), [("", "bad-path"), ("a\0b", "bad-path"), ("//x", "outside-package")])
def test_names_that_are_no_names(name: str, code: str) -> None:
    with pytest.raises(ArtifactFault) as caught:
        relative_name(name)
    assert caught.value.code == code


def test_textproto_and_binary_say_the_same(tmp_path: Path) -> None:
    made = model(np.arange(3, dtype=np.float32))
    onnx.save(made, tmp_path / "b.onnx")
    (tmp_path / "t.onnx.textproto").write_text(str(made))
    parsed = load_graph(tmp_path / "t.onnx.textproto", tmp_path)
    assert parsed == made
    assert read_signature(tmp_path / "t.onnx.textproto", tmp_path) == read_signature(tmp_path / "b.onnx", tmp_path)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ir_version: 8\ngraph { nod { } }", 2),
        ("ir_version: 8\ngraph {", 0),
        ("graph {\n" * (TEXT_DEPTH + 5), TEXT_DEPTH + 1),
    ],
)
def test_textproto_faults_have_a_line(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "t.onnx.textproto").write_text(text)
    (problem,) = faults(tmp_path / "t.onnx.textproto", tmp_path)
    assert problem.code == "unreadable-graph"
    assert not line or problem.where.line == line


@pytest.mark.parametrize("place", ["initializer", "attribute"])
def test_sparse_weights_do_not_leave_the_package(tmp_path: Path, place: str) -> None:
    values, indices = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0]), helper.make_tensor("i", 7, [1], [0])
    values.ClearField("float_data")
    values.data_location = TensorProto.EXTERNAL
    values.external_data.add(key="location", value="../secret")
    sparse = helper.make_sparse_tensor(values, indices, [2])
    constant = [helper.make_node("Constant", [], ["w"], sparse_value=sparse)] if place == "attribute" else []
    ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])] for name in "xy"]
    graph = helper.make_graph([*constant, helper.make_node("Add", ["x", "w"], ["y"])], "g", *ports)
    graph.sparse_initializer.extend([] if constant else [sparse])
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    with pytest.raises(CompileError, match="outside-package"):
        read_signature(tmp_path / "m.onnx", tmp_path)
