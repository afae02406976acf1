"""Audio outputs as bytes: section 11 of the standard, by arithmetic and by readers that are not ours."""

import io
import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from genai_runtime import ExecutionError, RequestError
from genai_runtime.adapters.audio.wav import pcm16, read_wav
from genai_runtime.media import Media, encode, encode_part, media_of
from genai_runtime.result import Result

from tests.reference.sounds import resampled

SOUND = np.array([[[0.5, -0.25, 1.0], [0.0, -1.0, 0.125]]], np.float32)
FACTS = {"container": "wav", "encoding": "pcm_s16_le", "sample_rate_hz": 8000, "channels": 2, "delivery": "buffered"}


def media(stage: str = "pre_adapter", **facts: Any) -> Media:
    return media_of([{"name": "sound", "stage": stage, "media": {**FACTS, **facts}}, {"name": "x", "media": {}}])[
        "sound"
    ]


def result(value: Any = None, **parts: Any) -> Result:
    aggregate = {} if value is None else {"sound": value}
    return Result(
        aggregate,
        parts.get("rows", {}),
        parts.get("events", {}),
        parts.get("row_events", {}),
        0,
        {},
        media={"sound": media()},
    )


def test_samples_become_a_wav_file_that_the_standard_library_reads(tmp_path: Path) -> None:
    audio = result(SOUND).audio()
    assert (audio.content_type, audio.sample_rate, audio.channels) == ("audio/wav", 8000, 2)
    with wave.open(str(audio.save(tmp_path / "a.wav")), "rb") as file:
        assert (file.getnchannels(), file.getframerate(), file.getsampwidth()) == (2, 8000, 2)
        assert file.readframes(9) == struct.pack("<6h", 16384, 0, -8192, -32768, 32767, 4096)


def test_the_rate_changes_before_the_samples_become_integers() -> None:
    samples = np.sin(np.arange(100) / 3).astype(np.float32)
    audio = encode(media(channels=1, source_sample_rate_hz=12000), samples[None, None])
    expected = pcm16(np.array(resampled(samples, 12000, 8000, "hann"), np.float32))
    assert np.abs(np.frombuffer(audio.content[44:], "<i2").astype(int) - expected).max() <= 1
    assert len(audio.content) == 44 + 2 * ((100 * 8000 + 6000) // 12000)


@pytest.mark.parametrize(
    ("encoding", "channels", "rate"),
    [("pcm_s16_le", 32768, 8000), ("pcm_s16_le", 32767, 65540), ("pcm_f32_le", 16384, 8000),
     ("pcm_f32_le", 1, 1 << 30)],
)  # fmt: skip
def test_what_no_header_has_room_for_is_refused(encoding: str, channels: int, rate: int) -> None:
    """16 bits for the bytes of a frame, 32 for those of a second: a document may state more of both (2.3)."""
    many = media(encoding=encoding, channels=channels, sample_rate_hz=rate)
    sound = np.zeros((1, channels, 2), np.float32)
    for make in (lambda: encode(many, sound), lambda: encode_part(many, sound, first=True)):
        with pytest.raises(ExecutionError) as refused:
            make()
        assert refused.value.code == "audio-header"
    assert len(encode(media(container="raw", encoding=encoding, channels=channels), sound).content) >= sound.size * 2


def test_a_finished_file_is_held_against_what_no_header_says_too() -> None:
    many = media("post_adapter", channels=65535)
    with pytest.raises(ExecutionError, match="audio-header"):
        encode(many, np.zeros(100, np.uint8))


@pytest.mark.parametrize("container", ["raw", "wav"])
def test_floats_stay_floats(container: str) -> None:
    audio = encode(media(container=container, encoding="pcm_f32_le"), SOUND)
    side_by_side = SOUND[0].T.astype("<f4").tobytes()
    assert audio.content.endswith(side_by_side)
    if container == "wav":
        samples, rate = read_wav(audio.content)
        assert (samples.tolist(), rate) == (SOUND[0].T.tolist(), 8000)
    else:
        assert audio.content == side_by_side
        assert audio.content_type == "application/octet-stream"


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 3), (3,)])
def test_one_channel_may_have_fewer_axes(shape: tuple[int, ...]) -> None:
    audio = encode(media(channels=1), np.array([0.5, 0, -1], np.float16).reshape(shape))
    assert struct.unpack("<3h", audio.content[44:]) == (16384, 0, -32768)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (np.zeros((2, 2, 3), np.float32), "audio-rows"),
        (np.zeros((1, 3, 3), np.float32), "audio-shape"),
        (np.zeros((1, 1, 2, 3), np.float32), "audio-shape"),
        (np.zeros((1, 2, 3), np.int16), "audio-shape"),
    ],
)
def test_what_is_no_one_sound_is_refused(value: Any, code: str) -> None:
    with pytest.raises(ExecutionError) as refused:
        encode(media(), value)
    assert refused.value.code == code


def finished(channels: int = 2, rate: int = 8000, width: int = 2) -> bytes:
    held = io.BytesIO()
    with wave.open(held, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(bytes(4 * channels * width))
    return held.getvalue()


def test_a_finished_file_is_handed_on() -> None:
    content = np.frombuffer(finished(), np.uint8)
    assert encode(media("post_adapter"), content).content == finished()
    floats = encode(media(encoding="pcm_f32_le"), SOUND).content
    assert encode(media("post_adapter", encoding="pcm_f32_le"), np.frombuffer(floats, np.uint8)).content == floats
    assert encode(media("post_adapter", container="raw"), content).content == finished()


@pytest.mark.parametrize(
    "content",
    [
        b"", b"RIFF", finished(channels=1), finished(rate=16000), finished(width=1), finished()[:-1],
        finished()[:28] + b"\0\0\0\0" + finished()[32:], finished()[:32] + b"\2\0" + finished()[34:],
        finished()[:4] + b"\0\0\0\0" + finished()[8:], finished() + b"\0",
    ],
)  # fmt: skip
def test_a_finished_file_whose_header_says_otherwise_is_refused(content: bytes) -> None:
    with pytest.raises(ExecutionError) as refused:
        encode(media("post_adapter"), np.frombuffer(content, np.uint8))
    assert refused.value.code == "audio-header"


def test_rows_are_taken_one_by_one() -> None:
    both = np.concatenate([SOUND, -SOUND])
    row_wise = result(rows={"sound": [SOUND, None]})
    for made in (result(both), result(rows={"sound": [SOUND, -SOUND]})):
        with pytest.raises(ExecutionError, match="audio-rows"):
            made.audio("sound")
        assert made.audio(row=1).content == result(-SOUND).audio().content
        with pytest.raises(RequestError, match="no-such-row"):
            made.audio(row=2)
    assert row_wise.audio(row=0).content == result(SOUND).audio().content
    with pytest.raises(RequestError, match="no-audio"):
        row_wise.audio(row=1)


def test_parts_that_were_published_as_events_are_put_together() -> None:
    parts = [SOUND[..., :1], SOUND[..., 1:]]
    assert result(parts[1], events={"sound": parts}).audio().content == result(SOUND).audio().content


def test_an_output_that_is_no_sound_is_named() -> None:
    with pytest.raises(RequestError, match="no-audio"):
        result(SOUND).audio("tokens")
    with pytest.raises(RequestError, match="no-audio"):
        Result({}, {}, {}, {}, 0, {}).audio()
    with pytest.raises(RequestError, match="ambiguous-audio"):
        Result({}, {}, {}, {}, 0, {}, media={"a": media(), "b": media()}).audio()


def test_parts_of_a_stream_begin_with_a_header_of_open_size() -> None:
    parts = [encode_part(media(delivery="streaming"), SOUND[..., at : at + 1], at == 0) for at in range(3)]
    assert [len(each) for each in parts] == [48, 4, 4]
    samples, rate = read_wav(b"".join(parts))
    whole, _ = read_wav(encode(media(), SOUND).content)
    assert np.array_equal(samples, whole)
    assert rate == 8000
    raw = [encode_part(media(container="raw"), SOUND[..., at : at + 1], at == 0) for at in range(3)]
    assert b"".join(raw) == encode(media(container="raw"), SOUND).content
    with pytest.raises(ExecutionError, match="audio-resampling"):
        encode_part(media(source_sample_rate_hz=16000), SOUND, True)
