"""Several files in one tensor."""

import struct

import pytest
from genai_runtime.adapters.image.files import MARK, join_files, split_files
from genai_runtime.problem import RequestError
from hypothesis import given
from hypothesis import strategies as st

from tests.images.pictures import encoded, picture


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=6))
def test_what_is_joined_comes_apart(files: list[bytes]) -> None:
    if not files[0].startswith(MARK):
        assert split_files(join_files(files)) == files


def test_one_file_is_its_bytes() -> None:
    data = encoded(picture(2, 3))
    assert join_files([data]) == data
    assert split_files(data) == [data]


def test_the_form_that_is_documented() -> None:
    assert join_files([b"ab", b"c"]).hex() == "8947454e41490d0a0200000002000000000000000100000000000000616263"


@pytest.mark.parametrize(
    "data",
    [
        MARK,
        MARK + b"\1\0",
        MARK + struct.pack("<I", 0),
        MARK + struct.pack("<IQ", 2, 1),
        MARK + struct.pack("<IQ", 1, 5) + b"four",
        MARK + struct.pack("<IQ", 1, 3) + b"four",
        MARK + struct.pack("<IQQ", 2, 2**64 - 1, 5) + b"four",
    ],
)
def test_damaged_lists_are_refused(data: bytes) -> None:
    with pytest.raises(RequestError) as refused:
        split_files(data)
    assert refused.value.code == "bad-image"


def test_too_many_files_are_refused() -> None:
    with pytest.raises(RequestError) as refused:
        split_files(MARK + struct.pack("<I", 1025) + bytes(8 * 1025))
    assert refused.value.code == "image-limit"
