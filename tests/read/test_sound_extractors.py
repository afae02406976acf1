"""Flat keys of feature extractors whose class says the rest: what is followed, and every key that can't be.

The defaults are those of the classes in transformers 5.24.0.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from genai_compiler import CompileError
from genai_compiler.read.audio_processor import AudioProcessor, describes_audio, read_audio_processor
from genai_compiler.read.config_json import parse_config

CENTERED, PLAIN, FRAMED, OWN = (
    f"{each}FeatureExtractor" for each in ("Parakeet", "NemotronAsrStreaming", "Phi4Multimodal", "Phi4MMAudio")
)
STATED: dict[str, Any] = {
    "feature_extractor_type": CENTERED, "feature_size": 80, "sampling_rate": 16000, "hop_length": 160, "n_fft": 512,
    "win_length": 400, "preemphasis": 0.97, "padding_value": 0.0, "padding_side": "right",
    "return_attention_mask": True,
}  # fmt: skip
"""What the class writes of itself."""


def read(folder: Path, content: Any) -> AudioProcessor:
    (folder / "preprocessor_config.json").write_text(json.dumps(content))
    return read_audio_processor(folder, "preprocessor_config.json")


def faults(folder: Path, content: Any) -> dict[str, str]:
    """Path -> what is wrong there."""
    with pytest.raises(CompileError) as refused:
        read(folder, content)
    assert {each.code for each in refused.value.problems} == {"bad-processor"}
    return {each.path: each.what for each in refused.value.problems}


@pytest.mark.parametrize("part", ["", "feature_extractor", "audio_processor"])
def test_what_a_file_leaves_out_is_the_classs_own(tmp_path: Path, part: str) -> None:
    short: dict[str, Any] = {"feature_extractor_type": CENTERED}
    made = read(tmp_path, {part: short} if part else short)
    assert made.variants == read(tmp_path, STATED).variants
    (how,) = made.variants
    assert (how.rate, how.frame, how.hop, how.fft, how.mels, how.alpha) == (16000, 400, 160, 512, 80, 0.97)
    assert (made.strides, made.most) == (None, 0)


def test_a_file_is_told_by_its_class_alone() -> None:
    assert describes_audio(parse_config(json.dumps({"feature_extractor_type": OWN}).encode(), "x.json"))
    for other in ({}, {"feature_extractor_type": "Other"}, {"feature_extractor_type": [OWN]}, [OWN], {"a": STATED}):
        assert not describes_audio(parse_config(json.dumps(other).encode(), "x.json"))


@pytest.mark.parametrize(
    ("keys", "strides"),
    [
        ({"feature_extractor_type": FRAMED}, (8, 1)),
        ({"feature_extractor_type": FRAMED, "audio_compression_rate": 4, "audio_downsample_rate": 3}, (4, 3)),
        ({"feature_extractor_type": OWN, "audio_compression_rate": 6}, (6, 1)),
        ({"feature_extractor_type": PLAIN}, None),
    ],
)
def test_frames_of_an_entry(tmp_path: Path, keys: dict[str, Any], strides: tuple[int, ...] | None) -> None:
    assert read(tmp_path, keys).strides == strides


def test_features_for_two_rates_where_the_class_has_them(tmp_path: Path) -> None:
    keys = {"feature_extractor_type": OWN, "image_processor_type": "Other", "dynamic_hd": 36}
    assert [(each.rate, each.fft, each.frame) for each in read(tmp_path, keys).variants] == [
        (8000, 256, 200),
        (16000, 512, 400),
    ]


@pytest.mark.parametrize("value", [None, 0, 0.0])
def test_no_emphasis(tmp_path: Path, value: Any) -> None:
    (how,) = read(tmp_path, {**STATED, "preemphasis": value}).variants
    assert (how.emphasis, how.alpha) == ("", 0.0)


@pytest.mark.parametrize(
    ("name", "key", "value", "words"),
    [
        (CENTERED, "padding_value", 1.0, "0 is offered"),
        (CENTERED, "padding_side", "left", "'right' is offered"),
        (PLAIN, "mel_filters_dtype", "bfloat16", "'float32' is offered"),
        (FRAMED, "audio_feat_stride", 2, "1 is offered"),
        (OWN, "audio_feat_stride", 2, "1 is offered"),
        (CENTERED, "win_length", 600, "longer than the transform, 512"),
        (FRAMED, "win_length", 600, "longer than the transform, 512"),
        (FRAMED, "mel_max_frequency", 8001, "to 8001.0 Hz"),
        (FRAMED, "mel_min_frequency", 7690, "from 7690.0"),
        (CENTERED, "feature_size", 0, "from 1 to 512"),
        (CENTERED, "feature_size", 1 << 20, "from 1 to 512"),
        (CENTERED, "hop_length", 0, "from 1 to 65536"),
        (CENTERED, "n_fft", 512.5, "a whole number"),
        (CENTERED, "n_fft", True, "a whole number"),
        (CENTERED, "sampling_rate", "high", "a whole number"),
        (CENTERED, "preemphasis", "strong", "a number from 0"),
        (CENTERED, "preemphasis", [0.97], "a number from 0"),
        (OWN, "audio_compression_rate", 0, "from 1 to"),
        (FRAMED, "audio_downsample_rate", {}, "a whole number"),
    ],
)
@pytest.mark.parametrize("part", ["", "feature_extractor"])
def test_a_key_that_cant_be_followed(tmp_path: Path, part: str, name: str, key: str, value: Any, words: str) -> None:
    keys = {"feature_extractor_type": name, key: value}
    found = faults(tmp_path, {part: keys} if part else keys)
    place = {"mel_min_frequency": "mel_max_frequency"}.get(key, key)
    assert words in found[f"{part}.{place}" if part else place]


def test_bands_over_a_spectrum_have_a_limit(tmp_path: Path) -> None:
    assert "weights" in faults(tmp_path, {**STATED, "n_fft": 1 << 16, "feature_size": 512})["n_fft"]


def test_plain_log_mel_keys_as_a_part(tmp_path: Path) -> None:
    """As newer files have them, beside what is said of text."""
    keys = {"feature_size": 80, "n_fft": 400, "hop_length": 160, "sampling_rate": 16000, "chunk_length": 20}
    made = read(tmp_path, {"feature_extractor": keys, "processor_class": "Any"})
    assert (made.mels, made.window, made.variants) == (80, 320000, ())
    assert (
        "features with 400"
        in faults(tmp_path, {"feature_extractor": {**keys, "n_fft": 512}})["feature_extractor.n_fft"]
    )


@pytest.mark.parametrize(
    ("key", "rest"),
    [
        ("padding_side", {"feature_extractor_type": CENTERED}),
        ("dither", {"feature_size": 80, "n_fft": 400, "hop_length": 160, "sampling_rate": 16000}),
        ("preemphasis", {"feature_size": 80, "n_fft": 400, "hop_length": 160, "sampling_rate": 16000}),
        ("chunk_length", {"feature_size": 80, "n_fft": 400, "hop_length": 160, "sampling_rate": 16000}),
    ],
)
def test_a_value_is_told_as_the_file_has_it(tmp_path: Path, key: str, rest: dict[str, Any]) -> None:
    assert f"{'it' if key == 'padding_side' else key} is true" in faults(tmp_path, {**rest, key: True})[key]
