"""Speech from a text to a file, over a package made here whose sound tells which tokens and limits it was given."""

import io
import json
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import pytest
import yaml
from genai_compiler import CompileError, compile_package
from genai_runtime.cli import main
from onnx import TensorProto, helper

from tests.runtime.tiny_tokenizers import byte_level

ASSEMBLY = {
    "max_input_tokens": 64,
    "max_output_units": 50,
    "state_advance_units": 2,
    "segments": [{"field": "input", "transforms": [{"kind": "collapse_newlines"}]}, {"literal": "|"},
                 {"field": "instructions"}],
    "guidance_rows": {"unconditional_token_id": 7, "replace_from": 1, "preserve_trailing": 1},
}  # fmt: skip
MEDIA = {"container": "wav", "encoding": "pcm_s16_le", "sample_rate_hz": 8000, "channels": 2}
ROWS = {"kind": "request_aligned", "axis": 0}
TEXT = {"kind": "adapter", "abi": "onnx-genai.text-assembly", "version": "1", "artifact": "speech.json"}
CONTRACT = {"id": "onnx-genai.text-assembly", "version": "1"}


def vocoder(file: Path) -> None:
    """sound [1, 2, n]: the two rows of tokens, in 1/1024; row 0's first sample is the limit instead."""
    nodes = [
        helper.make_node("Cast", ["tokens"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["limit"], ["most"], to=TensorProto.FLOAT),
        helper.make_node("ScatterND", ["numbers", "first", "most"], ["marked"]),
        helper.make_node("Mul", ["marked", "unit"], ["scaled"]),
        helper.make_node("Unsqueeze", ["scaled", "zero"], ["sound"]),
    ]
    held = [
        helper.make_tensor("first", TensorProto.INT64, [1, 2], [0, 0]),
        helper.make_tensor("unit", TensorProto.FLOAT, [], [1 / 1024]),
        helper.make_tensor("zero", TensorProto.INT64, [1], [0]),
    ]
    inputs = [("tokens", TensorProto.INT64, ["b", "n"]), ("limit", TensorProto.INT64, [1])]
    sides = [helper.make_tensor_value_info(*each) for each in inputs]
    out = helper.make_tensor_value_info("sound", TensorProto.FLOAT, [1, "b", "n"])
    graph = helper.make_graph(nodes, "vocoder", sides, [out], held)
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), file)


def document() -> dict[str, Any]:
    def request(role: str, rank: int, shape: list[Any], **more: Any) -> dict[str, Any]:
        contract = {"dtype": "int64", "rank": rank, "shape": shape, **more}
        return {"contract": contract, "role": {"kind": "runtime", "version": "1.0", "role": role},
                "source": {"kind": "request"}}  # fmt: skip

    sound = {"dtype": "float32", "rank": 3, "shape": [1, 2, "n"]}
    return {"pipeline": {"workflow": {
        "manifest": {"adapter_abis": {"onnx-genai.text-assembly": "1"}, "capabilities": ["workflow_ssa", "typed_emit"]},
        "inputs": {"tokens": request("prompt_tokens", 2, ["b", "n"], batch_layout=ROWS),
                   "limit": request("max_output_tokens", 1, [1])},
        "outputs": {"sound": {"contract": sound, "role": "audio", "stage": "pre_adapter", "media": MEDIA}},
        "components": {"vocoder": {"implementation": {"kind": "onnx", "artifact": "vocoder.onnx"}},
                       "words": {"implementation": TEXT, "contract": CONTRACT}},
        "steps": [{"kind": "invoke", "component": "vocoder", "inputs": {"tokens": "tokens", "limit": "limit"},
                   "outputs": {"sound": "s"}}, {"kind": "emit", "value": "s", "output": "sound", "mode": "replace"}],
    }}}  # fmt: skip


Changed = Callable[[dict[str, Any], dict[str, Any]], None]


def package(root: Path, change: Changed = lambda workflow, assembly: None) -> Path:
    data, assembly = json.loads(json.dumps([document(), ASSEMBLY]))
    change(data["pipeline"]["workflow"], assembly)
    root.mkdir()
    vocoder(root / "vocoder.onnx")
    (root / "speech.json").write_text(json.dumps(assembly, indent=1))
    (root / "tokenizer.json").write_text(json.dumps(byte_level()))
    (root / "inference_metadata.yaml").write_text(yaml.safe_dump(data))
    return root


def opened(tmp_path: Path, change: Changed = lambda workflow, assembly: None) -> genai_runtime.Model:
    compile_package(package(tmp_path / "voice", change), out=tmp_path / "voice.compiled")
    return genai_runtime.load(tmp_path / "voice.compiled")


def samples(content: bytes) -> Any:
    with wave.open(io.BytesIO(content), "rb") as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels()).T


def heard(tokens: list[int]) -> list[int]:
    """The integers of a channel that says these tokens."""
    return [int(np.floor(each / 1024 * 32767 + 0.5)) for each in tokens]


def test_a_text_is_put_together_and_said(tmp_path: Path) -> None:
    with opened(tmp_path) as model:
        audio = model.speech("Hello\n\nthere", "softly")
        tokens = model.tokenizer.encode("Hello\nthere|softly")
        row, guided = samples(audio.content).tolist()
        assert row == heard([52, *tokens[1:]])
        assert guided == heard([tokens[0], *[7] * (len(tokens) - 2), tokens[-1]])
        assert samples(model.speech("a b", max_output_units=3).content)[0][0] == heard([5])[0]
        assert model.describe()["speech"] == {"text_assembly": "words", "audio_output": "sound"}
        assert audio.save(tmp_path / "said.wav").read_bytes() == audio.content


@pytest.mark.parametrize(
    ("text", "units", "code"),
    [("a " * 100, None, "text-too-long"), ("x" * 40_000, None, "text-too-long"), (b"bytes", None, "bad-prompt"),
     ("a", 0, "option-out-of-bounds"), ("a", 51, "option-out-of-bounds"), ("a", 1.5, "option-out-of-bounds"),
     ("a", True, "option-out-of-bounds")],
)  # fmt: skip
def test_a_text_that_cannot_be_said_is_refused(tmp_path: Path, text: Any, units: Any, code: str) -> None:
    with opened(tmp_path) as model, pytest.raises(genai_runtime.RequestError) as refused:
        model.speech(text, max_output_units=units)
    assert refused.value.code == code


def second_component(workflow: dict[str, Any], assembly: dict[str, Any]) -> None:
    workflow["components"]["more"] = workflow["components"]["words"]


def second_output(workflow: dict[str, Any], assembly: dict[str, Any]) -> None:
    workflow["outputs"]["echo"] = workflow["outputs"]["sound"]
    workflow["steps"].append({"kind": "emit", "value": "s", "output": "echo", "mode": "replace"})


def no_component(workflow: dict[str, Any], assembly: dict[str, Any]) -> None:
    del workflow["components"]["words"]


def media(**facts: str) -> Changed:
    return lambda workflow, assembly: workflow["outputs"]["sound"]["media"].update(facts)


@pytest.mark.parametrize(
    ("change", "code"),
    [(second_component, "ambiguous-speech"), (second_output, "ambiguous-speech"), (no_component, "no-speech"),
     (media(container="raw"), "no-speech-output"), (media(encoding="pcm_f32_le"), "no-speech-output"),
     (media(delivery="streaming"), "no-speech-output")],
)  # fmt: skip
def test_speech_without_one_way_to_make_it_is_refused_and_the_workflow_runs(
    tmp_path: Path, change: Changed, code: str
) -> None:
    with opened(tmp_path, change) as model:
        with pytest.raises(genai_runtime.RequestError) as refused:
            model.speech("Hello")
        assert refused.value.code == code
        result = model.run({"tokens": [[1, 2], [3, 4]], "limit": [9]})
        assert result["sound"].shape == (1, 2, 2)
        assert result.audio("sound").content
        said = model.describe()["speech"]
        assert said is None if code == "no-speech" else "refused" in said


def test_a_stream_is_the_file_part_by_part(tmp_path: Path) -> None:
    with opened(tmp_path, media(delivery="streaming")) as model:
        inputs = {"tokens": [[1, 2], [3, 4]], "limit": [9]}
        (part,) = model.stream_audio(inputs)
        assert part[44:] == model.run(inputs).audio().content[44:]


# ---- the artifact ----------------------------------------------------------------------------------------------------


def assembly_with(*path: str | int, value: Any) -> Changed:
    def change(workflow: dict[str, Any], assembly: dict[str, Any]) -> None:
        held: Any = assembly
        for each in path[:-1]:
            held = held[each]
        held[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "code", "place"),
    [
        (assembly_with("max_input_tokens", value=0), "below-minimum", "max_input_tokens"),
        (assembly_with("max_output_units", value=0), "below-minimum", "max_output_units"),
        (assembly_with("state_advance_units", value=-1), "below-minimum", "state_advance_units"),
        (assembly_with("max_tokens", value=1), "unknown-field", "max_tokens"),
        (assembly_with("segments", value="text"), "wrong-type", "segments"),
        (assembly_with("segments", 0, "literal", value="x"), "bad-segment", "segments[0]"),
        (assembly_with("segments", 1, value={}), "bad-segment", "segments[1]"),
        (assembly_with("segments", 1, "transforms", value=[{"kind": "strip_markdown"}]), "bad-segment", "segments[1]"),
        (assembly_with("segments", 0, "field", value="title"), "not-in-list", "segments[0].field"),
        (assembly_with("segments", 0, "transforms", 0, "kind", value="shout"), "unknown-kind",
         "segments[0].transforms[0].kind"),
        (assembly_with("segments", 0, "transforms", 0, value={"kind": "prefix"}), "missing-field",
         "segments[0].transforms[0]"),
        (assembly_with("segments", 0, "transforms", 0, value={"kind": "replace", "from": "", "to": "x"}),
         "empty-string", "segments[0].transforms[0].from"),
        (assembly_with("segments", 0, "transforms", 0, "value", value="x"), "unknown-field",
         "segments[0].transforms[0].value"),
        (assembly_with("guidance_rows", "replace_from", value=-1), "below-minimum", "guidance_rows.replace_from"),
        (assembly_with("guidance_rows", value={}), "missing-field", "guidance_rows"),
    ],
)  # fmt: skip
def test_an_artifact_that_cannot_be_carried_out_is_refused(
    tmp_path: Path, change: Changed, code: str, place: str
) -> None:
    with pytest.raises(CompileError) as refused:
        compile_package(package(tmp_path / "voice", change), out=tmp_path / "voice.compiled")
    found = [each for each in refused.value.problems if (each.code, each.path) == (code, place)]
    assert found, refused.value
    assert all(each.where.file == "speech.json" and each.where.line > 0 for each in refused.value.problems)


def test_an_artifact_is_needed_and_no_step_may_invoke_the_component(tmp_path: Path) -> None:
    def change(workflow: dict[str, Any], assembly: dict[str, Any]) -> None:
        workflow["components"]["words"]["implementation"] = {**TEXT, "artifact": None}
        workflow["steps"].insert(0, {"kind": "invoke", "component": "words"})

    with pytest.raises(CompileError) as refused:
        compile_package(package(tmp_path / "voice", change), out=tmp_path / "voice.compiled")
    assert {each.code for each in refused.value.problems} == {"no-text-assembly", "boundary-adapter"}


def test_a_changed_artifact_is_noticed(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / "voice" / "speech.json").write_text(json.dumps({**ASSEMBLY, "max_output_units": 60}))
    with pytest.raises(genai_runtime.LoadError, match="package-changed"):
        genai_runtime.load(tmp_path / "voice.compiled")


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_writes_the_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened(tmp_path).close()
    folder, file = str(tmp_path / "voice.compiled"), tmp_path / "said.wav"
    assert main([folder, "--speech", "Hello", "--instructions", "softly", "--save", str(file)]) == 0
    assert "2 x 8000 Hz" in capsys.readouterr().out
    with genai_runtime.load(folder) as model:
        assert file.read_bytes() == model.speech("Hello", "softly").content
    assert main([folder, "--speech", "Hello"]) == 2
    assert "no-file" in capsys.readouterr().err
    assert main([folder, "--speech", "Hello", "--save", str(tmp_path / "said.mp3")]) == 2
    assert "name it said.wav" in capsys.readouterr().err
    assert not (tmp_path / "said.mp3").exists()
    assert main([folder, "--speech", "Hello", "--save", str(tmp_path / "no" / "said.wav")]) == 2
