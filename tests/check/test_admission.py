"""Rules V311-V323: documents that only their graphs show to be wrong."""

from pathlib import Path
from typing import Any

import pytest
from genai_compiler.check.rules import CHECKED
from genai_compiler.problem import CompileError
from genai_compiler.read.load import load_package
from onnx import helper

from tests.check.packages import CONTRACT, ROWS, D, F, I, admitted, document, graph, package

C = "pipeline.workflow.components"
S = "pipeline.workflow.steps"


def components(data: dict[str, Any]) -> Any:
    return data["pipeline"]["workflow"]["components"]


def steps(data: dict[str, Any]) -> Any:
    return data["pipeline"]["workflow"]["steps"]


def said(rule: str, path: str) -> tuple[str, str, str]:
    return rule, CHECKED[rule].code, path


def test_the_base_is_admitted(tmp_path: Path) -> None:
    assert admitted(package(tmp_path, document())) == []


def test_an_unreadable_graph(tmp_path: Path) -> None:
    (package(tmp_path, document()) / "two.onnx").write_bytes(b"no graph")
    with pytest.raises(CompileError) as caught:
        load_package(tmp_path)
    assert [each.code for each in caught.value.problems] == [CHECKED["V311"].code]


def test_a_declared_port_that_the_graph_lacks(tmp_path: Path) -> None:
    data = document()
    components(data)["one"]["ports"]["outputs"]["c"] = {**CONTRACT, "optional": True}
    assert admitted(package(tmp_path, data)) == [said("V312", f"{C}.one.ports.outputs.c")]


def test_a_declared_port_in_the_wrong_direction(tmp_path: Path) -> None:
    data = document()
    components(data)["one"]["ports"]["inputs"]["b"] = {**CONTRACT, "optional": True}
    assert admitted(package(tmp_path, data)) == [said("V312", f"{C}.one.ports.inputs.b")]


@pytest.mark.parametrize(
    ("rule", "port", "field"),
    [("V313", (I, ["n", 4]), "dtype"), ("V314", (F, ["n", 4, 1]), "rank"), ("V315", (F, ["n", 5]), "shape[1]")],
)
def test_a_graph_that_contradicts_a_port(rule: str, port: Any, field: str, tmp_path: Path) -> None:
    root = package(tmp_path, document())
    graph(root / "one.onnx", {"a": port}, {"b": ROWS})
    assert admitted(root) == [said(rule, f"{C}.one.ports.inputs.a.{field}")]


def test_spellings_of_one_storage_type_agree(tmp_path: Path) -> None:
    data = document()
    data["pipeline"]["workflow"]["inputs"]["x"]["contract"] = {**CONTRACT, "dtype": "fp8_e4m3"}
    components(data)["one"]["ports"]["inputs"]["a"] = {**CONTRACT, "dtype": "fp8_e4m3"}
    root = package(tmp_path, data)
    graph(root / "one.onnx", {"a": (17, ["n", 4])}, {"b": ROWS})  # 17: FLOAT8E4M3FN
    assert admitted(root) == []


def test_a_dtype_that_no_value_has(tmp_path: Path) -> None:
    root = package(tmp_path, document())
    graph(root / "two.onnx", {"a": ROWS}, {"b": (D, ["n"])})
    assert admitted(root) == [said("V313", f"{S}[1].outputs.b")]


def test_a_bound_port_that_the_graph_lacks(tmp_path: Path) -> None:
    data = document()
    steps(data)[1]["inputs"]["c"] = "x"
    assert admitted(package(tmp_path, data)) == [said("V316", f"{S}[1].inputs.c")]
    steps(data)[1]["inputs"] = {"a": "y"}
    steps(data)[1]["outputs"]["c"] = "w"
    assert admitted(package(tmp_path, data)) == [said("V316", f"{S}[1].outputs.c")]


@pytest.mark.parametrize(("name", "at"), [("one", 0), ("two", 1)])
def test_a_graph_input_that_nothing_feeds(name: str, at: int, tmp_path: Path) -> None:
    root = package(tmp_path, document())
    graph(root / f"{name}.onnx", {"a": ROWS, "c": ROWS}, {"b": ROWS})
    assert admitted(root) == [said("V317", f"{S}[{at}].inputs")]


def test_an_initializer_stands_in_for_an_input(tmp_path: Path) -> None:
    data = document()
    root = package(tmp_path, data)
    graph(root / "two.onnx", {"a": ROWS, "c": (F, [4])}, {"b": ROWS}, {"c": [4]})
    assert admitted(root) == []
    steps(data)[1]["inputs"]["c"] = "x"
    package(tmp_path, data)
    graph(root / "two.onnx", {"a": ROWS, "c": (F, [4])}, {"b": ROWS}, {"c": [4]})
    assert admitted(root) == []


def test_an_edge_into_a_port_that_only_the_graph_declares(tmp_path: Path) -> None:
    root = package(tmp_path, document())
    graph(root / "two.onnx", {"a": (I, ["n", 4])}, {"b": ROWS})
    assert admitted(root) == [said("V237", f"{S}[1].inputs.a")]


# ---- replacement -----------------------------------------------------------------------------------------------------


def replaceable(**bindings: str) -> dict[str, Any]:
    """`one` may be replaced; `two` has the same contract, with these bindings."""
    data = document()
    contract = {"id": "own.step", "version": "1"}
    components(data)["one"] |= {
        "application_overridable": True, "contract": {**contract, "bindings": {"in": "a", "out": "b"}},
    }  # fmt: skip
    components(data)["two"]["contract"] = {**contract, "bindings": bindings or {"in": "a", "out": "b"}}
    return data


def test_a_component_that_could_take_the_place(tmp_path: Path) -> None:
    assert admitted(package(tmp_path, replaceable())) == []


def test_an_invoked_port_without_a_role(tmp_path: Path) -> None:
    data = replaceable()
    del components(data)["one"]["contract"]["bindings"]["out"]
    assert admitted(package(tmp_path, data)) == [said("V318", f"{S}[0].outputs.b")]


def test_a_role_that_the_other_lacks(tmp_path: Path) -> None:
    data = replaceable(out="b")
    assert admitted(package(tmp_path, data)) == [said("V319", f"{C}.two.contract.bindings")]


def test_a_port_of_another_type(tmp_path: Path) -> None:
    root = package(tmp_path, replaceable())
    graph(root / "two.onnx", {"a": ROWS}, {"b": (F, ["n", 5])})
    assert admitted(root) == [said("V320", f"{C}.two.contract.bindings.out")]


def test_a_port_in_another_direction(tmp_path: Path) -> None:
    root = package(tmp_path, replaceable(**{"in": "a", "out": "a"}))
    assert admitted(root) == [said("V320", f"{C}.two.contract.bindings.out")]


def test_an_input_that_nothing_would_feed(tmp_path: Path) -> None:
    data = replaceable()
    steps(data)[1]["inputs"]["c"] = "y"
    root = package(tmp_path, data)
    graph(root / "two.onnx", {"a": ROWS, "c": ROWS}, {"b": ROWS})
    assert admitted(root) == [said("V321", f"{C}.two")]


# ---- names and extents inside graphs ---------------------------------------------------------------------------------


def chained(table: str) -> dict[str, Any]:
    """`two` drafts for `one`, whose graph holds the embedding table."""
    execution = {
        "kind": "chained", "token_embedding_input": "a", "logits_output": "b", "folded_carry_output": "b",
        "folded_carry_seed": {"component": "one", "output": "b"},
        "token_embedding": {"component": "one", "table": table},
    }  # fmt: skip
    return document(speculative={
        "proposer": "two", "target": "one", "proposal_execution": execution, "max_proposal_width": 2,
        "port_bindings": {"target_hidden_context": "a"}, "vocabulary": {"kind": "identical"},
    })  # fmt: skip


def test_an_embedding_table(tmp_path: Path) -> None:
    root = package(tmp_path, chained("wte"))
    graph(root / "one.onnx", {"a": ROWS}, {"b": ROWS}, {"wte": [8, 4]})
    assert admitted(root) == []


def test_an_embedding_table_that_is_not_there(tmp_path: Path) -> None:
    root = package(tmp_path, chained("wpe"))
    graph(root / "one.onnx", {"a": ROWS}, {"b": ROWS}, {"wte": [8, 4]})
    place = "speculative.proposal_execution.token_embedding.table"
    assert admitted(root) == [said("V322", place)]


def test_a_chained_port_that_only_the_graph_knows(tmp_path: Path) -> None:
    data = chained("wte")
    data["speculative"]["proposal_execution"]["logits_output"] = "c"
    root = package(tmp_path, data)
    graph(root / "one.onnx", {"a": ROWS}, {"b": ROWS}, {"wte": [8, 4]})
    assert admitted(root) == [said("V279", "speculative.proposal_execution.logits_output")]


def adapted(**changes: Any) -> dict[str, Any]:
    """`one` has a LoRA target."""
    target = {
        "id": "t", "component": "one", "initializer": "w", "node_name": "mul", "output_name": "b",
        "activation_dtype": "float32", "input_features": 4, "output_features": 4, **changes,
    }  # fmt: skip
    adapter = {
        "index": 0, "identity": "x", "version": "1", "rank": 1, "alpha": 1.0, "dtype": "float32",
        "weights": [{"location": "adapters/x/w.json", "loader_capability": "onnx-genai.adapters.json@1",
                     "scale_encoding": "baked"}],
        "bindings": [{"target": "t", "weight_key": "t"}],
    }  # fmt: skip
    data = document(adapters={
        "target_manifest": {"targets": [target]}, "artifacts": {"x": adapter},
        "selection": {"segments": "s", "adapter_counts": "c", "scales": "f", "max_adapters": 1},
        "application_capability": "onnx-genai.adapters@1",
    })  # fmt: skip
    workflow = data["pipeline"]["workflow"]
    workflow["manifest"]["capabilities"] += ["parameter_adapters", "heterogeneous_adapter_batching"]
    for name, role, dtype, shape in (
        ("s", "adapter_segments", "int64", ["batch", 1]), ("c", "adapter_counts", "int64", ["batch"]),
        ("f", "adapter_scales", "float32", ["batch", 1]),
    ):  # fmt: skip
        rows = {"kind": "request_aligned", "axis": 0}
        workflow["inputs"][name] = {
            "contract": {"dtype": dtype, "rank": len(shape), "shape": shape, "batch_layout": rows},
            "role": {"kind": "runtime", "version": "1.0", "role": role}, "source": {"kind": "request"},
        }  # fmt: skip
    return data


def adaptable(root: Path, op: str = "MatMul", dims: tuple[int, int] = (4, 4), **attributes: int) -> Path:
    node = helper.make_node(op, ["a", "w"], ["b"], name="mul", **attributes)
    graph(root / "one.onnx", {"a": ROWS}, {"b": ROWS}, {"w": list(dims)}, [node])
    (root / "adapters" / "x").mkdir(parents=True, exist_ok=True)
    (root / "adapters" / "x" / "w.json").write_text("{}")
    return root


def test_a_target_in_its_graph(tmp_path: Path) -> None:
    assert admitted(adaptable(package(tmp_path, adapted()))) == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"initializer": "v"}, "initializer"),
        ({"node_name": "add"}, "node_name"),
        ({"output_name": "c"}, "output_name"),
        ({"input_features": 8}, "input_features"),
    ],
)
def test_a_target_that_its_graph_does_not_have(changes: dict[str, Any], field: str, tmp_path: Path) -> None:
    root = adaptable(package(tmp_path, adapted(**changes)))
    assert admitted(root) == [said("V323", f"adapters.target_manifest.targets[0].{field}")]


@pytest.mark.parametrize(
    ("op", "dims", "attributes", "fits"),
    [
        ("MatMul", (4, 6), {}, True),
        ("MatMul", (6, 4), {}, False),
        ("Gemm", (6, 4), {"transB": 1}, True),
        ("Gemm", (4, 6), {}, True),
        ("MatMulNBits", (6, 2), {"K": 4, "N": 6, "bits": 4, "block_size": 32}, True),
        ("MatMulNBits", (6, 2), {"K": 6, "N": 4, "bits": 4, "block_size": 32}, False),
    ],
)
def test_the_extents_of_a_target(
    op: str, dims: tuple[int, int], attributes: dict[str, int], fits: bool, tmp_path: Path
) -> None:
    root = adaptable(package(tmp_path, adapted(output_features=6)), op, dims, **attributes)
    assert [rule for rule, _, _ in admitted(root)] == ([] if fits else ["V323"])


def test_a_target_of_a_component_without_a_graph(tmp_path: Path) -> None:
    data = adapted(component="copy")
    components(data)["copy"] = {"implementation": {"kind": "binding"}}
    place = "adapters.target_manifest.targets[0].component"
    assert admitted(adaptable(package(tmp_path, data))) == [said("V323", place)]
