"""Real exporters' packages: lowered facts must drive the graph to the tokens that other runtimes got from it."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from genai_compiler import compile_package
from genai_compiler.driver import Options
from genai_compiler.lower.decoder_facts import DecoderFacts
from genai_compiler.lower.genai_config_v1 import lower_genai_config
from genai_compiler.lower.lowered import Lowered
from genai_compiler.passes import PASSES
from genai_compiler.plan.text import plan_text
from genai_compiler.problem import CompileError, errors
from genai_compiler.read.places import Places
from genai_compiler.read.validate import parse_metadata

from tests.data import DATA, needs_data

pytestmark = needs_data
PACKAGES = DATA / "realpkgs"
_NAMES = """
    og-llama og-llama-hidden og-llama-int4 og-llama-prune og-qwen2-fp16 og-hunyuan og-phi3long og-mistral-int4
    og092-gemma2 mobius-llama-og mobius-llama-og-cpu mobius-gpt2-og mobius-qwen2_moe-og
"""
COMPILED = _NAMES.split()
# name, code of the refusal, words that its reason or remedy must hold
REFUSED = [
    ("og-llama-nohead", "no-logits", "export it with its head"),
    ("og-llama-noembed", "no-embedding-stage", "no stage produces 'inputs_embeds'"),
    ("mobius-bert-og", "no-logits", "last_hidden_state"),
    ("mobius-vit-og", "missing-input", "pixel_values"),
]
NUMPY = {"int64": np.int64, "int32": np.int32, "float32": np.float32, "float16": np.float16}


@pytest.fixture(scope="module")
def lowered() -> dict[str, Lowered]:
    return {name: lower_genai_config(PACKAGES / name) for name in COMPILED}


@pytest.mark.parametrize("name", COMPILED)
def test_facts_drive_the_graph_to_the_expected_tokens(name: str, lowered: dict[str, Lowered]) -> None:
    facts = lowered[name].decoder
    session = ort.InferenceSession(PACKAGES / name / facts.artifact, providers=["CPUExecutionProvider"])
    for case in _cases(name):
        wanted = _testable(case, 0.05 if "int4" in name or "fp16" in name else 0.01)
        assert _greedy(session, facts, case["prompt"], len(wanted)) == wanted


@pytest.mark.parametrize("name", ["og-llama", "og-phi3long", "mobius-llama-og-cpu", "mobius-llama-og"])
def test_mask_use_is_what_the_graph_does(name: str, lowered: dict[str, Lowered]) -> None:
    """Swap a 0 and a 1 of one row: a graph that only uses row sums can't tell, one that uses columns must."""
    facts = lowered[name].decoder
    session = ort.InferenceSession(PACKAGES / name / facts.artifact, providers=["CPUExecutionProvider"])
    mask = np.array([[1, 1, 1, 1, 0]], NUMPY["int64"])
    logits = [
        _run(session, facts, [5, 6, 7, 8, 9], each, _empty(facts))[0] for each in (mask, mask[:, [0, 4, 2, 3, 1]])
    ]
    same = np.array_equal(logits[0][:, 3], logits[1][:, 3])
    assert same == (facts.mask_use == "lengths")


@pytest.mark.parametrize("name", COMPILED)
def test_the_document_is_valid_and_complete(name: str, lowered: dict[str, Lowered]) -> None:
    document = lowered[name].document
    metadata = parse_metadata(document, Places("genai_config.json"))
    workflow = document["pipeline"]["workflow"]
    ports = {each.name for each in lowered[name].signature.inputs}
    assert set(workflow["components"]["decoder"]["ports"]["inputs"]) == ports
    assert metadata.pipeline is not None
    assert json.loads(json.dumps(document)) == document


def test_the_document_has_the_canonical_parts(lowered: dict[str, Lowered]) -> None:
    """Section 10.3 item by item, on a package whose numbers INDEX.md states (2 layers, width 64, 320 ids)."""
    workflow = lowered["mobius-llama-og"].document["pipeline"]["workflow"]
    loop = workflow["steps"][0]
    group = workflow["serving"]["state_service"]["groups"]["decoder_kv"]
    assert [each["kind"] for each in loop["steps"]] == ["invoke", "invoke", "emit"]
    assert (loop["continue_when"], loop["max_iterations"]) == ("active", "request.max_iterations")
    assert loop["termination"] == "generation_eos"
    assert loop["steps"][0]["inputs"]["input_ids"] == "request.input_ids"
    assert workflow["inputs"]["package.eos_token_ids"]["default"] == [2]
    assert workflow["inputs"]["package.sequence_capacity"]["default"] == 256, "4096 is stated, the tables have 256 rows"
    assert {"application.attention_mask", "application.position_ids"} <= set(workflow["inputs"])
    aliases = list(group["ports"]["decoder"].values())
    assert [(each["role"], each["layer"]) for each in aliases] == [("key", 0), ("value", 0), ("key", 1), ("value", 1)]
    assert group["kind"] == "full_attention"
    assert workflow["state"]["decoder_kv.0003"]["contract"]["shape"] == ["batch", 2, "kv_sequence", 16]
    assert len(loop["carried"]) == 3 + 4 + 1


def test_prompt_logits_of_a_pruned_graph_are_one_row(lowered: dict[str, Lowered]) -> None:
    assert lowered["og-llama-prune"].decoder.last_token_only
    assert not lowered["og-llama"].decoder.last_token_only


def test_an_extra_output_is_no_state(lowered: dict[str, Lowered]) -> None:
    facts = lowered["og-llama-hidden"].decoder
    assert "hidden_states" in {each.name for each in facts.signature.outputs}
    assert all("hidden" not in each.output for each in facts.states)
    assert facts.hidden is None


def test_half_precision_caches_come_from_the_graph(lowered: dict[str, Lowered]) -> None:
    """C1. 2 layers x (key, value) x 2 heads x 16 x 2 bytes."""
    facts = lowered["og-qwen2-fp16"].decoder
    assert {each.dtype for each in facts.states} == {"float16"}
    assert facts.logits.dtype == "float16"
    assert facts.cache_bytes_per_token == 2 * 2 * 2 * 16 * 2


def test_a_provider_is_a_preference(lowered: dict[str, Lowered]) -> None:
    """It says `enable_cuda_graph: "0"`, which is how it is anyway."""
    package = lowered["og-qwen2-fp16"]
    assert [each.name for each in package.providers] == ["CUDAExecutionProvider"]
    assert package.providers[0].options == ()
    assert "ignored-key" not in {each.code for each in package.problems}


def test_the_length_switch_is_named(lowered: dict[str, Lowered]) -> None:
    """E2: the package's tables change after 64 positions (INDEX.md)."""
    assert [each.threshold for each in lowered["og-phi3long"].decoder.length_switches] == [64]
    warnings = [each.what for each in lowered["og-phi3long"].problems if each.code == "length-switch"]
    assert len(warnings) == 1
    assert "64" in warnings[0]


def test_a_window_that_only_the_config_has_is_named(lowered: dict[str, Lowered]) -> None:
    """D3: a layer has a window only if its own graph says so."""
    assert [each.code for each in lowered["og-mistral-int4"].problems] == ["config-contradicts-graph"]
    assert not any(each.local_window for each in lowered["og-mistral-int4"].signature.cache_ops)
    assert [each.local_window for each in lowered["og092-gemma2"].signature.cache_ops] == [None, 8]


@pytest.mark.parametrize("name", ["og-llama", "og-hunyuan", "og-qwen2-fp16", "mobius-llama-og-cpu"])
def test_grouped_query_attention_may_write_in_place(name: str, lowered: dict[str, Lowered]) -> None:
    assert lowered[name].decoder.aliasing == "permitted"


def test_appending_attention_may_not(lowered: dict[str, Lowered]) -> None:
    assert lowered["mobius-llama-og"].decoder.aliasing == "forbidden"


@pytest.mark.parametrize(("name", "code", "words"), REFUSED)
def test_refused_with_reason_and_remedy(name: str, code: str, words: str) -> None:
    with pytest.raises(CompileError) as caught:
        lower_genai_config(PACKAGES / name)
    found = [each for each in caught.value.problems if each.code == code and words in f"{each.what} {each.help}"]
    assert found, str(caught.value)
    assert found[0].help
    assert found[0].where.file == "genai_config.json"
    assert found[0].where.line > 0


def _cases(name: str) -> list[dict[str, Any]]:
    expected = json.loads((PACKAGES / name / "expected.json").read_text())
    return [each for each in expected["cases"] if each.get("kind", "text") == "text"]


def _testable(case: dict[str, Any], margin: float) -> list[int]:
    """Expected tokens up to the first near-tie, as INDEX.md advises."""
    close = next((at for at, each in enumerate(case["margins"]) if each < margin), len(case["greedy"]))
    return list(case["greedy"][:close])


def _empty(facts: DecoderFacts) -> dict[str, np.ndarray]:
    return {each.input: np.zeros((1, each.heads, 0, each.head_dim), NUMPY[each.dtype]) for each in facts.states}


def _run(
    session: ort.InferenceSession, facts: DecoderFacts, ids: list[int], mask: np.ndarray, past: dict[str, np.ndarray]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """One call by the facts alone: logits and the next caches."""
    total = mask.shape[1]
    feeds = {facts.token_ids.name: np.array([ids], NUMPY[facts.token_ids.dtype]), **past}
    if facts.attention_mask is not None:
        feeds[facts.attention_mask.name] = mask.astype(NUMPY[facts.attention_mask.dtype])
    if facts.position_ids is not None:
        positions = np.arange(total - len(ids), total, dtype=NUMPY[facts.position_ids.dtype])
        feeds[facts.position_ids.name] = positions[None]
    names = [facts.logits.name, *(each.output for each in facts.states)]
    logits, *present = session.run(names, feeds)
    return logits, {each.input: value for each, value in zip(facts.states, present, strict=True)}


def _greedy(session: ort.InferenceSession, facts: DecoderFacts, prompt: list[int], count: int) -> list[int]:
    past, fed, tokens = _empty(facts), list(prompt), []
    total = 0
    while len(tokens) < count:
        total += len(fed)
        logits, past = _run(session, facts, fed, np.ones((1, total), np.int64), past)
        assert not facts.last_token_only or logits.shape[1] == 1
        fed = [int(logits.reshape(-1, logits.shape[-1])[-1].argmax())]
        tokens += fed
    return tokens


def test_every_package_is_compiled_or_refused_by_name() -> None:
    """No package of the set, ours to run or not, may end in anything but a Lowered or a CompileError."""
    refusals: list[CompileError] = []
    for config in sorted(Path(PACKAGES).glob("*/genai_config.json")):
        try:
            lower_genai_config(config.parent)
        except CompileError as fault:
            refusals.append(fault)
    silent = [each for fault in refusals for each in errors(fault.problems) if not each.help]
    assert not silent


# ---- the type of a model ---------------------------------------------------------------------------------------------

CONFIGURED = sorted(each.parent.name for each in PACKAGES.glob("*/genai_config.json")) if PACKAGES.is_dir() else []


def outcome(package: Path) -> list[str]:
    """The last plan, or what is refused, without what is said of the type itself."""
    try:
        made = compile_package(package, options=Options(stop_after=PASSES[-1].__name__))
    except CompileError as fault:
        return [f"{each.code} {each.path} {each.what}" for each in fault.problems]
    assert made.plan is not None
    told = [f"{each.code} {each.path} {each.what}" for each in made.problems]
    return [*plan_text(made.plan).splitlines(), *told]


@pytest.mark.parametrize("name", CONFIGURED)
def test_a_type_of_any_name_and_none_gives_one_plan(name: str, tmp_path: Path) -> None:
    """Every package with a genai_config.json, decoders, encoders and pictures, refused ones too: a type that nobody has
    seen, none at all, and the types of other classes.
    """
    folder = shutil.copytree(PACKAGES / name, tmp_path / name)
    config = json.loads((folder / "genai_config.json").read_text("utf-8"))
    wanted = outcome(folder)
    del config["model"]["type"]
    for kind in (None, "a_type_of_tomorrow", "whisper", "gpt2", "marian-ssru", "phi3v"):
        stated = {} if kind is None else {"type": kind}
        changed = {**config, "model": {**stated, **config["model"]}}
        (folder / "genai_config.json").write_text(json.dumps(changed, indent=4), "utf-8")
        assert outcome(folder) == wanted, kind


def test_the_types_are_there_to_be_changed() -> None:
    assert len(CONFIGURED) >= 25
