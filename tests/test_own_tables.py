"""What is longer than a graph's own table of positions is refused before anything runs, with the numbers.

The rows of the tables are read from the graphs' weights here, by name.
"""

import json
import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import pytest
from genai_compiler import CompileError, compile_package
from genai_runtime import RequestError
from onnx import TensorProto, helper, numpy_helper

from tests.data import needs_data
from tests.real_packages import PACKAGES
from tests.traps.loop import plain_logits

pytestmark = needs_data


def opened(name: str, folder: Path) -> tuple[genai_runtime.Model, tuple[str, ...]]:
    made = compile_package(PACKAGES / name, out=folder / "out")
    return genai_runtime.load(folder / "out", threads=1), made.notes


def rows(name: str, graph: str, table: str) -> int:
    model = onnx.load(PACKAGES / name / graph, load_external_data=False)
    return int(next(each for each in model.graph.initializer if each.name == table).dims[0])


def refused(code: str, run: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        run()
    assert caught.value.code == code
    return caught.value


def test_a_prompt_of_a_picture(tmp_path: Path) -> None:
    most = rows("mobius-sd-ddim", "text_encoder/model.onnx", "embeddings.position_embedding.weight")
    model, notes = opened("mobius-sd-ddim", tmp_path)
    assert any(f"{most} at most" in each for each in notes)
    noise = np.zeros((1, 4, 8, 8), np.float32)
    asked = {"steps": 1, "inputs": {"noise": noise}}
    with model:
        assert model.draw([5] * most, [1], **asked).pictures
        for given, which in (([[5] * (most + 1), [1]], "prompt"), ([[5], [1] * (most + 1)], "negative prompt")):
            fault = refused("prompt-length", lambda given=given: model.draw(*given, **asked))
            assert f"the {which} has {most + 1} tokens, and the package takes {most} at most" in str(fault)


def test_an_encoder_alone(tmp_path: Path) -> None:
    most = rows("mobius-bert-og", "model.onnx", "embeddings.position_embeddings.weight")
    model, notes = opened("mobius-bert-og", tmp_path)
    assert any(f"input_ids: axis 1 (encoder.sequence_len) is {most} at most" in each for each in notes)
    with model:
        for length in (most, most + 1):
            ids = np.ones((1, length), np.int64)
            inputs = {"input_ids": ids, "attention_mask": np.ones((1, length), np.int64), "token_type_ids": 0 * ids}
            if length == most:
                assert model.run(inputs)["last_hidden_state"].shape[1] == most
            else:
                assert str(most) in str(refused("prompt-length", lambda given=inputs: model.run(given)))


def test_an_encoder_before_a_decoder(tmp_path: Path) -> None:
    most = rows("mobius-marian-meta", "encoder/model.onnx", "encoder.embed_positions.weight") - 2  # its first is row 2
    model, _ = opened("mobius-marian-meta", tmp_path)
    with model:
        for length in (most, most + 1):
            given = {"request.input_ids": np.full((1, length), 5), "request.decoder_input_ids": np.array([[0]])}
            given["request.max_iterations"] = np.array([2])
            if length == most:
                assert model.run(given)["tokens"].shape[0] == 1
            else:
                fault = str(refused("prompt-length", lambda given=given: model.run(given)))
                assert f"{most + 1} tokens, and the package takes {most} at most" in fault


@pytest.mark.parametrize(("frames", "fits"), [(2998, False), (2999, True), (3000, True), (3001, False)])
def test_features_of_a_sound(frames: int, fits: bool, tmp_path: Path) -> None:
    """Two convolutions, one of stride 2, before a table of 1500 rows."""
    model, _ = opened("mobius-whisper-meta", tmp_path)
    features = np.zeros((1, 80, frames), np.float32)
    with model:
        given = {"request.input_ids": [[1, 2]], "input_features": features, "request.max_iterations": [2]}
        if fits:
            assert model.run(given)["tokens"].shape[0] == 1
        else:
            assert "2999 to 3000" in str(refused("wrong-shape", lambda: model.run(given)))


@pytest.mark.parametrize("seconds", [20, 30])
def test_a_processor_file_of_other_clips_is_refused_at_compile_time(seconds: int, tmp_path: Path) -> None:
    folder = tmp_path / "package"
    shutil.copytree(PACKAGES / "mobius-whisper-meta", folder)
    flat = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 80, "sampling_rate": 16000}
    flat |= {"n_fft": 400, "hop_length": 160, "n_samples": 16000 * seconds, "chunk_length": seconds}
    (folder / "preprocessor_config.json").write_text(json.dumps(flat))
    if seconds == 30:
        compile_package(folder, out=tmp_path / "out")
        return
    with pytest.raises(CompileError, match="processor-mismatch") as caught:
        compile_package(folder, out=tmp_path / "out")
    assert "2000 frames" in str(caught.value)
    assert "2999 to 3000" in str(caught.value)


def test_a_decoder_that_counts_by_its_mask_has_no_longer_context(tmp_path: Path) -> None:
    """Positions are running sums of the mask, looked up in a table of 12 rows: the context ends there."""
    from tests.lower.packages import Recipe, decoder, write_package

    model = decoder(Recipe(op="attention"))
    graph = model.graph
    table = np.random.default_rng(4).normal(size=(12, 8)).astype(np.float32)
    graph.initializer.append(numpy_helper.from_array(table, "places"))
    graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), "back"))
    head = [
        helper.make_node("CumSum", ["attention_mask", "one"], ["counted"]),
        helper.make_node("Sub", ["counted", "one"], ["at"]),
        helper.make_node("Gather", ["places", "at"], ["found"]),
        helper.make_node("Shape", ["input_ids"], ["width"], start=1, end=2),
        helper.make_node("Mul", ["width", "back"], ["from"]),
        helper.make_node("Slice", ["found", "from", "far", "axis"], ["mine"]),
    ]
    graph.initializer.append(numpy_helper.from_array(np.array([1 << 40], np.int64), "far"))
    nodes = list(graph.node)
    at = next(at for at, each in enumerate(nodes) if each.op_type == "Gather" and "embedding" in each.input)
    nodes[at].output[0] = "words"
    nodes[at + 1 : at + 1] = [*head, helper.make_node("Add", ["words", "mine"], ["x.0"])]
    del graph.node[:]
    graph.node.extend(nodes)
    assert graph.input[1].type.tensor_type.elem_type == TensorProto.INT64
    write_package(tmp_path / "package", model, {"model": {"context_length": 64, "eos_token_id": 23}})
    made = compile_package(tmp_path / "package", out=tmp_path / "out")
    assert any("table of positions has 12 rows" in each.what for each in made.problems)
    with genai_runtime.load(tmp_path / "out", threads=1) as loaded:
        run = loaded.generate([5, 6, 7], max_new_tokens=40, temperature=0)
        plain = plain_logits(tmp_path / "package" / "model.onnx", [5, 6, 7])
        wanted = [token for token, _ in islice(plain, 9)]
        assert (run.tokens, run.finish_reason) == (wanted, "context")


@pytest.mark.parametrize(
    ("operator", "number", "order"), [("Add", 2, (0, 1)), ("Add", 2, (1, 0)), ("Sub", -2, (0, 1))], ids=str
)
def test_positions_with_a_number_added_end_before_the_table_does(
    operator: str, number: int, order: tuple[int, int], tmp_path: Path
) -> None:
    """A table of 14 rows whose third is that of position 0: the context ends behind 12, though the package says 64."""
    from tests.lower.packages import Recipe, decoder, write_package

    model = decoder(Recipe(op="attention", extra_inputs={"position_ids": (TensorProto.INT64, ["batch", "sequence"])}))
    graph, taken = model.graph, ["position_ids", "shift"]
    table = np.random.default_rng(4).normal(size=(14, 8)).astype(np.float32)
    graph.initializer.extend(
        [numpy_helper.from_array(table, "places"), numpy_helper.from_array(np.array(number), "shift")]
    )
    nodes = list(graph.node)
    at = next(at for at, each in enumerate(nodes) if each.op_type == "Gather" and "embedding" in each.input)
    nodes[at].output[0] = "words"
    nodes[at + 1 : at + 1] = [
        helper.make_node(operator, [taken[each] for each in order], ["row"]),
        helper.make_node("Gather", ["places", "row"], ["found"]),
        helper.make_node("Add", ["words", "found"], ["x.0"]),
    ]
    del graph.node[:]
    graph.node.extend(nodes)
    write_package(tmp_path / "package", model, {"model": {"context_length": 64, "eos_token_id": 23}})
    made = compile_package(tmp_path / "package", out=tmp_path / "out")
    assert any("table of positions has 12 rows" in each.what for each in made.problems)
    with genai_runtime.load(tmp_path / "out", threads=1) as loaded:
        run = loaded.generate([5, 6, 7], max_new_tokens=40, temperature=0)
        wanted = [token for token, _ in islice(plain_logits(tmp_path / "package" / "model.onnx", [5, 6, 7]), 9)]
        assert (run.tokens, run.finish_reason) == (wanted, "context")
