"""Where the values of a request come from: caller, package defaults, the input's own default, greedy (standard, 1.8).

The packages here publish what their inputs were bound to, so what a sampler would get is what the tests read.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_runtime import RequestError
from genai_runtime.options import refuse_overrides, resolve_roles, role_fallbacks, tensor_options
from genai_runtime.sample import SamplingOptions

from tests.conftest import FIXTURES, Traced
from tools.fixtures.document import Document, emit, output, package, request, tensor, write_document

Models = Callable[[str], genai_runtime.Model]
KNOBS = ("temperature", "top_k", "top_p", "min_p")
GREEDY = (0.0, 1, 1.0, 0.0)
"""What a greedy request gives a sampler (standard, 3.1), in the order of KNOBS."""

SAMPLES: Document = {"do_sample": True, "temperature": 0.75, "top_k": 5}
PROMPT = [3, 4]
ROLES = {"seed": "seed", "limit": "max_output_tokens", "bound": "max_iterations"} | {
    each: f"sampling_{each}" for each in KNOBS
}


def echo(
    folder: Path,
    names: tuple[str, ...] = (*KNOBS, "seed"),
    *,
    own: Document | None = None,
    generation: Document | None = None,
) -> genai_runtime.Model:
    """A package that publishes its prompt as its tokens, and each input under its name. own: defaults of inputs."""
    types = {name: tensor("int64" if name in ("seed", "top_k", "limit", "bound") else "float32", 1) for name in names}
    inputs = {name: request(types[name], ROLES[name], (own or {}).get(name)) for name in names}
    prompt = tensor("int64", 1, "length")
    outputs = {"tokens": output(prompt, "tokens"), **{f"out.{name}": output(types[name]) for name in names}}
    steps = [emit("prompt", "tokens"), *(emit(name, f"out.{name}") for name in names)]
    facts = {} if generation is None else {"generation": generation}
    inputs |= {"prompt": request(prompt, "prompt_tokens")}
    write_document(folder, package(["workflow_ssa", "typed_emit"], inputs, outputs, {}, steps, **facts))
    compile_package(folder, out=folder.with_suffix(".compiled"))
    return genai_runtime.load(folder.with_suffix(".compiled"))


def contract(*names: str, **bounds: Document) -> Document:
    """`generation.overrides` that lists these fields."""
    fields = [*names, *bounds]
    return {
        name: {"input": "temperature" if name == "do_sample" else name}
        | ({"constraint": bounds[name]} if name in bounds else {})
        for name in fields
    }


ALL = contract(*KNOBS, "do_sample", "seed")


def generated(model: genai_runtime.Model, **options: Any) -> tuple[float, ...]:
    """What the inputs of KNOBS were bound to by `generate`, rounded to what float32 tells apart."""
    generation = model.generate(PROMPT, **options)
    assert generation.tokens == PROMPT
    assert generation.result is not None
    return shown(generation.result)


def ran(model: genai_runtime.Model, **tensors: Any) -> tuple[float, ...]:
    """The same of `run`."""
    prompt = {"prompt": np.array([PROMPT])}
    return shown(model.run(prompt | {name: np.array([each]).astype(dtype(name)) for name, each in tensors.items()}))


def dtype(name: str) -> str:
    """The element type of an option's input."""
    return "int64" if name in ("top_k", "seed") else "float32"


def shown(result: Any) -> tuple[float, ...]:
    """The bound values, in the order of KNOBS."""
    return tuple(round(result[f"out.{name}"].item(), 6) for name in KNOBS if f"out.{name}" in result)


# ---- the order of sources --------------------------------------------------------------------------------------------


def test_nothing_said_is_greedy(tmp_path: Path) -> None:
    model = echo(tmp_path / "p")
    assert generated(model) == ran(model) == GREEDY


def test_package_defaults_reach_the_sampler(tmp_path: Path) -> None:
    model = echo(tmp_path / "p", generation={"defaults": SAMPLES, "overrides": ALL})
    assert generated(model) == ran(model) == (0.75, 5, 1.0, 0.0)
    assert generated(model, temperature=1.5) == ran(model, temperature=1.5) == (1.5, 5, 1.0, 0.0)
    assert generated(model, top_k=0, min_p=0.25) == ran(model, top_k=0, min_p=0.25) == (0.75, 0, 1.0, 0.25)


@pytest.mark.parametrize("asked", [{"temperature": 0}, {"do_sample": False}])
def test_a_greedy_request_sets_all_four(tmp_path: Path, asked: Document) -> None:
    own = {"temperature": 0.5, "top_k": 9, "top_p": 0.5, "min_p": 0.5}
    model = echo(tmp_path / "p", own=own, generation={"defaults": {**SAMPLES, "top_p": 0.9}, "overrides": ALL})
    assert generated(model, **asked) == GREEDY
    assert generated(model, **asked, top_p=0.9) == GREEDY


def test_zero_temperature_in_a_tensor_is_greedy_too(tmp_path: Path) -> None:
    model = echo(tmp_path / "p", generation={"defaults": SAMPLES, "overrides": ALL})
    assert ran(model, temperature=0) == GREEDY


def test_tensors_of_options_may_be_bfloat16_bits() -> None:
    """0x3F80 is 1 as a fraction; a count in uint16 is that count."""
    bits = np.array([0x3F80, 0], np.uint16)
    assert tensor_options({"temperature": bits, "top_k": bits, "seed": None}) == {
        "temperature": [1.0, 0.0],
        "top_k": [0x3F80, 0],
    }


def test_an_inputs_own_default_comes_behind_the_packages(tmp_path: Path) -> None:
    own = {"temperature": 0.5, "top_p": 0.25}
    bare = echo(tmp_path / "bare", own=own)
    assert generated(bare) == ran(bare) == (0.5, 0, 0.25, 0.0), "the document's defaults sample; the rest is off"
    assert generated(bare, min_p=0.125) == (0.5, 0, 0.25, 0.125)
    assert generated(bare, temperature=2) == (2.0, 0, 0.25, 0.0)
    both = echo(tmp_path / "both", own=own, generation={"defaults": SAMPLES, "overrides": ALL})
    assert generated(both) == ran(both) == (0.75, 5, 0.25, 0.0)


def test_neutral_defaults_of_inputs_do_not_ask_for_sampling(tmp_path: Path) -> None:
    model = echo(tmp_path / "p", own={"temperature": 1.0, "top_p": 1.0})
    assert generated(model) == ran(model) == (1.0, 1, 1.0, 0.0), "top_k 1 is greedy, whatever the temperature"


def test_package_defaults_that_decline_to_sample(tmp_path: Path) -> None:
    """Fields are resolved one by one (1.8): a temperature alone does not turn sampling on, and false turns it off."""
    declining = [{"temperature": 0.75}, {**SAMPLES, "do_sample": False}, {**SAMPLES, "temperature": 0}]
    for at, defaults in enumerate(declining):
        model = echo(tmp_path / f"p{at}", own={"temperature": 0.5}, generation={"defaults": defaults, "overrides": ALL})
        assert generated(model) == ran(model) == GREEDY


def test_sampling_asked_for_without_values(tmp_path: Path) -> None:
    assert generated(echo(tmp_path / "p"), do_sample=True) == (1.0, 0, 1.0, 0.0)


@pytest.mark.parametrize(("temperatures", "last"), [([1.5, 0], GREEDY), ([0, 1.5], (1.5, 5, 1.0, 0.0))])
def test_each_row_has_its_own_values(tmp_path: Path, temperatures: list[float], last: tuple[float, ...]) -> None:
    model = echo(tmp_path / "p", generation={"defaults": SAMPLES, "overrides": ALL})
    generation = model.generate(batch=[PROMPT, PROMPT], temperature=temperatures)
    assert [each.tokens for each in generation.rows] == [PROMPT, PROMPT]
    assert generation.result is not None, "rows run one by one, so this is the last one's"
    assert shown(generation.result) == last


def test_seed(tmp_path: Path) -> None:
    model = echo(tmp_path / "p", ("temperature", "seed"))
    first, second = model.generate(PROMPT), model.generate(PROMPT, seed=9)
    assert [first.tokens, second.tokens] == [PROMPT, PROMPT]
    assert first.result is not None
    assert second.result is not None
    assert (first.result["out.seed"].item(), second.result["out.seed"].item()) == (0, 9)


def test_both_length_roles_are_bound(tmp_path: Path) -> None:
    model = echo(tmp_path / "p", ("limit", "bound"))
    generation = model.generate(PROMPT, max_new_tokens=7)
    assert generation.tokens == PROMPT
    assert generation.result is not None
    assert [generation.result[f"out.{name}"].item() for name in ("limit", "bound")] == [7, 7]


# ---- greedy that can't be had ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [(), ("seed",), ("top_p", "min_p")])
@pytest.mark.parametrize("asked", [{"do_sample": False}, {"temperature": 0}])
def test_greedy_is_refused_where_nothing_carries_it(tmp_path: Path, names: tuple[str, ...], asked: Document) -> None:
    with pytest.raises(RequestError) as refused:
        echo(tmp_path / "p", names).generate(PROMPT, **asked)
    assert refused.value.code == "unsupported-option"
    assert next(iter(asked)) in refused.value.what


def test_top_k_alone_carries_greedy(tmp_path: Path) -> None:
    model = echo(tmp_path / "p", ("top_k",))
    assert generated(model, do_sample=False) == generated(model, temperature=0) == (1,)


def test_a_sampler_that_is_always_greedy_is_only_asked_for_that() -> None:
    none: frozenset[str] = frozenset()
    assert resolve_roles({"do_sample": False}, {}, none, always_greedy=True)[0] == {}
    assert resolve_roles({"temperature": 0}, {}, none, always_greedy=True)[0] == {}
    for asked in ({"do_sample": True}, {"temperature": 0.5}):
        with pytest.raises(RequestError, match="unsupported-option"):
            resolve_roles(asked, {}, none, always_greedy=True)


def test_fallbacks_follow_the_defaults_of_rows() -> None:
    undecided = SamplingOptions()
    assert role_fallbacks(undecided, {"temperature": (0.0, 0.5)})["sampling_top_k"] == 0
    assert role_fallbacks(undecided, {"temperature": (0.0, 0.0)})["sampling_top_k"] == 1


# ---- the generation contract -----------------------------------------------------------------------------------------


def test_a_field_that_the_contract_does_not_list(tmp_path: Path) -> None:
    model = echo(tmp_path / "p", generation={"overrides": contract("temperature")})
    assert generated(model, temperature=0.5) == ran(model, temperature=0.5) == (0.5, 0, 1.0, 0.0)
    unlisted: list[Document] = [{"top_k": 3}, {"top_p": 0.5}, {"do_sample": True}, {"do_sample": False}, {"top_k": [3]}]
    for asked in unlisted:
        with pytest.raises(RequestError) as refused:
            model.generate(PROMPT, **asked)
        assert refused.value.code == "option-not-allowed"
        assert "temperature" in refused.value.help
    with pytest.raises(RequestError, match="option-not-allowed"):
        ran(model, top_k=3)


def test_options_that_no_contract_governs_stay(tmp_path: Path) -> None:
    model = echo(tmp_path / "p", generation={"overrides": contract("temperature")})
    assert generated(model, temperature=0.5, min_p=0.25, seed=3) == (0.5, 0, 1.0, 0.25)
    assert generated(model, top_k=None) == GREEDY, "unset is not a value"


def test_bounds_are_inclusive(tmp_path: Path) -> None:
    bounds: Document = {
        "temperature": {"minimum": 0.5, "maximum": 1.5},
        "top_k": {"minimum": 2},
        "min_p": {"maximum": 0.5},
    }
    model = echo(tmp_path / "p", generation={"defaults": SAMPLES, "overrides": contract("do_sample", **bounds)})
    assert generated(model, temperature=0.5) == (0.5, 5, 1.0, 0.0)
    assert generated(model, temperature=1.5, top_k=2, min_p=0.5) == (1.5, 2, 1.0, 0.5)
    outside: list[tuple[str, Any]] = [
        *(("temperature", each) for each in (0, 0.4999, 1.5001, float("nan"), np.float32(1.6), [1.6])),
        *(("top_k", each) for each in (1, np.int64(1))),
        ("min_p", 0.6),
    ]
    for name, value in outside:
        with pytest.raises(RequestError) as refused:
            model.generate(PROMPT, **{name: value})
        assert refused.value.code == "option-out-of-bounds"
        assert name in refused.value.what
    with pytest.raises(RequestError, match="option-out-of-bounds"):
        ran(model, temperature=1.75)


def test_bounds_of_the_output_length(tmp_path: Path) -> None:
    overrides = {"max_output_tokens": {"input": "limit", "constraint": {"minimum": 1, "maximum": 8}}}
    model = echo(tmp_path / "p", ("limit",), generation={"overrides": overrides})
    assert model.generate(PROMPT, max_new_tokens=8).tokens == PROMPT
    assert model.generate(PROMPT).tokens == PROMPT
    with pytest.raises(RequestError, match="option-out-of-bounds"):
        model.generate(PROMPT, max_new_tokens=9)


def test_defaults_alone_are_a_contract_that_lists_nothing(tmp_path: Path) -> None:
    model = echo(tmp_path / "p", generation={"defaults": SAMPLES})
    assert generated(model) == (0.75, 5, 1.0, 0.0)
    with pytest.raises(RequestError, match="option-not-allowed"):
        model.generate(PROMPT, temperature=1.0)


def test_without_a_contract_nothing_is_restricted(tmp_path: Path) -> None:
    refuse_overrides({"temperature": 99.0, "do_sample": True}, {"contract": False, "defaults": {}, "overrides": {}})
    assert generated(echo(tmp_path / "p"), temperature=99.0) == (99.0, 0, 1.0, 0.0)


def test_the_runtimes_own_options_in_a_package_with_a_contract(model: Models) -> None:
    """A lowered package lists temperature, top_k, top_p and do_sample; this runtime's policy offers more."""
    options: Document = {
        "repetition_penalty": 1.3,
        "seed": 3,
        "min_p": 0.1,
        "no_repeat_ngram_size": 2,
        "do_sample": True,
    }
    assert model("tiny-gqa-v1").generate(PROMPT, max_new_tokens=3, stop_on_eos=False, **options).stats.new_tokens == 3


def test_the_contract_of_a_decoder_with_its_own_sampler(model: Models) -> None:
    tiny = model("tiny-decoder")  # temperature 0 to 2; do_sample is not listed
    assert tiny.generate(PROMPT, max_new_tokens=2, temperature=2.0).stats.new_tokens > 0
    with pytest.raises(RequestError, match="option-out-of-bounds"):
        tiny.generate(PROMPT, temperature=2.5)
    with pytest.raises(RequestError, match="option-not-allowed"):
        tiny.generate(PROMPT, do_sample=False)


@pytest.mark.parametrize("damage", [7, [], {"temperature": 7}, {"temperature": {"minimum": "x"}}])
def test_a_damaged_contract_has_a_name(
    compiled: Callable[[str], tuple[Path, Traced]], tmp_path: Path, damage: Any
) -> None:
    folder = shutil.copytree(compiled("tiny-gqa-v1")[0], tmp_path / "c")
    data = json.loads((folder / "manifest.json").read_text("utf-8"))
    data["generation"]["overrides"] = damage
    data["package"]["path"] = str(FIXTURES / "tiny-gqa-v1")
    (folder / "manifest.json").write_text(json.dumps(data), "utf-8")
    with pytest.raises(genai_runtime.LoadError, match="damaged-folder"):
        genai_runtime.load(folder).generate(PROMPT, temperature=0.5)
