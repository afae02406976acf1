"""Version 2 pipelines whose decoder is cut into several sessions: refused for that, by name, wherever the cut is.

The same graphs run as stages of version 1 (tests/test_stages.py).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

from tests.lower.pipelines import Document, package, pipeline, problems, tokens
from tests.staged_packages import Graphs, halves, three
from tests.staged_packages import wanted as whole
from tools.fixtures.graph import Sketch
from tools.fixtures.network import HIDDEN, concat_decoder, gqa_decoder
from tools.fixtures.stages import EMBEDDED, FINAL, cut


def document(*sessions: str, **roles: str) -> Document:
    """A flow of these sessions in this order, each at every token."""
    return {
        "version": 2,
        "pipeline": {
            "sessions": {each: {"file": f"{each}.onnx"} | _role(roles, each) for each in sessions},
            "flow": [{"run": each, "when": "always"} for each in sessions],
        },
        "tokens": {"eos": [2]},
        "generation": {"max_length": 64},
    }


def _role(roles: dict[str, str], name: str) -> dict[str, str]:
    return {"role": roles[name]} if name in roles else {}


def written(folder: Path, stages: Graphs, **roles: str) -> Path:
    return package(folder, document(*stages, **roles), {f"{name}.onnx": each for name, each in stages.items()})


def embedding_apart(sketch: Sketch) -> Graphs:
    return dict(zip(("embeddings", "rest"), cut(sketch.proto(), EMBEDDED), strict=True))


def head_apart(sketch: Sketch) -> Graphs:
    return dict(zip(("layers", "lm_head"), cut(sketch.proto(), FINAL), strict=True))


def scaled(sketch: Sketch) -> Graphs:
    """A graph between the embedding and the decoder, which keeps nothing and takes no tokens."""
    embeddings, rest = cut(sketch.proto(), EMBEDDED)
    kind = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "sequence", HIDDEN]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "twice", kind[:1], kind[1:])
    between = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return {"embeddings": embeddings, "between": between, "rest": rest}


def refusal(folder: Path) -> Any:
    (problem,) = [each for each in problems(folder) if each.severity.name == "ERROR"]
    assert problem.code == "unsupported-package-class"
    assert "a decoder of several sessions is not compiled in version 2" in problem.what
    assert "model.decoder.pipeline" in problem.help
    return problem


@pytest.mark.parametrize("sketch", [concat_decoder, gqa_decoder])
@pytest.mark.parametrize(
    ("cutting", "path", "said"),
    [(three, "pipeline.flow[1]", "'layers'"), (halves, "pipeline.flow[1]", "'b'"),
     (head_apart, "pipeline.flow[0]", "'layers'")],
)  # fmt: skip
def test_layers_in_a_session_of_their_own(
    cutting: Callable[[Sketch], Graphs], path: str, said: str, sketch: Callable[[], Sketch], tmp_path: Path
) -> None:
    problem = refusal(written(tmp_path / "p", cutting(sketch())))
    assert problem.path == path
    assert f"{said} keeps caches beside" in problem.what


def test_a_head_behind_what_has_the_role(tmp_path: Path) -> None:
    problem = refusal(written(tmp_path / "p", three(concat_decoder()), layers="decoder"))
    assert problem.path == "pipeline.flow[2]"
    assert "'lm_head' takes what 'layers' makes at every step" in problem.what


def test_a_graph_between_the_tokens_and_the_decoder(tmp_path: Path) -> None:
    wires = [
        {"from": f"embeddings.{EMBEDDED}", "to": "between.x"},
        {"from": "between.y", "to": f"rest.{EMBEDDED}"},
    ]
    folder = written(tmp_path / "p", stages := scaled(concat_decoder()))
    joined = pipeline(document(*stages), dataflow=wires)
    problem = refusal(package(folder, joined, {}))
    assert problem.path == "pipeline.flow[1]"
    assert "'between' stands between the tokens of 'embeddings' and 'rest'" in problem.what


def test_an_embedding_of_its_own_is_no_cut(tmp_path: Path) -> None:
    folder = written(tmp_path / "p", embedding_apart(concat_decoder()))
    wanted = whole(tmp_path / "whole", concat_decoder())
    made = tokens(folder, 10, **{"request.input_ids": [[1, 9, 14]]})
    assert made == [wanted[0]]
