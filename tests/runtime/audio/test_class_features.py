"""Features of extractors that are known by their class, against sums written out and transformers' own numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from genai_runtime import RequestError

from tests.read.test_sound_extractors import CENTERED, FRAMED, OWN, PLAIN
from tests.reference import features as reference
from tests.runtime.audio.test_stated_features import heard, noise, program, wav

Array = np.ndarray[Any, Any]


def keys(name: str, **more: Any) -> dict[str, Any]:
    return {"feature_extractor_type": name, **more}


def centered(samples: Array, mels: int, evened: bool) -> Array:
    """[frames, mels]: a frame for each whole hop; one of zeros behind them, which is no part of the means."""
    made = reference.emphasised(samples, mels, symmetric=True)[:, : len(samples) // 160]
    made = reference.evened(made) if evened else made
    return np.concatenate([made.T, np.zeros((1, mels))])


@pytest.mark.parametrize("count", [160, 400, 1234])
@pytest.mark.parametrize(("name", "evened"), [(CENTERED, True), (PLAIN, False)])
def test_centered_frames(tmp_path: Path, count: int, name: str, evened: bool) -> None:
    samples = noise(count)
    running = program(tmp_path, keys(name, feature_size=20), "audio_features", "frame_mask", "valid_frames")
    made = heard(running, wav(samples))
    np.testing.assert_allclose(made["audio_features"][0], centered(samples, 20, evened), atol=2e-4)
    assert made["frame_mask"].tolist() == [[True] * (count // 160) + [False]]
    assert made["valid_frames"].tolist() == [count // 160]


def test_centered_frames_of_several_sounds(tmp_path: Path) -> None:
    samples = [noise(900), noise(500, 6)]
    running = program(tmp_path, keys(CENTERED, feature_size=20), "audio_features", "frame_mask")
    made = heard(running, *map(wav, samples))
    for row, each in enumerate(samples):
        wanted = np.zeros((6, 20))
        wanted[: len(each) // 160 + 1] = centered(each, 20, True)
        np.testing.assert_allclose(made["audio_features"][row], wanted, atol=2e-4)
    assert made["frame_mask"].tolist() == [[True] * 5 + [False], [True] * 3 + [False] * 3]


@pytest.mark.parametrize("count", [0, 159])
def test_a_sound_without_a_whole_hop_is_too_short(tmp_path: Path, count: int) -> None:
    with pytest.raises(RequestError, match="audio-too-short"):
        program(tmp_path, keys(CENTERED)).run([wav(noise(count))])


@pytest.mark.parametrize("ends", [(0, 7690), (20, 7600)])
def test_frames_with_emphasis_of_their_own(tmp_path: Path, ends: tuple[int, int]) -> None:
    samples = noise(1234)
    stated = {"mel_min_frequency": ends[0], "mel_max_frequency": ends[1], "audio_downsample_rate": 3}
    running = program(tmp_path, keys(FRAMED, **stated), "audio_features", "entries", "frame_mask")
    made = heard(running, wav(samples))
    np.testing.assert_allclose(made["audio_features"][0], reference.natural(samples, 16000, 80, ends, False), atol=1e-4)
    assert made["frame_mask"].tolist() == [[True] * 6]
    assert made["entries"].tolist() == [1]


@pytest.mark.parametrize("rate", [16000, 8000])
def test_frames_of_the_class_beside_its_model(tmp_path: Path, rate: int) -> None:
    """At 8000 Hz all bins of the spectrum but the last count; the triangles end at 7690 Hz."""
    samples = noise(1234)
    made = heard(program(tmp_path, keys(OWN), "audio_features", "entries"), wav(samples, rate))
    wanted = reference.natural(samples, rate, 80, (0, 7690), below=128)
    np.testing.assert_allclose(made["audio_features"][0], wanted, atol=1e-4)
    assert made["entries"].tolist() == [-(-len(wanted) // 8)]


PLACES = ((0, 0), (0, 79), (3, 20), (7, 41), (9, 66))
"""Frame, band."""
PEER: dict[str, tuple[tuple[int, int], list[float], float]] = {
    CENTERED: ((13, 80), [-0.57055, -2.5907, 1.43789, 0.57723, 1.6925], 733.236),
    PLAIN: ((13, 80), [-5.83877, -4.18183, -4.46571, -4.34462, -2.49941], 4490.456),
    FRAMED: ((11, 80), [18.12456, 24.1651, 20.86557, 21.63468, 23.23108], 17980.168),
}
"""What transformers 5.24.0 (torch 2.14.1) makes of the sound below: frames and bands, values at PLACES, the sum of all
without their signs. The class beside its model is in no package."""


@pytest.mark.parametrize("name", PEER)
def test_features_are_the_peers(tmp_path: Path, name: str) -> None:
    at = np.arange(2000)
    sound = (((at * at * 7 + 13 * at) % 1009 - 504) / 4096 + (at % 50) / 256).astype(np.float32)
    (made,) = heard(program(tmp_path, keys(name)), wav(sound))["audio_features"]
    extents, values, total = PEER[name]
    assert made.shape == extents
    np.testing.assert_allclose([made[each] for each in PLACES], values, atol=1e-4)
    assert np.abs(made).sum(dtype=np.float64) == pytest.approx(total, abs=0.01)
