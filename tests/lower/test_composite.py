"""Documents that join models (`pipeline.models`): edges that the graphs do not have, orders, strategies."""

from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
import yaml
from genai_compiler import CompileError, compile_package
from genai_compiler.problem import Problem
from onnx import ModelProto, TensorProto, helper, numpy_helper, save

from tests.lower.packages import Recipe, decoder, laid_over

SIZE = 8
IO = {
    "token_input": "input_ids",
    "attention_mask_input": "attention_mask",
    "logits_output": "logits",
    "kv_inputs": ["past_key_values.0.key", "past_key_values.0.value"],
    "kv_outputs": ["present.0.key", "present.0.value"],
    "encoder_hidden_states_input": "seen",
}
DOCUMENT: dict[str, Any] = {
    "model": {"max_sequence_length": 64},
    "pipeline": {
        "models": {
            "reader": {"filename": "reader.onnx", "io": {"token_input": "ids"}},
            "writer": {"filename": "writer.onnx", "io": IO},
        },
        "dataflow": [{"from": "reader.hidden", "to": "writer.seen"}],
        "strategy": {
            "kind": "composite",
            "stages": [
                {"name": "read", "strategy": {"kind": "single_pass", "model": "reader"}, "run_on": "prompt_only"},
                {"name": "write", "strategy": {"kind": "autoregressive", "decoder": "writer"}, "run_on": "every_step"},
            ],
        },
    },
}


def reader(*outputs: str, ids: str = "ids") -> ModelProto:
    """ids int64 [rows, source] -> hidden float32 [rows, source, 8], and what else is asked for."""
    weights = np.random.default_rng(5).normal(size=(24, SIZE)).astype(np.float32)
    names = outputs or ("hidden",)
    nodes = [helper.make_node("Gather", ["table", ids], [name]) for name in names]
    graph = helper.make_graph(
        nodes,
        "reader",
        [helper.make_tensor_value_info(ids, TensorProto.INT64, ["rows", "source"])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", "source", SIZE]) for name in names],
        [numpy_helper.from_array(weights, "table")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def writer() -> ModelProto:
    """The tiny decoder, whose embedding is moved by the mean of what was read: float32 seen [batch, source, 8]."""
    model = decoder(Recipe(extra_inputs={"seen": (TensorProto.FLOAT, ["batch", "source", SIZE])}))
    graph = model.graph
    at = next(at for at, node in enumerate(graph.node) if "x.0" in node.output)
    graph.node[at].output[0] = "own"
    graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "axis_of_source"))
    mean = helper.make_node("ReduceMean", ["seen", "axis_of_source"], ["mean"], keepdims=1)
    graph.node.insert(at + 1, mean)
    graph.node.insert(at + 2, helper.make_node("Add", ["own", "mean"], ["x.0"]))
    return model


def package(folder: Path, over: dict[str, Any] | None = None, read: ModelProto | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    save(read or reader(), folder / "reader.onnx")
    save(writer(), folder / "writer.onnx")
    (folder / "inference_metadata.yaml").write_text(yaml.safe_dump(laid_over(DOCUMENT, over or {})))
    return folder


def pipeline(**over: Any) -> dict[str, Any]:
    return {"pipeline": over}


def refused(folder: Path) -> dict[str, Problem]:
    with pytest.raises(CompileError) as caught:
        compile_package(folder, out=folder.parent / "refused")
    return {each.code: each for each in caught.value.problems}


def by_hand(folder: Path, source: list[int], start: int, count: int) -> list[int]:
    """Greedy tokens by a loop over both graphs."""
    read, write = (onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("reader", "writer"))
    seen = read.run(None, {read.get_inputs()[0].name: np.array([source])})[0]
    past = [np.zeros((1, 1, 0, 8), np.float32)] * 2
    tokens = [start]
    for length in range(1, count + 1):
        feeds = {
            "input_ids": np.array([tokens[-1:]]),
            "attention_mask": np.ones((1, length), np.int64),
            "seen": seen,
            "past_key_values.0.key": past[0],
            "past_key_values.0.value": past[1],
        }
        logits, *past = write.run(["logits", "present.0.key", "present.0.value"], feeds)
        tokens.append(int(logits[0, -1].argmax()))
    return tokens[1:]


@pytest.mark.parametrize("source", [[3, 1, 7], [9]])
def test_the_encoder_runs_once_and_its_output_is_there_at_every_step(source: list[int], tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    plan = compile_package(folder, out=tmp_path / "out").plan
    assert plan is not None
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        inputs = {"request.input_ids": [source], "decoder_input_ids": [[2]], "request.max_iterations": [8]}
        rows = model.run(inputs, stop_on_eos=False).rows("tokens")
        made = [int(token) for each in rows if each is not None for token in each.reshape(-1)]
        assert made == by_hand(folder, source, 2, 8)


def test_rows_of_a_batch_have_their_own_source(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    compile_package(folder, out=tmp_path / "out")
    sources = [[3, 1, 7], [9, 9, 2]]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        inputs = {"request.input_ids": sources, "decoder_input_ids": [[2], [2]], "request.max_iterations": [6]}
        rows = model.run(inputs, stop_on_eos=False).rows("tokens")
        made = [[int(token) for token in each.reshape(-1)] for each in rows if each is not None]
        assert made == [by_hand(folder, each, 2, 6) for each in sources]


def test_a_default_start_lets_text_in(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    (folder / "config.json").write_text('{"decoder_start_token_id": 2}')
    compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.generate([3, 1, 7], max_new_tokens=6, stop_on_eos=False).tokens == by_hand(folder, [3, 1, 7], 2, 6)


def test_what_the_encoder_reads_takes_no_room_of_the_decoder(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", {"model": {"max_sequence_length": 8}})
    (folder / "config.json").write_text('{"decoder_start_token_id": 2}')
    compile_package(folder, out=tmp_path / "out")
    source = [3, 1, 7, 9, 2, 5, 4, 8, 6, 1, 3]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        made = model.generate(source, max_new_tokens=6, stop_on_eos=False)
        assert made.tokens == by_hand(folder, source, 2, 6)


def test_an_output_of_another_name_is_taken_where_only_one_fits(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", read=reader("last"))
    told = [each for each in compile_package(folder, out=tmp_path / "out").problems if "last" in each.what]
    assert [(each.code, each.path) for each in told] == [("config-contradicts-graph", "pipeline.dataflow[0].from")]


def test_an_output_of_another_name_is_refused_where_two_fit(tmp_path: Path) -> None:
    told = refused(package(tmp_path / "p", read=reader("first", "last")))["missing-output"]
    assert told.path == "pipeline.dataflow[0].from"
    assert "first" in told.help


FLOW = DOCUMENT["pipeline"]["dataflow"][0]
SINGLE = {"name": "x", "strategy": {"kind": "single_pass", "model": "reader"}}


@pytest.mark.parametrize(
    ("over", "code", "path"),
    [
        (pipeline(dataflow=[FLOW, {"from": "reeder.hidden", "to": "writer.seen"}]), "unknown-component",
         "pipeline.dataflow[1].from"),
        (pipeline(dataflow=[{"from": "reader.hidden", "to": "writer.scene"}]), "missing-input",
         "pipeline.dataflow[0].to"),
        (pipeline(dataflow=[FLOW, FLOW]), "wrong-port", "pipeline.dataflow"),
        (pipeline(dataflow=[{"from": "reader.hidden", "to": "writer.input_ids"}]), "wrong-port",
         "pipeline.dataflow[0]"),
        (pipeline(dataflow=[FLOW, {"from": "reader.hidden", "to": "reader.ids"}]), "wrong-port",
         "pipeline.dataflow[1]"),
        (pipeline(dataflow=[]), "unsupported-package-class", "pipeline.models.reader"),
        (pipeline(strategy={"kind": "nested", "stages": ...}), "unsupported-package-class", "pipeline.strategy"),
        (pipeline(strategy={"stages": [SINGLE]}), "unsupported-package-class", "pipeline.strategy"),
        (pipeline(strategy={"kind": "autoregressive", "decoder": "author", "stages": ...}), "unknown-component",
         "pipeline.strategy"),
        (pipeline(models={"reader": {"filename": "gone.onnx"}}), "missing-file", "pipeline.models.reader.filename"),
        (pipeline(models={"reader": {"filename": "../up.onnx"}}), "outside-package",
         "pipeline.models.reader.filename"),
        (pipeline(workflows={}), "unknown-field", "pipeline.workflows"),
    ],
)  # fmt: skip
def test_what_can_not_be_joined_is_refused_at_its_place(
    over: dict[str, Any], code: str, path: str, tmp_path: Path
) -> None:
    told = refused(package(tmp_path / "p", over))
    assert told[code].path == path
    assert told[code].where.line > 0
    assert not (tmp_path / "refused").exists()


def test_models_may_be_called_as_the_workflow_calls_its_own_parts(tmp_path: Path) -> None:
    """An encoder called "decoder", and a decoder called "package"."""
    models = DOCUMENT["pipeline"]["models"]
    stages = [
        {"name": "a", "strategy": {"kind": "single_pass", "model": "decoder"}},
        {"name": "b", "strategy": {"kind": "autoregressive", "decoder": "package"}},
    ]
    over = pipeline(
        models={"reader": ..., "writer": ..., "decoder": models["reader"], "package": models["writer"]},
        dataflow=[{"from": "decoder.hidden", "to": "package.seen"}],
        strategy={"kind": "composite", "stages": stages},
    )
    folder = package(tmp_path / "p", over)
    compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        inputs = {"request.input_ids": [[3, 1]], "decoder_input_ids": [[2]], "request.max_iterations": [5]}
        rows = model.run(inputs, stop_on_eos=False).rows("tokens")
        assert [int(each) for row in rows if row is not None for each in row.reshape(-1)] == by_hand(
            folder, [3, 1], 2, 5
        )


@pytest.mark.parametrize("name", ["decoder_model", "a.b"])
def test_names_that_can_not_be_told_apart_are_refused(name: str, tmp_path: Path) -> None:
    reading = DOCUMENT["pipeline"]["models"]["reader"]
    told = refused(package(tmp_path / "p", pipeline(models={"decoder": reading, name: reading})))
    assert told["value-defined-twice"].path == "pipeline.models"


def test_models_that_feed_each_other_in_a_circle_are_refused(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", pipeline(dataflow=[FLOW, {"from": "writer.logits", "to": "reader.more"}]))
    model = reader()
    more = helper.make_tensor_value_info("more", TensorProto.FLOAT, ["rows", "source", "wide"])
    model.graph.input.append(more)
    save(model, folder / "reader.onnx")
    assert "reader -> writer" in refused(folder)["cyclic-dataflow"].what
