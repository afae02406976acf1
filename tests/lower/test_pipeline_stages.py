"""Field packages of several graphs, said in version 2: the presets join them, and their tokens are the expected ones.

The graphs and the expectations are other people's (INDEX.md of the data); only the configuration is written here.
"""

import json
import shutil
from collections.abc import Callable
from functools import cache
from typing import Any

import genai_runtime
import pytest
from genai_compiler import compile_package

from tests.data import needs_data
from tests.real_packages import ENCODED, PACKAGES, cases, reliable
from tests.test_real_stages import encoder_inputs, media_inputs

pytestmark = needs_data
MEDIA = ["mobius-gemma3_vl-og", "mobius-mistral3-og", "mobius-qwen2_5_vl-og"]
DESCRIPTIONS = ("genai_config.json", "inference_metadata.yaml", "expected.json")
Loaded = Callable[[str, str], genai_runtime.Model]


def files(**sessions: str) -> dict[str, Any]:
    return {name: {"file": file} for name, file in sessions.items()}


LOOKING = files(vision="vision_encoder/model.onnx", embedding="embedding/model.onnx", decoder="decoder/model.onnx")
SELF_CACHES = ("mobius-t5-meta", "mobius-marian-meta")
SELF = {
    f"{when}_{half}_pattern": f"{stem}.{{layer}}.self.{half}"
    for when, stem in (("past", "past_key_values"), ("present", "present"))
    for half in ("key", "value")
}
"""Decoders whose caches have a part more in their names than `auto` finds."""
READING = files(encoder="encoder/model.onnx", decoder="decoder/model.onnx")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """A package under a configuration of version 2, compiled and loaded once."""

    @cache
    def get(name: str, preset: str) -> genai_runtime.Model:
        root = tmp_path_factory.mktemp("pipelines")
        folder = shutil.copytree(PACKAGES / name, root / name, ignore=shutil.ignore_patterns(*DESCRIPTIONS))
        sessions = LOOKING if preset == "vision-language" else READING
        config = {
            "version": 2,
            "pipeline": {"extends": preset, "sessions": sessions},
            "tokens": {"eos": [2]},
            "generation": {"max_length": 1024},
        }
        if name in SELF_CACHES:
            config["pipeline"]["state"] = {"kv_cache": SELF}
        (folder / "genai_config.json").write_text(json.dumps(config), encoding="utf-8")
        compile_package(folder, out=root / "out")
        return genai_runtime.load(root / "out", threads=1)

    return get


def run(model: genai_runtime.Model, inputs: dict[str, Any]) -> list[int]:
    rows = model.run({**inputs, "request.max_iterations": [16]}, stop_on_eos=False).rows("tokens")
    return [int(token) for each in rows if each is not None for token in each.reshape(-1)]


@pytest.mark.parametrize("name", MEDIA)
def test_text_and_images_give_the_expected_tokens(made: Loaded, name: str) -> None:
    assert cases(name, "image")
    for case in cases(name, "text", "image"):
        wanted = reliable(name, case)
        assert run(made(name, "vision-language"), media_inputs(name, case))[: len(wanted)] == wanted


@pytest.mark.parametrize("name", ENCODED)
def test_encoders_give_the_expected_tokens(made: Loaded, name: str) -> None:
    for case in cases(name):
        wanted = reliable(name, case)
        assert run(made(name, "encoder-decoder"), encoder_inputs(case))[: len(wanted)] == wanted
