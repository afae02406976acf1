"""Tags around a sound: titles and covers that players write before and behind it, and that are no part of it.

ID3v2 (id3.org, 2.3 and 2.4: a head of ten bytes with its size in sevens of bits, a foot where a flag says so), ID3v1
(128 bytes at the end, 227 more before them where they are the extended one), APE (version 2: 32 bytes of head or foot
with the size of all but the head). A tag that says more bytes than there are is none. A RIFF file says itself where its
sound ends, so what looks like a tag at its end may be sound.
"""

_ID3, _ID3_FOOT, _APE, _V1, _V1_MORE = b"ID3", b"3DI", b"APETAGEX", b"TAG", b"TAG+"
MOST_TAGS = 16
"""Tags on either side of a sound."""


def untagged(content: bytes) -> bytes:
    """The file without the tags before and behind its sound; the file itself where it has none."""
    start, end = 0, len(content)
    for _ in range(MOST_TAGS):
        size = _before(content[start : start + 32])
        if not size or start + size > end:
            break
        start += size
    for _ in range(MOST_TAGS if content[start : start + 4] != b"RIFF" else 0):
        size = _behind(content, start, end)
        if not size or end - size < start:
            break
        end -= size
    return content if (start, end) == (0, len(content)) else content[start:end]


def _before(head: bytes) -> int:
    """Bytes of the tag that begins here, 0 for none."""
    if head[:3] == _ID3 and len(head) >= 10 and 0xFF not in head[3:5]:
        return 0 if (size := _sevens(head[6:10])) is None else 10 + size + (10 if head[5] & 0x10 else 0)
    if head[:8] == _APE and len(head) == 32 and head[23] & 0x20:  # a head: its size has the foot, and not itself
        return 32 + int.from_bytes(head[12:16], "little")
    return 0


def _behind(content: bytes, start: int, end: int) -> int:
    """Bytes of the tag that ends here, 0 for none."""
    if content[max(end - 128, start) : end][:3] == _V1 and end - start >= 128:
        extended = end - start >= 355 and content[end - 355 : end - 351] == _V1_MORE
        return 355 if extended else 128
    foot = content[max(end - 32, start) : end]
    if foot[:8] == _APE and len(foot) == 32 and not foot[23] & 0x20:
        return int.from_bytes(foot[12:16], "little") + (32 if foot[23] & 0x80 else 0)
    if foot[-10:-7] == _ID3_FOOT and (size := _sevens(foot[-4:])) is not None:
        return 20 + size
    return 0


def _sevens(digits: bytes) -> int | None:
    """A number in four bytes of seven bits each, None where a byte has eight."""
    if len(digits) != 4 or any(each & 0x80 for each in digits):
        return None
    return sum(each << shift for each, shift in zip(digits, (21, 14, 7, 0), strict=True))
