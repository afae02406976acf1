"""Decode 8-bit PNG files with the standard library alone (PNG specification, sections 5, 7 and 9)."""

import struct
import zlib
from collections.abc import Iterator

import numpy as np

from tests.reference.values import Array, ReferenceError

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def decode_rgb(data: bytes) -> Array:
    """uint8 [height, width, 3]; alpha is dropped. Raises ReferenceError of kind adapter."""
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise ReferenceError("adapter", "the reference decodes PNG only")
    header, palette, packed = b"", b"", b""
    for kind, body in _chunks(data):
        header = body if kind == b"IHDR" else header
        palette = body if kind == b"PLTE" else palette
        packed += body if kind == b"IDAT" else b""
    width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", header)
    if depth != 8 or interlace:
        raise ReferenceError("adapter", "the reference decodes plain 8-bit PNG only")
    pixels = _unfilter(zlib.decompress(packed), height, width, CHANNELS[colour])
    if colour == 3:
        return np.frombuffer(palette, np.uint8).reshape(-1, 3)[pixels[..., 0]]
    return pixels[..., :3] if colour in (2, 6) else np.repeat(pixels[..., :1], 3, axis=2)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        yield kind, data[at + 8 : at + 8 + length]
        at += length + 12


def _unfilter(raw: bytes, height: int, width: int, channels: int) -> Array:
    stride = width * channels
    rows = np.zeros((height + 1, stride + channels), np.int64)
    for row in range(height):
        start = row * (stride + 1)
        line = raw[start + 1 : start + 1 + stride]
        above, here = rows[row], rows[row + 1]
        for at, value in enumerate(line):
            left, up, corner = here[at], above[at + channels], above[at]
            here[at + channels] = (value + _predict(raw[start], int(left), int(up), int(corner))) % 256
    return rows[1:, channels:].reshape(height, width, channels).astype(np.uint8)


def _predict(kind: int, left: int, up: int, corner: int) -> int:
    if kind == 4:
        base = left + up - corner
        return min((left, up, corner), key=lambda value: abs(base - value))
    return (0, left, up, (left + up) // 2)[kind]
