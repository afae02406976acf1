"""Several files as one run of bytes: the input `encoded` is one uint8 tensor of rank 1 (standard, 5.5).

One file is just its bytes. Several are a header and then the files, one after the other:

    89 47 45 4E 41 49 0D 0A   the mark, which no format of pictures or sounds begins with
    uint32                    how many files, little-endian
    uint64 a file             how many bytes it has, little-endian

Files put together without a header can't be told apart: many cameras append a second picture to a file.
"""

import struct
from collections.abc import Sequence

from genai_runtime.problem import RequestError

MARK = b"\x89GENAI\r\n"
_COUNT = struct.Struct("<I")


def join_files(files: Sequence[bytes]) -> bytes:
    """The bytes that stand for these files."""
    if len(files) == 1:
        return files[0]
    sizes = struct.pack(f"<{len(files)}Q", *map(len, files))
    return b"".join((MARK, _COUNT.pack(len(files)), sizes, *files))


def split_files(data: bytes) -> list[bytes]:
    """The files that some bytes stand for, at least one. Raises RequestError `bad-files`."""
    if not data.startswith(MARK):
        return [data]
    at = len(MARK) + _COUNT.size
    count = _COUNT.unpack_from(data, len(MARK))[0] if len(data) >= at else 0
    if not count or len(data) < at + 8 * count:
        raise RequestError("bad-files", "no file was given, or the list of files is cut short")
    sizes, at = struct.unpack_from(f"<{count}Q", data, at), at + 8 * count
    if at + sum(sizes) != len(data):
        raise RequestError("bad-files", f"the list of files tells of {sum(sizes)} bytes, there are {len(data) - at}")
    files: list[bytes] = []
    for size in sizes:
        files.append(data[at : at + size])
        at += size
    return files
