"""Processor files against onnxruntime-extensions itself, where it is installed: an independent peer, tensor by tensor.

Its release 0.15.2 has neither smart sizes nor patches; what it has is held here.
"""

from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.images.processors import DECODE, RESCALE, made, picture, processor_file
from tests.images.test_tile_files import PORTS, SIZES, STD, TILES

pytest.importorskip("PIL.Image", reason="Pillow is absent: no picture can be decoded")
pytestmark = pytest.mark.skipif(
    util.find_spec("onnxruntime_extensions") is None,
    reason="onnxruntime-extensions is not installed: no peer to compare pictures with",
)
HALF = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}
VIEWS = ("pixel_values", "image_sizes", "image_attention_mask", "num_img_tokens")
PIPELINES: dict[str, tuple[list[dict[str, Any]], tuple[str, ...]]] = {
    "squares": (
        [{**DECODE, "attrs": {"color_space": "BGR"}}, {"type": "ConvertRGB"}, {"type": "Phi3ImageTransform"}],
        ("pixel_values", "image_sizes", "num_img_tokens"),
    ),
    "fields": (
        [
            DECODE,
            {"type": "Phi4VisionDynamicPreprocess"},
            {"type": "Rescale", "inputs": [":0"]},
            {"type": "Normalize", "attrs": HALF},
            {"type": "Phi4VisionProcessor", "inputs": [":0", "one:1"]},
        ],
        VIEWS,
    ),
    "stretch": (
        [
            DECODE,
            {"type": "Resize", "attrs": {"height": 96, "width": 80, "keep_aspect_ratio": 0}},
            RESCALE,
            {"type": "Normalize", "attrs": HALF},
            {"type": "Permute3D", "attrs": {"dims": [2, 0, 1]}},
        ],
        ("pixel_values",),
    ),
    "crop": (
        [DECODE, {"type": "CenterCrop", "attrs": {"height": 31, "width": 20}}, RESCALE, {"type": "Normalize"}],
        ("pixel_values",),
    ),
}


def of_peer(file: Path, data: bytes, count: int) -> list[Any]:
    """The first tensors that the peer makes of a picture by a file."""
    from onnxruntime_extensions.pp_api import ImageProcessor  # type: ignore[import-not-found, unused-ignore]

    (file.parent / "seen.png").write_bytes(data)
    result = ImageProcessor(str(file)).pre_process([str(file.parent / "seen.png")])
    return [ImageProcessor.to_numpy(result, at) for at in range(count)]


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("size", [(60, 100), (333, 250), (50, 50)])
def test_a_pipeline_makes_the_peers_tensors(tmp_path: Path, name: str, size: tuple[int, int]) -> None:
    operations, ports = PIPELINES[name]
    file, data = processor_file(tmp_path, *operations), picture(*size)[1]
    found = made(file, [data], *ports)
    for port, wanted in zip(ports, of_peer(file, data, len(ports)), strict=True):
        np.testing.assert_allclose(found[port], wanted, atol=1e-5 if port == "pixel_values" else 0)


@pytest.mark.parametrize("size", SIZES)
def test_tiles_are_the_peers(tmp_path: Path, size: tuple[int, int]) -> None:
    """Its own resampling rounds a few levels the other way: one level of the 256 is allowed."""
    file, data = processor_file(tmp_path, DECODE, TILES), picture(*size)[1]
    found, wanted = made(file, [data], *PORTS), of_peer(file, data, 4)
    level = np.array([1 / 255 / each for each in STD]).reshape(3, 1, 1)
    assert (np.abs(found["pixel_values"] - wanted[0]) <= level + 1e-5).all()
    for name, each in zip(PORTS[1:], wanted[1:], strict=True):
        assert np.array_equal(found[name], each)
