"""Audio outputs as files (standard, section 11): what the document says of one, and the bytes that it becomes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from genai_runtime.adapters.audio.resample import resample
from genai_runtime.adapters.audio.wav import (
    HEADER,
    IEEE_FLOAT,
    OPEN_ENDED,
    Samples,
    float_wav_header,
    parse_wav,
    pcm16,
    wav_header,
)
from genai_runtime.file_forms import RAW, WAV, hold_ending
from genai_runtime.problem import ExecutionError, RequestError
from genai_runtime.values import Array

WAV_TYPE = "audio/wav"


@dataclass(frozen=True)
class Media:
    """An audio output's `media`, and its stage. Rates in Hz; source_rate: of the workflow's samples."""

    output: str
    stage: str
    container: str
    encoding: str
    sample_rate: int
    source_rate: int
    channels: int
    delivery: str

    @property
    def content_type(self) -> str:
        """The MIME type of the bytes; raw samples have none of their own."""
        return WAV_TYPE if self.container == "wav" else "application/octet-stream"


@dataclass(frozen=True)
class Audio:
    """A sound as bytes, with what a reader of raw samples must know. `content` of a WAV output is a whole file."""

    content: bytes
    content_type: str
    encoding: str
    sample_rate: int
    channels: int

    def save(self, file: str | Path) -> Path:
        """Write the bytes; returns the path. Raises RequestError `file-ending`, OSError where that is not possible."""
        hold_ending(file, WAV if self.content_type == WAV_TYPE else RAW)
        target = Path(file)
        target.write_bytes(self.content)
        return target


def media_of(outputs: list[Mapping[str, Any]]) -> dict[str, Media]:
    """Output -> its media, from the outputs of a manifest."""
    return {
        each["name"]: Media(
            output=each["name"],
            stage=each["stage"],
            container=stated["container"],
            encoding=stated["encoding"],
            sample_rate=stated["sample_rate_hz"],
            source_rate=stated.get("source_sample_rate_hz") or stated["sample_rate_hz"],
            channels=stated["channels"],
            delivery=stated["delivery"],
        )
        for each in outputs
        if (stated := each["media"])
    }


def encode(media: Media, value: Array) -> Audio:
    """The sound of a whole output of one row.

    pre_adapter: float [1, channels, samples] ([channels, samples], and [samples] of one channel, mean the same), is
    resampled, made integers where the encoding says so, and gets the container's header. post_adapter: uint8, a
    finished file whose header must agree with the media. Raises ExecutionError `audio-rows` (several rows),
    `audio-shape`, `audio-header`.
    """
    if media.stage == "post_adapter":
        content = value.tobytes()
        _hold_header(media, content)
    else:
        samples = resample(_channels(media, value), media.source_rate, media.sample_rate, "hann")
        frames = _frames(media, samples)
        content = _header(media, len(frames)) + frames
    return Audio(content, media.content_type, media.encoding, media.sample_rate, media.channels)


def encode_part(media: Media, value: Array, first: bool) -> bytes:
    """The bytes of one published part of a sound that is still being made.

    The header of a WAV file comes with the first part and says that its size is not known. Raises ExecutionError
    `audio-resampling` where the rate must change: that takes samples of the parts before and after.
    """
    if media.stage == "post_adapter":
        return value.tobytes()
    if media.source_rate != media.sample_rate:
        rates = f"{media.source_rate} to {media.sample_rate} Hz"
        what = f"output '{media.output}' changes from {rates}, which takes the whole sound"
        raise ExecutionError("audio-resampling", what, help="run it to its end and take result.audio()")
    frames = _frames(media, _channels(media, value))
    return (_header(media, None) if first else b"") + frames


def pick(media: Mapping[str, Media], name: str | None) -> Media:
    """The media of an output, or of the only one there is. Raises RequestError `no-audio`, `ambiguous-audio`."""
    name = next(iter(media)) if name is None and len(media) == 1 else name
    if name is None and media:
        raise RequestError("ambiguous-audio", f"several outputs are sounds: {', '.join(media)}", help="name one")
    if name is None or name not in media:
        what = f"output '{name}' has no media" if name else "no output of the package has media"
        raise RequestError("no-audio", what, help=f"sounds: {', '.join(media) or 'none'}")
    return media[name]


def _channels(media: Media, value: Array) -> Samples:
    """The samples as [channels, samples]."""
    array = value[0] if value.ndim == 3 and value.shape[0] == 1 else value
    array = array[None] if array.ndim == 1 else array
    if value.ndim == 3 and value.shape[0] != 1:
        what = f"output '{media.output}' holds {value.shape[0]} sounds, and a file holds one"
        raise ExecutionError("audio-rows", what, help="take them one by one: audio(name, row=0)")
    if array.ndim != 2 or array.shape[0] != media.channels or array.dtype.kind != "f":
        form = f"{value.dtype} {list(value.shape)}"
        what = f"output '{media.output}', {form}, is no sound of {media.channels} channels of floats"
        raise ExecutionError("audio-shape", what)
    with np.errstate(over="ignore"):  # infinite then, and clipped where integers are made
        return array.astype(np.float32)


def _frames(media: Media, samples: Samples) -> bytes:
    """[channels, samples] -> the channels of each moment side by side."""
    made = pcm16(samples) if media.encoding == "pcm_s16_le" else samples.astype("<f4")
    return np.ascontiguousarray(made.T).tobytes()


def _header(media: Media, size: int | None) -> bytes:
    """size: bytes of sound, None: unknown."""
    if media.container == "raw":
        return b""
    sixteen = media.encoding == "pcm_s16_le"
    if size is None:
        made = wav_header(media.channels, media.sample_rate, 0) if sixteen else b""
        made = made or float_wav_header(media.channels, media.sample_rate, 0)
        unknown = OPEN_ENDED.to_bytes(4, "little")
        return made[:4] + unknown + made[8:-4] + unknown
    if size > OPEN_ENDED - 64:
        raise ExecutionError("audio-too-long", f"{size} bytes of sound are more than a WAV file holds")
    if sixteen:
        return wav_header(media.channels, media.sample_rate, size)
    return float_wav_header(media.channels, media.sample_rate, size // (4 * media.channels))


def _hold_header(media: Media, content: bytes) -> None:
    """A finished WAV file begins with the canonical header of what the media says (standard, section 11)."""
    if media.container == "raw":
        return
    if media.encoding == "pcm_s16_le":
        wanted = wav_header(media.channels, media.sample_rate, max(0, len(content) - HEADER) % (OPEN_ENDED - 64))
        if content[:HEADER] == wanted:
            return
    else:
        form, _ = parse_wav(content)
        if (form.tag, form.bits, form.channels, form.rate) == (IEEE_FLOAT, 32, media.channels, media.sample_rate):
            return
    what = f"output '{media.output}' is no WAV file of {media.channels} channels at {media.sample_rate} Hz, "
    raise ExecutionError("audio-header", what + f"{media.encoding}: its header says otherwise")
