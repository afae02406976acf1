"""A graph whose weights adapters change: each row by itself, with the deltas added to the weights (standard, 6.3).

The graph's own inputs for factors are left alone: this is another way to the same numbers.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from tests.reference.adapters import factors, selected
from tests.reference.graphs import load_model, run_graph
from tests.reference.values import Array, Document, ReferenceError


def run_adapted(
    package: Path, document: Document, name: str, feeds: Mapping[str, Array], env: Mapping[str, Array]
) -> dict[str, Array]:
    """All outputs of one run of component `name`, rows on axis 0."""
    path = package / document["pipeline"]["workflow"]["components"][name]["implementation"]["artifact"]
    targets = _targets(document, name, path)
    if not targets:
        return run_graph(path, feeds)
    rows = selected(document["adapters"], env)
    if not any(rows):
        return run_graph(path, feeds)
    parts = []
    for at, adapters in enumerate(rows):
        mine = {port: each[at : at + 1] if each.shape[:1] == (len(rows),) else each for port, each in feeds.items()}
        parts.append(_run_row(package, document, path, targets, adapters, mine))
    return {port: np.concatenate([part[port] for part in parts]) for port in parts[0]}


def _targets(document: Document, name: str, path: Path) -> list[Document]:
    inputs = {each.name for each in load_model(path).graph.input}
    return [
        target
        for target in document.get("adapters", {}).get("target_manifest", {}).get("targets", [])
        if target["component"] == name and target.get("graph_inputs", {}).get("a") in inputs
    ]


def _run_row(
    package: Path,
    document: Document,
    path: Path,
    targets: list[Document],
    adapters: list[tuple[str, float]],
    feeds: Mapping[str, Array],
) -> dict[str, Array]:
    key = (path, path.stat().st_mtime_ns, *adapters)
    if key not in _sessions:
        model = _merged(package, document, path, targets, adapters)
        _sessions[key] = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in _sessions[key].get_outputs()]
    try:
        return dict(zip(names, _sessions[key].run(names, dict(feeds)), strict=True))
    except Exception as failure:
        raise ReferenceError("execution", f"{path.name}: {failure}") from failure


_sessions: dict[object, Any] = {}


def _merged(
    package: Path, document: Document, path: Path, targets: list[Document], adapters: list[tuple[str, float]]
) -> onnx.ModelProto:
    """The graph with these adapters in its weights."""
    model = load_model(path)
    weights = {each.name: each for each in model.graph.initializer}
    for target in targets:
        held = weights[target["initializer"]]
        weight = numpy_helper.to_array(held).copy()
        for alias, scale in adapters:
            if any(each["target"] == target["id"] for each in document["adapters"]["artifacts"][alias]["bindings"]):
                a, b, factor = factors(package, document, target, alias)
                piece = target.get("output_slice") or {"offset": 0, "width": weight.shape[1]}
                weight[:, piece["offset"] : piece["offset"] + piece["width"]] += np.float32(scale * factor) * (b @ a).T
        held.CopyFrom(numpy_helper.from_array(weight, held.name))
    return model
