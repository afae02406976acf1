"""Any program of steps put together at random: refused by the rules, or the same here and in the reference."""

from typing import Any

import numpy as np
from genai_compiler.check.document import check_document
from genai_compiler.read.places import Places
from genai_compiler.read.validate import parse_metadata
from genai_runtime.problem import RequestError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.images.pictures import document, made, picture
from tests.reference.images import outputs_of
from tests.reference.values import ReferenceError

EDGE, COUNT = st.integers(1, 40), st.integers(1, 4)
WORD = st.sampled_from


def step(op: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A transform with some of these fields."""
    return st.fixed_dictionaries({"op": st.just(op)}, optional=fields)


INTERPOLATION = WORD(["bicubic", "bilinear", "lanczos3"])
RESIZE = step("resize", size=EDGE, mode=WORD(["stretch", "crop", "pad"]), interpolation=INTERPOLATION)
AREA = st.builds(
    lambda least, more, multiple, how: {
        "op": "resize", "mode": "pixel_area", "min_pixels": least, "max_pixels": least + more,
        "size_multiple": multiple, "interpolation": how,
    },
    st.integers(1, 900), st.integers(0, 900), st.integers(1, 8), INTERPOLATION,
)  # fmt: skip
BUDGET = st.builds(
    lambda patch, most, pooling: {
        "op": "resize", "mode": "aspect_ratio_patch_budget", "patch_size": patch, "max_patches": most,
        "pooling_kernel_size": pooling,
    },
    COUNT, st.integers(1, 60), COUNT,
)  # fmt: skip
TILE = st.builds(
    lambda mode, size, most, place, cell: {
        "op": "tile", "mode": mode, "tile_size": size * cell, "max_tiles": most, "thumbnail_order": place,
        "include_thumbnail": place != "none", "mask_patch_size": cell, "canvas_pad_value": 7,
    },
    WORD(["dynamic_anyres", "fixed_grid", "dynamic_hd"]), st.integers(1, 8), st.integers(1, 8),
    WORD(["none", "prepend", "append"]), COUNT,
)  # fmt: skip
PATCHIFY = step(
    "patchify", patch_size=COUNT, temporal_patch_size=COUNT, merge_size=WORD([1, 1, 2, 3]),
    flatten=WORD([True, True, False]), channel_order=WORD(["chw", "hwc"]), temporal_order=WORD(["cthw", "tchw"]),
    patch_order=WORD(["raster", "merge_blocks"]), coordinate_order=WORD(["xy", "yx"]),
)  # fmt: skip
PAD = step("pad", target_length=st.integers(1, 400), pad_value=WORD([0, -1.5]))
LEVELS = WORD([{"op": "rescale", "scale": 0.01}, {"op": "normalize", "mean": [1, 2, 3], "std": [3, 2, 1]}])
EITHER = {"resize": st.one_of(RESIZE, AREA, BUDGET), "tile": TILE, "levels": LEVELS, "patchify": PATCHIFY, "pad": PAD}
IN_ORDER = ("resize", "levels", "tile", "levels", "patchify", "pad")
CONTENTS = ("pixels", "patch_coordinates", "grid_dimensions", "original_size", "transformed_size", "validity_mask")


@st.composite
def programs(draw: st.DrawFn) -> dict[str, Any]:
    kinds = [each for each in IN_ORDER if draw(st.booleans())]
    if draw(st.integers(0, 9)) == 0:
        kinds = draw(st.permutations(kinds))
    transforms = [{"op": "decode_rgb"}, *(draw(EITHER[each]) for each in kinds)]
    cut = any(each["op"] == "patchify" for each in transforms)
    contents = [each for each in CONTENTS if cut or each not in ("patch_coordinates", "grid_dimensions")]
    return document(transforms, [{"content": each, "dtype": "float32"} for each in contents])


@settings(max_examples=250, deadline=None)
@given(program=programs(), sizes=st.lists(st.tuples(EDGE, EDGE), min_size=1, max_size=3))
def test_a_program_is_refused_or_equals_the_reference(program: dict[str, Any], sizes: list[tuple[int, int]]) -> None:
    places = Places("m.yaml")
    if check_document(parse_metadata({"preprocessing": {"image": program}}, places), places):
        return
    pictures = [picture(*size, seed=at) for at, size in enumerate(sizes)]
    try:
        wanted = outputs_of(pictures, program)
    except ReferenceError:
        wanted = {}
    try:
        found = made(program, *pictures)
    except RequestError:
        found = {}
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name].shape == value.shape
        off = np.abs(found[name] - value)
        assert np.count_nonzero(off > 1e-4) <= (max(3, off.size / 500) if name == "pixels" else 0), name
