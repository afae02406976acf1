"""Tensors of one medium belong together: some without the others are refused by name, before anything runs."""

import json
import shutil
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package

from tests.conftest import FIXTURES
from tests.test_vision_stages import IMAGE, pictures, places

PICTURE = ("pixel_values", "image_sizes", "image_attention_mask")
SOUND = ("audio_embeds", "audio_sizes", "audio_attention_mask", "audio_projection_mode")


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[genai_runtime.Model]:
    """Pixels and a grid go into a loop over pictures."""
    out = tmp_path_factory.mktemp("staged") / "out"
    compile_package(FIXTURES / "tiny-vision-stages-v1", out=out)
    with genai_runtime.load(out, threads=1, timings=True) as model:
        yield model


@pytest.fixture(scope="module")
def fields(tmp_path_factory: pytest.TempPathFactory) -> Iterator[genai_runtime.Model]:
    """Pictures and sounds are three tensors each, and no processor file makes them."""
    folder = tmp_path_factory.mktemp("fields")
    shutil.copytree(FIXTURES / "tiny-fields-v2", folder / "p")
    config = json.loads((folder / "p" / "genai_config.json").read_text())
    for named in config["pipeline"].pop("preprocessing").values():
        (folder / "p" / named["config"]).unlink()
    (folder / "p" / "genai_config.json").write_text(json.dumps(config))
    compile_package(folder / "p", out=folder / "out")
    with genai_runtime.load(folder / "out", threads=1, timings=True) as model:
        yield model


def refused(model: genai_runtime.Model, inputs: dict[str, Any]) -> genai_runtime.RequestError:
    assert model.timings is not None
    model.timings.clear()
    with pytest.raises(genai_runtime.RequestError) as caught:
        model.run({"request.max_iterations": [3], **inputs})
    assert not model.timings.spans  # nothing has run
    return caught.value


def test_pixels_without_grids_and_grids_without_pixels(staged: genai_runtime.Model) -> None:
    given, prompt = pictures([(4, 4)]), [[1, 5, *[IMAGE] * places([(4, 4)]), 9]]
    for lacking, own in (("image_grid_thw", "pixel_values"), ("pixel_values", "image_grid_thw")):
        told = refused(staged, {"request.input_ids": prompt, own: given[own]})
        assert told.code == "missing-input"
        assert f"'{own}' is given, and '{lacking}' is not" in str(told)
        assert f"give '{lacking}', " in told.help
    inputs: dict[str, Any] = {"request.input_ids": prompt, "request.max_iterations": [3]}
    assert len(staged.run({**inputs, **given}, stop_on_eos=False)["tokens"][0]) == 3


def zeros(model: genai_runtime.Model, names: tuple[str, ...]) -> dict[str, Any]:
    """Tensors of the declared forms; nothing looks at their values."""
    specs = {each["application"]: each for each in model.describe()["inputs"]}
    shapes = {name: [each if isinstance(each, int) else 1 for each in specs[name]["shape"]] for name in names}
    return {name: np.zeros(shapes[name], specs[name]["dtype"]) for name in names}


SOME = [(whole, names) for whole in (PICTURE, SOUND) for n in range(1, len(whole)) for names in combinations(whole, n)]


@pytest.mark.parametrize(("whole", "names"), SOME, ids=lambda each: "-".join(each))
def test_some_of_several_tensors(fields: genai_runtime.Model, whole: tuple[str, ...], names: tuple[str, ...]) -> None:
    told = refused(fields, {"request.input_ids": [[1, 5]], **zeros(fields, names)})
    assert told.code == "missing-input"
    what, ways = str(told).split("help: ")
    assert any(f"'{name}' is given" in what for name in names)
    for name in set(whole) - set(names):
        assert f"'{name}'" in what
        assert f"give '{name}', " in ways.replace("; ", "; give ")


def test_both_tensors_of_a_sound_that_has_to_be_there_are_named(tmp_path: Path) -> None:
    compile_package(FIXTURES / "tiny-even-bands-v2", out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1, timings=True) as model:
        told = refused(model, {})
        assert told.code == "missing-input"
        assert "the tensors 'audio_signal' and 'length' to run(inputs)" in told.help
        given = zeros(model, ("audio_signal", "length"))
        for own, lacking in (("audio_signal", "length"), ("length", "audio_signal")):
            assert f"missing-input: {own} is given, {lacking} not" in str(refused(model, {own: given[own]}))
