"""WAV files: every form that is read, files that lie, and 16-bit integers as the standard rounds them."""

import io
import struct
import wave
from fractions import Fraction

import numpy as np
import pytest
from genai_runtime import ExecutionError
from genai_runtime.adapters.audio.wav import MAX_SAMPLES, float_wav_header, pcm16, read_wav, wav_header
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.audio.files import chunk, form, riff, wav, wav16

SUBFORMAT = bytes.fromhex("000000001000800000aa00389b71")


def extensible(tag: int, bits: int) -> bytes:
    body = struct.pack("<HHIIHHHHI", 0xFFFE, 1, 8000, 8000 * bits // 8, bits // 8, bits, 22, bits, 4)
    return chunk(b"fmt ", body + struct.pack("<H", tag) + SUBFORMAT)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (wav(bytes([0, 128, 255]), bits=8), [-1, 0, Fraction(127, 128)]),
        (wav16([-32768, 0, 1, 32767]), [-1, 0, Fraction(1, 32768), Fraction(32767, 32768)]),
        (wav(b"\x00\x00\x80\xff\xff\x7f\x01\x00\x00\xff\xff\xff", bits=24),
         [-1, Fraction((1 << 23) - 1, 1 << 23), Fraction(1, 1 << 23), Fraction(-1, 1 << 23)]),
        (wav(struct.pack("<ii", -(1 << 31), 1 << 30), bits=32), [-1, Fraction(1, 2)]),
        (wav(struct.pack("<ff", 0.25, -3.5), bits=32, tag=3), [Fraction(1, 4), Fraction(-7, 2)]),
        (wav(struct.pack("<dd", 0.25, -3.5), bits=64, tag=3), [Fraction(1, 4), Fraction(-7, 2)]),
        (riff(extensible(1, 16), chunk(b"data", struct.pack("<h", 16384))), [Fraction(1, 2)]),
        (riff(extensible(3, 32), chunk(b"data", struct.pack("<f", 0.5))), [Fraction(1, 2)]),
    ],
    ids=["8", "16", "24", "32", "float32", "float64", "extensible-16", "extensible-float"],
)  # fmt: skip
def test_a_form_of_samples(content: bytes, expected: list[Fraction]) -> None:
    samples, _ = read_wav(content)
    assert samples.dtype == np.float32
    assert samples[:, 0].tolist() == [float(np.float32(float(each))) for each in expected]


def test_a_file_of_the_standard_library() -> None:
    held = io.BytesIO()
    with wave.open(held, "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(44100)
        file.writeframes(struct.pack("<hhhh", 1, -2, 3, -4))
    samples, rate = read_wav(held.getvalue())
    assert rate == 44100
    assert (samples * 32768).tolist() == [[1, -2], [3, -4]]


def test_other_chunks_are_passed_over() -> None:
    content = riff(chunk(b"LIST", b"odd"), form(), chunk(b"cue ", b""), chunk(b"data", b"\0\x40"), b"trailing")
    assert read_wav(content)[0].tolist() == [[0.5]]


def test_a_file_written_to_a_pipe_goes_on_to_its_end() -> None:
    content = riff(form(), b"data" + b"\xff" * 4 + b"\0\x40\0\xc0")
    assert read_wav(content)[0].tolist() == [[0.5], [-0.5]]


@pytest.mark.parametrize(
    "content",
    [
        b"", b"RIFF", b"OggS" + b"\0" * 60, b"RIFX" + wav16([1])[4:], riff(), riff(form()), riff(chunk(b"data", b"")),
        riff(chunk(b"data", b"\0\0"), form()), riff(chunk(b"fmt ", b"\1\0\1\0"), chunk(b"data", b"\0\0")),
        wav16([1, 2, 3])[:-3], wav16([1])[:30],
        riff(form(), b"data\xfe\xff\xff\xff\0\0"), riff(b"LIST\xff\xff\xff\xff", form(), chunk(b"data", b"\0\0")),
        wav(b"\0\0", channels=0, block=2), wav(b"\0\0", rate=0), wav(b"\0\0", bits=0, block=2), wav(b"\0\0", bits=12),
        wav(b"\0\0", block=4), wav(b"\0\0", block=0), wav(b"\0\0\0", channels=1), wav(b"\0\0", channels=2),
        wav(b"\0\0", tag=2), wav(b"\0\0", tag=3), wav(b"\0\0", tag=0x55), wav(b"\0" * 8, bits=64),
        wav(struct.pack("<f", float("nan")), bits=32, tag=3), wav(struct.pack("<d", 1e300), bits=64, tag=3),
        wav(b"\0\0", channels=65535, block=65535 * 2 % 65536),
        riff(chunk(b"fmt ", struct.pack("<HHIIHH", 0xFFFE, 1, 8000, 16000, 2, 16)), chunk(b"data", b"\0\0")),
        riff(chunk(b"fmt ", form(tag=0xFFFE)[8:] + b"\0" * 24), chunk(b"data", b"\0\0")),
    ],
)  # fmt: skip
def test_a_file_that_is_no_sound_is_refused(content: bytes) -> None:
    with pytest.raises(ExecutionError) as refused:
        read_wav(content)
    assert refused.value.code == "bad-audio"


@settings(deadline=None)
@given(st.binary(max_size=80), st.integers(0, 60))
def test_odd_bytes_are_refused_or_read(noise: bytes, place: int) -> None:
    content = bytearray(wav16(range(8)))
    content[place : place + len(noise)] = noise
    try:
        samples, rate = read_wav(bytes(content))
    except ExecutionError:
        return
    assert samples.size <= len(content)
    assert rate > 0


def test_a_file_with_more_samples_than_are_ever_made_is_refused() -> None:
    content = wav(bytes(MAX_SAMPLES + 1), bits=8)
    with pytest.raises(ExecutionError, match="more than 67108864 samples"):
        read_wav(content)


# ---- writing ---------------------------------------------------------------------------------------------------------


def rounded(x: np.float32) -> int:
    """Section 11 with exact fractions: the product rounded to float32, then half away from zero."""
    if np.isnan(x):
        return 0
    held = min(max(x, np.float32(-1)), np.float32(1))
    if held == -1:
        return -32768
    product = Fraction(float(np.float32(held) * np.float32(32767)))
    away = int(abs(product) + Fraction(1, 2))  # towards zero, of a number that is not negative
    return away if product >= 0 else -away


@settings(deadline=None)
@given(st.lists(st.floats(width=32), min_size=1))
def test_numbers_become_integers_as_the_standard_rounds(values: list[float]) -> None:
    samples = np.array(values, np.float32)
    assert pcm16(samples).tolist() == [rounded(each) for each in samples]


def test_halves_are_rounded_away_from_zero() -> None:
    halves = np.array([(n + 0.5) / 32767 for n in range(-32767, 32767)], np.float32)
    assert pcm16(halves).tolist() == [rounded(each) for each in halves]
    assert pcm16(np.array([np.nan, np.inf, -np.inf, -1, 1, -0.0], np.float32)).tolist() == [
        0, 32767, -32768, -32768, 32767, 0,
    ]  # fmt: skip


def test_headers_are_what_the_standard_library_reads() -> None:
    with wave.open(io.BytesIO(wav_header(2, 24000, 12) + bytes(12)), "rb") as file:
        assert (file.getnchannels(), file.getframerate(), file.getsampwidth(), file.getnframes()) == (2, 24000, 2, 3)
    assert len(wav_header(2, 24000, 12)) == 44
    content = float_wav_header(2, 24000, 1) + struct.pack("<ff", 0.5, -0.25)
    assert struct.unpack_from("<I", content, 4)[0] == len(content) - 8
    samples, rate = read_wav(content)
    assert (samples.tolist(), rate) == ([[0.5, -0.25]], 24000)
