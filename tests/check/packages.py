"""Small packages with graphs, for tests of admission: each is a document with two or three components."""

from math import prod
from pathlib import Path
from typing import Any

import onnx
import yaml
from genai_compiler.check.admission import check_admission
from genai_compiler.check.document import check_document
from genai_compiler.problem import Problem
from genai_compiler.read.load import load_package
from onnx import TensorProto, helper

Ports = dict[str, tuple[int, list[int | str] | None]]
F, I, D = TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE  # noqa: E741
ROWS: tuple[int, list[int | str] | None] = (F, ["n", 4])
CONTRACT = {"dtype": "float32", "rank": 2, "shape": ["batch", 4]}


def graph(
    file: Path, inputs: Ports, outputs: Ports, weights: dict[str, list[int]] | None = None,
    nodes: list[onnx.NodeProto] | None = None,
) -> None:  # fmt: skip
    """A graph with these ports; weights are zeros. What it computes does not matter."""
    held = [
        helper.make_tensor(name, F, dims, bytes(4 * prod(dims)), raw=True) for name, dims in (weights or {}).items()
    ]
    sides = [[helper.make_tensor_value_info(name, *each) for name, each in side.items()] for side in (inputs, outputs)]
    body = nodes or [helper.make_node("Identity", [next(iter(inputs))], [next(iter(outputs))])]
    file.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(helper.make_graph(body, "g", *sides, held), ir_version=8), file)


def document(**sections: Any) -> dict[str, Any]:
    """A workflow that runs `one` (declared ports) and then `two` (ports of its graph) on input x."""
    workflow = {
        "manifest": {"capabilities": ["workflow_ssa"]},
        "inputs": {"x": {"contract": CONTRACT, "role": {"kind": "opaque"},
                         "source": {"kind": "application", "name": "x"}}},
        "components": {
            "one": {"implementation": {"kind": "onnx", "artifact": "one.onnx"},
                    "ports": {"inputs": {"a": CONTRACT}, "outputs": {"b": CONTRACT}}},
            "two": {"implementation": {"kind": "onnx", "artifact": "two.onnx"}},
        },
        "steps": [
            {"kind": "invoke", "component": "one", "inputs": {"a": "x"}, "outputs": {"b": "y"}},
            {"kind": "invoke", "component": "two", "inputs": {"a": "y"}, "outputs": {"b": "z"}},
        ],
    }  # fmt: skip
    return {"pipeline": {"workflow": workflow}, **sections}


def package(root: Path, data: dict[str, Any]) -> Path:
    """A folder with that document and the graphs of `one` and `two`, each from a to b."""
    for name in ("one", "two"):
        graph(root / f"{name}.onnx", {"a": ROWS}, {"b": ROWS})
    (root / "inference_metadata.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    return root


def admitted(root: Path) -> list[tuple[str, str, str]]:
    """(rule, code, path) of what admission says; the document itself must be sound."""
    loaded = load_package(root)
    assert check_document(loaded.metadata, loaded.places) == ()
    return [(_rule(each), each.code, each.path) for each in check_admission(loaded)]


def _rule(problem: Problem) -> str:
    return problem.what.rpartition("(")[2].rstrip(")")
