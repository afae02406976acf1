"""Odd sounds through every kind of processor file: each has one answer, features or a refusal by name."""

import struct
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from genai_runtime import RequestError
from genai_runtime.media_inputs import MediaInput

from tests.reference import features as reference
from tests.runtime.audio.test_stated_features import EMPHASISED, HTK, heard, noise, program, wav
from tools.fixtures.processors import natural_sounds, sounds

Array = np.ndarray[Any, Any]
PROGRAMS: dict[str, dict[str, Any]] = {
    "natural": natural_sounds(),
    "htk": sounds(("AudioDecoder", {}), ("Gemma4LogMel", HTK)),
    "emphasised": sounds(("AudioDecoder", {}), ("NemoLogMel", EMPHASISED)),
    "raw": sounds(("AudioDecoder", {}), ("Gemma4Audio", {})),
}


def file_of(samples: Array, bits: int, tag: int, channels: int = 1, rate: int = 16000) -> bytes:
    """A WAV file of whole 8-bit steps: every form holds these exactly. samples: int [n], -128 to 127."""
    frames = np.repeat(samples[:, None], channels, axis=1)
    match (tag, bits):
        case (1, 8):
            data = (frames + 128).astype(np.uint8).tobytes()
        case (1, 24):
            data = (frames.astype("<i4") << 24).astype("<i4").view(np.uint8).reshape(-1, 4)[:, 1:].tobytes()
        case (1, _):
            data = (frames.astype(np.int64) << (bits - 8)).astype(f"<i{bits // 8}").tobytes()
        case _:
            data = (frames / 128).astype(f"<f{bits // 8}").tobytes()
    block = channels * bits // 8
    form = struct.pack("<HHIIHH", tag, channels, rate, rate * block, block, bits)
    head = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(data))
    return b"RIFF" + struct.pack("<I", len(head) + len(data)) + head + data


def steps(count: int) -> Array:
    return np.random.default_rng(3).integers(-128, 128, count)


@pytest.mark.parametrize(("bits", "tag"), [(8, 1), (16, 1), (24, 1), (32, 1), (32, 3), (64, 3)])
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_every_form_of_a_sound_makes_the_same_features(tmp_path: Path, bits: int, tag: int, channels: int) -> None:
    samples = steps(900)
    made = heard(program(tmp_path, PROGRAMS["htk"]), file_of(samples, bits, tag, channels))["audio_features"][0]
    np.testing.assert_allclose(made, reference.htk(samples / 128, 16), atol=2e-5)


def test_channels_are_mixed(tmp_path: Path) -> None:
    """Two that are each other's opposite are silence, of which only the floor is left."""
    frames = np.stack([steps(900).clip(-127), -steps(900).clip(-127)], axis=1).astype("<i2") * 256
    form = struct.pack("<HHIIHH", 1, 2, 16000, 64000, 4, 16)
    head = b"WAVEfmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", frames.nbytes)
    data = b"RIFF" + struct.pack("<I", len(head) + frames.nbytes) + head + frames.tobytes()
    made = heard(program(tmp_path, PROGRAMS["htk"]), data)["audio_features"]
    np.testing.assert_allclose(made, np.log(0.001), rtol=1e-6)


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000])
@pytest.mark.parametrize("name", PROGRAMS)
def test_other_rates_have_as_many_frames_as_they_last(tmp_path: Path, name: str, rate: int) -> None:
    """A second of 16 kHz (of 8 kHz, for the features that take both, where the file has no more)."""
    made = heard(program(tmp_path, PROGRAMS[name], "valid_frames"), wav(noise(rate), rate))["valid_frames"]
    wanted = {"natural": 98, "htk": 99, "emphasised": 101, "raw": 25}
    assert made.tolist() == [wanted[name]]


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_empty_sound(tmp_path: Path, name: str) -> None:
    """One kind of features has silence of its own around every clip, and so a frame of it; the others have none."""
    running = program(tmp_path, PROGRAMS[name])
    if name == "emphasised":
        made = heard(running, wav(noise(0)))["audio_features"]
        assert made.shape == (1, 20, 1)
        np.testing.assert_allclose(made, np.log(5.96046448e-08), rtol=1e-6)
        return
    with pytest.raises(RequestError) as refused:
        running.run([wav(noise(0))])
    assert refused.value.code == "audio-too-short"
    assert "0 samples at" in refused.value.what


def test_the_short_one_of_several_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="sound 1 has 3 samples"):
        program(tmp_path, PROGRAMS["htk"]).run([wav(noise(900)), wav(noise(3))])


def test_a_sound_of_too_many_entries_is_refused(tmp_path: Path) -> None:
    """An entry a sample, and 2 Mi samples, of a file that lets all count."""
    steps = sounds(("AudioDecoder", {"max_samples": 0}), ("Gemma4Audio", {"audio_samples_per_token": 1}))
    running = program(tmp_path, steps, "entries")
    heard = {"variants": [asdict(each) for each in running.variants], "strides": [], "most": 0}
    medium = MediaInput({"kind": "audio", "prompt": {"heard": heard}})
    with pytest.raises(RequestError, match="audio-limit: the sounds take 2097152 tokens"):
        medium.spans([file_of(np.zeros(1 << 21, np.int64), 8, 1)])


def test_a_sound_too_long_for_its_features_is_refused(tmp_path: Path) -> None:
    """Where the file lets all count: 600 s every 10 samples are 960000 frames of 512 bands, more than 64 Mi numbers."""
    bands = {"num_mels": 512, "hop_length": 10}
    running = program(tmp_path, sounds(("AudioDecoder", {"max_samples": 0}), ("NemoLogMel", bands)))
    with pytest.raises(RequestError) as refused:
        running.run([file_of(np.zeros(600 * 16000, np.int64), 8, 1)])
    assert refused.value.code == "audio-too-long"


@pytest.mark.parametrize("rows", [1, 2])
def test_frames_that_overlap_beyond_measure_are_refused(tmp_path: Path, rows: int) -> None:
    """Half a minute in frames of four seconds, one a sample: days of work that a file of two numbers asks for."""
    bomb = {"feature_size": 1, "frame_length_ms": 4000.0, "hop_length_ms": 0.0625, "fft_overdrive": 1}
    running = program(tmp_path, sounds(("AudioDecoder", {}), ("Gemma4LogMel", bomb)))
    with pytest.raises(RequestError, match=r"audio-too-long: .* transforms of 131072 samples"):
        heard(running, *[wav(noise(70_000))] * rows)
