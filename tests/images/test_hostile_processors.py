"""Processor files, documents and prompts that mean harm: refused at once, by name, with nothing large ever made."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from genai_compiler import CompileError, compile_package
from genai_compiler.convert import convert_package
from genai_compiler.lower.followed_picture import followed
from genai_compiler.read.image_processor import read_image_processor
from genai_runtime.problem import RequestError
from genai_runtime.prompt_places import Places, Span

from tests.data import needs_data
from tests.images.processors import DECODE, RESCALE, processor_file
from tests.real_packages import PACKAGES
from tests.runtime import tiny_tokenizers

LARGE = 1 << 27


@pytest.mark.parametrize(
    "operation",
    [
        {"type": "PatchImage", "attrs": {"patch_size": LARGE}},
        {"type": "PatchImage", "attrs": {"temporal_patch_size": LARGE}},
        {"type": "Resize", "attrs": {"height": LARGE}},
        {"type": "Gemma4ImageTransform", "attrs": {"max_soft_tokens": LARGE}},
        {"type": "Gemma4ImageTransform", "attrs": {"max_soft_tokens": 60000, "patch_size": 512}},
        {"type": "Phi4VisionDynamicPreprocess", "attrs": {"dynamic_hd": LARGE}},
        {"type": "Phi4VisionDynamicPreprocess", "attrs": {"dyhd_base_resolution": 449}},
    ],
)
def test_sizes_beyond_what_a_run_may_hold_are_refused(tmp_path: Path, operation: dict[str, Any]) -> None:
    numbers = operation["type"] == "PatchImage"
    file = processor_file(tmp_path, DECODE, *([RESCALE] if numbers else []), operation)
    begun = time.monotonic()
    with pytest.raises(CompileError, match="bad-processor"):
        followed(read_image_processor(tmp_path, file.name))
    assert time.monotonic() - begun < 1


@pytest.mark.parametrize("key", ["patch_size", "temporal_patch_size", "merge_size"])
def test_flat_keys_beyond_bounds_are_refused(tmp_path: Path, key: str) -> None:
    size = {"shortest_edge": 784, "longest_edge": 12600}
    keys = {"image_processor_type": "Some", "resample": 3, "size": size, "patch_size": 14, "merge_size": 2}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**keys, key: LARGE}))
    with pytest.raises(CompileError, match="bad-processor"):
        read_image_processor(tmp_path, "preprocessor_config.json")


@pytest.mark.parametrize(("key", "value"), [("image_mean", [1e300, 0, 0]), ("image_std", [1, 1e-320, 1])])
def test_numbers_that_make_levels_infinite_are_refused(tmp_path: Path, key: str, value: list[float]) -> None:
    keys = {"image_processor_type": "Some", "resample": 3, "size": {"height": 8, "width": 8}}
    keys |= {"image_mean": [0, 0, 0], "image_std": [1, 1, 1]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**keys, key: value}))
    with pytest.raises(CompileError, match=f"bad-processor: {key} is"):
        read_image_processor(tmp_path, "preprocessor_config.json")
    operation = {"type": "Normalize", "attrs": {key.removeprefix("image_"): value}}
    file = processor_file(tmp_path, DECODE, RESCALE, operation)
    with pytest.raises(CompileError, match="bad-processor"):
        read_image_processor(tmp_path, file.name)


@pytest.mark.parametrize("name", ["../away.json", "/etc/passwd", "a\nb", ""])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "away.json").write_text("{}")
    with pytest.raises(CompileError, match=r"outside-package|bad-path"):
        read_image_processor(tmp_path / "package", name)


def test_a_text_that_opens_places_and_closes_none_takes_no_time(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizers.opened(tmp_path, tiny_tokenizers.byte_level(("<s>", "<in>", "<out>", "<e>")))
    facts = {"entry_token": tokenizer.token_id("<e>"), "entry": "<e>", "opens": "<in>", "closes": "<out>"}
    places = Places(facts)
    begun = time.monotonic()
    for make in (lambda: places.text("<in>" * 50_000, [Span(1, 2)], tokenizer, False),
                 lambda: places.ids([1] * 100_000, [Span(1, 2)], tokenizer)):  # fmt: skip
        with pytest.raises(RequestError, match="image-tokens"):
            make()
    assert time.monotonic() - begun < 5


def test_of_many_pictures_a_few_are_told(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizers.opened(tmp_path, tiny_tokenizers.byte_level(("<s>", "<in>", "<out>", "<e>")))
    places = Places({"entry_token": tokenizer.token_id("<e>"), "entry": "<e>", "opens": "<in>", "closes": "<out>"})
    with pytest.raises(RequestError, match=r"1000 pictures were given \((7, ){8}\.\.\. tokens\)"):
        places.text("hi", [Span(1, 7)] * 1000, tokenizer, False)


# ---- documents that name the compiler's own adapters -----------------------------------------------------------------


@pytest.fixture(scope="module")
def converted() -> str:
    """A package's workflow as a document."""
    return convert_package(PACKAGES / "mobius-qwen2_5_vl-og").text


def _component(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = document["pipeline"]["workflow"]["components"][name]
    return found


def _renamed(document: dict[str, Any]) -> None:
    outputs = _component(document, "image_processor")["ports"]["outputs"]
    outputs["odd"] = outputs.pop("pixel_values")
    for step in walk(document["pipeline"]["workflow"]["steps"]):
        if step.get("component") == "image_processor":
            step["outputs"]["odd"] = step["outputs"].pop("pixel_values")


def walk(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every step, nested ones too."""
    found = []
    for step in steps:
        inner = [*step.get("steps", []), *step.get("cases", {}).values(), *filter(None, [step.get("default")])]
        found += [step, *walk(inner)]
    return found


@needs_data
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_renamed, "a picture has no odd"),
        (lambda it: _component(it, "image_processor")["contract"]["parameters"].update(frames="x"), "whole numbers"),
        (lambda it: _component(it, "image_processor")["contract"]["parameters"].pop("merge"), "whole numbers"),
        (lambda it: _component(it, "image_processor")["implementation"].update(artifact="no.json"), "no file"),
        (lambda it: _component(it, "image_processor")["implementation"].pop("artifact"), "no file name"),
        (
            lambda it: _component(it, "image_processor")["implementation"].update(artifact="tokenizer.json"),
            "describes no",
        ),
    ],
)
def test_a_document_that_misuses_them_is_refused_by_name(
    tmp_path: Path, converted: str, change: Callable[[dict[str, Any]], Any], words: str
) -> None:
    package = shutil.copytree(PACKAGES / "mobius-qwen2_5_vl-og", tmp_path / "package")
    document = yaml.safe_load(converted)
    (package / "inference_metadata.yaml").write_text(yaml.safe_dump(document))
    compile_package(package, out=tmp_path / "sound")
    change(document)
    (package / "inference_metadata.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(CompileError) as refused:
        compile_package(package, out=tmp_path / "out")
    assert words in str(refused.value)
    assert not (tmp_path / "out").exists()


@needs_data
@pytest.mark.parametrize("value", [-1, 1 << 40, "many", 2.5, True])
def test_parameters_of_prompts_that_mean_nothing_are_left_out(tmp_path: Path, converted: str, value: Any) -> None:
    package = shutil.copytree(PACKAGES / "mobius-qwen2_5_vl-og", tmp_path / "package")
    document = yaml.safe_load(converted)
    parameters = _component(document, "image_processor")["contract"]["parameters"]
    parameters.update(entries=value, cell=value, entry_token=value)
    (package / "inference_metadata.yaml").write_text(yaml.safe_dump(document))
    compile_package(package, out=tmp_path / "out")
    (entry,) = json.loads((tmp_path / "out" / "manifest.json").read_text())["media"]
    assert not {"entries", "cell", "entry_token"} & set(entry["prompt"])


@pytest.mark.parametrize(
    ("operation", "words"), [({}, "has no type"), ({"type": None}, "null"), ({"type": []}, "list")]
)
def test_operations_without_a_type_are_told_in_the_files_own_words(
    tmp_path: Path, operation: dict[str, Any], words: str
) -> None:
    file = processor_file(tmp_path, DECODE, operation)
    with pytest.raises(CompileError, match=words):
        read_image_processor(tmp_path, file.name)
