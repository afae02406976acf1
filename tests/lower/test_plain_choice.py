"""Folders of three and more graphs that declare nothing: what each is told to be, and that the way out is one.

Graphs are told apart by their ports; names of files are read by nobody.
"""

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.cli import main
from genai_compiler.problem import Problem
from onnx import TensorProto, helper

from tests.lower.packages import Recipe, decoder
from tests.lower.pipelines import Graphs, media_by_hand, named, tokens, vision
from tests.lower.plain_folders import plain_folder, renamed
from tests.lower.test_front_model import MARK, SIZE, model_of

STATED = {"vocab_size": 24, "max_position_embeddings": 64, "eos_token_id": 2}


def refused(folder: Path) -> Problem:
    with pytest.raises(CompileError) as caught:
        compile_package(folder, out=folder.with_name("refused"))
    (found,) = [each for each in caught.value.problems if each.code == "several-graphs"]
    return found


def words_alone() -> Graphs:
    """An embedding that takes nothing but token ids, as exporters write it beside a vision encoder."""
    table = np.random.default_rng(5).normal(0, 1, (24, SIZE)).astype(np.float32)
    made = model_of(
        [helper.make_node("Gather", ["table", "input_ids"], ["inputs_embeds"])],
        [("input_ids", TensorProto.INT64, ["rows", "s"])],
        [("inputs_embeds", TensorProto.FLOAT, ["rows", "s", SIZE])],
        {"table": table},
    )
    return vision() | {"embedding.onnx": made}


def test_variants_are_told_from_different_graphs(tmp_path: Path) -> None:
    graphs = {f"onnx/{name}.onnx": decoder(Recipe()) for name in ("model", "model_fp16", "model_q4")}
    told = refused(plain_folder(tmp_path / "p", graphs, STATED))
    assert "decoder: 3 variants, onnx/model.onnx, onnx/model_fp16.onnx, onnx/model_q4.onnx" in told.what
    assert told.help == "choose one, for example --graph onnx/model.onnx"


@pytest.mark.parametrize("nameless", [False, True], ids=["as exported", "names that say nothing"])
def test_pictures_before_an_embedding_are_one_reading(nameless: bool, tmp_path: Path) -> None:
    """Told by ports alone; the tokens are those of the plain loop."""
    graphs: dict[str, Any] = dict(vision())
    graphs = {f"{at}.onnx": made for at, made in enumerate(graphs.values())} if nameless else graphs
    folder = plain_folder(tmp_path / "p", graphs, {**STATED, "image_token_id": MARK})
    images = np.random.default_rng(4).standard_normal((1, 2, 8)).astype(np.float32)
    prompt = [3, MARK, MARK, 5]
    made = tokens(folder, 6, **{"request.input_ids": [prompt], "application.pixel_values": images})
    by_hand = tmp_path / "hand"
    plain_folder(by_hand, vision(), STATED)
    assert made == [media_by_hand(by_hand, prompt, 6, images=images)]


def test_an_embedding_that_takes_no_features_is_told_so(tmp_path: Path) -> None:
    told = refused(plain_folder(tmp_path / "p", words_alone(), STATED))
    assert "vision.onnx gives 'image_features', and no graph puts that among the embeddings" in told.help
    assert "export an embedding that takes it beside the token ids" in told.help


def test_nothing_is_read_from_the_names_of_ports(tmp_path: Path) -> None:
    graphs = {name: renamed(made) for name, made in words_alone().items()}
    assert "embedding of tokens: embedding.onnx" in refused(plain_folder(tmp_path / "p", graphs, STATED)).what


def test_one_unreadable_graph_leaves_the_list_of_all(tmp_path: Path) -> None:
    folder = plain_folder(tmp_path / "p", {f"{at}.onnx": decoder(Recipe()) for at in range(3)}, STATED)
    (folder / "1.onnx").write_bytes(b"no graph")
    assert "holds 3 graphs and declares none: 0.onnx, 1.onnx, 2.onnx" in refused(folder).what


def test_graphs_without_any_decoder_keep_their_list(tmp_path: Path) -> None:
    graphs = {f"{at}.onnx": named(vision()["vision.onnx"], {"image_features": f"made_{at}"}) for at in range(3)}
    assert "--graph FILE" in refused(plain_folder(tmp_path / "p", graphs, STATED)).help


@pytest.mark.parametrize("name", ["a model.onnx", "--graph.onnx", "it's.onnx", "a;b$(c).onnx"])
def test_the_way_out_is_a_command_that_a_shell_takes(name: str, tmp_path: Path) -> None:
    """Followed word by word as a shell splits it, it compiles."""
    graphs = {each: decoder(Recipe()) for each in (name, "y.onnx", "z.onnx")}
    folder = plain_folder(tmp_path / "p", graphs, STATED)
    advised = shlex.split(refused(folder).help.removeprefix("choose one, for example "))
    assert main([str(folder), "-o", str(tmp_path / "out"), *advised]) == 0
    assert (tmp_path / "out" / "executor.py").exists()


def test_graphs_that_cannot_be_read_are_named_and_not_advised(tmp_path: Path) -> None:
    folder = plain_folder(tmp_path / "p", {"m.onnx": decoder(Recipe())}, STATED)
    for name in ("a.onnx", "b.onnx"):
        (folder / name).write_bytes(b"no graph")
    told = refused(folder)
    assert told.what.endswith("declares none: a.onnx, b.onnx, m.onnx; a.onnx, b.onnx can't be read")
    assert "(for example --graph m.onnx)" in told.help
    (folder / "m.onnx").write_bytes(b"")
    assert refused(folder).help == "export them again"
