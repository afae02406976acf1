"""Packages of the field's own exporters, and what their data says of them: shared by the tests that run them."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package

from tests.data import DATA

PACKAGES = DATA / "realpkgs"
NAMES = sorted(each.name for each in PACKAGES.iterdir() if each.is_dir()) if PACKAGES.is_dir() else []
_RUN = """
    og-llama og-llama-hidden og-llama-int4 og-llama-prune og-qwen2-fp16 og-hunyuan og-phi3long og-mistral-int4
    og092-gemma2 mobius-llama-og mobius-llama-og-cpu mobius-gpt2-og mobius-qwen2_moe-og
    og-lfm2-int4 og-qwen3_5 og-qwen2_5_vl-int4 mobius-qwen3_5_text-og mobius-qwen3_next-og mobius-jamba-og
    mobius-llama-meta mobius-bloom-meta mobius-bamba-meta mobius-deepseek_v2-meta mobius-llama-f16
    mobius-llama-static mobius-gemma4-static og-gemma2 og-gpt_oss
"""
RUN = _RUN.split()
ENCODED = ["mobius-t5-meta", "mobius-marian-meta", "mobius-whisper-meta"]
"""Decoders beside an encoder that runs once: run at the workflow's level."""
_MEDIA = """
    mobius-gemma3_vl-comp mobius-llava-comp mobius-gemma4_vl-meta mobius-qwen3_5-meta
    mobius-gemma3_vl-og mobius-mistral3-og mobius-qwen2_5_vl-og
"""
MEDIA = _MEDIA.split()
"""Decoders behind an embedding model that also takes what a vision model makes of an image's tensors."""
SINGLE = ["mobius-bert-og", "mobius-vit-og"]
"""Encoders alone: one call, at the workflow's level."""
PAGED = ["og-qwen2-paged", "og-qwen3_5-paged"]
"""Decoders over packed rows and paged caches, with an operator that no CPU runs (lower/test_paged.py)."""
DRAWN = ["mobius-sd-euler", "mobius-sd-ddim"]
"""A denoiser in a loop, between a text encoder and a decoder of latents."""
GREEDY: dict[str, Any] = {"temperature": 0, "stop_on_eos": False}
Compiled = Callable[[str], genai_runtime.Model]


def once_each(folders: pytest.TempPathFactory) -> Compiled:
    """Compiles and loads a package when first asked for it."""

    @cache
    def get(name: str) -> genai_runtime.Model:
        out = folders.mktemp("real") / name
        compile_package(PACKAGES / name, out=out)
        return genai_runtime.load(out, threads=1)

    return get


@cache
def cases(name: str, *kinds: str) -> list[dict[str, Any]]:
    """The cases of a package: of text (and sound, beside an encoder), or of the given kinds."""
    expected = json.loads((PACKAGES / name / "expected.json").read_text("utf-8"))
    return [each for each in expected["cases"] if each["kind"] in (kinds or ("text", "audio"))]


def encoder_case(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs of an encoder alone and its outputs, by the graph's names."""
    with np.load(PACKAGES / name / "encoder_case.npz") as held:
        case = dict(held)
    inputs = {key.removeprefix("in_"): value for key, value in case.items() if key.startswith("in_")}
    return inputs, {key.removeprefix("out_"): value for key, value in case.items() if key.startswith("out_")}


def rough(name: str) -> bool:
    """Whether kernels may differ by rounding of half-precision or 4-bit values."""
    return any(each in name for each in ("int4", "fp16", "f16"))


def reliable(name: str, case: dict[str, Any]) -> list[int]:
    """Expected tokens up to the first margin that another kernel may turn over (INDEX.md)."""
    bound = 0.05 if rough(name) else 0.01
    margins = case["margins"] if "margins" in case else [case["min_margin"]]
    close = next((at for at, margin in enumerate(margins) if margin < bound), len(case["greedy"]))
    return list(case["greedy"][:close])
