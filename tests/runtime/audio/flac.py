"""FLAC files for tests, written from the format's description (RFC 9639) alone: no prediction, no entropy coding."""

import struct
from collections.abc import Sequence

BLOCK = 4096
"""Samples of a channel in a frame."""
VERBATIM, CONSTANT = 0b0000_0010, 0b0000_0000
"""First byte of a subframe: all samples as they are, or one that stands for all."""


def flac(channels: Sequence[Sequence[int]], rate: int = 16000, bits: int = 16, said: int | None = None) -> bytes:
    """A file of whole numbers by channel. said: how many samples its header says, None: the truth."""
    count = len(channels[0])
    frames = [
        frame(
            at // BLOCK, [verbatim(each[at : at + BLOCK], bits) for each in channels], len(channels[0][at : at + BLOCK])
        )
        for at in range(0, count, BLOCK)
    ]
    return head(len(channels), rate, bits, count if said is None else said) + b"".join(frames)


def head(channels: int, rate: int, bits: int, samples: int, block: int = BLOCK) -> bytes:
    """The marker and STREAMINFO, without a sum over the samples."""
    facts = rate << 44 | (channels - 1) << 41 | (bits - 1) << 36 | samples
    info = struct.pack(">HH", block, block) + bytes(6) + facts.to_bytes(8, "big") + bytes(16)
    return b"fLaC" + struct.pack(">I", 0x8000_0000 | len(info)) + info


def frame(number: int, subframes: Sequence[bytes], block: int) -> bytes:
    """A frame of a stream with frames of one size. Rate and bits are those of STREAMINFO; the size is in 16 bits."""
    assert number < 128
    start = bytes([0xFF, 0xF8, 0x70, (len(subframes) - 1) << 4, number]) + struct.pack(">H", block - 1)
    body = start + bytes([crc(start, 8, 0x07)]) + b"".join(subframes)
    return body + struct.pack(">H", crc(body, 16, 0x8005))


def verbatim(samples: Sequence[int], bits: int) -> bytes:
    return bytes([VERBATIM]) + b"".join(each.to_bytes(bits // 8, "big", signed=True) for each in samples)


def constant(sample: int, bits: int = 16) -> bytes:
    return bytes([CONSTANT]) + sample.to_bytes(bits // 8, "big", signed=True)


def crc(data: bytes, width: int, polynomial: int) -> int:
    rest, top = 0, 1 << (width - 1)
    for each in data:
        rest ^= each << (width - 8)
        for _ in range(8):
            rest = (rest << 1 ^ polynomial if rest & top else rest << 1) & ((1 << width) - 1)
    return rest
