"""A recurrent decoder beside an encoder: one token of each row a run, the state of all layers in one tensor.

Its rows are on axis 1 of that state, its logits have no axis of tokens. It runs in a plain loop; here it is refused for
what its ports are, in every dialect and whatever the type says.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import yaml
from genai_compiler import CompileError, compile_package
from genai_compiler.driver import Options
from genai_compiler.problem import Problem, errors
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, save

from tests.lower.packages import Recipe, decoder, write_package

VOCABULARY, HIDDEN, LAYERS = 24, 8, 3
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
node, value = helper.make_node, helper.make_tensor_value_info


def graph(nodes: list[NodeProto], inputs: list[Any], outputs: list[Any], weights: Mapping[str, Any]) -> ModelProto:
    held = [numpy_helper.from_array(np.asarray(each), name) for name, each in weights.items()]
    held += [numpy_helper.from_array(np.array([at], np.int64), f"axis{at}") for at in range(3)]
    made = helper.make_graph(nodes, "recurrent", inputs, outputs, held)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def weight(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


SEEN = value("encoder_hidden_states", FLOAT, ["batch", "source", HIDDEN])


def encoder() -> ModelProto:
    nodes = [
        node("Gather", ["words", "input_ids"], ["found"]),
        node("Cast", ["attention_mask"], ["shown"], to=FLOAT),
        node("Unsqueeze", ["shown", "axis2"], ["each"]),
        node("Mul", ["found", "each"], ["encoder_hidden_states"]),
    ]
    inputs = [value(name, INT64, ["batch", "source"]) for name in ("input_ids", "attention_mask")]
    return graph(nodes, inputs, [SEEN], {"words": weight(0, VOCABULARY, HIDDEN)})


def recurrent() -> ModelProto:
    """ids int64 [rows], state [3, rows, 8] -> logits [rows, 24]: simple recurrent units over a sum of the source."""
    weights = {"words": weight(1, VOCABULARY, HIDDEN), "head": weight(2, HIDDEN, VOCABULARY)}
    nodes = [
        node("Gather", ["words", "input_ids"], ["x0"]),
        node("Split", ["rnn_states_prev"], [f"s{at}" for at in range(LAYERS)], axis=0, num_outputs=LAYERS),
        node("ReduceSum", ["encoder_hidden_states", "axis1"], ["source"], keepdims=0),
    ]
    for at in range(LAYERS):
        weights |= {f"f{at}": weight(3 + at, HIDDEN, HIDDEN), f"w{at}": weight(9 + at, HIDDEN, HIDDEN)}
        nodes += [
            node("MatMul", [f"x{at}", f"f{at}"], [f"gate{at}"]),
            node("Sigmoid", [f"gate{at}"], [f"kept{at}"]),
            node("MatMul", [f"x{at}", f"w{at}"], [f"new{at}"]),
            node("Squeeze", [f"s{at}", "axis0"], [f"old{at}"]),
            node("Sub", [f"old{at}", f"new{at}"], [f"less{at}"]),
            node("Mul", [f"kept{at}", f"less{at}"], [f"part{at}"]),
            node("Add", [f"new{at}", f"part{at}"], [f"c{at}"]),
            node("Add", [f"c{at}", "source"], [f"x{at + 1}"]),
            node("Unsqueeze", [f"c{at}", "axis0"], [f"u{at}"]),
        ]
    nodes += [
        node("Concat", [f"u{at}" for at in range(LAYERS)], ["rnn_states"], axis=0),
        node("MatMul", [f"x{LAYERS}", "head"], ["logits"]),
    ]
    state = [LAYERS, "batch", HIDDEN]
    inputs = [value("input_ids", INT64, ["batch"]), SEEN, value("rnn_states_prev", FLOAT, state)]
    outputs = [value("logits", FLOAT, ["batch", VOCABULARY]), value("rnn_states", FLOAT, state)]
    return graph(nodes, inputs, outputs, weights)


def in_version_1(folder: Path, kind: str) -> None:
    config = {
        "model": {
            "type": kind,
            "vocab_size": VOCABULARY,
            "context_length": 32,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "encoder": {"filename": "encoder.onnx"},
            "decoder": {"filename": "decoder.onnx", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS},
        },
        "search": {},
    }
    (folder / "genai_config.json").write_text(json.dumps(config))


def in_version_2(folder: Path, _: str) -> None:
    sessions = {name: {"file": f"{name}.onnx"} for name in ("encoder", "decoder")}
    document = {"version": 2, "pipeline": {"extends": "encoder-decoder", "sessions": sessions}, "tokens": {"eos": [2]}}
    (folder / "genai_config.json").write_text(json.dumps(document))


def in_models(folder: Path, _: str) -> None:
    ports = {
        "encoder": {"token_input": "input_ids"},
        "decoder": {"token_input": "input_ids", "logits_output": "logits"},
    }
    models = {name: {"filename": f"{name}.onnx", "io": io} for name, io in ports.items()}
    document = {
        "model": {"max_sequence_length": 32},
        "pipeline": {
            "models": models,
            "dataflow": [{"from": "encoder.encoder_hidden_states", "to": "decoder.encoder_hidden_states"}],
            "strategy": {"kind": "autoregressive", "decoder": "decoder"},
        },
    }
    (folder / "inference_metadata.yaml").write_text(yaml.safe_dump(document))


def written(folder: Path) -> Path:
    folder.mkdir()
    save(encoder(), folder / "encoder.onnx")
    save(recurrent(), folder / "decoder.onnx")
    return folder


def told(folder: Path, **options: Any) -> list[Problem]:
    with pytest.raises(CompileError) as refused:
        compile_package(folder, out=folder.with_name("out"), options=Options(**options))
    return list(errors(refused.value.problems))


def test_the_graphs_run_in_a_plain_loop(tmp_path: Path) -> None:
    """What is refused here is a decoder that works: the end id behind the source, one token of each row a run."""
    folder = written(tmp_path / "p")
    first, then = (onnxruntime.InferenceSession(folder / f"{each}.onnx") for each in ("encoder", "decoder"))
    made = {}
    for source in ((5, 9, 2), (7, 2)):
        (seen,) = first.run(None, {"input_ids": np.array([source]), "attention_mask": np.ones((1, len(source)), int)})
        ids, state, tokens = np.array([1]), np.zeros((LAYERS, 1, HIDDEN), np.float32), list[int]()
        for _ in range(6):
            feeds = {"input_ids": ids, "encoder_hidden_states": seen, "rnn_states_prev": state}
            logits, state = then.run(None, feeds)
            ids = logits.argmax(-1)
            tokens += ids.tolist()
        made[source] = tokens
    assert len({tuple(each) for each in made.values()}) == 2


@pytest.mark.parametrize("kind", ["marian-ssru", "a_type_of_tomorrow"])
@pytest.mark.parametrize("dialect", [in_version_1, in_version_2, in_models])
def test_it_is_refused_for_its_form(dialect: Any, kind: str, tmp_path: Path) -> None:
    dialect(folder := written(tmp_path / "p"), kind)
    found = told(folder)
    assert {each.code for each in found} == {"unsupported-package-class"}
    state, tokens = sorted(found, key=lambda each: "one token" in each.what)
    assert "a state whose rows are on axis 1: 'rnn_states_prev' is float32 [3, batch, 8]" in state.what
    assert "'rnn_states' its next value" in state.what
    assert "one token of each row a run: 'input_ids' is int64 [batch]" in tokens.what
    assert "'logits', float32 [batch, 24], has no axis of tokens" in tokens.what
    for each in found:
        assert each.help.startswith("export it with")
    if dialect is in_version_1:
        assert [each.path.removeprefix("model.decoder.inputs.") for each in (state, tokens)] == [
            "rnn_states_prev",
            "input_ids",
        ]


def test_where_nothing_is_declared(tmp_path: Path) -> None:
    folder = written(tmp_path / "p")
    (folder / "config.json").write_text(json.dumps({"vocab_size": VOCABULARY, "max_position_embeddings": 32}))
    (problem,) = told(folder, graph="decoder.onnx")
    assert problem.code == "unsupported-package-class"
    assert "one token of each row a run" in problem.what


def test_a_name_that_the_configuration_knows_is_not_asked_for_under_another(tmp_path: Path) -> None:
    """An input under its own name: the help said that it might be that one under another name."""
    extra = {"lstm_hidden_state": (FLOAT, ["batch", 4])}
    config = {"model": {"decoder": {"inputs": {"lstm_hidden_state": "lstm_hidden_state"}}}}
    folder = write_package(tmp_path / "p", decoder(Recipe(extra_inputs=extra)), config)
    (problem,) = told(folder)
    assert problem.code == "unclaimed-input"
    assert problem.help == (
        "'lstm_hidden_state' is known, but a graph that takes it is not compiled; export without it"
    )
