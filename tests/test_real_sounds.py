"""Sound files into a speech package of an exporter, in three dialects: features, tokens, and wrong processor files.

Features are held against sums written out (tests/reference/sounds.py); with features as a tensor the package's tokens
are those of another loop (test_real_stages.py).
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
import yaml
from genai_compiler import CompileError, compile_package
from genai_runtime.adapters.audio.wav import pcm16, wav_header
from genai_runtime.cli import main

from tests.data import needs_data
from tests.real_packages import GREEDY, PACKAGES, cases
from tests.reference.sounds import log_mel, mel_bands

pytestmark = needs_data
PACKAGE = PACKAGES / "mobius-whisper-meta"
Array = np.ndarray[Any, Any]
DECODER = {"operation": {"name": "a", "type": "AudioDecoder", "attrs": {"target_sample_rate": 16000}}}
SPECTRUM = {
    "operation": {"name": "b", "type": "STFTNorm", "attrs": {"n_fft": 400, "frame_length": 400, "hop_length": 160}}
}
BANDS = {"chunk_size": 30, "hop_length": 160, "n_fft": 400, "n_mel": 80}
FEATURES = {"operation": {"name": "c", "type": "LogMelSpectrum", "attrs": BANDS}}
FLAT = {"feature_extractor_type": "Some", "feature_size": 80, "sampling_rate": 16000, "hop_length": 160, "n_fft": 400,
        "chunk_length": 30, "padding_value": 0.0}  # fmt: skip


def tune(seconds: float) -> Array:
    """Samples of a falling tone, as 16-bit integers have them."""
    at = np.arange(int(16000 * seconds)) / 16000
    return np.round(9000 * np.sin(2 * np.pi * (900 * at - 200 * at**2))) / 32768


def wav(samples: Array) -> bytes:
    data = np.round(samples * 32768).astype("<i2").tobytes()
    return wav_header(1, 16000, len(data)) + data


def silent_ends(samples: Array) -> Array:
    """float32 [80, 3000], as the operations say: zeros beyond the ends, the rest at a range below the loudest."""
    places = np.arange(400)
    turn = np.exp(-2j * np.pi * np.outer(np.arange(201), places) / 400)
    padded = np.concatenate([np.zeros(200), samples, np.zeros(200)])
    window, bands = np.sin(np.pi * places / 400) ** 2, mel_bands(80)
    frames = [padded[160 * at : 160 * at + 400] * window for at in range(len(samples) // 160)]
    loud = np.log10(np.maximum(np.stack([bands @ np.abs(turn @ each) ** 2 for each in frames], axis=1), 1e-10))
    made = np.full((80, 3000), loud.max() - 8)
    made[:, : loud.shape[1]] = np.maximum(loud, loud.max() - 8)
    return ((made + 4) / 4).astype(np.float32)


def sequence(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"feature_extraction": {"sequence": list(entries or (DECODER, SPECTRUM, FEATURES))}}


def with_file(folder: Path, name: str = "", content: Any = None) -> Path:
    """A copy of the package, with a processor file beside it."""
    package = shutil.copytree(PACKAGE, folder / "package")
    if name:
        (package / name).write_text(json.dumps(content))
    return package


def version_1(folder: Path, name: str = "audio_processor_config.json") -> Path:
    """The same graphs in genai_config form, the processor file named by a section that names no graph."""
    package = with_file(folder, name, sequence())
    (package / "inference_metadata.yaml").unlink()
    taken = {"input_ids": "decoder_input_ids", **dict.fromkeys(["encoder_hidden_states"], "encoder_hidden_states")}
    caches = {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"}
    given = {"logits": "logits", "present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}
    model = {
        "type": "never_seen",
        "vocab_size": 320,
        "context_length": 64,
        "eos_token_id": 2,
        "encoder": {"filename": "encoder/model.onnx", "inputs": {"audio_features": "input_features"}},
        "decoder": {
            "filename": "decoder/model.onnx",
            "head_size": 16,
            "num_hidden_layers": 2,
            "num_key_value_heads": 4,
            "inputs": {**taken, "position_ids": "position_ids", **caches},
            "outputs": given,
        },
        "speech": {"config_filename": name},
    }
    (package / "genai_config.json").write_text(json.dumps({"model": model, "search": {"max_length": 64}}))
    return package


def version_2(folder: Path) -> Path:
    """The same graphs as a pipeline."""
    package = with_file(folder, "hears.json", sequence())
    (package / "inference_metadata.yaml").unlink()
    pipeline = {
        "extends": "encoder-decoder",
        "sessions": {"encoder": {"file": "encoder/model.onnx"}, "decoder": {"file": "decoder/model.onnx"}},
        "preprocessing": {"audio": {"config": "hears.json"}},
    }
    config = {"version": 2, "pipeline": pipeline, "tokens": {"eos": [2]}, "generation": {"max_length": 64}}
    (package / "genai_config.json").write_text(json.dumps(config))
    return package


def tokens(model: genai_runtime.Model, prompt: list[int], features: Array) -> list[int]:
    inputs = {"request.input_ids": [prompt], "input_features": features[None], "request.max_iterations": [12]}
    made: list[int] = model.run(inputs, stop_on_eos=False)["tokens"].tolist()[0]
    return made


# ---- features and tokens ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [lambda to: with_file(to, "audio_processor_config.json", sequence()), version_1, version_2]
)
def test_operations_of_a_file_make_the_features(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    """Tokens differ from those of a clip whose ends are reflected, so that the right kind is told apart."""
    out = tmp_path / "out"
    compile_package(make(tmp_path), out=out)
    samples = tune(1.5)
    with genai_runtime.load(out, threads=1) as model:
        adapter: Any = model._executor.audio_processor  # type: ignore[attr-defined]
        made = adapter.call({"encoded": np.frombuffer(wav(samples), np.uint8)})["audio_features"]
        np.testing.assert_allclose(made[0], silent_ends(samples), atol=2e-5)
        for case in cases(PACKAGE.name):
            prompt = case["prompt"]
            generated = model.generate(prompt, audio=[wav(samples)], max_new_tokens=12, **GREEDY).tokens
            assert generated == tokens(model, prompt, made[0])
            assert model.count_tokens(prompt, audio=[wav(samples)]) == len(prompt)


@pytest.mark.parametrize("name", ["", "preprocessor_config.json"])
def test_features_of_flat_keys_and_where_nobody_says(tmp_path: Path, name: str) -> None:
    """30 s with silence behind the clip, reflected at both ends; without a file that is assumed, and said."""
    out = tmp_path / "out"
    problems = compile_package(with_file(tmp_path, name, FLAT), out=out).problems
    told = [each.what for each in problems if each.code == "assumed-features"]
    assert len(told) == (not name)
    assert not told or "80 bands and 30 s" in told[0]
    samples = tune(1.0)
    heard = log_mel(np.concatenate([samples, np.zeros(800)]), 80)  # its last column is silence, as all behind it are
    wanted = np.concatenate([heard, np.repeat(heard[:, -1:], 3000 - heard.shape[1], axis=1)], axis=1)
    with genai_runtime.load(out, threads=1) as model:
        adapter: Any = model._executor.audio_processor  # type: ignore[attr-defined]
        made = adapter.call({"encoded": np.frombuffer(wav(samples), np.uint8)})["audio_features"]
        np.testing.assert_allclose(made[0], wanted, atol=2e-5)
        generated = model.generate([14], audio=[wav(samples)], max_new_tokens=12, **GREEDY).tokens
        assert generated == tokens(model, [14], made[0])


@pytest.mark.parametrize("named", [True, False])
def test_a_program_of_the_document_makes_the_features(tmp_path: Path, named: bool) -> None:
    """In the form of documents of several models: outputs are called `model.input`; values may go without names."""
    package = with_file(tmp_path)
    document = yaml.safe_load((package / "inference_metadata.yaml").read_text())
    steps: list[dict[str, Any]] = [{"op": "decode"}, {"op": "resample", "sample_rate": 16000}]
    steps += [{"op": "pad", "target_length": 480000}, {"op": "log_mel", "num_mel_bins": 80}]
    output = {"name": "encoder.input_features", "content": "audio_features", "dtype": "fp32"}
    if named:
        steps[-1]["outputs"], output["source"] = ["bands"], "bands"
    document["preprocessing"] = {"audio": {"transforms": steps, "outputs": [output]}}
    (package / "inference_metadata.yaml").write_text(yaml.safe_dump(document))
    problems = compile_package(package, out=tmp_path / "out").problems
    assert not [each for each in problems if each.code in ("assumed-features", "capability-missing")]
    samples = tune(0.5)
    heard = log_mel(np.concatenate([samples, np.zeros(800)]), 80)
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        adapter: Any = model._executor.audio_processor  # type: ignore[attr-defined]
        made = adapter.call({"encoded": np.frombuffer(wav(samples), np.uint8)})["audio_features"]
        np.testing.assert_allclose(made[0, :, : heard.shape[1]], heard, atol=2e-5)


def test_files_that_are_none_are_matters_of_the_request(tmp_path: Path) -> None:
    """Beside an encoder: damaged files, things that are no files, and two sounds, which no single row takes."""
    compile_package(with_file(tmp_path, "preprocessor_config.json", FLAT), out=tmp_path / "out")
    sound = wav(tune(0.2))
    wrong: list[tuple[list[Any], str]] = [
        ([b"no wave"], "bad-audio"),
        ([sound[:-3]], "bad-audio"),
        ([wav_header(1, 1, 40000) + bytes(40000)], "audio-too-long"),
        (["a.wav"], "no-such-file"),
        ([np.zeros(3, np.uint8)], "bad-inputs"),
        ([sound, sound], "several-sounds"),
    ]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        for files, code in wrong:
            with pytest.raises(genai_runtime.RequestError) as refused:
                _ = model.generate([14], audio=files, max_new_tokens=1, **GREEDY).tokens
            assert refused.value.code == code
        rows = {"request.audio": [sound, wav(tune(0.7))], "request.input_ids": np.array([[14], [14]])}
        made = model.run({**rows, "request.max_iterations": [2]}, stop_on_eos=False)
        assert len(made.row_slots["tokens"]) == 2


def test_a_long_sound_is_cut_and_no_sound_is_silence(tmp_path: Path) -> None:
    compile_package(with_file(tmp_path, "audio_processor_config.json", sequence()), out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        adapter: Any = model._executor.audio_processor  # type: ignore[attr-defined]
        long = tune(31.0)
        made = [
            adapter.call({"encoded": np.frombuffer(wav(each), np.uint8)})["audio_features"]
            for each in (long, long[:480000], np.zeros(100))
        ]
    assert np.array_equal(made[0], made[1])
    assert made[2].shape == (1, 80, 3000)
    assert np.ptp(made[2]) == 0
    assert made[2][0, 0, 0] == np.float32((np.log10(1e-10) + 4) / 4)


def test_the_command_takes_a_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compile_package(with_file(tmp_path, "audio_processor_config.json", sequence()), out=tmp_path / "out")
    file = tmp_path / "b.wav"
    file.write_bytes(wav(tune(0.7)))
    options = ["--tokens", "14", "-n", "6", "--temperature", "0", "--ignore-eos"]
    assert main([str(tmp_path / "out"), *options, "--audio", str(file)]) == 0
    shown = [int(each) for each in capsys.readouterr().out.split(",")]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert shown == tokens(model, [14], silent_ends(tune(0.7)))[:6]
    assert main([str(tmp_path / "out"), *options]) == 2
    assert "--audio FILE" in capsys.readouterr().err
    file.write_bytes(file.read_bytes()[:30])
    assert main([str(tmp_path / "out"), *options, "--audio", str(file)]) == 2
    assert "bad-audio" in capsys.readouterr().err
    assert pcm16(np.zeros(2, np.float32)).tolist() == [0, 0]


def test_a_run_takes_a_file_or_a_tensor(tmp_path: Path) -> None:
    compile_package(PACKAGE, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        (entry,) = model.describe()["media"]
        assert (entry["kind"], entry["input"], entry["required"]) == ("audio", "request.audio", True)
        assert "input_features" in entry["tensors"]
        with pytest.raises(genai_runtime.RequestError, match="the package takes a sound"):
            model.run({"request.input_ids": [[14]]})
        both = {"request.audio": wav(tune(0.1)), "input_features": np.zeros((1, 80, 3000), np.float32)}
        with pytest.raises(genai_runtime.RequestError, match="as files and as tensors"):
            model.run({"request.input_ids": [[14]], **both})
        with pytest.raises(genai_runtime.RequestError, match="--image: the package has no input"):
            model.generate([14], images=[b"x"])


# ---- processor files that are wrong ----------------------------------------------------------------------------------


def changed(kind: int, **attributes: Any) -> dict[str, Any]:
    """The sequence with attributes of one operation changed."""
    entries = json.loads(json.dumps([DECODER, SPECTRUM, FEATURES]))
    entries[kind]["operation"]["attrs"].update(attributes)
    return sequence(*entries)


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (changed(2, n_mel=128), "processor-mismatch", "makes 128 bands"),
        (changed(2, n_mel=0), "bad-processor", "from 1 to 512"),
        (changed(1, hop_length=200), "bad-processor", "160 is offered"),
        (changed(1, win_fn="hamming"), "bad-processor", "'hann' is offered"),
        (changed(1, hann_win=[0.5] * 400), "bad-processor", "another window"),
        (changed(0, target_sample_rate=8000), "bad-processor", "16000 is offered"),
        (changed(0, loud=1), "bad-processor", "no attribute 'loud'"),
        (sequence(DECODER, FEATURES), "bad-processor", "the sequence is AudioDecoder, LogMelSpectrum"),
        (sequence({"operation": {"type": "Phi4AudioEmbed"}}), "bad-processor", "the sequence is Phi4AudioEmbed"),
        (sequence(DECODER, {"operation": {"type": "Wavelets"}}), "bad-processor", "'Wavelets' is not offered here"),
        ({**FLAT, "n_fft": 512}, "bad-processor", "features with 400 are offered"),
        ({**FLAT, "feature_size": 128}, "processor-mismatch", "makes 128 bands"),
        ({**FLAT, "chunk_length": 0}, "bad-processor", "chunk_length is 0"),
    ],
)
def test_a_file_that_cant_be_followed_is_refused_at_compile_time(
    tmp_path: Path, content: Any, code: str, words: str
) -> None:
    with pytest.raises(CompileError) as refused:
        compile_package(with_file(tmp_path, "audio_processor_config.json", content), out=tmp_path / "out")
    found = [each for each in refused.value.problems if each.code == code]
    assert any(words in each.what for each in found), str(refused.value)
    assert {each.where.file for each in found} == {"audio_processor_config.json"}
    assert not (tmp_path / "out").exists()


def test_a_named_file_that_is_absent_is_refused(tmp_path: Path) -> None:
    package = version_1(tmp_path, "own.json")
    (package / "own.json").unlink()
    with pytest.raises(CompileError) as refused:
        compile_package(package, out=tmp_path / "out")
    assert [each.path for each in refused.value.problems if each.code == "missing-file"][-1:] == [
        "model.speech.config_filename"
    ]
