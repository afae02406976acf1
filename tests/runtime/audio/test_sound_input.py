"""Sound files for packages whose graphs take samples: what `preprocessor_config.json` says becomes of a file.

Samples are held against plain arithmetic on the file's integers, tokens against the bare graphs in a plain loop.
"""

import io
import json
import shutil
import wave
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_compiler.driver import Compiled, Options
from genai_runtime import RequestError
from genai_runtime.cli import main
from genai_runtime.sound_input import samples_of

from tests.data import needs_data
from tests.lower.merged_decoders import Form, encoder, merged_decoder, plain_loop
from tests.lower.plain_folders import plain_folder
from tests.real_packages import PACKAGES
from tests.runtime.audio.flac import flac

FORM = Form("sound")
STATED = {"vocab_size": 24, "max_position_embeddings": 64, "eos_token_id": 23, "decoder_start_token_id": 1}
PROCESSOR = {"sampling_rate": 8000, "do_normalize": False, "feature_size": 1}
GREEDY = {"temperature": 0, "stop_on_eos": False, "max_new_tokens": 8}
Array = np.ndarray[Any, np.dtype[Any]]


def numbers(count: int = 40, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-30000, 30000, count).astype(np.int16)


def sound(held: Array, rate: int = 8000, channels: int = 1) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as made:
        made.setparams((channels, 2, rate, 0, "NONE", ""))
        made.writeframes(np.repeat(held, channels).tobytes())
    return buffer.getvalue()


def package(
    folder: Path, processor: Mapping[str, Any] | str | None = PROCESSOR, stated: Mapping[str, Any] = STATED
) -> Path:
    graphs = {"encoder.onnx": encoder(FORM), "decoder.onnx": merged_decoder(FORM)}
    made = plain_folder(folder, graphs, stated)
    if processor is not None:
        text = processor if isinstance(processor, str) else json.dumps(processor)
        (made / "preprocessor_config.json").write_text(text)
    return made


def compiled(folder: Path) -> Compiled:
    return compile_package(folder, out=folder.with_name("out"), options=Options(force=True))


def loaded(folder: Path) -> genai_runtime.Model:
    compiled(folder)
    return genai_runtime.load(folder.with_name("out"), threads=1)


def loop(samples: Array, prompt: list[int]) -> list[int]:
    return plain_loop(FORM, merged_decoder(FORM), prompt, 8, {"samples": samples[None]})


def test_a_file_alone_is_transcribed(tmp_path: Path) -> None:
    with loaded(package(tmp_path / "p")) as model:
        said = set[tuple[int, ...]]()
        for seed in range(3):
            held = numbers(seed=seed)
            wanted = loop(held.astype(np.float32) / 32768, [1])
            for channels in (1, 2):
                assert model.generate(audio=[sound(held, channels=channels)], **GREEDY).tokens == wanted
            said.add(tuple(wanted))
        (tmp_path / "a.wav").write_bytes(sound(numbers()))
        assert model.generate(audio=[tmp_path / "a.wav"], **GREEDY).tokens == loop(numbers() / np.float32(32768), [1])
        prompted = model.generate([1, 7], audio=[sound(numbers())], **GREEDY).tokens
        assert prompted == loop(numbers() / np.float32(32768), [1, 7])
    assert len(said) == 3


def test_a_flac_file_is_transcribed(tmp_path: Path) -> None:
    pytest.importorskip("miniaudio", reason="miniaudio is absent: no FLAC file can be decoded")
    with loaded(package(tmp_path / "p")) as model:
        made = model.generate(audio=[flac([numbers().tolist()], rate=8000)], **GREEDY).tokens
    assert made == loop(numbers() / np.float32(32768), [1])


def test_the_processor_file_says_what_becomes_of_samples(tmp_path: Path) -> None:
    with loaded(package(tmp_path / "p", {**PROCESSOR, "do_normalize": True})) as model:
        made = samples_of(json.loads((tmp_path / "out" / "manifest.json").read_text())["sound"], [sound(numbers())])
        held = numbers().astype(np.float64) / 32768
        wanted = (held - held.mean()) / np.sqrt(held.var() + 1e-7)
        assert list(made) == ["application.samples"]
        np.testing.assert_allclose(made["application.samples"], wanted[None], atol=1e-6)
        assert model.generate(audio=[sound(numbers())], **GREEDY).tokens == loop(wanted.astype(np.float32), [1])


def test_another_rate_is_brought_to_the_model_s(tmp_path: Path) -> None:
    """A slow sine at 24 kHz: a third of the samples are left, on the same curve."""
    compiled(package(tmp_path / "p"))
    data = json.loads((tmp_path / "out" / "manifest.json").read_text())["sound"]
    curve = np.round(20000 * np.sin(np.arange(3000) / 3000 * 2 * np.pi * 12)).astype(np.int16)
    (made,) = samples_of(data, [sound(curve, 24000)]).values()
    assert made.shape == (1, 1000)
    np.testing.assert_allclose(made[0, 50:-50], curve[::3][50:-50] / 32768, atol=2e-3)


# ---- what is refused, and what is said -------------------------------------------------------------------------------


def warnings(folder: Path) -> dict[str, str]:
    return {each.code: f"{each.what} {each.help}" for each in compiled(folder).problems}


@pytest.mark.parametrize(
    ("processor", "code", "words"),
    [
        ("{", "invalid-json", ""),
        ({"sampling_rate": "fast"}, "sound-processor", "no rate in Hz"),
        ({"sampling_rate": -1}, "sound-processor", "no rate in Hz"),
    ],
)
def test_a_processor_file_that_fits_nothing_is_a_warning(processor: Any, code: str, words: str, tmp_path: Path) -> None:
    folder = package(tmp_path / "p", processor)
    assert words in warnings(folder)[code]
    with genai_runtime.load(tmp_path / "out", threads=1) as model, pytest.raises(RequestError) as caught:
        model.generate([1], audio=[sound(numbers())], max_new_tokens=1)
    assert caught.value.code == "no-audio-input"


@pytest.mark.parametrize("processor", [{"do_resize": True, "size": 224}, {"sampling_rate": 16000, "feature_size": 80}])
def test_a_processor_of_pictures_or_features_says_nothing_of_samples(processor: Any, tmp_path: Path) -> None:
    assert "sound-processor" not in warnings(package(tmp_path / "p", processor))


@needs_data
def test_a_package_without_an_input_for_samples_is_warned_of(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    shutil.copytree(PACKAGES / "og-llama", folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    assert "no inputs of the package are float32 [rows, samples]" in warnings(folder)["sound-processor"]


def test_the_processor_file_is_held_like_any_other(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    compiled(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({**PROCESSOR, "sampling_rate": 9000}))
    with pytest.raises(genai_runtime.LoadError) as caught:
        genai_runtime.load(tmp_path / "out")
    assert caught.value.code == "package-changed"


@pytest.mark.parametrize(
    ("audio", "code"),
    [
        ([b"no wave"], "bad-audio"),
        ([Path("nowhere.wav")], "no-such-file"),
        (b"bytes themselves", "bad-inputs"),
        ([sound(numbers()), sound(numbers())], "audio-window"),
    ],
)
def test_a_request_with_no_sound_is_refused(audio: Any, code: str, tmp_path: Path) -> None:
    with loaded(package(tmp_path / "p")) as model, pytest.raises(RequestError) as caught:
        model.generate(audio=audio, max_new_tokens=1)
    assert caught.value.code == code


def test_who_names_no_start_must_give_a_prompt(tmp_path: Path) -> None:
    stated = {name: value for name, value in STATED.items() if name != "decoder_start_token_id"}
    with loaded(package(tmp_path / "p", stated=stated)) as model:
        with pytest.raises(RequestError) as caught:
            model.generate(audio=[sound(numbers())], max_new_tokens=1)
        assert caught.value.code == "no-prompt"
        assert model.generate([1], audio=[sound(numbers())], **GREEDY).tokens == loop(
            numbers() / np.float32(32768), [1]
        )


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiled(package(tmp_path / "p"))
    (tmp_path / "a.wav").write_bytes(sound(numbers()))
    (tmp_path / "b.wav").write_bytes(b"none")
    run = [str(tmp_path / "out"), "--threads", "1", "--ignore-eos", "-n", "8", "--temperature", "0"]
    assert main([*run, "--tokens", "1", "--audio", str(tmp_path / "a.wav")]) == 0
    assert capsys.readouterr().out.strip() == ",".join(map(str, loop(numbers() / np.float32(32768), [1])))
    assert main([*run, "--audio", str(tmp_path / "b.wav")]) == 2
    assert "bad-audio" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(tmp_path / "out"), "--describe", "--audio", str(tmp_path / "a.wav")])
