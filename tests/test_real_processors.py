"""Processor files of real packages: what is wrong with them is said at compile time; other dialects name them too."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import pytest
from genai_compiler import CompileError, compile_package

from tests.data import needs_data
from tests.lower.test_config_models import changed
from tests.real_packages import GREEDY, PACKAGES, reliable
from tests.test_real_pictures import PLACED, PROMPTS, WITH_PICTURE, case_of, held

pytestmark = needs_data
pytest.importorskip("PIL.Image", reason="Pillow is absent: no picture can be decoded")


# ---- processor files that are wrong ----------------------------------------------------------------------------------


def with_processor(folder: Path, change: Callable[[dict[str, Any]], None], name: str = "mobius-gemma3_vl-og") -> Path:
    """A copy of a package whose processor file is changed. change: of operation -> its attributes."""
    package = shutil.copytree(PACKAGES / name, folder / "package")
    file = package / "processor_config.json"
    data = json.loads(file.read_text())
    change(
        {
            each["operation"]["type"]: each["operation"].setdefault("attrs", {})
            for each in data["processor"]["transforms"]
        }
    )
    file.write_text(json.dumps(data, indent=1))
    return package


def refused(package: Path) -> list[Any]:
    with pytest.raises(CompileError) as caught:
        compile_package(package, out=package.parent / "refused")
    assert not (package.parent / "refused").exists()
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (lambda of: of["Resize"].update(height=448), "processor-mismatch", "448 pixels high"),
        (lambda of: of["Resize"].update(smart_resize=1), "processor-mismatch", "of their own size"),
        (lambda of: of["Permute3D"].update(dims=[0, 1, 2]), "processor-mismatch", "channels last"),
        (lambda of: of["Resize"].update(hight=1), "bad-processor", "no attribute 'hight'"),
    ],
)
def test_a_file_that_contradicts_the_graph_is_refused_at_compile_time(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], code: str, words: str
) -> None:
    found = [each for each in refused(with_processor(tmp_path, change)) if each.code == code]
    assert any(words in each.what for each in found)
    assert {each.where.file for each in found} == {"processor_config.json"}


def test_a_file_whose_patches_the_graph_does_not_take_is_refused(tmp_path: Path) -> None:
    package = with_processor(tmp_path, lambda of: of["Resize"].update(patch_size=15), "mobius-qwen2_5_vl-og")
    assert "leaves pictures whole" in next(each.what for each in refused(package) if each.code == "processor-mismatch")


def test_a_missing_file_is_said_at_once(tmp_path: Path) -> None:
    """One that is named is an error; one that nobody names, a warning, and tensors go in as before."""
    package = shutil.copytree(PACKAGES / "mobius-mistral3-og", tmp_path / "package")
    (package / "processor_config.json").unlink()
    (found,) = [each for each in refused(package) if each.code == "missing-file"]
    assert found.path == "model.vision.config_filename"
    silent = changed(tmp_path / "silent", package, ("model.vision.config_filename", ...))
    told = compile_package(silent, out=tmp_path / "out").problems
    assert any("image goes in as tensors" in each.what for each in told)
    case = case_of("mobius-mistral3-og")
    inputs = {"request.input_ids": [case["prompt"]], **held("mobius-mistral3-og"), "request.max_iterations": [16]}
    del inputs["image_features"]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.run(inputs, stop_on_eos=False)["tokens"].tolist() == [case["greedy"]]
        with pytest.raises(genai_runtime.RequestError, match="no-image-input"):
            model.generate(case["prompt"], images=[b""])


def test_a_file_is_known_by_its_content_not_by_its_name(tmp_path: Path) -> None:
    """The named file holds another dialect's notes; the one that describes pictures lies beside it."""
    package = shutil.copytree(PACKAGES / "mobius-mistral3-og", tmp_path / "package")
    (package / "processor_config.json").rename(package / "image_processor.json")
    (package / "processor_config.json").write_text('{"processor_class": "Some", "patch_size": 14}')
    compile_package(package, out=tmp_path / "out")
    case = case_of("mobius-mistral3-og")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        made = model.generate(case["prompt"], images=[package / "image.png"], max_new_tokens=16, **GREEDY)
        assert made.tokens == case["greedy"]


# ---- the other dialects ----------------------------------------------------------------------------------------------


def as_pipeline(folder: Path, name: str, more: dict[str, Any] | None = None) -> Path:
    """A version 1 package's graphs and processor file as a pipeline of version 2."""
    package = shutil.copytree(PACKAGES / name, folder / "package")
    token = json.loads((package / "genai_config.json").read_text())["model"]["image_token_id"]
    sessions = {"vision": "vision_encoder", "embedding": "embedding", "decoder": "decoder"}
    pipeline = {
        "extends": "vision-language",
        "sessions": {session: {"file": f"{file}/model.onnx"} for session, file in sessions.items()},
        "preprocessing": {"image": {"config": "processor_config.json"}},
        **(more or {}),
    }
    tokens = {"eos": [2], "image_token": token}
    config = {"version": 2, "pipeline": pipeline, "tokens": tokens, "generation": {"max_length": 128}}
    (package / "genai_config.json").write_text(json.dumps(config))
    return package


PER_IMAGE = [
    {"run": "vision", "when": "init", "loop": "per_image"},
    {"run": "embedding", "when": "init"},
    {"run": "decoder", "when": "step"},
]


@pytest.mark.parametrize(
    ("name", "more"), [(PLACED[0], {}), (WITH_PICTURE[1], {}), (WITH_PICTURE[1], {"flow": PER_IMAGE})]
)
def test_a_pipeline_of_version_2_takes_pictures(tmp_path: Path, name: str, more: dict[str, Any]) -> None:
    compile_package(as_pipeline(tmp_path, name, more), out=tmp_path / "out")
    case, file = case_of(name), PACKAGES / name / "image.png"
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        options: dict[str, Any] = {"images": [file], "max_new_tokens": 16, **GREEDY}
        made = model.generate(PROMPTS[name], add_special_tokens=False, **options)
        assert made.tokens[: len(reliable(name, case))] == reliable(name, case)
        assert model.count_tokens(case["prompt"], images=[file]) == len(case["prompt"])


def test_a_session_once_an_image_needs_a_processor(tmp_path: Path) -> None:
    package = as_pipeline(tmp_path, WITH_PICTURE[1], {"flow": PER_IMAGE, "preprocessing": {}})
    assert any("runs once an image" in each.what for each in refused(package))
