"""A package of two components, `first` and `second`, whose graphs have named nodes and may carry properties."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnx
import yaml
from genai_compiler.plan.hints import Advice, resolve_hints
from genai_compiler.problem import Problem
from genai_compiler.read.hint_sources import caller_hints
from genai_compiler.read.load import load_package
from onnx import TensorProto, helper

ROWS = {"dtype": "float32", "rank": 2, "shape": ["batch", 2], "batch_layout": {"kind": "request_aligned", "axis": 0}}
NODES = 4
Properties = Mapping[str, str]


def graph(file: Path, model: Properties | None = None, nodes: Mapping[int, Properties] | None = None) -> None:
    """x -> y through `blocks.0.Neg` ... `blocks.3.Neg`. model, nodes: their metadata properties."""
    values = ["x", *(f"mid.{at}" for at in range(1, NODES)), "y"]
    made = [helper.make_node("Neg", [a], [b], name=f"blocks.{at}.Neg")
            for at, (a, b) in enumerate(pairwise(values))]  # fmt: skip
    for at, properties in (nodes or {}).items():
        for key, value in properties.items():
            made[at].metadata_props.add(key=key, value=value)
    ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2])] for name in "xy"]
    whole = helper.make_model(helper.make_graph(made, "g", *ports), ir_version=10)
    for key, value in (model or {}).items():
        whole.metadata_props.add(key=key, value=value)
    onnx.save(whole, file)


def package(root: Path, **properties: Any) -> Path:
    """The package in `root`. properties: first= and second=, each {"model": {...}, "nodes": {index: {...}}}."""
    root.mkdir(parents=True, exist_ok=True)
    for name in ("first", "second"):
        graph(root / f"{name}.onnx", **properties.get(name, {}))
    component = lambda name: {"implementation": {"kind": "onnx", "artifact": f"{name}.onnx"}}  # noqa: E731
    workflow = {
        "manifest": {"capabilities": ["workflow_ssa", "typed_emit"]},
        "inputs": {"v": {"contract": ROWS, "role": {"kind": "opaque"}, "source": {"kind": "application", "name": "v"}}},
        "outputs": {"out": {"contract": ROWS, "role": "tensor", "stage": "pre_adapter"}},
        "components": {"first": component("first"), "second": component("second")},
        "steps": [
            {"kind": "invoke", "component": "first", "inputs": {"x": "v"}, "outputs": {"y": "w"}},
            {"kind": "invoke", "component": "second", "inputs": {"x": "w"}, "outputs": {"y": "z"}},
            {"kind": "emit", "value": "z", "output": "out", "mode": "replace"},
        ],
    }  # fmt: skip
    (root / "inference_metadata.yaml").write_text(yaml.safe_dump({"pipeline": {"workflow": workflow}}, sort_keys=False))
    return root


def placing(selector: Mapping[str, Any], device: str, strength: str = "prefer", **more: Any) -> dict[str, Any]:
    """A placement hint; device as `gpu` or `gpu:1`."""
    kind, _, number = device.partition(":")
    target = {"type": kind, **({"index": int(number)} if number else {})}
    return {"selector": dict(selector), "device": target, "strength": strength, **more}


def advice(root: Path, hints: Mapping[str, Any] | None = None, **properties: Any) -> Advice:
    """What comes of a caller's hints and of the graphs' own for the package in `root`."""
    sources = [caller_hints(hints)] if hints is not None else []
    return resolve_hints(load_package(package(root, **properties)), sources)


def where(found: Advice) -> dict[str, str]:
    """Component -> device, of those that have one."""
    number = {each.component: "" if each.index is None else f":{each.index}" for each in found.placements}
    return {each.component: f"{each.device}{number[each.component]}" for each in found.placements if each.device}


def codes(problems: tuple[Problem, ...]) -> list[str]:
    return [each.code for each in problems]
