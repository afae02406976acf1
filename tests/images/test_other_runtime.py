"""Pixels that onnxruntime-genai itself made of one picture, which came with real packages.

Their files ask for a conversion that its processor answers with blue first, so channels are swapped beforehand.
"""

from typing import Any

import numpy as np
import pytest
from genai_runtime.adapters.image.decode import decode

from tests.data import DATA, needs_data
from tests.images.pictures import document, made

LEVELS: list[dict[str, Any]] = [
    {"op": "decode"},
    {"op": "rescale", "scale": 1 / 255},
    {
        "op": "normalize",
        "mean": [0.48145466, 0.4578275, 0.40821073],
        "std": [0.26862954, 0.26130258, 0.27577711],
    },
]
PATCHIFY = {"op": "patchify", "patch_size": 14, "patch_order": "raster"}
FRAMES = {"temporal_patch_size": 2, "temporal_order": "temporal_major"}


@needs_data
@pytest.mark.parametrize(
    ("package", "transforms"),
    [("mobius-mistral3-og", LEVELS), ("mobius-qwen2_5_vl-og", [*LEVELS, {**PATCHIFY, **FRAMES}])],
)
def test_the_same_pixels(package: str, transforms: list[dict[str, Any]]) -> None:
    folder = DATA / "realpkgs" / package
    picture = np.ascontiguousarray(decode((folder / "image.png").read_bytes())[..., ::-1])
    found = made(document(transforms, [{"content": "pixels", "dtype": "float32"}]), picture)["pixels"]
    np.testing.assert_array_equal(found, np.load(folder / "image_case.npz")["pixel_values"])
