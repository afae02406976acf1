"""WAV files for tests, written with struct from the format's description alone."""

import struct

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]


def chunk(name: bytes, body: bytes) -> bytes:
    return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def riff(*chunks: bytes) -> bytes:
    body = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def form(channels: int = 1, rate: int = 16000, bits: int = 16, tag: int = 1, block: int | None = None) -> bytes:
    width = channels * bits // 8 if block is None else block
    return chunk(b"fmt ", struct.pack("<HHIIHH", tag, channels, rate, rate * width, width, bits))


def wav(data: bytes, **facts: int) -> bytes:
    return riff(form(**facts), chunk(b"data", data))


def wav16(values: object, rate: int = 16000, channels: int = 1) -> bytes:
    """A file of 16-bit integers."""
    return wav(np.asarray(values, "<i2").tobytes(), rate=rate, channels=channels)


def tone(count: int, rate: int = 16000, hertz: float = 440.0) -> npt.NDArray[np.int16]:
    """A tone with two overtones, a chirp of noise-like steps and silence at the end, as 16-bit integers."""
    at = np.arange(count) / rate
    sound = 0.5 * np.sin(2 * np.pi * hertz * at) + 0.2 * np.sin(2 * np.pi * 5.1 * hertz * at)
    sound += 0.1 * (((np.arange(count) * 7919) % 1009) / 1009 - 0.5)
    sound[count * 9 // 10 :] = 0
    return np.round(sound * 20000).astype(np.int16)
