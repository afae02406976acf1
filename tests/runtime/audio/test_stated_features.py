"""Features by numbers that a processor file states, against sums written out, and against another runtime's own."""

import ctypes
import json
import struct
from dataclasses import asdict
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from genai_compiler.emit.programs import program_literal
from genai_compiler.plan.audio_program import AudioProgram
from genai_compiler.read.audio_processor import read_audio_processor
from genai_runtime import RequestError
from genai_runtime.adapters.audio import audio_preprocess
from genai_runtime.adapters.audio.counting import entries_of_sound
from genai_runtime.adapters.audio.program import AudioProgram as Running
from genai_runtime.adapters.audio.stated_features import AudioFeatures
from genai_runtime.adapters.files import join_files

from tests.reference import features as reference
from tools.fixtures.processors import natural_sounds, sounds

Array = np.ndarray[Any, Any]
HTK = {"feature_size": 16}
EMPHASISED = {"num_mels": 20}


def wav(samples: Array, rate: int = 16000) -> bytes:
    """A file of floats, so that its samples are these."""
    data = samples.astype("<f4").tobytes()
    form = struct.pack("<HHIIHHH", 3, 1, rate, rate * 4, 4, 32, 0)
    size = 4 + 8 + len(form) + 8 + len(data)
    return b"".join(
        (b"RIFF", struct.pack("<I", size), b"WAVEfmt ", struct.pack("<I", len(form)), form, b"data",
         struct.pack("<I", len(data)), data)
    )  # fmt: skip


def noise(count: int, seed: int = 5) -> Array:
    return (np.random.default_rng(seed).standard_normal(count) * 0.2).astype(np.float32)


def program(folder: Path, definition: Any, *contents: str, types: tuple[tuple[str, str], ...] = ()) -> Running:
    """The program of a processor file, written as generated code and read from there."""
    (folder / "hears.json").write_text(json.dumps(definition))
    file = read_audio_processor(folder, "hears.json")
    outputs = tuple((each, each) for each in contents or ("audio_features",))
    strides = file.strides or ()
    made = AudioProgram((), 0, 0, outputs, file.most, variants=file.variants, strides=strides, types=types)
    running: Running = eval(program_literal(made), {"AudioProgram": Running, "AudioFeatures": AudioFeatures})
    return running


def heard(running: Running, *files: bytes) -> dict[str, Array]:
    encoded = np.frombuffer(join_files(files), np.uint8)
    return {name: np.asarray(each) for name, each in audio_preprocess({}, running)({"encoded": encoded}).items()}


@pytest.mark.parametrize("rate", [16000, 8000])
@pytest.mark.parametrize("count", [400, 1234])
def test_natural_bands_at_both_rates(tmp_path: Path, rate: int, count: int) -> None:
    samples = noise(count)
    made = heard(program(tmp_path, natural_sounds(), "audio_features", "entries", "frame_mask"), wav(samples, rate))
    wanted = reference.natural(samples, rate)
    assert len(wanted) == (count - (400 if rate == 16000 else 200)) // (160 if rate == 16000 else 80) + 1
    np.testing.assert_allclose(made["audio_features"][0], wanted, atol=1e-4)
    assert made["entries"].tolist() == [-(-len(wanted) // 8)]
    assert made["frame_mask"].tolist() == [[True] * len(wanted)]


@pytest.mark.parametrize(("rate", "taken"), [(44100, 16000), (12000, 8000), (4000, 8000)])
def test_the_rate_is_the_highest_that_the_file_has(tmp_path: Path, rate: int, taken: int) -> None:
    """44.1 kHz go down to 16, 12 down to 8; 4 kHz, which the original refuses, up to 8. Frames are every 10 ms."""
    running = program(tmp_path, natural_sounds(), "valid_frames")
    made = heard(running, wav(noise(rate), rate))
    assert made["valid_frames"].tolist() == [(taken - taken // 40) // (taken // 100) + 1]


@pytest.mark.parametrize("count", [161, 800, 1600])
@pytest.mark.parametrize(("emphasis", "flavour"), [(0.0, 1), (0.5, 1), (0.5, 0)])
def test_htk_bands(tmp_path: Path, count: int, emphasis: float, flavour: int) -> None:
    samples = noise(count)
    numbers = {**HTK, "preemphasis": emphasis, "preemphasis_htk_flavor": flavour}
    definition = sounds(("AudioDecoder", {}), ("Gemma4LogMel", numbers))
    made = heard(program(tmp_path, definition, "audio_features", "entries"), wav(samples))
    wanted = reference.htk(samples, 16, emphasis, bool(flavour))
    assert len(wanted) == (count + 160 - 321) // 160 + 1
    np.testing.assert_allclose(made["audio_features"][0], wanted, atol=2e-5)
    assert made["entries"].tolist() == [(((len(wanted) - 1) // 2 + 1) - 1) // 2 + 1]


def test_numbers_of_each_band(tmp_path: Path) -> None:
    """A mean taken away, then divided by a deviation; one of 0 divides nothing."""
    mean, spread = [0.25 * at for at in range(16)], [0.0, *range(1, 16)]
    definition = sounds(("AudioDecoder", {}), ("Gemma4LogMel", {**HTK, "per_bin_mean": mean, "per_bin_stddev": spread}))
    samples = noise(900)
    wanted = (reference.htk(samples, 16) - np.array(mean)) / np.array([1.0, *range(1, 16)])
    np.testing.assert_allclose(
        heard(program(tmp_path, definition), wav(samples))["audio_features"][0], wanted, atol=2e-5
    )


@pytest.mark.parametrize("count", [1, 159, 160, 1000])
@pytest.mark.parametrize("even", [False, True])
def test_bands_of_an_emphasised_clip(tmp_path: Path, count: int, even: bool) -> None:
    """There is a frame for every 160 samples begun, and one; of a single frame, evening out leaves nothing."""
    samples = noise(count)
    steps = [("AudioDecoder", {}), ("NemoLogMel", EMPHASISED), *([("PerFeatureNormalize", {})] if even else [])]
    made = heard(program(tmp_path, sounds(*steps), "audio_features", "valid_frames"), wav(samples))
    wanted = reference.emphasised(samples, 20)
    assert wanted.shape == (20, count // 160 + 1)
    wanted = reference.evened(wanted) if even else wanted
    np.testing.assert_allclose(made["audio_features"][0], wanted, atol=5e-5)
    assert made["valid_frames"].tolist() == [count // 160 + 1]


@pytest.mark.parametrize("kind", ["Gemma4Audio", "Gemma4UnifiedAudioFrames"])
def test_samples_side_by_side(tmp_path: Path, kind: str) -> None:
    definition = sounds(("AudioDecoder", {}), (kind, {"type": "raw_frames", "audio_samples_per_token": 100}))
    samples = noise(250)
    made = heard(program(tmp_path, definition, "audio_features", "entries"), wav(samples))
    wanted = np.concatenate([samples, np.zeros(50, np.float32)]).reshape(3, 100)
    assert np.array_equal(made["audio_features"][0], wanted)
    assert made["entries"].tolist() == [3]


def test_several_clips_are_filled_up_with_zeros(tmp_path: Path) -> None:
    running = program(tmp_path, sounds(("AudioDecoder", {}), ("Gemma4LogMel", HTK)), "audio_features", "frame_mask")
    short, long = noise(500), noise(1300, 6)
    made = heard(running, wav(short), wav(long))
    assert made["frame_mask"].sum(axis=1).tolist() == [3, 8]
    np.testing.assert_allclose(made["audio_features"][0, :3], reference.htk(short, 16), atol=2e-5)
    assert not made["audio_features"][0, 3:].any()
    np.testing.assert_allclose(made["audio_features"][1], reference.htk(long, 16), atol=2e-5)


def test_types_are_the_graphs(tmp_path: Path) -> None:
    definition = sounds(("AudioDecoder", {}), ("Gemma4LogMel", HTK))
    types = (("audio_features", "float16"), ("frame_mask", "int64"), ("entries", "float32"))
    made = heard(program(tmp_path, definition, *(each for each, _ in types), types=types), wav(noise(900)))
    assert {name: str(each.dtype) for name, each in made.items()} == dict(types)


def test_only_as_many_samples_as_the_file_says_count(tmp_path: Path) -> None:
    """30 s where it says nothing; all where it says 0."""
    frames = {}
    for most in (None, 0, 16000):
        decode = ("AudioDecoder", {} if most is None else {"max_samples": most})
        running = program(tmp_path, sounds(decode, ("NemoLogMel", EMPHASISED)), "valid_frames")
        frames[most] = heard(running, wav(noise(31 * 16000)))["valid_frames"].tolist()
    assert frames == {None: [3001], 0: [3101], 16000: [101]}


@pytest.mark.parametrize(
    ("step", "least"), [(("Gemma4LogMel", HTK), 161), (("Gemma4Audio", {}), 1), (("NemoLogMel", EMPHASISED), 0)]
)
def test_a_sound_too_short_for_a_frame_is_refused(tmp_path: Path, step: tuple[str, Any], least: int) -> None:
    running = program(tmp_path, sounds(("AudioDecoder", {}), step), "valid_frames")
    assert heard(running, wav(noise(least)))["valid_frames"].tolist() == [1]
    if least:
        with pytest.raises(RequestError) as refused:
            running.run([wav(noise(least - 1))])
        assert refused.value.code == "audio-too-short"


@pytest.mark.parametrize(("count", "rate"), [(0, 16000), (399, 16000), (16000, 44100), (9000, 8000), (700000, 16000)])
def test_entries_are_counted_by_the_header_alone(tmp_path: Path, count: int, rate: int) -> None:
    """As many as the program makes of the samples; the samples themselves may be anything."""
    running = program(tmp_path, natural_sounds(), "entries")
    facts = {"variants": [asdict(each) for each in running.variants], "strides": [8], "most": running.most}
    counted = entries_of_sound(wav(np.full(count, np.nan, np.float32), rate), facts)
    if counted:
        assert heard(running, wav(noise(count), rate))["entries"].tolist() == [counted]
    else:
        with pytest.raises(RequestError, match="audio-too-short"):
            running.run([wav(noise(count), rate)])


# ---- another runtime -------------------------------------------------------------------------------------------------

PEER = util.find_spec("onnxruntime_extensions")


def of_peer(definition: str, data: bytes) -> list[Array]:
    """What onnxruntime-extensions makes of a sound, by its C interface: three tensors as floats or bytes."""
    assert PEER is not None
    assert PEER.origin is not None
    library = next(Path(PEER.origin).parent.glob("_extensions_pydll*.so"))
    peer = ctypes.CDLL(str(library))
    made: list[Array] = []

    def ask(name: str, *arguments: Any) -> ctypes.c_void_p:
        result = ctypes.c_void_p()
        assert getattr(peer, name)(*(ctypes.byref(result) if each is None else each for each in arguments)) == 0
        return result

    extractor = ask("OrtxCreateSpeechFeatureExtractor", None, definition.encode())
    held = ctypes.create_string_buffer(data, len(data))
    pointers, sizes = (ctypes.c_void_p * 1)(ctypes.addressof(held)), (ctypes.c_int64 * 1)(len(data))
    raw = ask("OrtxCreateRawAudios", None, pointers, sizes, ctypes.c_size_t(1))
    result = ask("OrtxFeatureExtraction", extractor, raw, None)
    for at in range(3):
        tensor = ask("OrtxTensorResultGetAt", result, ctypes.c_size_t(at), None)
        where, extents, rank = ctypes.c_void_p(), ctypes.POINTER(ctypes.c_int64)(), ctypes.c_size_t()
        told = [ctypes.byref(each) for each in (where, extents, rank)]
        assert peer.OrtxGetTensorData(tensor, *told) == 0
        shape = [extents[axis] for axis in range(rank.value)]
        kind = np.dtype(np.bool_) if at == 1 else np.dtype(np.float32)
        content = ctypes.string_at(where, int(np.prod(shape)) * kind.itemsize)
        made.append(np.frombuffer(content, kind).reshape(shape))
    return made


@pytest.mark.skipif(PEER is None, reason="onnxruntime-extensions is not installed: no peer to compare features with")
@pytest.mark.parametrize("rate", [16000, 8000])
def test_natural_bands_are_the_other_runtimes(tmp_path: Path, rate: int) -> None:
    data = wav(noise(rate), rate)
    features, mask, sizes = of_peer(json.dumps(natural_sounds()), data)
    made = heard(program(tmp_path, natural_sounds(), "audio_features", "frame_mask", "entries"), data)
    np.testing.assert_allclose(made["audio_features"], features, atol=2e-4)
    assert np.array_equal(made["frame_mask"], mask)
    assert np.array_equal(made["entries"], sizes)
