"""Many pictures of one request: none is dropped unsaid, and those of one size go through a graph at once.

Expected tokens come from the graphs in bare ONNX Runtime sessions and plain loops over single pictures and tokens.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_runtime.adapters.image.one_by_one import one_picture
from genai_runtime.pictures import png_bytes

from tests.conftest import FIXTURES
from tests.images.processors import DECODE, picture, processor_file
from tests.lower.hub_layout import HIDDEN, PATCH, SEEN, by_hand, hub_folder, look, seen
from tests.test_stages_beside import decoded
from tests.test_vision_stages import IMAGE, Array, behind, features, pictures, written_over
from tools.fixtures.graph import Sketch, weights
from tools.fixtures.vision_stages import tiny_vision_stages_v1

NEW, ROWS, EACH = 4, 22, 47
"""Of each of 22 texts 47 entries, one a picture: 1034 pictures, and more entries than one text has room for (64)."""


def test_more_pictures_than_a_thousand_give_the_tokens_of_a_plain_loop(tmp_path: Path) -> None:
    package, grids = tmp_path / "p", [(2, 2)] * ROWS * EACH
    tiny_vision_stages_v1(package)
    compile_package(package, out=tmp_path / "out")
    given, prompt = pictures(grids), [1, 5, *[IMAGE] * EACH, 9, 14]
    entries, whole = features(package, given["pixel_values"], grids), behind(tmp_path / "w")

    def tokens(of_row: Array) -> list[int]:
        return decoded(whole, written_over(package / "embeddings.onnx", of_row), prompt, NEW)

    wanted = [tokens(each) for each in np.split(entries, ROWS)]
    assert wanted[-1] != tokens(entries[-EACH:1024])  # it would be no test if the last pictures did not count
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        inputs: dict[str, Any] = {"request.input_ids": [prompt] * ROWS, "request.max_iterations": [NEW], **given}
        made = model.run(inputs, stop_on_eos=False)
        assert [[int(each) for each in np.ravel(row)] for row in made.rows("tokens")] == wanted
        fewer = [[*prompt[:-12], *[9] * 12]] + [prompt] * (ROWS - 1)  # 1024 entries in all
        with pytest.raises(genai_runtime.RequestError, match="image-tokens") as caught:
            model.run({**inputs, "request.input_ids": fewer})
        assert "1024 tokens" in str(caught.value)
        assert f"{ROWS * EACH} entries" in str(caught.value)


def test_more_files_than_a_thousand_are_refused_with_the_number(tmp_path: Path) -> None:
    compile_package(FIXTURES / "tiny-budget-v1", out=tmp_path / "out")
    files = [picture(8, 8)[1]] * 1025
    with genai_runtime.load(tmp_path / "out", threads=1, timings=True) as model:
        assert model.timings is not None
        for call in (model.count_tokens, model.generate):
            with pytest.raises(genai_runtime.RequestError, match="image-limit: 1025 pictures"):
                call([1, 5], images=files)
        with pytest.raises(genai_runtime.RequestError, match="image-limit: 1025 pictures"):
            model.run({"request.input_ids": [[1, 5]], "request.image": files})
        assert not model.timings.spans


# ---- pictures of one size at once ------------------------------------------------------------------------------------

NATURAL = [
    DECODE,
    {
        "type": "Resize",
        "attrs": {"smart_resize": 1, "min_pixels": 16, "max_pixels": 512, "patch_size": 4, "merge_size": 1},
    },
    {"type": "Rescale"},
    {"type": "Permute3D", "attrs": {"dims": [2, 0, 1]}},
    {"type": "PixtralImageSizes"},
]
"""Pictures whose edges are whole patches keep their sizes."""
LARGE, SMALL, TALL = (8, 12), (8, 8), (16, 8)
RUNS = {
    "as they come": ([LARGE, LARGE, TALL, LARGE, SMALL, SMALL], 4),
    "all alike": ([SMALL] * 5, 1),
    "as many numbers, another form": ([(8, 16), TALL], 2),
    "one": ([TALL], 1),
}


def shown(size: tuple[int, int], seed: int) -> tuple[bytes, Array]:
    """A PNG file, and its levels as float32 [3, height, width] from 0 to 1."""
    levels = np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)
    return png_bytes(levels), (levels.astype(np.float32) * np.float32(1 / 255)).transpose(2, 0, 1)


def answers(folder: Path, files: Sequence[bytes], prompt: list[int]) -> tuple[list[int], int]:
    """The compiled package's tokens, and how often the vision graph has run."""
    compile_package(folder, out=folder.with_name("out"))
    with genai_runtime.load(folder.with_name("out"), threads=1, timings=True) as model:
        made = model.generate(prompt, images=files, max_new_tokens=NEW, temperature=0.0, stop_on_eos=False).tokens
        assert model.timings is not None
        return made, [each.name for each in model.timings.spans].count("media_model")


def natural(folder: Path, vision: Sketch) -> Path:
    """A package whose vision graph is this one, with pictures of their own sizes."""
    hub_folder(folder, True, vision)
    processor_file(folder, *NATURAL).rename(folder / "preprocessor_config.json")
    return folder


@pytest.mark.parametrize(("sizes", "runs"), RUNS.values(), ids=RUNS)
def test_neighbours_of_one_size_are_one_run(sizes: list[tuple[int, int]], runs: int, tmp_path: Path) -> None:
    folder = natural(tmp_path / "p", look(edges="any"))
    files, tensors = zip(*(shown(size, at) for at, size in enumerate(sizes)), strict=True)
    prompt = [1, 9]
    for height, width in sizes:
        prompt += [*[SEEN] * (height * width // PATCH**2), 9]
    entries = seen(folder, list(tensors))
    wanted = by_hand(folder, prompt, entries, NEW, True)
    assert wanted != by_hand(folder, prompt, np.roll(entries, 1, axis=0), NEW, True)  # their order counts
    assert answers(folder, files, prompt) == (wanted, runs)


@pytest.mark.parametrize(
    "vision", [look(1, "any"), look(edges="any", flat=True)], ids=["one picture a run", "an axis of its own"]
)
def test_a_graph_that_does_not_keep_pictures_apart_takes_one_a_run(vision: Sketch, tmp_path: Path) -> None:
    folder = natural(tmp_path / "p", vision)
    files, tensors = zip(*(shown(LARGE, at) for at in range(3)), strict=True)
    prompt = [1, *[SEEN] * 6, 9, *[SEEN] * 12]
    assert answers(folder, files, prompt) == (by_hand(folder, prompt, seen(folder, list(tensors)), NEW, True), 3)


FOR_ONE: dict[str, Callable[[Sketch, Any], Any]] = {
    "an extent written down": lambda sketch, cut: sketch.op.Reshape(cut, [1, HIDDEN, -1]),
    "a part of the shape written down": lambda sketch, cut: sketch.op.Reshape(
        cut,
        sketch.op.Concat(
            sketch.weight("one", np.array([1])),
            sketch.op.Shape(cut, start=1, end=2),
            sketch.weight("rest", np.array([-1])),
            axis=0,
        ),
    ),
    "the first entry": lambda sketch, cut: sketch.op.Unsqueeze(
        sketch.op.Reshape(sketch.op.Gather(cut, sketch.weight("first", np.array(0)), axis=0), [0, -1]), [0]
    ),
    "no axis": lambda sketch, cut: sketch.op.Unsqueeze(sketch.op.Reshape(sketch.op.Squeeze(cut, [0]), [0, -1]), [0]),
    "a token in front": lambda sketch, cut: sketch.op.Slice(
        sketch.op.Concat(
            sketch.weight("class", weights(82, 1, HIDDEN, 1)), sketch.op.Reshape(cut, [0, HIDDEN, -1]), axis=2
        ),
        *(sketch.weight(name, np.array([at])) for name, at in (("from", 1), ("to", 2**31 - 1), ("along", 2))),
    ),
    "a part of the axis": lambda sketch, cut: sketch.op.Reshape(
        sketch.op.Slice(cut, *(sketch.weight(name, np.array([at])) for name, at in (("a", 0), ("b", 1), ("c", 0)))),
        [0, HIDDEN, -1],
    ),
    "pictures second": lambda sketch, cut: sketch.op.Transpose(
        sketch.op.Reshape(
            sketch.op.Transpose(sketch.op.Reshape(cut, [0, HIDDEN, -1]), perm=[2, 0, 1]), [-1, 1, HIDDEN]
        ),
        perm=[1, 2, 0],
    ),
    "all along the axis": lambda sketch, cut: sketch.op.Add(
        sketch.op.Reshape(cut, [0, HIDDEN, -1]),
        sketch.op.ReduceMax(sketch.op.Reshape(cut, [0, HIDDEN, -1]), [0], keepdims=1),
    ),
    "one scale": lambda sketch, cut: sketch.op.DequantizeLinear(
        *sketch.op.DynamicQuantizeLinear(sketch.op.Reshape(cut, [0, HIDDEN, -1]), _outputs=3)
    ),
}
"""What a tracer that has seen one picture writes, though the export calls the axis dynamic; and what mixes pictures."""


@pytest.mark.parametrize("how", FOR_ONE)
def test_a_graph_that_was_traced_with_one_picture_takes_one_a_run(how: str, tmp_path: Path) -> None:
    """Its ports say otherwise; of two at once it would make numbers of neither, or fail."""
    sketch = Sketch("look")
    pixels = sketch.input("pixel_values", "float32", "batch", 3, "high", "wide")
    cut = sketch.op.Conv(pixels, sketch.weight("cut", weights(81, HIDDEN, 3, PATCH, PATCH)), strides=[PATCH, PATCH])
    rows = sketch.op.Tanh(sketch.op.Transpose(FOR_ONE[how](sketch, cut), perm=[0, 2, 1]))
    sketch.output(sketch.op.Identity(rows), "image_features", "float32", "batch", "cells", HIDDEN)
    folder = natural(tmp_path / "p", sketch)
    files, tensors = zip(*(shown(LARGE, at) for at in range(2)), strict=True)
    prompt = [1, *[SEEN] * 6, 9, *[SEEN] * 6]
    assert answers(folder, files, prompt) == (by_hand(folder, prompt, seen(folder, list(tensors)), NEW, True), 2)


def test_pictures_at_once_have_no_more_numbers_than_stated() -> None:
    """Of [5, 3, 4, 4] with 48 numbers each; the last three are smaller, of 24."""
    pixels = np.arange(5 * 48, dtype=np.float32).reshape(5, 3, 4, 4)
    sizes = np.array([[4, 4], [4, 4], [4, 2], [4, 2], [2, 4]])
    for most, with_sizes, counts in (
        (0, False, [1] * 5), (47, False, [1] * 5), (96, False, [2, 2, 1]), (1 << 20, False, [5]),
        (48, True, [1, 1, 2, 1]), (96, True, [2, 2, 1]), (0, True, [1] * 5),
    ):  # fmt: skip
        call, at, found = one_picture({"together": most}), 0, list[int]()
        more = True
        while more:
            inputs = {"pixel_values": pixels, "at": np.array([at])} | ({"sizes": sizes} if with_sizes else {})
            made = call(inputs)
            following = int(made["next"][0])
            height, width = sizes[at] if with_sizes else (4, 4)
            np.testing.assert_array_equal(made["pixel_values"], pixels[at:following, :, :height, :width])
            found.append(following - at)
            at, more = following, bool(made["more"][0])
        assert (found, at) == (counts, 5), (most, with_sizes)
    with pytest.raises(ValueError, match="whole number"):
        one_picture({"together": "all"})
