"""A file's name does not promise another form than its bytes have, whoever writes it."""

from pathlib import Path

import numpy as np
import pytest
from genai_runtime import RequestError, save_png
from genai_runtime.media import Audio

PIXELS = np.zeros((2, 3, 3), np.uint8)


@pytest.mark.parametrize("name", ["a.mp3", "a.PNG", "a.flac"])
def test_a_wav_file_is_named_so(name: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"name it a\.wav") as refused:
        Audio(b"RIFF", "audio/wav", "pcm_s16le", 8000, 1).save(tmp_path / name)
    assert refused.value.code == "file-ending"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a.jpg", "a.wav"])
def test_a_picture_is_named_png(name: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"name it a\.png"):
        save_png(tmp_path / name, PIXELS)
    assert list(tmp_path.iterdir()) == []


def test_raw_samples_are_no_wav_file(tmp_path: Path) -> None:
    raw = Audio(b"\0\0", "application/octet-stream", "pcm_s16le", 8000, 1)
    with pytest.raises(RequestError, match="raw samples without a header"):
        raw.save(tmp_path / "a.wav")
    assert raw.save(tmp_path / "a.pcm").read_bytes() == b"\0\0"


@pytest.mark.parametrize("name", ["a.WAV", "a", "a.wav.part", "v1.2"])
def test_a_name_that_promises_nothing_else_is_taken(name: str, tmp_path: Path) -> None:
    sound = Audio(b"RIFF", "audio/wav", "pcm_s16le", 8000, 1)
    assert sound.save(tmp_path / name).read_bytes() == b"RIFF"
