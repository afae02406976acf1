"""Several files in one tensor, pictures or sounds."""

import struct

import numpy as np
import pytest
from genai_runtime.adapters.audio import audio_preprocess
from genai_runtime.adapters.audio.program import AudioProgram
from genai_runtime.adapters.files import MARK, join_files, split_files
from genai_runtime.adapters.image.preprocess import image_preprocess
from genai_runtime.adapters.image.program import ImageOutput, ImageProgram
from genai_runtime.adapters.registry import AdapterCall
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
    assert refused.value.code == "bad-files"


@pytest.mark.parametrize(
    "call",
    [
        audio_preprocess({}, AudioProgram((), 4, 0, (("y", "waveform"),))),
        image_preprocess({}, ImageProgram((ImageOutput("y", "pixels", "uint8"),))),
    ],
    ids=["sounds", "pictures"],
)
def test_a_damaged_list_says_nothing_of_what_its_files_would_be(call: AdapterCall) -> None:
    with pytest.raises(RequestError) as refused:
        call({"encoded": np.frombuffer(MARK, np.uint8)})
    assert refused.value.code == "bad-files"
    assert "picture" not in refused.value.what


def test_too_many_pictures_are_refused() -> None:
    call = image_preprocess({}, ImageProgram((ImageOutput("y", "pixels", "uint8"),)))
    with pytest.raises(RequestError) as refused:
        call({"encoded": np.frombuffer(join_files([b""] * 1025), np.uint8)})
    assert refused.value.code == "image-limit"
