"""Features of half precision that are written over rows of a decoder's first stage.

Expected tokens come from the stages' graphs with results that are rounded in them, in a plain loop.
"""

from pathlib import Path

import onnx
import pytest

from tests.test_stages_beside import decoded
from tests.test_vision_stages import NEW, behind, changed, features, pictures, ran, written_over
from tools.fixtures.stages import EMBEDDED
from tools.fixtures.vision_stages import IMAGE


@pytest.mark.parametrize("kind", [onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16])
def test_rows_of_half_precision_are_written_over_alike(kind: int, tmp_path: Path) -> None:
    """ONNX Runtime moves bfloat16 on a CPU, and computes nothing with it."""
    package = changed(tmp_path / "p", lambda model: None)
    for name, result in (("embeddings", EMBEDDED), ("patch_merger", "image_features")):
        graph = onnx.load(package / f"{name}.onnx")
        _gives(graph, result, kind)
        onnx.save(graph, package / f"{name}.onnx")
    layers = onnx.load(package / "layers.onnx")
    nodes = [onnx.NodeProto.FromString(each.SerializeToString()) for each in layers.graph.node]
    for node in nodes:
        node.input[:] = ["rounded" if each == EMBEDDED else each for each in node.input]
    del layers.graph.node[:]
    layers.graph.node.extend([onnx.helper.make_node("Cast", [EMBEDDED], ["rounded"], to=1), *nodes])
    next(each for each in layers.graph.input if each.name == EMBEDDED).type.tensor_type.elem_type = kind
    onnx.save(layers, package / "layers.onnx")
    prompt, given = [1, 5, *[IMAGE] * 4, 9, 14], pictures([(4, 4)])
    made = ran(package, [prompt], given)
    rounded = changed(tmp_path / "rounded", lambda model: None)
    for name, result in (("embeddings", EMBEDDED), ("patch_merger", "image_features")):
        graph = onnx.load(rounded / f"{name}.onnx")
        _gives(graph, result, kind, back=True)
        onnx.save(graph, rounded / f"{name}.onnx")
    entries = features(rounded, given["pixel_values"], [(4, 4)])
    feeds = written_over(rounded / "embeddings.onnx", entries)
    assert made == [decoded(behind(tmp_path / "w"), feeds, prompt, NEW)]


def _gives(model: onnx.ModelProto, result: str, kind: int, back: bool = False) -> None:
    """Let a graph give its result in another type; back: in its own again, rounded."""
    for node in model.graph.node:
        node.output[:] = ["exact" if each == result else each for each in node.output]
    made = "halved" if back else result
    model.graph.node.append(onnx.helper.make_node("Cast", ["exact"], [made], to=kind))
    if back:
        model.graph.node.append(onnx.helper.make_node("Cast", [made], [result], to=onnx.TensorProto.FLOAT))
    else:
        model.graph.output[0].type.tensor_type.elem_type = kind
