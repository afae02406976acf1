"""Resampling, log-mel features and the rest against the formulas of the standard (tests/reference/sounds.py)."""

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from genai_runtime import ExecutionError, RequestError
from genai_runtime.adapters.audio.log_mel import log_mel, mel_bands
from genai_runtime.adapters.audio.program import AudioProgram, audio_preprocess
from genai_runtime.adapters.audio.resample import resample
from genai_runtime.adapters.audio.waveform import downmix, fit, rescale, zero_mean_unit_variance
from genai_runtime.adapters.image.limits import MAX_IMAGES

from tests.reference import sounds
from tests.reference.sounds import Window, resampled
from tests.runtime.audio.files import tone, wav16

# ---- resampling ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["hann", "lanczos"])
@pytest.mark.parametrize(
    ("source", "target"),
    [(48000, 16000), (8000, 16000), (44100, 16000), (22050, 24000), (16000, 48000), (16001, 16000), (7, 3)],
)
def test_resampling_is_the_sum_of_weighted_neighbours(source: int, target: int, kind: Window) -> None:
    samples = (tone(301, source) / 32768).astype(np.float32)
    made = resample(samples, source, target, kind)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, resampled(samples, source, target, kind), rtol=0, atol=1e-7)


def test_resampling_far_apart_rates_makes_no_table_of_every_phase() -> None:
    samples = (tone(40) / 32768).astype(np.float32)
    source, target = 1_000_003, 4_000_037  # a phase for every sample
    made = resample(samples, source, target, "lanczos")
    np.testing.assert_allclose(made, resampled(samples, source, target, "lanczos"), rtol=0, atol=1e-7)


def test_channels_are_resampled_apart() -> None:
    left, right = (tone(200, hertz=each).astype(np.float32) for each in (300.0, 1000.0))
    made = resample(np.stack([left, right])[None], 48000, 24000, "hann")
    assert made.shape == (1, 2, 100)
    assert np.array_equal(made[0, 1], resample(right, 48000, 24000, "hann"))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_short_sounds_are_resampled_too(count: int) -> None:
    samples = np.full(count, 0.5, np.float32)
    assert resample(samples, 8000, 16000, "lanczos").tolist() == pytest.approx([0.5] * (2 * count), abs=1e-6)


def test_a_rate_that_would_make_a_sound_endless_is_refused() -> None:
    with pytest.raises(ExecutionError) as refused:
        resample(np.zeros(100_000, np.float32), 1, 16000, "lanczos")
    assert refused.value.code == "audio-too-long"


# ---- features --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mels", [80, 128])
@pytest.mark.parametrize("count", [160, 199, 1000, 2400])
def test_features_are_those_of_the_formula(mels: int, count: int) -> None:
    samples = (tone(count) / 32768).astype(np.float32)
    made = log_mel(samples, mels)
    assert (made.shape, made.dtype) == ((mels, count // 160), np.float32)
    np.testing.assert_allclose(made, sounds.log_mel(samples, mels), rtol=0, atol=2e-6)


def test_silence_has_the_features_of_the_floor() -> None:
    assert set(log_mel(np.zeros(1600, np.float32), 80).reshape(-1).tolist()) == {-1.5}  # (-10 + 4) / 4
    assert log_mel(np.zeros(159, np.float32), 80).shape == (80, 0)


@pytest.mark.parametrize("mels", [80, 128])
def test_mel_bands_are_those_of_the_formula(mels: int) -> None:
    np.testing.assert_allclose(mel_bands(mels), sounds.mel_bands(mels), rtol=1e-9, atol=1e-12)


@pytest.mark.heavy
@pytest.mark.parametrize("mels", [80, 128])
def test_features_are_those_of_a_peer_library(mels: int) -> None:
    librosa = pytest.importorskip("librosa", reason="librosa is not installed: no peer to compare features with")
    samples = (tone(48_000) / 32768).astype(np.float32)
    power = librosa.feature.melspectrogram(
        y=samples.astype(np.float64), sr=16000, n_fft=400, hop_length=160, n_mels=mels, center=True,
        pad_mode="reflect", power=2.0, htk=False, norm="slaney", dtype=np.float64,
    )[:, :-1]  # fmt: skip
    loud = np.log10(np.maximum(power, 1e-10))
    peer = (np.maximum(loud, loud.max() - 8) + 4) / 4
    np.testing.assert_allclose(log_mel(samples, mels), peer, rtol=0, atol=1e-6)


# ---- samples and programs --------------------------------------------------------------------------------------------


def test_operations_on_samples() -> None:
    samples = np.array([[1, 3], [0.5, -0.5], [0.25, 0.5]], np.float32)
    mono = downmix(samples)
    assert mono.tolist() == [2, 0, 0.375]
    assert rescale(mono, 0.1).tolist() == [np.float32(0.2), 0, np.float32(0.0375)]
    assert fit(mono, 2).tolist() == [2, 0]
    assert fit(mono, 5).tolist() == [2, 0, 0.375, 0, 0]
    mean = 2.375 / 3
    spread = math.sqrt(sum((each - mean) ** 2 for each in (2, 0, 0.375)) / 3 + 0.5)
    expected = [(each - mean) / spread for each in (2, 0, 0.375)]
    assert zero_mean_unit_variance(mono, 0.5).tolist() == pytest.approx(expected, rel=1e-6)
    assert zero_mean_unit_variance(mono[:0], 0.5).size == 0


OUTPUTS = (("f", "audio_features"), ("w", "waveform"), ("n", "valid_frames"), ("s", "valid_samples"))


@pytest.mark.parametrize(("count", "frames"), [(100, 1), (160, 1), (161, 2), (1600, 10), (5000, 10)])
def test_a_window_pads_and_cuts_and_the_lengths_say_what_is_real(count: int, frames: int) -> None:
    program = AudioProgram((("resample", 16000),), 1600, 80, OUTPUTS)
    made = program.run([wav16(tone(count))])
    assert {name: each.shape for name, each in made.items()} == {
        "f": (1, 80, 10), "w": (1, 1600), "n": (1,), "s": (1,),
    }  # fmt: skip
    assert (made["n"].dtype, made["n"].tolist(), made["s"].tolist()) == (np.int64, [frames], [count])
    kept = min(count, 1600)
    assert np.array_equal(made["w"][0, :kept], (tone(count)[:kept] / 32768).astype(np.float32))
    assert not made["w"][0, kept:].any()


def test_lengths_are_those_after_resampling() -> None:
    made = AudioProgram((("resample", 16000),), 0, 80, OUTPUTS).run([wav16(tone(4801), rate=48000)])
    assert (made["s"].tolist(), made["n"].tolist(), made["f"].shape) == ([1600], [10], (1, 80, 10))


def test_rows_of_a_batch_are_what_they_are_alone() -> None:
    program = AudioProgram((("resample", 16000),), 1600, 80, OUTPUTS)
    files = [wav16(tone(900)), wav16(tone(2000, hertz=300.0)), wav16(tone(3000, 8000), rate=8000)]
    together, alone = program.run(files), [program.run([each]) for each in files]
    for name, value in together.items():
        assert np.array_equal(value, np.concatenate([each[name] for each in alone])), name


def test_rows_of_no_fixed_length_are_refused() -> None:
    with pytest.raises(RequestError) as refused:
        AudioProgram((), 0, 0, OUTPUTS[1:2]).run([wav16([1]), wav16([1])])
    assert refused.value.code == "audio-window"
    assert "V068" in str(refused.value)


def test_an_adapter_without_a_program_or_with_an_unknown_one_is_refused() -> None:
    for program in (None, AudioProgram((("reverb", 1),), 0, 0, ()), AudioProgram((), 0, 0, (("x", "phase"),))):
        with pytest.raises(ValueError, match="program"):
            audio_preprocess({}, program)


KINDS = {
    "features of fixed frames": AudioProgram((), 0, 80, OUTPUTS[:1], most=1600, frames=10),
    "samples of a window": AudioProgram((), 1600, 0, OUTPUTS[1:2]),
}


@pytest.mark.parametrize("name", KINDS)
def test_more_sounds_than_pictures_are_refused_before_one_is_read(name: str) -> None:
    """The bound of pictures (V067)."""
    program = KINDS[name]
    assert len(program.run([wav16([1])] * MAX_IMAGES)[program.outputs[0][0]]) == MAX_IMAGES
    with pytest.raises(RequestError, match="1025 sounds are more than the 1024") as refused:
        program.run([b"no sound"] * (MAX_IMAGES + 1))
    assert refused.value.code == "audio-limit"


@pytest.mark.parametrize("name", KINDS)
def test_rows_of_too_many_numbers_are_refused_before_one_is_read(name: str) -> None:
    """1000 sounds: 80 bands of 3000 frames are 240 M numbers, windows of 30 s 480 M; 64 Mi are the most of a tensor."""
    long = replace(KINDS[name], frames=3000) if "frames" in name else replace(KINDS[name], window=480000)
    with pytest.raises(RequestError, match="of 1000 sounds are") as refused:
        long.run([b"no sound"] * 1000)
    assert refused.value.code == "audio-too-long"


@pytest.mark.parametrize("name", KINDS)
def test_what_does_not_count_of_a_file_is_not_held(name: str) -> None:
    """20 files of 1 Mi samples, 4 MB as floats, of which a tenth of a second counts."""
    file = wav16(np.zeros(1 << 20, np.int64))
    tracemalloc.start()
    KINDS[name].run([file] * 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * (1 << 22)
