"""What is said of a decoder that takes one token of each row a run: its start, its ends, ports of another form."""

import json
import shutil
from pathlib import Path
from typing import Any

import genai_runtime
import pytest
from genai_compiler import CompileError, check_package, compile_package
from genai_compiler.convert import convert_package
from genai_compiler.driver import Options
from genai_compiler.problem import Problem, errors

from tests.data import ROOT
from tests.lower.test_config_models import changed
from tests.lower.test_one_token_rows import EOS, GREEDY, HIDDEN, LAYERS, PACKAGE, SOURCES, alone, plain
from tests.test_convert import same_plan


def told(folder: Path, **options: Any) -> list[Problem]:
    return list(check_package(folder, **options))


def refused(folder: Path, out: Path) -> list[Problem]:
    with pytest.raises(CompileError) as caught:
        compile_package(folder, out=out)
    return list(errors(caught.value.problems))


def test_the_type_decides_nothing(tmp_path: Path) -> None:
    for kind in (..., "llama", "a_type_of_tomorrow"):
        folder = changed(tmp_path / str(kind), PACKAGE, ("model.type", kind))
        compile_package(folder, out=tmp_path / f"{kind}.out")
        with genai_runtime.load(tmp_path / f"{kind}.out", threads=1) as loaded:
            assert loaded.generate(SOURCES[0], max_new_tokens=6, **GREEDY).tokens == alone(SOURCES[0], 6)


def test_it_loads_in_the_reference_runtime_too(tmp_path: Path) -> None:
    compile_package(PACKAGE, out=tmp_path / "out", options=Options(strict=True))


@pytest.mark.parametrize(("bos", "other"), [(5, 1), (..., 3), (5, ...)])
def test_the_output_starts_as_the_reference_starts_it(bos: Any, other: Any, tmp_path: Path) -> None:
    """`bos_token_id`, 0 where that is not stated; `decoder_start_token_id` has no part in it, and that is said."""
    changes = [("model.bos_token_id", bos), *([("model.decoder_start_token_id", other)] if other is not ... else [])]
    folder = changed(tmp_path / "p", PACKAGE, *changes)
    found = [each for each in told(folder) if each.code in ("ignored-key", "no-start-token")]
    assert [each.path for each in found] == ["model.decoder_start_token_id"] * (other is not ...)
    compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as loaded:
        made = loaded.generate(SOURCES[0], max_new_tokens=6, **GREEDY).tokens
    assert made == alone(SOURCES[0], 6, start=0 if bos is ... else bos)


def test_the_first_of_several_ends_stands_behind_the_source(tmp_path: Path) -> None:
    folder = changed(tmp_path / "p", PACKAGE, ("model.eos_token_id", [9, EOS]))
    compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as loaded:
        made = loaded.generate(SOURCES[0], max_new_tokens=6, **GREEDY).tokens
    assert made == alone(SOURCES[0], 6, end=9)


def test_beams_stay_as_they_are_answered_elsewhere(tmp_path: Path) -> None:
    folder = changed(tmp_path / "p", PACKAGE, ("search.num_beams", 2))
    other = changed(tmp_path / "other", ROOT / "fixtures" / "tiny-gqa-v1", ("search.num_beams", 2))
    code = {each.code for each in told(other) if "beam" in each.what}
    assert code
    assert {each.code for each in told(folder) if "beam" in each.what} == code


# ---- forms of the ports ----------------------------------------------------------------------------------------------


def with_ports(folder: Path, **shapes: list[Any] | None) -> Path:
    """The package, its decoder's ports declared with other shapes (the graph is not run)."""
    onnx = pytest.importorskip("onnx")
    shutil.copytree(PACKAGE, folder)
    model = onnx.load(folder / "decoder.onnx")
    for port in (*model.graph.input, *model.graph.output):
        if port.name in shapes:
            kind, shape = port.type.tensor_type.elem_type, shapes[port.name]
            port.CopyFrom(onnx.helper.make_tensor_value_info(port.name, kind, shape))
    onnx.save(model, folder / "decoder.onnx")
    return folder


def test_a_second_axis_that_nothing_calls_rows_is_refused(tmp_path: Path) -> None:
    state = [LAYERS, "n", HIDDEN]
    one = with_ports(tmp_path / "one", rnn_states_prev=state)
    both = with_ports(tmp_path / "both", rnn_states_prev=state, rnn_states=state)
    for folder in (one, both):
        (problem,) = refused(folder, tmp_path / "out")
        assert problem.code == "unknown-state-shape"
        assert "nothing says that the second axis is that of rows" in problem.what


def test_tokens_of_one_axis_beside_logits_of_another_are_refused(tmp_path: Path) -> None:
    (problem,) = refused(with_ports(tmp_path / "p", input_ids=["tokens"]), tmp_path / "out")
    assert "'input_ids' is int64 [tokens]; token ids are" in problem.what
    assert "one token of each row, [batch], gives logits [batch, vocabulary]" in problem.help


def test_the_state_s_next_value_is_told_by_the_graph_where_the_text_calls_it_otherwise(tmp_path: Path) -> None:
    folder = changed(tmp_path / "p", PACKAGE, ("model.decoder.outputs.rnn_states", "rnn_next"))
    compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as loaded:
        assert loaded.generate(SOURCES[0], max_new_tokens=6, **GREEDY).tokens == alone(SOURCES[0], 6)


def test_a_counter_of_another_form_is_refused(tmp_path: Path) -> None:
    (problem,) = refused(with_ports(tmp_path / "p", past_key_values_length=["batch", 1]), tmp_path / "out")
    assert (problem.code, problem.path) == ("wrong-port", "model.decoder.inputs.past_key_values_length")


def test_an_encoder_that_takes_more_than_a_mask_is_refused(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    shutil.copytree(PACKAGE, tmp_path / "p")
    model = onnx.load(tmp_path / "p" / "encoder.onnx")
    model.graph.input.append(
        onnx.helper.make_tensor_value_info("token_type_ids", onnx.TensorProto.INT64, ["batch", "source"])
    )
    onnx.save(model, tmp_path / "p" / "encoder.onnx")
    (problem,) = refused(tmp_path / "p", tmp_path / "out")
    assert problem.code == "wrong-port"
    assert "'token_type_ids'" in problem.what


def in_two(folder: Path) -> Path:
    """The decoder as two graphs: what makes the logits stands apart."""
    onnx = pytest.importorskip("onnx")
    shutil.copytree(PACKAGE, folder)
    model = onnx.load(folder / "decoder.onnx")
    hidden = next(each.input[0] for each in model.graph.node if "logits" in each.output)
    model.graph.value_info.append(onnx.helper.make_tensor_value_info(hidden, 1, ["batch", HIDDEN]))
    names = [each.name for each in model.graph.input]
    cut = onnx.utils.Extractor(model)
    onnx.save(cut.extract_model(names, [hidden, "rnn_states"]), folder / "layers.onnx")
    onnx.save(cut.extract_model([hidden], ["logits"]), folder / "lm_head.onnx")
    return folder


def test_one_that_is_cut_is_refused_with_the_reason(tmp_path: Path) -> None:
    folder = in_two(tmp_path / "p")
    layers = {"run": "layers", "when": "always", "cross_attention_from": "encoder"}
    document = {
        "version": 2,
        "pipeline": {
            "sessions": {each: {"file": f"{each}.onnx"} for each in ("encoder", "layers", "lm_head")},
            "flow": [{"run": "encoder", "when": "once"}, layers, {"run": "lm_head", "when": "always"}],
        },
        "tokens": {"eos": [EOS], "bos": 1, "decoder_start": 1},
        "generation": {"max_length": 32},
    }
    (folder / "genai_config.json").write_text(json.dumps(document))
    (problem,) = refused(folder, tmp_path / "out")
    assert problem.code == "unsupported-package-class"
    assert "one token of each row a run; such a decoder is compiled as one graph" in problem.what


def test_who_names_the_first_token_is_told(tmp_path: Path) -> None:
    """Version 2 has no token of its own for it where `bos` is not stated either: the caller's."""
    folder = shutil.copytree(PACKAGE, tmp_path / "p")
    for tokens, said in (({"bos": 5}, "5"), ({}, "what the caller gives"), ({"bos": 5, "decoder_start": 7}, "7")):
        sessions = {each: {"file": f"{each}.onnx"} for each in ("encoder", "decoder")}
        document = {
            "version": 2,
            "pipeline": {"extends": "encoder-decoder", "sessions": sessions},
            "tokens": {"eos": EOS, **tokens},
            "generation": {"max_length": 32},
        }
        (folder / "genai_config.json").write_text(json.dumps(document))
        notes = compile_package(folder, out=tmp_path / f"{said}.out").notes
        assert f"each source gets the end token {EOS} behind it; the output starts with {said}" in notes


def test_converted_it_says_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    shutil.copytree(PACKAGE, folder)
    before = compile_package(folder, out=tmp_path / "before")
    (folder / "inference_metadata.yaml").write_text(convert_package(folder).text, "utf-8")
    same_plan(before, compile_package(folder, out=tmp_path / "out"))
    with genai_runtime.load(tmp_path / "out", threads=1) as loaded:
        rows = loaded.generate(batch=SOURCES, max_new_tokens=9, **GREEDY).rows
    assert [each.tokens for each in rows] == plain(PACKAGE, SOURCES, 9)[0].tolist()
