"""`runtime` and `build_requires` of a session's options: held against their words, without effect, and told."""

from pathlib import Path
from typing import Any

import pytest
from genai_compiler.lower.genai_config_v2 import lower_pipeline_config
from genai_compiler.problem import Severity

from tests.lower.pipelines import lone, package, pipeline, problems
from tests.lower.test_pipeline import PLAIN

AT = "pipeline.sessions.decoder.session_options"
RUNTIME = {
    "kv_cache": {"dtype": "int8", "quant": "per_token"},
    "paging": {"enabled": True, "block_size": 16},
    "prefix_cache": {"enabled": False},
    "sliding_window": {"size": 8, "sink_tokens": 0},
    "chunked_prefill": {"max_batched_tokens": 512},
    "precision": "bf16",
}
BUILD = {"attention": "gqa", "quantization": "awq", "extra_heads": "eagle3"}
WORDS = {
    "runtime.kv_cache.dtype": ("fp32", "fp16", "bf16", "fp8", "int8", "int4"),
    "runtime.kv_cache.quant": ("none", "per_token", "per_channel", "per_tensor"),
    "runtime.precision": ("fp32", "fp16", "bf16", "fp8"),
    "build_requires.attention": ("mha", "mqa", "gqa"),
    "build_requires.quantization": ("none", "awq", "gptq", "int8", "int4", "fp8"),
    "build_requires.extra_heads": ("none", "medusa", "mtp", "eagle", "eagle3", "hydra"),
}
WRONG: list[tuple[str, Any, str]] = [
    *((key, "fp23", "not-in-list") for key in WORDS),
    *((key, 7, "wrong-type") for key in WORDS),
    ("runtime.paging.block_size", 0, "below-minimum"),
    ("runtime.paging.block_size", "16", "wrong-type"),
    ("runtime.paging.enabled", 1, "wrong-type"),
    ("runtime.prefix_cache.enabled", "true", "wrong-type"),
    ("runtime.sliding_window.size", 0, "below-minimum"),
    ("runtime.sliding_window.sink_tokens", -1, "below-minimum"),
    ("runtime.chunked_prefill.max_batched_tokens", 0, "below-minimum"),
    ("runtime.prefixcache", {}, "unknown-field"),
    ("runtime.kv_cache", "int8", "wrong-type"),
    ("build_requires", ["gqa"], "wrong-type"),
]


def options(key: str, value: Any) -> dict[str, Any]:
    inner: Any = value
    for step in reversed(key.split(".")):
        inner = {step: inner}
    return {"sessions": {"decoder": {"session_options": inner}}}


def test_what_is_right_has_no_effect_and_is_told(tmp_path: Path) -> None:
    plain = lower_pipeline_config(package(tmp_path / "a", PLAIN, lone()))
    stated = {"sessions": {"decoder": {"session_options": {"runtime": RUNTIME, "build_requires": BUILD}}}}
    made = lower_pipeline_config(package(tmp_path / "b", pipeline(PLAIN, **stated), lone()))
    assert (made.document, made.session_options) == (plain.document, plain.session_options)
    told = [each for each in made.problems if each not in plain.problems]
    assert [(each.code, each.path) for each in told if each.path.startswith(AT)] == [
        ("ignored-key", f"{AT}.runtime"),
        ("ignored-key", f"{AT}.build_requires"),
    ]


@pytest.mark.parametrize("key", WORDS)
def test_each_word_is_known(key: str, tmp_path: Path) -> None:
    for word in WORDS[key]:
        found = lower_pipeline_config(package(tmp_path / word, pipeline(PLAIN, **options(key, word)), lone()))
        assert all(each.severity is Severity.WARNING for each in found.problems)


@pytest.mark.parametrize(("key", "value", "code"), WRONG, ids=str)
def test_what_is_none_of_the_words_is_refused_at_its_place(key: str, value: Any, code: str, tmp_path: Path) -> None:
    (told,) = problems(package(tmp_path / "p", pipeline(PLAIN, **options(key, value)), lone()))
    assert (told.code, told.path, told.severity) == (code, f"{AT}.{key}", Severity.ERROR)
    assert told.where.line > 0
    assert "V0" not in told.what
    if key in WORDS and code == "not-in-list":
        assert f"one of: {', '.join(WORDS[key])}" in told.help
