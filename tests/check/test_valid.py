"""What scoping, carries, branches and emits allow: variants of the bases that must stay valid (standard, 2.9 and 3)."""

from typing import Any

import pytest
from genai_compiler.check.tensors import GraphContract, mismatch
from genai_compiler.read.document import TensorContract

from tests.check.bases import broken, problems
from tests.check.cases_steps import LOOP, STEP, P, S
from tests.read.documents import DELETE

VALID: dict[str, tuple[str, dict[str, Any]]] = {
    "setup values are seen after the loop": ("flow", {f"{S}/4/value": "ready"}),
    "a cell is seen after its loop": ("flow", {f"{S}/4/value": "acc"}),
    "an outer value may steer a loop": ("flow", {f"{S}/0/continue_when": "live"}),
    "a setup value may steer a loop": ("flow", {f"{S}/0/continue_when": "ready.live"}),
    "a cell may become another cell": ("flow", {f"{S}/0/carried/0/next": "log"}),
    "a setup may be empty": ("flow", {f"{S}/0/setup": [], f"{S}/0/carried/0/initial": DELETE, f"{S}/4/value": "x"}),
    "sibling cases may define the same names": ("flow", {
        f"{S}/2/default": {**STEP, "outputs": {"y": "seen", "live": "seen.live"}},
        f"{S}/2/outputs/view/default": "seen"}),
    "a later loop may reuse an induction name and body names": ("flow", {
        f"{P}/state/acc2": {"contract": {"dtype": "float32", "rank": 2, "shape": ["batch", 4], "batch_layout": {
            "kind": "request_aligned", "axis": 0}}, "scope": "invocation", "initializer": "x",
            "recurrence": {"kind": "invariant"}},
        f"{S}/5": {**LOOP, "iteration": {"value": "i", "contract": {"dtype": "int64", "rank": 1, "shape": ["n"]}},
                   "steps": [{**STEP, "outputs": {"y": "acc.next", "live": "alive.next"}}],
                   "carried": [{"cell": "acc2", "next": "acc.next"}]}}),
    "an input proved present is present in regions inside the case": ("flow", {
        f"{S}/2/cases/true": {"kind": "sequence", "steps": [{**LOOP, "steps": [
            {**STEP, "inputs": {"x": "image"}}], "carried": [{"cell": "acc3", "initial": "image", "next": "new"}]}]},
        f"{S}/2/outputs/view/cases/true": "acc3",
        f"{P}/state/acc3": {"contract": {"dtype": "float32", "rank": 2}, "scope": "invocation", "initializer": "x",
                            "recurrence": {"kind": "invariant"}}}),
    "a branch may hand an input out of the case that proved it": ("flow", {f"{S}/2/outputs/view/cases/true": "image"}),
    "a bool predicate may have shape [1]": ("flow", {f"{P}/inputs/choose/contract": {
        "dtype": "bool", "rank": 1, "shape": [1]}}),
    "an integer may choose the case": ("flow", {f"{P}/inputs/choose/contract/dtype": "int32"}),
    "a bound may have shape [1]": ("flow", {f"{P}/inputs/limit/contract": {
        "dtype": "int32", "rank": 1, "shape": [1]}}),
    "the growing axis of next may differ": ("flow", {f"{P}/state/log/contract/shape": ["batch", 9],
                                                     f"{P}/state/log/initializer": "nine", f"{P}/inputs/nine": {
        "contract": {"dtype": "float32", "rank": 2, "shape": ["batch", 9]}, "role": {"kind": "opaque"},
        "source": {"kind": "application", "name": "nine"}}}),
    "alias spellings of a dtype agree": ("flow", {f"{P}/inputs/x/contract/dtype": "fp32"}),
    "a case may export a session cell under any name": ("flow", {f"{S}/1/outputs": {
        "kept": {"cases": {"true": "memo", "false": "x"}}}, f"{S}/3/value": "kept"}),
    "a guard of one element needs no rows in the value": ("flow", {f"{S}/0/steps/1/when": "choose"}),
    "layouts of inner values are a question of run time": ("flow", {
        f"{P}/components/step/ports/outputs/y/batch_layout": DELETE, f"{S}/4/value": "x",
        f"{S}/1/outputs/chosen/cases": {"true": "x", "false": "x"}, f"{P}/state/memo/scope": "invocation",
        f"{P}/state/memo/initializer": "x"}),
    "a third-party adapter has no known actions": ("io", {f"{P}/components/thing/contract": {
        "id": "own.thing", "version": "2", "parameters": {"action": "anything"}}}),
    "an unknown contract imposes nothing": ("io", {f"{P}/components/draw/contract/id": "unheard.of"}),
    "an ignorable profile may be anything": ("tasks", {"profiles/odd/outputs": {"role": "nowhere"}}),
    "a tokenizer vocabulary lists no tokens": ("tasks", {"profiles/speech/decoding/vocabulary": {
        "source": "tokenizer", "size": 9}}),
    "adapters may lack an active mask": ("lora", {"adapters/selection/active": DELETE}),
    "the service stands without a workflow": ("lora", {"pipeline": DELETE}),
    "a proposal of a block needs no chain": ("drafts", {"speculative/proposal_execution": {"kind": "block"}}),
    "effects outside the region may be final": ("drafts", {
        f"{P}/effects/mail": {"retry": "non_retryable"},
        f"{P}/components/post": {"implementation": {"kind": "binding"}, "effects": ["mail"]}}),
}  # fmt: skip


@pytest.mark.parametrize("name", VALID)
def test_a_valid_variant(name: str) -> None:
    assert problems(broken(*VALID[name])) == ()


def test_effects_beside_proposer_and_target_in_their_loop_count() -> None:
    port = {"dtype": "float32", "rank": 2, "shape": ["batch", 4]}
    mail = {"implementation": {"kind": "binding"}, "effects": ["mail"], "ports": {"inputs": {"x": port}}}
    draft = {"fused": "x", "h": "x", "more": "x"}
    loop = {**LOOP, "max_iterations": "one", "carried": [], "steps": [
        {"kind": "invoke", "component": "post", "inputs": {"x": "x"}},
        {"kind": "invoke", "component": "model", "inputs": {"x": "x"}, "outputs": {"hidden": "m2"}},
        {"kind": "invoke", "component": "draft", "inputs": draft, "outputs": {"logits": "l", "h": "h", "carry": "c"}},
    ]}  # fmt: skip
    one = {"contract": {"dtype": "int64", "rank": 0}, "role": {"kind": "opaque"}, "source": {"kind": "literal"}}
    data = broken("drafts", {
        f"{P}/effects/mail": {"retry": "non_retryable"}, f"{P}/components/post": mail, f"{S}/1": loop,
        f"{P}/inputs/one": {**one, "default": 1},
        f"{P}/manifest/capabilities": ["workflow_ssa", "linear_effects", "serving_service_contract",
                                       "nested_control_flow"],
    })  # fmt: skip
    (problem,) = problems(data)
    assert problem.path == "pipeline.workflow.effects.mail.speculation_safety"


# ---- one fault, one problem ------------------------------------------------------------------------------------------


def test_outputs_of_an_unknown_component_are_not_missed_too() -> None:
    (problem,) = problems(broken("flow", {f"{S}/0/steps/0/component": "stp"}))
    assert problem.help == "did you mean step?"


def test_a_misspelt_definition_is_missed_once_in_its_region() -> None:
    step = {**STEP, "outputs": {"y": "acc.nxt", "live": "alive.next"}}
    emit = {"kind": "emit", "value": "acc.next", "output": "y", "mode": "replace"}
    data = broken("flow", {f"{S}/0/steps/0": step, f"{S}/0/steps/2": emit, f"{S}/0/steps/3": emit})
    (problem,) = problems(data)
    assert problem.path == "pipeline.workflow.steps[0].steps[2].value"
    assert problem.help == "did you mean acc.nxt?"


def test_a_long_list_of_faults_is_cut() -> None:
    emit = {"kind": "emit", "output": "y", "mode": "replace"}
    many = [{**emit, "value": f"nothing{number}"} for number in range(300)]
    said = problems(broken("flow", {S: many}))
    assert len(said) == 201
    assert said[0].code == "too-many-problems"


def test_faults_of_many_parts_are_said_together_in_order() -> None:
    data = broken("flow", {
        f"{S}/4/output": "zed", f"{P}/components/step/effects": ["log"], f"{P}/state/log/recurrence/axis": 7,
        "profiles": {"p": {"kind": "unheard", "version": "1"}},
    })  # fmt: skip
    said = problems(data)
    assert {each.code for each in said} == {
        "axis-out-of-rank", "row-scope", "unknown-effect", "undeclared-output", "unknown-profile",
    }  # fmt: skip
    assert [each.path for each in said] == sorted(each.path for each in said)


def test_a_graphs_type_has_no_spelling_and_a_documents_has() -> None:
    value = TensorContract(dtype="fp8_e5m2", rank=1)
    assert mismatch(value, GraphContract(dtype="float8_e5m2", rank=1)) == ""
    assert "fp8_e5m2 where float8_e5m2" in mismatch(value, TensorContract(dtype="float8_e5m2", rank=1))
    assert mismatch(value, GraphContract(dtype="float8_e4m3fn", rank=1)) != ""
