"""ONNX Runtime adapter files that no writer makes: flatbuffers put together by hand."""

import struct
from pathlib import Path

import pytest
from genai_runtime.lora.fault import AdapterFault
from genai_runtime.lora.onnx_adapter import read_onnx_adapter


def test_names_that_share_their_bytes_do_not_fill_the_memory(tmp_path: Path) -> None:
    """600 names of 64 KB in a file of 80 KB: each begins where the length of the next one stands, and is that length.

    By hand, as flatbuffers lie: the root's table and its fields, those of a parameter, the parameters, the names.
    """
    count, length = 600, 0x00010101
    tables, names = 44 + 4 * count, 44 + 12 * count
    content = bytearray(names) + struct.pack("<I", length) * (length // 4 + 1) + b"a" * (4 * count + 8)
    struct.pack_into("<I4sHHHHHH", content, 0, 20, b"TORT", 12, 12, 4, 0, 0, 8)
    struct.pack_into("<iiI", content, 20, 12, 1, 12)
    struct.pack_into("<HHH", content, 32, 6, 8, 4)
    struct.pack_into("<I", content, 40, count)
    for at in range(count):
        table = tables + 8 * at
        struct.pack_into("<I", content, 44 + 4 * at, table - 44 - 4 * at)
        struct.pack_into("<iI", content, table, table - 32, names + 4 * at - table - 4)
    file = tmp_path / "w.onnx_adapter"
    file.write_bytes(content)
    with pytest.raises(AdapterFault, match="overlap"):
        read_onnx_adapter(file, set())
