"""FLAC and MP3 files: the samples they were made of, files that lie or are damaged, and a runtime without the decoder.

FLAC files are written here (flac.py), so what is in them is known. The MP3 files were made once, by LAME 3.100 through
FFmpeg's libmp3lame: `tone.mp3` of the half second of `TONE` (32 kbit/s, with a frame of facts before the sound, which
says how much of it is the encoder's), `tone-then-silence.mp3` of `TONE` and half a second of silence (frames of many
sizes, and nothing that says how many).
"""

import builtins
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_runtime import ExecutionError, LoadError
from genai_runtime.adapters.audio.sound_file import extent_of, read_sound
from genai_runtime.adapters.audio.wav import MAX_SAMPLES
from genai_runtime.cli import main

from tests.runtime.audio.files import wav, wav16
from tests.runtime.audio.flac import constant, flac, frame, head
from tests.traps.probe import run_probe

miniaudio = pytest.importorskip("miniaudio", reason="miniaudio is absent: no FLAC or MP3 file can be decoded")
HERE = Path(__file__).parent
RATE = 16000
TONE = 12000 / 32768 * np.sin(2 * np.pi * 500 * np.arange(RATE // 2) / RATE)
"""500 Hz. One sample off, and samples differ by 0.07."""
KNOWN, UNKNOWN = ((HERE / name).read_bytes() for name in ("tone.mp3", "tone-then-silence.mp3"))
LEAD = 1105
"""What LAME puts before the sound (576) and every decoder adds (529), kept where the file does not say it."""
SHORT = flac([range(-50, 50), range(100)])


def noise(count: int, bits: int, channels: int) -> list[list[int]]:
    half = 1 << (bits - 1)
    rng = np.random.default_rng(bits + channels)
    return [[-half, half - 1, *rng.integers(-half, half, count - 2).tolist()] for _ in range(channels)]


# ---- what is in a file -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [16, 24])
@pytest.mark.parametrize("channels", [1, 2, 5])
@pytest.mark.parametrize("count", [5, 9000])
def test_a_flac_file_has_the_samples_it_was_made_of(bits: int, channels: int, count: int) -> None:
    made = noise(count, bits, channels)
    samples, rate = read_sound(flac(made, 44100, bits))
    assert (rate, samples.dtype) == (44100, np.float32)
    assert np.array_equal(samples, (np.array(made).T / (1 << (bits - 1))).astype(np.float32))
    assert extent_of(flac(made, 44100, bits)) == (count, 44100)


def test_a_flac_file_is_equal_to_the_wav_file_of_the_same_numbers() -> None:
    ((made,), (deep,)) = noise(700, 16, 1), noise(700, 24, 1)
    assert np.array_equal(read_sound(flac([made]))[0], read_sound(wav16(made))[0])
    three = b"".join(struct.pack("<i", each)[:3] for each in deep)
    assert np.array_equal(read_sound(flac([deep], bits=24))[0], read_sound(wav(three, bits=24))[0])


def test_a_flac_file_written_to_a_pipe_does_not_say_how_long_it_is() -> None:
    made = noise(9000, 16, 2)
    samples, _ = read_sound(flac(made, said=0))
    assert np.array_equal(samples, (np.array(made).T / 32768).astype(np.float32))
    assert extent_of(flac(made, said=0)) == (9000, RATE)


def test_an_mp3_file_is_the_sound_without_what_its_encoder_put_around() -> None:
    samples, rate = read_sound(KNOWN)
    assert (samples.shape, rate) == ((8000, 1), RATE)
    np.testing.assert_allclose(samples[:, 0], TONE, atol=0.03)
    assert extent_of(KNOWN) == (8000, RATE)


def test_an_mp3_file_that_says_nothing_of_its_length_is_read_to_its_end() -> None:
    """30 frames of 576 samples, of many sizes. A length taken from the first one's size would be a fifth of that."""
    samples, rate = read_sound(UNKNOWN)
    assert (samples.shape, rate) == ((17280, 1), RATE)
    np.testing.assert_allclose(samples[LEAD : LEAD + 8000, 0], TONE, atol=0.06)
    assert np.abs(samples[LEAD + 8600 :]).max() < 0.01
    assert extent_of(UNKNOWN) == (17280, RATE)


def test_a_title_before_an_mp3_file_is_passed_over() -> None:
    title = b"TIT2" + struct.pack(">IH", 6, 0) + b"\0Title"
    tagged = b"ID3\x03\0\0" + bytes([0, 0, 0, len(title)]) + title + KNOWN
    assert np.array_equal(read_sound(tagged)[0], read_sound(KNOWN)[0])


def test_an_empty_flac_file_has_no_samples() -> None:
    assert read_sound(head(2, RATE, 16, 0))[0].shape == (0, 2)


# ---- files from strangers --------------------------------------------------------------------------------------------


def refused(content: bytes) -> ExecutionError:
    with pytest.raises(ExecutionError) as fault:
        read_sound(content)
    assert fault.value.code == "bad-audio"
    return fault.value


def test_a_flac_file_cut_anywhere_is_refused() -> None:
    for size in range(len(SHORT)):
        refused(SHORT[:size])


def test_a_flac_file_with_a_frame_that_is_damaged_is_refused() -> None:
    """Whichever byte: a sum over the frame does not hold, and its samples are missing."""
    for at in range(len(head(2, RATE, 16, 0)), len(SHORT)):
        refused(SHORT[:at] + bytes([SHORT[at] ^ 0x10]) + SHORT[at + 1 :])


def test_an_mp3_file_that_says_its_length_is_refused_when_cut() -> None:
    """Left are the frame of facts and twelve of 576 samples; the first LEAD of these are not the sound's."""
    assert f"says 8000 samples and {12 * 576 - LEAD} are there" in refused(KNOWN[: len(KNOWN) * 4 // 5]).what


def test_an_mp3_file_that_does_not_is_as_long_as_what_is_there() -> None:
    samples, _ = read_sound(UNKNOWN[: len(UNKNOWN) // 2])
    assert 0 < len(samples) < 17280
    assert len(samples) == extent_of(UNKNOWN[: len(UNKNOWN) // 2])[0]


@pytest.mark.parametrize("content", [b"", b"\xff", b"\xff\xf3", b"fLaC", b"ID3", b"OggS" + bytes(60), b"\xff\xf1" * 40])
def test_what_is_no_such_file_is_refused(content: bytes) -> None:
    refused(content)


def test_more_than_is_ever_made_is_refused_before_a_sample_is() -> None:
    for samples in (MAX_SAMPLES // 2 + 1, (1 << 36) - 1):
        assert "more than 67108864" in refused(head(2, RATE, 16, samples)).what


def test_no_more_is_made_than_a_file_may_have() -> None:
    """A few bytes a frame that stand for 65535 samples of eight channels, and a header that says nothing of them."""
    bomb = b"".join(frame(number, [constant(7)] * 8, 65535) for number in range(128)) * 2
    assert len(bomb) < 10_000
    assert "more than 67108864" in refused(head(8, RATE, 16, 0, 65535) + bomb).what


def test_decoding_ends_where_too_much_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder in the place of the true one: parts of 8 Mi samples, and a fault after the ninth."""
    part = np.zeros(MAX_SAMPLES // 8, np.float32)

    def parts(*_: object) -> Iterator[np.ndarray[Any, Any]]:
        yield from [part] * 9
        raise AssertionError("more was asked for")

    monkeypatch.setattr(miniaudio, "stream_memory", parts)
    assert "more than 67108864" in refused(flac([range(9)], said=0)).what


def test_decoding_ends_where_more_come_than_the_header_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def parts(*_: object) -> Iterator[np.ndarray[Any, Any]]:
        yield np.zeros(10, np.float32)
        raise AssertionError("more was asked for")

    assert "says 9 samples and more are there" in refused(flac([range(10)], said=9)).what
    monkeypatch.setattr(miniaudio, "stream_memory", parts)
    assert "says 9 samples and more are there" in refused(flac([range(10)], said=9)).what


# ---- without the decoder ---------------------------------------------------------------------------------------------


def test_without_the_decoder_its_absence_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    true_import = builtins.__import__

    def absent(name: str, *rest: Any, **more: Any) -> Any:
        if name == "miniaudio":
            raise ImportError(f"No module named {name!r}")
        return true_import(name, *rest, **more)

    monkeypatch.delitem(sys.modules, "miniaudio", raising=False)
    monkeypatch.setattr(builtins, "__import__", absent)
    for read in (read_sound, extent_of):
        for content in (SHORT, KNOWN):
            with pytest.raises(LoadError) as missing:
                read(content)
            assert missing.value.code == "miniaudio-missing"
            assert "genai-compile[sound]" in missing.value.help
    assert read_sound(wav16([1, 2, 3]))[0].shape == (3, 1)
    refused(b"no sound at all")


# ---- in a package ----------------------------------------------------------------------------------------------------

Compiled = Callable[[str], tuple[Path, Any]]
FIELDS = "tiny-fields-v2"
ASKED = "<|audio_1|>hi"
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_new_tokens": 6, "stop_on_eos": False}


def test_a_prompt_hears_a_flac_file_as_it_hears_the_wav_file(compiled: Compiled, tmp_path: Path) -> None:
    made = noise(4000, 16, 1)
    (tmp_path / "a.flac").write_bytes(flac(made))
    with genai_runtime.load(compiled(FIELDS)[0], threads=1) as model:
        told = [
            (model.count_tokens(ASKED, audio=[each]), model.generate(ASKED, audio=[each], **GREEDY).tokens)
            for each in (wav16(made[0]), flac(made), tmp_path / "a.flac", flac(made, said=0))
        ]
    assert told[1:] == told[:1] * 3


def test_a_prompt_has_as_many_entries_as_an_mp3_file_lasts(compiled: Compiled) -> None:
    """Frames of 400 every 160 samples, eight an entry: 8000 samples are 48 of them, 17280 are 106."""
    with genai_runtime.load(compiled(FIELDS)[0], threads=1) as model:
        silent = model.count_tokens(ASKED, audio=[wav16(np.zeros(400))])
        for content, entries in ((KNOWN, 6), (UNKNOWN, 14)):
            assert model.count_tokens(ASKED, audio=[content]) == silent - 1 + entries
            assert len(model.generate(ASKED, audio=[content], **GREEDY).tokens) == 6


def test_the_command_takes_a_packed_file_and_names_a_damaged_one(
    compiled: Compiled, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, file = str(compiled(FIELDS)[0]), tmp_path / "heard.mp3"
    file.write_bytes(KNOWN)
    command = [folder, "--prompt", ASKED, "-n", "4", "--temperature", "0", "--audio", str(file)]
    assert main(command) == 0
    file.write_bytes(KNOWN[:1000])
    capsys.readouterr()
    assert main(command) == 2
    assert "bad-audio" in capsys.readouterr().err


def test_the_decoder_is_imported_by_the_first_packed_file_only(compiled: Compiled) -> None:
    script = f"""
import sys
import genai_runtime
from tests.runtime.audio.files import wav16
from tests.runtime.audio.flac import flac

with genai_runtime.load({str(compiled(FIELDS)[0])!r}, threads=1) as model:
    for content in (wav16(range(900)), flac([range(900)])):
        model.generate({ASKED!r}, audio=[content], max_new_tokens=1, temperature=0.0).tokens
        print("miniaudio" in sys.modules)
"""
    assert run_probe(script).split() == ["False", "True"]
