"""What an audio processor file makes beside a graph whose own table of positions bounds its frames, by arithmetic.

FLAT makes 30 s x 16000 Hz / 160 = 3000 frames behind the bands; the natural bands make as many as the sound has,
in front of them.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from genai_compiler.lower.sound_roles import FEATURES, sound_mismatches
from genai_compiler.lower.stages import Stage
from genai_compiler.read.audio_processor import read_audio_processor
from genai_compiler.read.own_tables import Limit
from genai_compiler.read.signature import Port, Signature

from tests.test_real_sounds import FLAT
from tools.fixtures.processors import NATURAL_BANDS, natural_sounds

BEHIND, BEFORE = ("rows", 80, "frames"), ("rows", "frames", NATURAL_BANDS)


def told(folder: Path, content: Any, shape: tuple[int | str, ...], *limits: Limit) -> list[str]:
    (folder / "hears.json").write_text(json.dumps(content))
    port = Port("heard", "float32", shape)
    signature = Signature((port,), (), (), (), (), (), limits=limits)
    stage = Stage("encoder", "model.onnx", signature, (), "rows")
    file = read_audio_processor(folder, "hears.json")
    return [each.what for each in sound_mismatches(file, {FEATURES: port}, [stage])]


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (Limit("heard", 2, 3000), ""),
        (Limit("heard", 2, 3000, 3000), ""),
        (Limit("heard", 2, 2999), "makes 3000 frames, and the graph's table of positions takes at most 2999"),
        (Limit("heard", 2, 4000, 3001), "makes 3000 frames, and the graph's table of positions takes 3001 to 4000"),
        (Limit("heard", 1, 80), ""),
        (Limit("other", 2, 10), ""),
    ],
)
def test_frames_behind_the_bands(limit: Limit, words: str, tmp_path: Path) -> None:
    found = told(tmp_path, FLAT, BEHIND, limit)
    assert len(found) == bool(words)
    assert all(words in each for each in found)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (Limit("heard", 1, 100), ""),
        (Limit("heard", 1, 100, 100), "as many frames as the sound has, and the graph's table of positions takes 100"),
        (Limit("heard", 2, 100, 100), ""),
    ],
)
def test_frames_in_front_of_the_bands(limit: Limit, words: str, tmp_path: Path) -> None:
    """Too many of an open number are refused when the package runs: only a least number is known to be missed."""
    found = told(tmp_path, natural_sounds(), BEFORE, limit)
    assert len(found) == bool(words)
    assert all(words in each for each in found)
