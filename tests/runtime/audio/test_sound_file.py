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


def id3(size: int = 300, foot: bool = False, head: bytes = b"ID3\x03\0") -> bytes:
    """A title and padding, of so many bytes behind the head."""
    body = (b"TIT2" + struct.pack(">IH", 6, 0) + b"\0Title").ljust(size, b"\0")[:size]
    sevens = bytes((size >> shift) & 0x7F for shift in (21, 14, 7, 0))
    ends = b"3DI\x04\0\x10" + sevens if foot else b""
    return head + (b"\x10" if foot else b"\0") + sevens + body + ends


def ape(head: bool, foot: bool = True) -> bytes:
    """One item, with a head or a foot or both; the size is of all but the head."""
    item = struct.pack("<II", 5, 0) + b"Title\0" + b"a cat"

    def end(flags: int) -> bytes:
        size = len(item) + 32 * foot
        return b"APETAGEX" + struct.pack("<IIII", 2000, size, 1, flags) + bytes(8)

    has = (1 << 31) * head
    return (end(has | 1 << 29) if head else b"") + item + (end(has) if foot else b"")


ID3V1 = (b"TAG" + b"Title").ljust(128, b"\0")
EXTENDED = b"TAG+".ljust(227, b"\0") + ID3V1
BEFORE = {
    "none": b"", "id3": id3(), "a foot": id3(foot=True, head=b"ID3\x04\0"), "two": id3() + id3(700), "empty": id3(0),
    "ape": ape(head=True), "both": id3() + ape(head=True),
}  # fmt: skip
BEHIND = {
    "none": b"", "id3v1": ID3V1, "extended": EXTENDED, "ape": ape(head=True), "a foot alone": ape(head=False),
    "both": ape(head=True) + ID3V1, "id3 at the end": id3(foot=True, head=b"ID3\x04\0"),
}  # fmt: skip


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("before", BEFORE)
def test_tags_around_a_sound_are_passed_over(before: str, behind: str) -> None:
    """As those of any player's file: the samples are those of the file without them."""
    made = noise(900, 16, 2)
    wanted = (np.array(made).T / 32768).astype(np.float32)
    assert np.array_equal(read_sound(BEFORE[before] + flac(made) + BEHIND[behind])[0], wanted)
    assert extent_of(BEFORE[before] + flac(made) + BEHIND[behind]) == (900, RATE)
    for plain in (KNOWN, UNKNOWN):
        tagged = BEFORE[before] + plain + BEHIND[behind]
        assert np.array_equal(read_sound(tagged)[0], read_sound(plain)[0])
        assert extent_of(tagged) == extent_of(plain)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("like", [ID3V1, EXTENDED])
def test_sound_of_a_wav_file_that_ends_as_a_tag_does_is_sound(like: bytes, before: str) -> None:
    """Its header says where the sound ends; a tag behind that is passed over without being looked for."""
    data = bytes(500 + len(like) % 2) + like
    samples, _ = read_sound(BEFORE[before] + wav(data))
    assert np.array_equal(samples[:, 0], np.frombuffer(data, "<i2").astype(np.float32) / 32768)


def test_a_tag_that_says_more_than_there_is_is_no_tag() -> None:
    assert "the tag before its sound says more bytes than the file has" in refused(id3(1 << 20)[:400] + KNOWN).what
    assert "the tag before its sound" in refused(b"ID3\x03\0\0\xff\xff\xff\xff" + KNOWN).what
    for lying in (b"APETAGEX" + struct.pack("<IIII", 2000, size, 1, 0) + bytes(8) for size in (0, 1 << 31, 1 << 20)):
        try:
            assert len(read_sound(KNOWN + lying)[0]) >= 8000
        except ExecutionError as fault:
            assert fault.code == "bad-audio"  # noqa: PT017


def test_tags_alone_are_no_sound() -> None:
    for alone in (id3(), ape(head=True), id3() + ID3V1, id3() * 40 + KNOWN):
        assert refused(alone).code == "bad-audio"


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
