"""A recurrent decoder beside an encoder: one token of each row a run, the state of all layers in one tensor.

Its rows are on axis 1 of that state, its logits have no axis of tokens. In every dialect, whatever the type says, it
gives the tokens of a plain loop over both graphs.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import genai_runtime
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
        node("Gather", ["words", "input_ids"], ["looked"]),
        node("MatMul", ["looked", "mixed"], ["found"]),
        node("Cast", ["attention_mask"], ["shown"], to=FLOAT),
        node("Unsqueeze", ["shown", "axis2"], ["each"]),
        node("Mul", ["found", "each"], ["encoder_hidden_states"]),
    ]
    inputs = [value(name, INT64, ["batch", "source"]) for name in ("input_ids", "attention_mask")]
    return graph(nodes, inputs, [SEEN], {"words": weight(0, VOCABULARY, HIDDEN), "mixed": weight(20, HIDDEN, HIDDEN)})


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
    document = {
        "version": 2,
        "pipeline": {"extends": "encoder-decoder", "sessions": sessions},
        "tokens": {"eos": [2], "bos": 1},
    }
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


SOURCES = ([5, 9, 11], [7])
START, END, COUNT = 1, 2, 8


def plain(folder: Path, source: list[int], ends: bool, start: int = START) -> list[int]:
    """The tokens of a loop over both graphs. ends: the end id stands behind the source."""
    first, then = (onnxruntime.InferenceSession(folder / f"{each}.onnx") for each in ("encoder", "decoder"))
    ids = np.array([[*source, *[END] * ends]])
    (seen,) = first.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
    token, state, tokens = np.array([start]), np.zeros((LAYERS, 1, HIDDEN), np.float32), list[int]()
    for _ in range(COUNT):
        feeds = {"input_ids": token, "encoder_hidden_states": seen, "rnn_states_prev": state}
        logits, state = then.run(None, feeds)
        token = logits.argmax(-1)
        tokens += token.tolist()
    return tokens


def made(folder: Path, source: list[int], **options: Any) -> list[int]:
    out = folder.with_name("out")
    compile_package(folder, out=out, options=Options(force=True, **options))
    inputs = {"request.input_ids": [source], "attention_mask": [[1] * len(source)], "request.max_iterations": [COUNT]}
    with genai_runtime.load(out, threads=1) as model:
        found: list[int] = model.run(inputs, stop_on_eos=False)["tokens"][0].tolist()
    return found


@pytest.mark.parametrize("kind", ["marian-ssru", "a_type_of_tomorrow"])
@pytest.mark.parametrize("dialect", [in_version_1, in_version_2])
def test_in_configurations_the_end_stands_behind_the_source(dialect: Any, kind: str, tmp_path: Path) -> None:
    dialect(folder := written(tmp_path / "p"), kind)
    wanted = [plain(folder, each, ends=True) for each in SOURCES]
    assert wanted != [plain(folder, each, ends=False) for each in SOURCES]
    assert [made(folder, each) for each in SOURCES] == wanted


@pytest.mark.parametrize("plainly", [False, True])
def test_elsewhere_the_source_is_what_is_given(plainly: bool, tmp_path: Path) -> None:
    folder = written(tmp_path / "p")
    if plainly:
        stated = {"vocab_size": VOCABULARY, "max_position_embeddings": 32, "eos_token_id": END}
        (folder / "config.json").write_text(json.dumps({**stated, "decoder_start_token_id": START}))
    else:
        in_models(folder, "")
        (folder / "generation_config.json").write_text(json.dumps({"decoder_start_token_id": START}))
    options = {"graph": ("encoder.onnx", "decoder.onnx")} if plainly else {}
    assert [made(folder, each, **options) for each in SOURCES] == [plain(folder, each, ends=False) for each in SOURCES]


@pytest.mark.parametrize(
    ("tokens", "start"), [({"eos": [2], "bos": 5}, 5), ({"eos": [2], "bos": 5, "decoder_start": 7}, 7)]
)
def test_in_version_2_the_start_is_stated_or_the_first_token(
    tokens: dict[str, Any], start: int, tmp_path: Path
) -> None:
    in_version_2(folder := written(tmp_path / "p"), "")
    document = json.loads((folder / "genai_config.json").read_text())
    (folder / "genai_config.json").write_text(json.dumps({**document, "tokens": tokens}))
    assert made(folder, SOURCES[0]) == plain(folder, SOURCES[0], ends=True, start=start)


def test_without_an_encoder_the_prompt_goes_in_token_by_token(tmp_path: Path) -> None:
    """The same decoder over a source of zeros that is part of the graph: a prompt for it, no end behind that."""
    folder = written(tmp_path / "p")
    model = recurrent()
    kept = [each for each in model.graph.input if each.name != "encoder_hidden_states"]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    nothing = numpy_helper.from_array(np.zeros((1, 1, HIDDEN), np.float32), "encoder_hidden_states")
    model.graph.initializer.append(nothing)
    save(model, folder / "decoder.onnx")
    config = {"vocab_size": VOCABULARY, "context_length": 32, "eos_token_id": END}
    config |= {"decoder": {"filename": "decoder.onnx"}}
    (folder / "genai_config.json").write_text(json.dumps({"model": config, "search": {}}))
    compile_package(folder, out=tmp_path / "out")
    session = onnxruntime.InferenceSession(folder / "decoder.onnx")
    with genai_runtime.load(tmp_path / "out", threads=1) as loaded:
        rows = loaded.generate(batch=[[5, 9, 11], [7]], max_new_tokens=4, temperature=0, stop_on_eos=False).rows
    for prompt, row in zip(([5, 9, 11], [7]), rows, strict=True):
        state, tokens = np.zeros((LAYERS, 1, HIDDEN), np.float32), list[int]()
        for each in [*prompt, *row.tokens[:-1]]:
            logits, state = session.run(None, {"input_ids": np.array([each]), "rnn_states_prev": state})
            tokens.append(int(logits.argmax()))
        assert row.tokens == tokens[len(prompt) - 1 :]


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


def alone(counts: str) -> ModelProto:
    """The decoder over a source of zeros of its own, with positions from a table: counts is the input for them."""
    model = recurrent()
    kept = [each for each in model.graph.input if each.name != "encoder_hidden_states"]
    del model.graph.input[:]
    model.graph.input.extend([*kept, value(counts, INT64, [1])])
    model.graph.initializer.extend(
        [
            numpy_helper.from_array(np.zeros((1, 1, HIDDEN), np.float32), "encoder_hidden_states"),
            numpy_helper.from_array(weight(30, 32, HIDDEN), "places"),
        ]
    )
    first = next(each for each in model.graph.node if each.output[0] == "x0")
    first.output[0] = "looked"
    model.graph.node.insert(1, node("Gather", ["places", counts], ["placed"]))
    model.graph.node.insert(2, node("Add", ["looked", "placed"], ["x0"]))
    return model


@pytest.mark.parametrize("named", ["by_the_block", "by_the_graph"])
def test_the_count_of_runs_in_other_dialects(named: str, tmp_path: Path) -> None:
    """`position_ids_input` names it in `model.io`; in a plain folder it is the one number that looks into a table."""
    (folder := tmp_path / "p").mkdir()
    save(alone("step"), folder / "model.onnx")
    if named == "by_the_block":
        io = {"token_input": "input_ids", "logits_output": "logits", "position_ids_input": "step"}
        document = {"model": {"max_sequence_length": 32, "io": io}}
        (folder / "inference_metadata.yaml").write_text(yaml.safe_dump(document))
    else:
        stated = {"vocab_size": VOCABULARY, "max_position_embeddings": 32, "eos_token_id": END}
        (folder / "config.json").write_text(json.dumps(stated))
    compile_package(folder, out=tmp_path / "out")
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    prompt, state, tokens = [5, 9, 11], np.zeros((LAYERS, 1, HIDDEN), np.float32), list[int]()
    with genai_runtime.load(tmp_path / "out", threads=1) as loaded:
        made = loaded.generate(prompt, max_new_tokens=6, temperature=0, stop_on_eos=False).tokens
    for at, each in enumerate([*prompt, *made[:-1]]):
        feeds = {"input_ids": np.array([each]), "rnn_states_prev": state, "step": np.array([at])}
        logits, state = session.run(None, feeds)
        tokens.append(int(logits.argmax()))
    assert made == tokens[len(prompt) - 1 :]
