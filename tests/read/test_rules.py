"""Rules V001-V024, one broken document each: the code, the place and the rule named, and nothing else reported."""

from typing import Any

import pytest
from genai_compiler.read.rules import RULES

from tests.read.documents import DELETE, EMIT, GROUP, LOOP, STEP, W, bare, change, faults, full

ROUTER = "model/mixture_of_experts/router"

# rule, code, what to change, its new value, and where the problem stands when not right there: "<" one level up,
# else what to append
FULL_CASES: list[tuple[Any, ...]] = [
    ("V002", "retired-field", "kv_cache", {}),
    ("V002", "unknown-field", "pipelines", {}),
    ("V003", "retired-field", "pipeline/models", []),
    ("V003", "retired-field", "model/runtime_configurable/kv_cache", 1),
    ("V003", "unknown-field", f"{STEP}/phase", 1),
    ("V003", "unknown-field", f"{W}/state/cache/recurrence/step", 1),
    ("V004", "missing-field", f"{W}/manifest", DELETE, "<"),
    ("V004", "missing-field", f"{STEP}/component", DELETE, "<"),
    ("V004", "missing-field", f"{W}/state/cache/recurrence/max", DELETE, "<"),
    ("V005", "wrong-type", f"{STEP}/component", 4),
    ("V005", "wrong-type", f"{STEP}/component", None),
    ("V005", "wrong-type", f"{STEP}/inputs", []),
    ("V005", "wrong-type", f"{STEP}/inputs/ids", True),
    ("V005", "wrong-type", f"{W}/steps", {}),
    ("V005", "wrong-type", f"{W}/steps/0", "invoke"),
    ("V005", "wrong-type", f"{EMIT}/axis", True),
    ("V005", "wrong-type", f"{EMIT}/axis", "1"),
    ("V005", "wrong-type", f"{EMIT}/axis", 4.0),
    ("V005", "wrong-type", "schema_version", 1.0),
    ("V005", "wrong-type", "required_capabilities", "kv_cache"),
    ("V005", "wrong-type", "model", []),
    ("V005", "wrong-type", "generation/defaults/do_sample", 1),
    ("V005", "wrong-type", "generation/defaults/temperature", True),
    ("V005", "wrong-type", "preprocessing/image/transforms/1/size", "big"),
    ("V005", "wrong-type", f"{W}/inputs/seed/contract/shape", [None], "[0]"),
    ("V005", "wrong-type", f"{W}/inputs/seed/default", {}),
    ("V005", "wrong-type", f"{W}/inputs/seed/default", [1, [2]], "[1]"),
    ("V006", "not-in-list", f"{EMIT}/mode", "add"),
    ("V006", "not-in-list", f"{W}/outputs/tokens/role", "token"),
    ("V006", "not-in-list", f"{W}/components/decoder/ports/roles/ids", "x"),
    ("V006", "not-in-list", f"{GROUP}/kind", "mla"),
    ("V007", "unknown-kind", f"{W}/inputs/seed/role/kind", "public"),
    ("V007", "missing-kind", f"{W}/inputs/seed/role/kind", DELETE, "<"),
    ("V007", "unknown-kind", f"{W}/inputs/seed/source/kind", 3),
    ("V007", "unknown-kind", "speculative/vocabulary/kind", "same"),
    ("V007", "unknown-kind", f"{W}/state/cache/session/continuation/kind", "x"),
    ("V007", "missing-kind", f"{W}/state/cache/session/continuation/kind", DELETE, "<"),
    ("V007", "missing-kind", f"{STEP}/kind", DELETE, "<"),
    ("V008", "below-minimum", f"{EMIT}/axis", -1),
    ("V008", "fractional-number", f"{EMIT}/axis", 1.5),
    ("V008", "out-of-range", "package/tokenizer/special_tokens/eos/id", 2**32),
    ("V008", "out-of-range", f"{W}/outputs/sound/media/channels", 65536),
    ("V008", "below-minimum", "quantization/overrides/0/layers/1", -(2**31) - 1),
    ("V008", "out-of-range", "quantization/overrides/0/layers/1", 2**31),
    ("V008", "out-of-range", f"{W}/inputs/seed/default", 2**64),
    ("V008", "below-minimum", "model/vocab_size", -1),
    ("V009", "bad-extent", f"{W}/inputs/seed/contract/shape", [1.5], "[0]"),
    ("V009", "bad-extent", f"{W}/inputs/seed/contract/shape", [-1], "[0]"),
    ("V010", "empty-string", f"{W}/inputs/seed/contract/shape", [""], "[0]"),
    ("V012", "missing-field", "adapters/artifacts/one/weights/0/scale_encoding", DELETE, "<"),
    ("V013", "missing-field", f"{EMIT}/mode", DELETE, "<"),
    ("V013", "missing-field", f"{W}/outputs/tokens/stage", DELETE, "<"),
    ("V013", "missing-field", f"{W}/state/cache/recurrence", DELETE, "<"),
    ("V013", "missing-field", f"{W}/state/cache/scope", DELETE, "<"),
    ("V013", "missing-field", f"{W}/components/draft/implementation", DELETE, "<"),
    ("V013", "missing-field", f"{W}/inputs/seed/role", DELETE, "<"),
    ("V013", "missing-field", f"{W}/inputs/seed/source", DELETE, "<"),
    ("V014", "unknown-kind", f"{STEP}/kind", "transfer"),
    ("V014", "unknown-kind", f"{LOOP}/steps/0/cases/invoke/kind", "island"),
    ("V015", "retired-field", f"{LOOP}/condition", "x"),
    ("V015", "retired-field", f"{EMIT}/row_ids", "x"),
    ("V015", "retired-field", f"{W}/serving/slot_ids", "x"),
    ("V015", "retired-field", f"{W}/serving/request_epochs", "x"),
    ("V015", "retired-field", f"{GROUP}/paging", {}),
    ("V015", "retired-field", f"{GROUP}/allocation", {}),
    ("V015", "retired-field", f"{GROUP}/storage", {}),
    ("V015", "retired-field", f"{GROUP}/shared_buffer", 1),
    ("V015", "retired-field", "adapters/artifacts/one/sha256", "0"),
    ("V015", "retired-field", "adapters/artifacts/one/base_model_fingerprint", "0"),
    ("V015", "retired-field", "adapters/artifacts/one/weights/0/sha256", "0"),
    ("V015", "retired-field", f"{W}/adapters", {}),
    ("V016", "below-minimum", "model/max_sequence_length", 0),
    ("V016", "below-minimum", "model/runtime_configurable/chunked_prefill/chunk_size", 0),
    ("V016", "below-minimum", "hardware_requirements/min_tp_degree", 0),
    ("V016", "below-minimum", "speculative/max_proposal_width", 0),
    ("V016", "below-minimum", "preprocessing/audio/transforms/1/sample_rate", 0),
    ("V017", "empty-string", "required_capabilities", [""], "[0]"),
    ("V017", "empty-string", "profiles/main/kind", ""),
    ("V017", "empty-string", "speculative/proposer", ""),
    ("V017", "empty-string", "preprocessing/image/outputs/0/source", ""),
    ("V017", "empty-string", f"{GROUP}/checkpoint/adapter", ""),
    ("V017", "empty-string", f"{GROUP}/update/capacity", ""),
    ("V018", "empty-list", "preprocessing/image/outputs", []),
    ("V018", "empty-list", "preprocessing/image/transforms/1/outputs", []),
    ("V018", "empty-list", "package/tokenizer/artifacts", []),
    ("V018", "empty-list", "model/sharding/pipeline_parallel/0/components", []),
    ("V019", "duplicate-item", f"{W}/manifest/capabilities", ["a", "b", "a"], "[2]"),
    ("V019", "duplicate-item", "speculative/rollback_state", ["a", "a"], "[1]"),
    ("V020", "missing-field", f"{ROUTER}/group_count", DELETE, "<"),
    ("V020", "missing-field", f"{ROUTER}/group_score", None, "<"),
    ("V022", "below-minimum", f"{ROUTER}/scaling_factor", -1),
    ("V022", "below-minimum", "hardware_requirements/min_memory_gb", -0.5),
    ("V024", "ports-beside-workflow", "model/io", {}),
]

BARE_CASES: list[tuple[Any, ...]] = [
    ("V003", "retired-field", "model/io/kv_update", "append"),
    ("V006", "not-in-list", "model/io/kv_layout", "bnsh"),
    ("V005", "wrong-type", "model/io/kv_layout", 3),
    ("V006", "not-in-list", "model/io/kv_layout/strides/head", ["rows"], "[0]"),
    ("V006", "not-in-list", "model/io/optional_inputs/pixels/absent/kind", "ones"),
    ("V011", "empty-string", "model/io/optional_inputs/pixels/presence", ""),
    ("V017", "empty-string", "model/io/kv_inputs", [""], "[0]"),
    ("V018", "empty-list", "model/io/state_pairs", []),
    ("V018", "empty-list", "model/io/static_cache/key_cache_inputs", []),
    ("V021", "missing-field", "model/io/state_pairs/0/init", DELETE, "<"),
    ("V021", "missing-field", "model/io/state_pairs/0/update", DELETE, "<"),
]


def _named(cases: list[tuple[Any, ...]]) -> list[Any]:
    return [
        pytest.param(*(*case, "")[:5], id=f"{case[0]}-{case[2].split('/')[-1]}-{n}") for n, case in enumerate(cases)
    ]


def _place(path: str, where: str) -> str:
    steps = path.split("/")[:-1] if where == "<" else path.split("/")
    shown = "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in steps)
    return shown.removeprefix(".") + where.removeprefix("<")


def test_the_whole_documents_are_read() -> None:
    assert faults(full()) == []
    assert faults(bare()) == []


@pytest.mark.parametrize(("rule", "code", "path", "value", "where"), _named(FULL_CASES))
def test_one_fault_of_a_full_document(rule: str, code: str, path: str, value: object, where: str) -> None:
    assert faults(change(full(), path, value)) == [(code, _place(path, where), rule)]
    assert rule in RULES[code]


@pytest.mark.parametrize(("rule", "code", "path", "value", "where"), _named(BARE_CASES))
def test_one_fault_of_a_bare_document(rule: str, code: str, path: str, value: object, where: str) -> None:
    assert faults(change(bare(), path, value)) == [(code, _place(path, where), rule)]


def test_every_parsing_rule_has_a_case() -> None:
    seen = {case[0] for case in (*FULL_CASES, *BARE_CASES)}
    elsewhere = {"V001", "V023"}  # the reader's own, and those of execution hints: test_files, test_hints
    assert {f"V{number:03}" for number in range(1, 25)} - seen == elsewhere


def test_many_faults_are_all_reported_at_once() -> None:
    data = full()
    broken = [case for case in FULL_CASES if case[2] in ("pipelines", "model/vocab_size", "model/io", "schema_version")]
    for _rule, _code, path, value, *_where in broken:
        change(data, path, value)
    assert sorted(each[2] for each in faults(data)) == ["V002", "V005", "V008", "V024"]
