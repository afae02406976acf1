"""Lengths, memory and missing files (known traps A), end to end."""

from pathlib import Path
from typing import Any

import genai_runtime
import pytest
from genai_compiler import CompileError, compile_package

from tests.lower.packages import Layer, Recipe, write_package
from tests.traps.probe import PROBE_NEEDS_LINUX, run_probe
from tests.traps.toy import toy

LONG: dict[str, Any] = {
    "model": {
        "context_length": 131072,
        "decoder": {"head_size": 128, "num_key_value_heads": 32, "num_hidden_layers": 4},
    }
}
WIDE = tuple(Layer(number, heads=32, head_dim=128) for number in range(4))
FULL_CACHE = 131072 * 4 * 2 * 32 * 128 * 4
"""Bytes of the whole cache: positions x layers x (key, value) x heads x head size x float32, 17 GB."""

GENERATE_UNDER_A_CAP = """
import resource, sys
import genai_runtime
model = genai_runtime.load({folder!r}, threads=1)
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + (1 << 30), held + (1 << 30)))
try:
    print(len(model.generate([3, 4], max_new_tokens={count}, stop_on_eos=False).tokens))
except genai_runtime.RequestError as refused:
    print(refused.code, refused.what, refused.help, sep="|")
"""


@PROBE_NEEDS_LINUX
def test_a5_a_long_context_takes_memory_as_it_is_used(tmp_path: Path) -> None:
    """No max_length, a context of 131072, 1 GiB to have: the whole cache would take 17 GB, a short answer works."""
    recipe = Recipe(layers=WIDE)
    write_package(tmp_path / "package", recipe, LONG)
    made = compile_package(tmp_path / "package", out=tmp_path / "compiled")
    assert any("131072" in note for note in made.notes), "the bytes of the cache are told before anything runs"
    assert genai_runtime.load(tmp_path / "compiled", threads=1).describe()["state_groups"][0]["bytes_per_token"] == (
        FULL_CACHE // 131072
    )
    script = GENERATE_UNDER_A_CAP.format(folder=str(tmp_path / "compiled"), count=4)
    assert run_probe(script).strip() == "4"


@PROBE_NEEDS_LINUX
def test_a5_a_capacity_that_does_not_fit_is_refused_with_its_bytes(tmp_path: Path) -> None:
    """The graph fixes 131072 positions: they are all needed at once, and 17180 MB are too many."""
    recipe = Recipe(layers=WIDE, past_length=131072, present_length=131072)
    write_package(tmp_path / "package", recipe, LONG)
    compile_package(tmp_path / "package", out=tmp_path / "compiled")
    said = run_probe(GENERATE_UNDER_A_CAP.format(folder=str(tmp_path / "compiled"), count=4))
    assert said.startswith("state-memory|")
    assert f"{FULL_CACHE / 1e6:.0f} MB" in said
    assert "131072 tokens" in said


def test_a6_the_terms_are_kept_apart(tmp_path: Path) -> None:
    """context_length and max_length count prompt and output; max_new_tokens the output alone."""
    config = {"model": {"vocab_size": 4, "eos_token_id": 3, "context_length": 20,
                        "decoder": {"head_size": 8, "num_key_value_heads": 1}},
              "search": {"max_length": 12}}  # fmt: skip
    made = toy(tmp_path, ["<go>", "a", "b", "c"], ends=(), config=config)
    model = made.model
    free: dict[str, Any] = {"stop_on_eos": False}
    by_default = model.generate([0] * 5, **free)
    assert (len(by_default.tokens), by_default.finish_reason) == (12 - 5, "length")
    asked = model.generate([0] * 5, max_new_tokens=9, **free)
    assert (len(asked.tokens), asked.finish_reason) == (9, "length"), "a request may go past the package's max_length"
    most = model.generate([0] * 5, max_new_tokens=100, **free)
    assert (len(most.tokens), most.finish_reason) == (20 - 5, "context")
    with pytest.raises(genai_runtime.RequestError) as refused:
        model.generate([0] * 20, max_new_tokens=7, **free)
    assert refused.value.code == "context-exceeded"
    assert all(each in refused.value.what for each in ("20 tokens", "max_new_tokens is 7", "holds 20"))
    assert refused.value.help


def test_a6_max_length_over_context_length_is_warned_of(tmp_path: Path) -> None:
    config = {"model": {"context_length": 2176}, "search": {"max_length": 2347}}
    write_package(tmp_path / "package", Recipe(), config)
    problems = compile_package(tmp_path / "package", out=tmp_path / "compiled").problems
    told = next(each for each in problems if each.code == "length-over-context")
    assert all(each in told.what for each in ("2347", "2176"))


def test_a10_every_missing_file_is_listed_at_once(tmp_path: Path) -> None:
    write_package(tmp_path / "package", Recipe())
    (tmp_path / "package" / "genai_config.json").unlink()
    with pytest.raises(CompileError) as caught:
        compile_package(tmp_path / "package", out=tmp_path / "compiled")
    missing = {each.where.file for each in caught.value.problems}
    assert {"genai_config.json", "tokenizer.json", "tokenizer_config.json"} <= missing
    told = next(each.help for each in caught.value.problems if each.where.file == "genai_config.json")
    assert all(each in told for each in ("input_ids", "1 attention caches", "24 logits"))
    assert not (tmp_path / "compiled").exists()
