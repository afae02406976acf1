"""Audio processor files that can't be followed: every fault at its place; and files that don't fit their graphs."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.read.audio_processor import read_audio_processor
from genai_compiler.read.sound_extractors import EXTRACTORS

from tests.conftest import FIXTURES
from tests.wording import smells
from tools.fixtures.processors import natural_sounds, sounds

Step = tuple[str, dict[str, Any]]
DECODE: Step = ("AudioDecoder", {})
EXTRACTOR: dict[str, Any] = {
    "feature_size": 16, "frame_length": 320, "hop_length": 160, "fft_length": 512, "mel_floor": 0.001,
    "sampling_rate": 16000, "min_frequency": 0.0, "max_frequency": 8000.0, "preemphasis": 0.5, "dither": 0.0,
    "preemphasis_htk_flavor": True, "fft_overdrive": False, "per_bin_mean": None, "padding_side": "right",
}  # fmt: skip


def faults(folder: Path, content: Any) -> dict[str, str]:
    """Path -> what is wrong there."""
    (folder / "hears.json").write_text(json.dumps(content))
    with pytest.raises(CompileError) as refused:
        read_audio_processor(folder, "hears.json")
    assert {each.code for each in refused.value.problems} == {"bad-processor"}
    return {each.path: each.what for each in refused.value.problems}


def natural(**changes: Any) -> dict[str, Any]:
    made = natural_sounds()
    attributes = made["feature_extraction"]["sequence"][1]["operation"]["attrs"]
    attributes |= {name.replace("__", "/"): value for name, value in changes.items()}
    return made


ATTRS = "feature_extraction.sequence[1].operation.attrs"


@pytest.mark.parametrize(
    ("steps", "path", "words"),
    [
        ([DECODE, ("Gemma4LogMel", {"feature_size": 0})], f"{ATTRS}.feature_size", "from 1 to 512"),
        ([DECODE, ("Gemma4LogMel", {"feature_size": 1 << 20})], f"{ATTRS}.feature_size", "from 1 to 512"),
        ([DECODE, ("Gemma4LogMel", {"sampling_rate": 8000})], f"{ATTRS}.sampling_rate", "decoded to 16000 Hz"),
        ([DECODE, ("Gemma4LogMel", {"frame_length_ms": 0.0})], f"{ATTRS}.frame_length_ms", "frames of 0 samples"),
        ([DECODE, ("Gemma4LogMel", {"hop_length_ms": 0.01})], f"{ATTRS}.hop_length_ms", "every 0"),
        ([DECODE, ("Gemma4LogMel", {"max_frequency": 9000.0})], f"{ATTRS}.max_frequency", "to 9000.0 Hz"),
        ([DECODE, ("Gemma4LogMel", {"min_frequency": 8000.0})], f"{ATTRS}.max_frequency", "from 8000.0"),
        ([DECODE, ("Gemma4LogMel", {"per_bin_mean": [1.0]})], f"{ATTRS}.per_bin_mean", "1 numbers for 128 bands"),
        ([DECODE, ("Gemma4LogMel", {"per_bin_stddev": ["a"]})], f"{ATTRS}.per_bin_stddev", "numbers"),
        ([DECODE, ("Gemma4LogMel", {"preemphasis": True})], f"{ATTRS}.preemphasis", "a number from 0"),
        ([DECODE, ("Gemma4LogMel", {"fft_overdrive": 2})], f"{ATTRS}.fft_overdrive", "from 0 to 1"),
        ([DECODE, ("Gemma4LogMel", {"mel_flor": 1.0})], f"{ATTRS}.mel_flor", "no attribute"),
        ([DECODE, ("Gemma4Audio", {"type": "log_mel"})], f"{ATTRS}.type", "'raw_frames' is offered"),
        ([DECODE, ("Gemma4Audio", {"padding_value": 1.0})], f"{ATTRS}.padding_value", "0 is offered"),
        ([DECODE, ("NemoLogMel", {"win_length": 600})], f"{ATTRS}.win_length", "longer than the transform, 512"),
        ([DECODE, ("NemoLogMel", {"fft_size": 1 << 16, "num_mels": 512})], ATTRS[:-6], "weights"),
        ([DECODE, ("NemoLogMel", {"hop_length": 0})], f"{ATTRS}.hop_length", "from 1 to"),
        ([("AudioDecoder", {"stereo_to_mono": 0}), ("NemoLogMel", {})],
         "feature_extraction.sequence[0].operation.attrs.stereo_to_mono", "1 is offered"),
        ([("AudioDecoder", {"target_sample_rates": [0]}), ("NemoLogMel", {})],
         "feature_extraction.sequence[0].operation.attrs.target_sample_rates", "whole numbers above 0"),
        ([("AudioDecoder", {"target_sample_rates": [8000, 16000]}), ("NemoLogMel", {})],
         f"{ATTRS}.sample_rate", "decoded to 8000 or 16000 Hz"),
        ([DECODE, ("NemoLogMel", {}), ("PerFeatureNormalize", {"feature_first": 0})],
         "feature_extraction.sequence[2].operation.attrs.feature_first", "bands first"),
        ([DECODE, ("Gemma4LogMel", {}), ("PerFeatureNormalize", {})], "feature_extraction.sequence", "the sequence is"),
        ([("NemoLogMel", {})], "feature_extraction.sequence", "the sequence is NemoLogMel"),
        ([DECODE, ("STFTNorm", {})], "feature_extraction.sequence", "the sequence is AudioDecoder, STFTNorm"),
    ],
)  # fmt: skip
def test_what_cant_be_followed_is_said_at_its_place(tmp_path: Path, steps: list[Step], path: str, words: str) -> None:
    found = faults(tmp_path, sounds(*steps))
    assert words in found[path]


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"logmel__n_fft": 300}, f'{ATTRS}["logmel/n_fft"]', "go with one of 300 or 150, not 512"),
        ({"stft_normal__frame_length": 600}, f'{ATTRS}["stft_normal/frame_length"]', "longer than the transform"),
        ({"stft_normal_8k__win_fn": "flat"}, f'{ATTRS}["stft_normal_8k/win_fn"]', "one of hann, hamming"),
        ({"audio_compression_rate": 0}, f"{ATTRS}.audio_compression_rate", "from 1 to"),
        ({"logmel__no_padding": 2}, f'{ATTRS}["logmel/no_padding"]', "from 0 to 1"),
    ],
)
def test_natural_bands_that_cant_be_made(tmp_path: Path, changes: dict[str, Any], path: str, words: str) -> None:
    assert words in faults(tmp_path, natural(**changes))[path]


def test_natural_bands_need_a_rate_and_the_numbers_for_it(tmp_path: Path) -> None:
    of = "feature_extraction.sequence[1].operation"
    (attributes,) = [natural()["feature_extraction"]["sequence"][1]["operation"]["attrs"]]
    plain = faults(tmp_path, sounds(DECODE, ("Phi4AudioEmbed", attributes)))
    assert "decode with AudioDecoderEx" in plain[of]
    both = ("AudioDecoderEx", {"target_sample_rates": [8000, 16000]})
    few = {name: value for name, value in attributes.items() if "_8k" not in name}
    assert "stft_normal_8k/n_fft" in faults(tmp_path, sounds(both, ("Phi4AudioEmbed", few)))[of]
    other = ("AudioDecoderEx", {"target_sample_rates": [16000, 24000]})
    assert "not at 16000, 24000" in faults(tmp_path, sounds(other, ("Phi4AudioEmbed", attributes)))[of]


@pytest.mark.parametrize("inner", ["", "feature_extractor", "audio_processor"])
def test_flat_keys_of_stated_frames_are_the_operations_features(tmp_path: Path, inner: str) -> None:
    (tmp_path / "flat.json").write_text(json.dumps({inner: EXTRACTOR} if inner else EXTRACTOR))
    steps = sounds(DECODE, ("Gemma4LogMel", {"feature_size": 16, "preemphasis": 0.5}))
    (tmp_path / "listed.json").write_text(json.dumps(steps))
    flat, listed = (read_audio_processor(tmp_path, f"{name}.json") for name in ("flat", "listed"))
    assert flat.variants == listed.variants
    assert flat.strides == listed.strides == (2, 2)
    assert (flat.most, listed.most) == (0, 480000)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("dither", 0.1, "0 is offered"),
        ("input_scale_factor", 2.0, "1 is offered"),
        ("fft_length", 1024, "go with 512"),
        ("hop_length", 0, "a whole number from 1"),
        ("frame_length", True, "a whole number from 1"),
        ("sampling_rate", "high", "a whole number from 1"),
        ("feature_size", 0, "from 1 to 512"),
        ("max_frequency", 9000.0, "to 9000.0 Hz"),
        ("padding_side", "left", "'right' is offered"),
    ],
)
def test_flat_keys_that_cant_be_followed(tmp_path: Path, key: str, value: Any, words: str) -> None:
    found = faults(tmp_path, {"feature_extractor": {**EXTRACTOR, key: value}})
    assert words in found[f"feature_extractor.{key}"]


@pytest.mark.parametrize(
    ("case", "file", "content", "words"),
    [
        ("tiny-budget-v1", "speech_processor.json", sounds(DECODE, ("Gemma4LogMel", {"feature_size": 17})), "17 bands"),
        ("tiny-budget-v1", "speech_processor.json", sounds(DECODE, ("NemoLogMel", {"num_mels": 16})),
         "bands before frames"),
        ("tiny-budget-v1", "speech_processor.json", sounds(DECODE, ("STFTNorm", {}), ("LogMelSpectrum", {})),
         "nothing that says how long a sound is"),
        ("tiny-fields-v2", "audio_processor.json", natural(logmel__n_mel=40, logmel_8k__n_mel=40), "makes 40 bands"),
        ("tiny-even-bands-v2", "hears.json", sounds(DECODE, ("Gemma4LogMel", {"feature_size": 20})),
         "bands behind frames"),
        ("tiny-even-bands-v2", "hears.json", sounds(DECODE, ("NemoLogMel", {"num_mels": 21})), "makes 21 bands"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_fit_its_graph(tmp_path: Path, case: str, file: str, content: Any, words: str) -> None:
    package = shutil.copytree(FIXTURES / case, tmp_path / "package")
    (package / file).write_text(json.dumps(content))
    with pytest.raises(CompileError) as refused:
        compile_package(package, out=tmp_path / "out")
    found = [each for each in refused.value.problems if each.code == "processor-mismatch"]
    assert any(words in each.what for each in found), str(refused.value)
    assert {each.where.file for each in found} == {file}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_image_tiles": 3}, "makes up to 3 tiles"),
        ({"size": [9, 9]}, "makes views of 9x9 pixels"),
    ],
)
def test_tiles_that_do_not_fit_their_graph(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    package = shutil.copytree(FIXTURES / "tiny-tiles-v2", tmp_path / "package")
    file = package / "image_processor.json"
    content = json.loads(file.read_text())
    content["processor"]["transforms"][1]["operation"]["attrs"] |= change
    file.write_text(json.dumps(content))
    with pytest.raises(CompileError) as refused:
        compile_package(package, out=tmp_path / "out")
    assert any(words in each.what for each in refused.value.problems if each.code == "processor-mismatch")


def test_what_is_told_of_tiles_needs_tiles(tmp_path: Path) -> None:
    package = shutil.copytree(FIXTURES / "tiny-tiles-v2", tmp_path / "package")
    fields = json.loads((FIXTURES / "tiny-fields-v2" / "image_processor.json").read_text())
    (package / "image_processor.json").write_text(json.dumps(fields))
    with pytest.raises(CompileError) as refused:
        compile_package(package, out=tmp_path / "out")
    said = [each.what for each in refused.value.problems if each.code == "processor-mismatch"]
    assert any("'aspect_ratio_ids'" in each and "makes no such numbers" in each for each in said)


SPEECH: dict[str, Any] = {"feature_size": 80, "n_fft": 400, "hop_length": 160, "sampling_rate": 16000}
EMPHASISED = {
    "Parakeet": {**SPEECH, "n_fft": 512, "win_length": 400, "preemphasis": 0.97, "padding_side": "right"},
    "Phi-4": {**SPEECH, "n_fft": 512, "win_length": 400, "preemphasis": 0.97, "audio_compression_rate": 8,
              "audio_downsample_rate": 1, "audio_feat_stride": 1, "mel_min_frequency": 0, "mel_max_frequency": 7690},
    "with the lengths of other features": {**SPEECH, "preemphasis": 0.97, "chunk_length": 30},
}  # fmt: skip


def flat_problems(folder: Path, keys: dict[str, Any]) -> list[tuple[str, str]]:
    (folder / "flat.json").write_text(json.dumps(keys))
    try:
        read_audio_processor(folder, "flat.json")
    except CompileError as refused:
        return [(each.path, each.what) for each in refused.problems]
    return []


@pytest.mark.parametrize("keys", EMPHASISED.values(), ids=EMPHASISED)
def test_flat_keys_with_an_emphasis_are_refused_for_what_they_leave_unsaid(
    keys: dict[str, Any], tmp_path: Path
) -> None:
    """They are never taken for the features that have the same lengths and no emphasis."""
    ((path, what),) = flat_problems(tmp_path, keys)
    assert path == "preemphasis"
    assert "do not say which bands, which logarithm and what around the clip" in what
    assert "feature_extraction.sequence" in what
    assert "feature_extractor_type" in what


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("win_length", 320), ("mel_min_frequency", 20), ("mel_max_frequency", 7600), ("dither", 1e-5),
        ("audio_downsample_rate", 2), ("audio_feat_stride", 2),
    ],
)  # fmt: skip
def test_a_flat_key_with_an_effect_of_its_own_is_no_key_to_pass_over(key: str, value: Any, tmp_path: Path) -> None:
    ((path, what),) = flat_problems(tmp_path, {**SPEECH, key: value})
    assert path == key
    assert f"{key} is {value!r}" in what


def test_flat_keys_whose_values_change_nothing(tmp_path: Path) -> None:
    plain = {"win_length": 400, "mel_min_frequency": 0.0, "mel_max_frequency": 8000, "dither": 0.0, "preemphasis": 0.0}
    assert flat_problems(tmp_path, {**SPEECH, **plain}) == []


JUNK: list[Any] = [None, True, False, [], [None], {}, {"a": None}, "", "x", -1, 0, 1.5, 1e300, 1 << 70]
FILES: dict[str, dict[str, Any]] = {
    "flat": {"feature_size": 80, "n_fft": 400, "hop_length": 160, "sampling_rate": 16000, "dither": 0.0},
    "of a class": {"feature_extractor_type": next(iter(EXTRACTORS)), "n_fft": 512, "padding_side": "right"},
    "framed": EXTRACTOR,
    "operations": natural_sounds(),
}


def slots(node: Any) -> Iterator[tuple[Any, Any]]:
    """(object or list, key or place) of every value."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield node, key
        yield from slots(value)


@pytest.mark.parametrize("name", FILES)
def test_any_value_anywhere_is_followed_or_refused_in_the_files_own_notation(name: str, tmp_path: Path) -> None:
    whole = json.loads(json.dumps(FILES[name]))
    refused, odd = 0, list[str]()
    for holder, key in list(slots(whole)):
        kept = holder[key]
        for junk in JUNK:
            holder[key] = junk
            (tmp_path / "hears.json").write_text(json.dumps(whole))
            try:
                read_audio_processor(tmp_path, "hears.json")
            except CompileError as failure:
                refused, odd = refused + 1, odd + smells(failure.problems, empty=False)
        holder[key] = kept
    assert odd == []
    assert refused > 10
