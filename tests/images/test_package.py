"""A package whose pictures go through a graph: values, the face that takes files, and the one that gives pictures."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_runtime.cli import main
from genai_runtime.given import as_tensors
from genai_runtime.pictures import as_pictures, png_bytes
from genai_runtime.problem import GenaiError, RequestError
from PIL import Image

from tests.conftest import FIXTURES, Traced
from tests.data import needs_data
from tests.images.pictures import encoded, picture, ready
from tests.reference.cases import load_cases
from tests.reference.document import read_document
from tests.reference.images import preprocess
from tests.reference.png import decode_rgb
from tests.traps.probe import PROBE_NEEDS_LINUX, run_probe
from tests.two_routes import TwoRoutes

Compiled = Callable[[str], tuple[Path, Traced]]


@pytest.fixture
def negatives(compiled: Compiled) -> genai_runtime.Model:
    return genai_runtime.load(compiled("negatives")[0])


@pytest.mark.parametrize("count", [1, 2, 5])
def test_it_equals_the_reference(negatives: genai_runtime.Model, count: int) -> None:
    files = [encoded(picture(9 + at, 20 - at, at)) for at in range(count)]
    data = as_tensors({"x": files})["x"]
    result = TwoRoutes(negatives, FIXTURES / "negatives").agree({"request.pictures": data})
    assert result["sizes"].tolist() == [[9 + at, 20 - at] for at in range(count)]
    assert result["negatives"].shape == (count, 3, 8, 8)


def test_bytes_paths_and_arrays_are_the_same(negatives: genai_runtime.Model, tmp_path: Path) -> None:
    data = encoded(picture(30, 40))
    file = tmp_path / "a picture.png"
    file.write_bytes(data)
    wanted = negatives.run({"request.pictures": np.frombuffer(data, np.uint8)})["brightness"]
    for form in (data, bytearray(data), memoryview(data), file, [file], (data,)):
        assert negatives.run({"request.pictures": form})["brightness"] == wanted
    both = negatives.run({"request.pictures": [data, file]})
    assert both["sizes"].tolist() == [[30, 40], [30, 40]]


def test_a_file_that_is_not_there(negatives: genai_runtime.Model, tmp_path: Path) -> None:
    for missing in (tmp_path / "none.png", tmp_path):
        with pytest.raises(RequestError) as refused:
            negatives.run({"request.pictures": missing})
        assert refused.value.code == "no-such-file"


def test_a_failure_names_the_step(negatives: genai_runtime.Model) -> None:
    with pytest.raises(RequestError) as refused:
        negatives.run({"request.pictures": b"no picture"})
    assert (refused.value.code, refused.value.origin.split(" ")[1]) == ("bad-image", "pipeline.workflow.steps[0]")
    with pytest.raises(RequestError) as which:
        negatives.run({"request.pictures": [encoded(picture(2, 2)), b"no picture"]})
    assert "picture 1" in which.value.what


def test_pictures_come_out(negatives: genai_runtime.Model, tmp_path: Path) -> None:
    pixels = picture(8, 8)
    result = negatives.run({"request.pictures": encoded(pixels)})
    (negative,) = result.images("negatives")
    assert np.abs(negative.astype(int) - (255 - pixels.astype(int))).max() <= 1
    genai_runtime.save_png(tmp_path / "negative.png", negative)
    assert (decode_rgb((tmp_path / "negative.png").read_bytes()) == negative).all()
    with pytest.raises(RequestError) as refused:
        result.images("brightness")
    assert refused.value.code == "no-pictures"
    assert "negatives" in refused.value.help


@PROBE_NEEDS_LINUX
def test_m2_two_hundred_pictures_leave_memory_flat(compiled: Compiled) -> None:
    script = f"""
import gc, resource
import numpy as np
import genai_runtime
from genai_runtime.pictures import png_bytes

def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

pictures = [png_bytes(np.random.default_rng(at).integers(0, 256, (120, 90 + at, 3), np.uint8)) for at in range(5)]

def work(times):
    for at in range(times):
        model.run({{"request.pictures": pictures[at % 5]}})["brightness"]

with genai_runtime.load({str(compiled("negatives")[0])!r}, threads=1) as model:
    work(60)
    before = resident()
    work(200)
    print(resident() - before)
"""
    assert int(run_probe(script)) < 1 << 20


def test_pillow_is_imported_by_the_first_picture_only(compiled: Compiled) -> None:
    script = f"""
import sys
import genai_runtime
from genai_runtime.pictures import png_bytes
import numpy as np

with genai_runtime.load({str(compiled("negatives")[0])!r}, threads=1) as model:
    before = "PIL" in sys.modules
    model.run({{"request.pictures": png_bytes(np.zeros((1, 1, 3), np.uint8))}})
    print(before, "PIL.Image" in sys.modules)
"""
    assert run_probe(script).split() == ["False", "True"]


# ---- tensors as pictures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value_range", "levels", "wanted"),
    [
        ("zero_to_one", [0, 1, 0.5, -1, 2, np.nan], [0, 255, 128, 0, 255, 0]),
        ("negative_one_to_one", [-1, 1, 0, -3, np.inf, -np.inf], [0, 255, 128, 0, 255, 0]),
        ("zero_to_255", [0, 255, 127.5, 127.4, 300, -1], [0, 255, 128, 127, 255, 0]),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_ranges(value_range: str, levels: list[float], wanted: list[int], dtype: type[np.generic]) -> None:
    (made,) = as_pictures(np.array(levels, dtype).reshape(1, 2, 3), value_range)
    assert made.reshape(-1).tolist() == wanted


def test_layouts() -> None:
    first = np.arange(2 * 3 * 6 * 5, dtype=np.uint8).reshape(2, 3, 6, 5)
    last = np.ascontiguousarray(first.transpose(0, 2, 3, 1))
    for array, dims in ((first, ("n", 3, "h", "w")), (last, ("n", "h", "w", 3)), (first, ()), (last, ())):
        made = as_pictures(array, "zero_to_255", dims)
        assert [each.tolist() for each in made] == last.tolist()
    assert as_pictures(first[0], "zero_to_255")[0].tolist() == last[0].tolist()
    square = np.zeros((1, 3, 9, 3), np.uint8)
    assert as_pictures(square, "zero_to_255", ("n", "h", "w", 3))[0].shape == (3, 9, 3)
    assert as_pictures(square, "zero_to_255")[0].shape == (9, 3, 3)


@pytest.mark.parametrize("shape", [(3,), (3, 3), (1, 2, 3, 4, 5), (1, 7, 8, 9)])
def test_tensors_that_are_no_pictures(shape: tuple[int, ...]) -> None:
    with pytest.raises(RequestError) as refused:
        as_pictures(np.zeros(shape, np.float32), "zero_to_one")
    assert refused.value.code == "no-pictures"


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_png_files_open_elsewhere(channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels), np.uint8)
    with Image.open(BytesIO(png_bytes(pixels))) as opened:
        assert np.asarray(opened).reshape(pixels.shape).tolist() == pixels.tolist()
    assert png_bytes(pixels[..., 0]) == png_bytes(pixels[..., :1])


@pytest.mark.parametrize("odd", [np.zeros((2, 2, 5), np.uint8), np.zeros((2, 2, 3)), np.zeros((0, 2, 3), np.uint8)])
def test_what_no_png_holds(odd: np.ndarray) -> None:
    with pytest.raises(RequestError) as refused:
        png_bytes(odd)
    assert refused.value.code == "no-pictures"


# ---- a language model that sees --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vlm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("vlm") / "vlm.compiled"
    compile_package(load_cases("vlm")[0].folder, out=out)
    return out


@needs_data
@pytest.mark.parametrize("case", ["red_pixel", "solid_colour", "upscaled_gradient"])
def test_values_inside_the_workflow(case: str) -> None:
    """What the adapter makes of each conformance picture is what the expected internal values say."""
    (found,) = (each for each in load_cases("vlm") if each.id == case)
    wanted = found.calls[0].expect["internal_values"]
    program = read_document(found.folder)["preprocessing"]["image"]
    data = found.calls[0].inputs["request.image"]
    made = ready(program)({"encoded": data})
    for name, value in preprocess(data.tobytes(), program).items():
        np.testing.assert_allclose(made[name], value, rtol=1e-4, atol=0.008)
    for name, facts in wanted.items():
        flat = np.asarray(made[name]).reshape(-1)
        assert list(np.shape(made[name])) == facts["shape"]
        for at, number in facts.get("probes", list(enumerate(facts.get("data", [])))):
            assert abs(flat[at] - number) <= 0.008, (name, at)


@needs_data
def test_generate_sees_the_picture(vlm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = {each.id: each.calls[0] for each in load_cases("vlm")}
    call = cases["sampled"]
    data = call.inputs["request.image"].tobytes()
    wanted = call.expect["outputs"]["tokens"]["rows"][0]["data"]
    with genai_runtime.load(vlm) as model:
        made = model.generate([4, 5], images=[data], max_new_tokens=6, temperature=1.0, top_k=0, seed=4)
        assert made.tokens == wanted
        with pytest.raises(GenaiError) as missing:
            model.generate([4, 5], max_new_tokens=2).tokens  # noqa: B018
        assert missing.value.code == "missing-input"
        with pytest.raises(RequestError) as no_list:
            model.generate([4, 5], images=data, max_new_tokens=2)
        assert no_list.value.code == "bad-inputs"
    file = tmp_path / "red.png"
    file.write_bytes(data)
    options = ["-n", "6", "--temperature", "1", "--top-k", "0", "--seed", "4", "--tokens", "4,5"]
    assert main([str(vlm), *options, "--image", str(file)]) == 0
    assert [int(each) for each in capsys.readouterr().out.split(",")] == wanted
    assert main([str(vlm), *options, "--image", str(tmp_path / "none.png")]) == 2
    assert "no-such-file" in capsys.readouterr().err
    file.write_bytes(data[:40])
    assert main([str(vlm), *options, "--image", str(file)]) == 2
    assert "bad-image" in capsys.readouterr().err


@needs_data
@pytest.mark.parametrize("count", [1, 2])
def test_a_picture_of_another_size_is_the_callers_fault(
    vlm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    """The graph takes 4 patches; a wide picture, or a second one, makes another number of them."""
    file = tmp_path / "wide.png"
    Image.new("RGB", (90, 30), (9, 8, 7)).save(file)
    good = load_cases("vlm")[0].calls[0].inputs["request.image"].tobytes()
    files: list[bytes | Path] = [file] if count == 1 else [good, good]
    with genai_runtime.load(vlm) as model, pytest.raises(RequestError) as wrong:
        model.generate([4, 5], images=files, max_new_tokens=2).tokens  # noqa: B018
    assert wrong.value.code == "wrong-shape"
    assert "the package takes 4" in wrong.value.what
    assert wrong.value.what.count(" pixels") == count
    assert ("90 x 30 pixels" in wrong.value.what) is (count == 1)
    assert wrong.value.help
    if count == 1:
        assert main([str(vlm), "-n", "2", "--tokens", "4,5", "--image", str(file)]) == 2
        assert "90 x 30 pixels" in capsys.readouterr().err


def test_a_package_without_an_input_for_pictures(compiled: Compiled) -> None:
    with genai_runtime.load(compiled("tiny-gqa-v1")[0]) as model, pytest.raises(RequestError) as refused:
        model.generate([1, 2], images=[b"x"])
    assert refused.value.code == "no-image-input"
