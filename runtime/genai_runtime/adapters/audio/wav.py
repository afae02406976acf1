"""WAV files: bytes -> samples, samples -> bytes, and the one header that the standard's media outputs have.

Files come from strangers. Nothing is believed: sizes are held against the bytes that are there, chunks are walked
within them, and no more is made of a file than MAX_SAMPLES samples.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from genai_runtime.problem import ExecutionError

MAX_SAMPLES = 64 << 20
"""Samples of a file, all channels together: also the standard's bound for a preprocessed tensor."""

PCM, IEEE_FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
OPEN_ENDED = 0xFFFFFFFF
"""The size that writers to a pipe put where they can't know it: up to the end."""
HEADER = 44
_SUBFORMAT = b"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"
"""What follows the format tag in the subformat of an extensible header."""

Samples = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Form:
    """What a `fmt ` chunk says. tag: PCM or IEEE_FLOAT. bits: of one sample. block: bytes of one frame."""

    tag: int
    channels: int
    rate: int
    block: int
    bits: int


def read_wav(content: bytes) -> tuple[Samples, int]:
    """float32 [frames, channels] and the rate in Hz of a WAV file.

    Integers become numbers in [-1, 1): 16 bits are divided by 32768, others by their own half range; 8 bits are
    unsigned. Float files are taken as they are. Raises ExecutionError `bad-audio`, saying what is wrong with the file.
    """
    form, data = parse_wav(content)
    decode = _DECODERS.get((form.tag, form.bits))
    if decode is None:
        kind = {PCM: "integer PCM", IEEE_FLOAT: "float"}.get(form.tag, f"format {form.tag:#x}")
        raise unreadable(f"its samples are {kind} of {form.bits} bits", "integers of 8, 16, 24, 32 or floats of 32, 64")
    width = form.channels * form.bits // 8
    if form.block != width:
        raise unreadable(f"it says {form.block} bytes a frame, and {form.channels} channels take {width}")
    if len(data) // (form.bits // 8) > MAX_SAMPLES:
        raise unreadable(f"it has more than {MAX_SAMPLES} samples", "cut it into parts")
    if len(data) % width:
        raise unreadable(f"its {len(data)} bytes of sound are no whole number of frames of {width} bytes")
    samples = decode(data).reshape(-1, form.channels)
    if form.tag == IEEE_FLOAT and not np.isfinite(samples).all():
        raise unreadable("a sample is no finite number")
    return samples, form.rate


def parse_wav(content: bytes) -> tuple[Form, memoryview]:
    """The form of a WAV file and its bytes of sound. Raises ExecutionError `bad-audio`."""
    if len(content) < 12 or content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise unreadable("it does not begin as a WAV file does (RIFF .... WAVE)", "convert it to WAV")
    view, at, form = memoryview(content), 12, None
    while len(view) - at >= 8:
        name, size = bytes(view[at : at + 4]), struct.unpack_from("<I", view, at + 4)[0]
        rest = len(view) - at - 8
        size = rest if name == b"data" and size == OPEN_ENDED else size
        if size > rest:
            raise unreadable(f"its chunk {name!r} says {size} bytes and {rest} are left", "it may be cut short")
        body = view[at + 8 : at + 8 + size]
        if name == b"fmt ":
            form = _form(body)
        elif name == b"data":
            if form is None:
                raise unreadable("its sound comes before its format")
            return form, body
        at += 8 + size + size % 2
    raise unreadable("it has no sound" if form else "it has no format")


def _form(body: memoryview) -> Form:
    if len(body) < 16:
        raise unreadable(f"its format takes {len(body)} bytes, at least 16 are needed")
    tag, channels, rate, _, block, bits = struct.unpack_from("<HHIIHH", body)
    if tag == EXTENSIBLE:
        if len(body) < 40 or bytes(body[26:40]) != _SUBFORMAT:
            raise unreadable("its extensible format is none that is known")
        tag = struct.unpack_from("<H", body, 24)[0]
    if not channels or not rate or not bits or bits % 8:
        raise unreadable(f"it says {channels} channels, {rate} Hz, {bits} bits a sample")
    return Form(tag, channels, rate, block, bits)


def _integers(dtype: str, half: float) -> Callable[[memoryview], Samples]:
    return lambda data: (np.frombuffer(data, dtype).astype(np.float64) / half).astype(np.float32)


def _unsigned_bytes(data: memoryview) -> Samples:
    return (np.frombuffer(data, np.uint8).astype(np.float32) - np.float32(128)) / np.float32(128)


def _three_bytes(data: memoryview) -> Samples:
    """24 bits: put into the upper three bytes of 32, which carries the sign along."""
    wide = np.zeros((len(data) // 3, 4), np.uint8)
    wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
    return (wide.view("<i4").reshape(-1) / float(1 << 31)).astype(np.float32)


def _floats(dtype: str) -> Callable[[memoryview], Samples]:
    def decode(data: memoryview) -> Samples:
        with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite, and is refused as that
            return np.frombuffer(data, dtype).astype(np.float32)

    return decode


_DECODERS: dict[tuple[int, int], Callable[[memoryview], Samples]] = {
    (PCM, 8): _unsigned_bytes,
    (PCM, 16): _integers("<i2", 32768.0),
    (PCM, 24): _three_bytes,
    (PCM, 32): _integers("<i4", float(1 << 31)),
    (IEEE_FLOAT, 32): _floats("<f4"),
    (IEEE_FLOAT, 64): _floats("<f8"),
}


def unreadable(what: str, help: str = "") -> ExecutionError:
    """The refusal of a file, `bad-audio`."""
    return ExecutionError("bad-audio", f"the audio file can't be read: {what}", help=help)


# ---- writing ---------------------------------------------------------------------------------------------------------


def pcm16(samples: Samples) -> npt.NDArray[np.int16]:
    """Samples as 16-bit integers (standard, section 11): clamped to [-1, 1]; -1 is -32768, any other x is x * 32767 in
    float32, rounded half away from zero; NaN is 0."""
    held = np.clip(np.where(np.isnan(samples), np.float32(0), samples), -1, 1).astype(np.float32)
    scaled = (held * np.float32(32767)).astype(np.float64)  # the half is added without another rounding
    rounded = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled)
    return np.where(held == -1, -32768, rounded).astype("<i2")


def wav_header(channels: int, rate: int, data_bytes: int) -> bytes:
    """The canonical 44 bytes before 16-bit integers. Raises ExecutionError `audio-header`."""
    block = _block(channels, rate, 2)
    riff = struct.pack("<4sI4s", b"RIFF", 36 + data_bytes, b"WAVE")
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, PCM, channels, rate, rate * block, block, 16)
    return riff + form + struct.pack("<4sI", b"data", data_bytes)


def float_wav_header(channels: int, rate: int, frames: int) -> bytes:
    """The 58 bytes before 32-bit floats: a format that is no PCM has an extension and a count of frames.

    Raises ExecutionError `audio-header`.
    """
    block = _block(channels, rate, 4)
    riff = struct.pack("<4sI4s", b"RIFF", 50 + frames * block, b"WAVE")
    form = struct.pack("<4sIHHIIHHH", b"fmt ", 18, IEEE_FLOAT, channels, rate, rate * block, block, 32, 0)
    return riff + form + struct.pack("<4sII4sI", b"fact", 4, frames, b"data", frames * block)


def _block(channels: int, rate: int, width: int) -> int:
    """Bytes of a frame. A header has 16 bits for them and 32 for those of a second, and a document may say more."""
    block = channels * width
    if block >= 1 << 16 or rate * block >= 1 << 32:
        what = f"no WAV header can say {channels} channels of {width} bytes at {rate} Hz"
        raise ExecutionError("audio-header", what, help="use fewer channels or a lower rate, or container: raw")
    return block
