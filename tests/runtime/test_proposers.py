"""Proposers of every kind that the runtime drives, and the reasons why it does not drive others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import pytest
from genai_compiler.read.load import BARE, COMPOSITE, GENAI_CONFIG, GENAI_CONFIG_V2, PLAIN
from genai_compiler.read.load import WORKFLOW as AUTHORED
from genai_runtime import ExecutionError, RequestError
from genai_runtime.publish import Publisher
from genai_runtime.speculation import _UNSAID

from tests.conftest import FIXTURES
from tests.rounded_graphs import rounded
from tests.speculative_packages import (
    BLOCK,
    CHAIN,
    PROMPTS,
    drafted,
    edited,
    expected_blocks,
    finished,
    own_decoder_as_proposer,
    plain,
    variant,
    width,
)
from tools.fixtures.document import Document, tensor
from tools.fixtures.document import onnx as component
from tools.fixtures.graph import Sketch, weights
from tools.fixtures.network import HIDDEN, VOCABULARY, concat_decoder

Models = Callable[[str], genai_runtime.Model]


# ---- proposers of other kinds ------------------------------------------------------------------------------------


def test_the_embedding_table_is_read_from_external_data_where_it_lies(tmp_path: Path, model: Models) -> None:
    def external(package: Path, _: Document) -> None:
        proto = onnx.load(str(package / "model.onnx"))
        onnx.save(
            proto, str(package / "model.onnx"), save_as_external_data=True, location="weights.bin", size_threshold=256
        )

    other = variant(tmp_path, CHAIN, external)
    assert not (tmp_path / "compiled" / "graphs").exists()
    table = other._sessions.table("draft")
    np.testing.assert_array_equal(table, weights(8, VOCABULARY, HIDDEN))
    np.testing.assert_array_equal(model(CHAIN)._sessions.table("draft"), table)
    for prompt in PROMPTS:
        mine, theirs = drafted(other, prompt), drafted(model(CHAIN), prompt)
        assert mine.tokens == theirs.tokens
        assert (mine.stats.drafted, mine.stats.accepted) == (theirs.stats.drafted, theirs.stats.accepted)


def heads(folder: Path, document: Document) -> None:
    """A block proposer of logits over the decoder's hidden state, without tokens: three heads."""
    sketch = Sketch("heads")
    hidden = sketch.input("context", "float32", "batch", 1, HIDDEN)
    ways = [weights(9, HIDDEN, VOCABULARY) + weights(seed, HIDDEN, VOCABULARY, scale=0.5) for seed in (1, 2, 3)]
    made = sketch.op.MatMul(sketch.op.Transpose(hidden, perm=[1, 0, 2]), sketch.weight("heads", np.stack(ways)))
    sketch.output(sketch.op.Transpose(made, perm=[1, 0, 2]), "guesses", "float32", "batch", 3, VOCABULARY)
    sketch.save(folder / "draft.onnx")
    inputs = {"context": tensor("float32", "batch", 1, HIDDEN, rows=True)}
    outputs = {"guesses": tensor("float32", "batch", 3, VOCABULARY, rows=True)}
    workflow = document["pipeline"]["workflow"]
    workflow["components"]["draft"] = component("draft.onnx", inputs, outputs, roles={"guesses": "logits"})
    concat_decoder(hidden=True).save(folder / "model.onnx")
    decoder = workflow["components"]["decoder"]["ports"]
    decoder["outputs"]["hidden_states"] = tensor("float32", "batch", "sequence", HIDDEN, rows=True)
    decoder["roles"]["hidden_states"] = "hidden_states"
    workflow["steps"][0]["steps"][0]["outputs"]["hidden_states"] = "step.hidden_states"
    document["speculative"]["port_bindings"] = {"target_hidden_context": "context"}


def test_a_block_proposer_of_logits_over_the_targets_hidden_state(tmp_path: Path) -> None:
    model = variant(tmp_path, BLOCK, heads)
    for prompt in PROMPTS:
        generation = drafted(model, prompt)
        assert generation.tokens == plain(tmp_path / "package", prompt)
        assert generation.stats.drafted > 0


@pytest.mark.parametrize("odd", [-1, VOCABULARY, 1 << 40])
def test_drafts_that_are_no_tokens_are_dropped(tmp_path: Path, odd: int) -> None:
    def constant(folder: Path, _: Document) -> None:
        sketch = Sketch("odd")
        ids = sketch.input("input_ids", "int64", "batch", "sequence")
        none = sketch.op.Mul(sketch.op.Slice(ids, [0], [1], [1]), [0])
        made = sketch.op.Add(none, sketch.weight("drafts", np.array([[3, odd, 3, 3]])))
        sketch.output(made, "draft_tokens", "int64", "batch", 4)
        sketch.save(folder / "draft.onnx")

    model = variant(tmp_path, BLOCK, constant)
    generation = drafted(model, PROMPTS[0], max_new_tokens=20)
    assert generation.tokens == plain(tmp_path / "package", PROMPTS[0], 20)
    assert generation.stats.drafted <= 19, "one a block"


def test_a_proposer_that_fails_is_named(tmp_path: Path) -> None:
    def failing(folder: Path, _: Document) -> None:
        sketch = Sketch("failing")
        ids = sketch.input("input_ids", "int64", "batch", "sequence")
        far = sketch.op.Add(sketch.op.Squeeze(sketch.op.Slice(ids, [0], [1], [1]), [1]), [1])
        found = sketch.op.Gather(sketch.weight("one", np.zeros((1, 4), np.int64)), far)
        sketch.output(found, "draft_tokens", "int64", "batch", 4)
        sketch.save(folder / "draft.onnx")

    model = variant(tmp_path, BLOCK, failing)
    with pytest.raises(ExecutionError, match="step-failed") as failure:
        drafted(model, PROMPTS[0]).tokens  # noqa: B018
    place, _, told = failure.value.origin.partition(" ")
    assert told == "speculative.proposer (component 'draft')"
    lines = (tmp_path / "package" / "inference_metadata.yaml").read_text("utf-8").splitlines()
    assert "proposer:" in lines[int(place.split(":")[1]) - 1]
    assert drafted(model, PROMPTS[0], speculate=False).tokens == plain(tmp_path / "package", PROMPTS[0])


# ---- the proposal budget -----------------------------------------------------------------------------------------


def with_budget(folder: Path, document: Document, odd: str = "") -> None:
    """A budget graph: one draft more than were accepted the last time; its estimates count the blocks.

    odd: an output of which the graph says nothing, and that is something else.
    """
    sketch = Sketch("budget")
    op = sketch.op
    whole = ("current_k", "accepted", "evaluated", "committed_tokens")
    ins = {name: sketch.input(name, "int64", "batch") for name in whole}
    ins["filled_proposal_budget"] = sketch.input("filled_proposal_budget", "bool", "batch")
    ins |= {name: sketch.input(name, "float32", "batch") for name in ("draft_ms", "target_ms")}
    estimates = sketch.input("estimates", "float32", "batch", 2)
    sketch.output(op.Add(ins["accepted"], [1]), "next_k", "int64", "batch")
    sketch.output(op.Add(estimates, 1.0), "next_estimates", "float32", "batch", 2)
    sketch.save(folder / "budget.onnx")
    if odd:
        spoil(folder / "budget.onnx", odd)
    rows = {name: tensor("int64", "batch", rows=True) for name in whole}
    rows["filled_proposal_budget"] = tensor("bool", "batch", rows=True)
    rows |= {name: tensor("float32", "batch", rows=True) for name in ("draft_ms", "target_ms")}
    rows["estimates"] = tensor("float32", "batch", 2, rows=True)
    outputs = {"next_k": rows["accepted"], "next_estimates": rows["estimates"]}
    contract = {"id": "onnx-genai.adaptive-proposal-budget", "version": "1"}
    contract["bindings"] = {name: name for name in (*rows, *outputs)}  # type: ignore[assignment]
    workflow = document["pipeline"]["workflow"]
    workflow["components"]["budget"] = component("budget.onnx", rows, outputs, contract=contract)
    workflow["manifest"]["capabilities"].append("adaptive_proposal_budget")


def spoil(file: Path, name: str) -> None:
    """Let an output be a float32 [batch, 2, 1] that the graph does not describe."""
    model = onnx.load(file)
    for node in model.graph.node:
        node.output[:] = ["was" if each == name else each for each in node.output]
    model.graph.initializer.append(onnx.helper.make_tensor("behind", onnx.TensorProto.INT64, [1], [-1]))
    model.graph.node.append(onnx.helper.make_node("Unsqueeze", ["estimates", "behind"], [name]))
    (port,) = (each for each in model.graph.output if each.name == name)
    port.CopyFrom(onnx.helper.make_empty_tensor_value_info(name))
    onnx.save(model, file)


@pytest.mark.parametrize("odd", ["next_k", "next_estimates"])
def test_a_budget_that_gives_something_else_fails_by_its_name(odd: str, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    document = own_decoder_as_proposer(tmp_path / "package", 48)

    def odd_budget(folder: Path, document: Document) -> None:
        with_budget(folder, document, odd)
        ports = document["pipeline"]["workflow"]["components"]["budget"]["ports"]["outputs"]
        ports[odd] = tensor("float32", "batch", "a", "b", rows=True)

    model = edited(tmp_path, document, width(3), odd_budget)
    with pytest.raises(ExecutionError, match=odd) as failure:
        finished(model, PROMPTS[0])
    assert (failure.value.code, "components.budget" in failure.value.origin) == ("step-failed", True)


@pytest.mark.parametrize("most", [1, 3, 6])
def test_the_width_follows_the_packages_budget_and_changes_no_token(tmp_path: Path, most: int) -> None:
    known = 48
    (tmp_path / "package").mkdir()
    document = own_decoder_as_proposer(tmp_path / "package", known)
    model = edited(tmp_path, document, width(most), with_budget)
    for prompt in PROMPTS[:4]:
        wanted = plain(tmp_path / "package", prompt)
        result = finished(model, prompt)
        assert result["tokens"][0].tolist() == wanted
        counted = expected_blocks(wanted, known, most, lambda _, right: min(right + 1, most))
        assert (result.iterations, result.drafted, result.accepted) == counted


# ---- what is not driven, and what would be a fault of ours -------------------------------------------------------


def set_at(*path: str, value: Any) -> Callable[[Path, Document], None]:
    def edit(_: Path, document: Document) -> None:
        place = document
        for each in path[:-1]:
            place = place[each]
        place[path[-1]] = value

    return edit


WORKFLOW = ("pipeline", "workflow")
NOT_DRIVEN: dict[str, tuple[str, Callable[[Path, Document], None], str]] = {
    "cells that stay": (BLOCK, set_at("speculative", "rollback_state", value=[]), "not in rollback_state"),
    "another target": (BLOCK, set_at("speculative", "target", value="draft"), "not the decoder"),
    "ids mapped by a file": (
        BLOCK, set_at("speculative", "vocabulary", value={"kind": "mapped", "artifact": "draft.onnx"}), "mapped",
    ),
    "ids without a role": (
        BLOCK, set_at(*WORKFLOW, "components", "draft", "ports", "roles", value={}), "role token_ids",
    ),
    "an input that nothing feeds": (
        CHAIN, set_at(*WORKFLOW, "components", "draft", "ports", "roles", value={}), "'attention_mask', 'position_ids'",
    ),
    "effects": (BLOCK, set_at(*WORKFLOW, "components", "draft", "effects", value=["log"]), "effects"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_DRIVEN)
def test_a_proposer_that_is_not_driven_leaves_the_tokens_as_they_are_and_says_why(tmp_path: Path, name: str) -> None:
    case, edit, why = NOT_DRIVEN[name]

    def effect(_: Path, document: Document) -> None:
        if name == "effects":
            safe = {"retry": "pure", "speculation_safety": {"kind": "clonable"}}
            document["pipeline"]["workflow"]["components"]["draft"]["row_scope"] = {"axis": 0}
            document["pipeline"]["workflow"]["effects"] = {"log": safe}

    model = variant(tmp_path, case, edit, effect)
    told = model.describe()["speculation"]
    assert not told["driven"]
    assert why in told["reason"]
    assert told["reason"] in (tmp_path / "compiled" / "plan.txt").read_text("utf-8")
    generation = model.generate(PROMPTS[0], temperature=0, stop_on_eos=False)
    assert (generation.tokens, generation.stats.drafted) == (plain(FIXTURES / case, PROMPTS[0]), 0)
    with pytest.raises(RequestError, match="no-proposer") as refused:
        drafted(model, PROMPTS[0])
    assert told["reason"] in str(refused.value)


def test_a_target_that_rounds_all_tokens_of_a_run_by_one_scale_is_not_driven(tmp_path: Path) -> None:
    """Verified together, its tokens would be rounded otherwise than one by one."""

    def round_target(folder: Path, _: Document) -> None:
        onnx.save(rounded(onnx.load(folder / "model.onnx")), folder / "model.onnx")

    model = variant(tmp_path, BLOCK, round_target)
    told = model.describe()["speculation"]
    assert (told["driven"], "DynamicQuantizeLinear" in told["reason"]) == (False, True)
    generation = model.generate(PROMPTS[0], temperature=0, stop_on_eos=False)
    assert (generation.tokens, generation.stats.drafted) == (plain(tmp_path / "package", PROMPTS[0]), 0)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("tiny-gqa-v1", "genai_config.json names no draft model that can be driven (model.draft)"),
        ("tiny-minimal-v2", "genai_config.json names no session that can draft (pipeline.roles.draft)"),
        ("tiny-runtime-policy", "its document has no 'speculative' block"),
    ],
)
def test_a_package_without_a_proposer_refuses_to_draft_in_its_own_terms(case: str, words: str, model: Models) -> None:
    with pytest.raises(RequestError, match="no-proposer") as refused:
        drafted(model(case), PROMPTS[0])
    assert refused.value.what.endswith(words)


def test_every_dialect_says_what_would_draft() -> None:
    assert set(_UNSAID) == {AUTHORED, GENAI_CONFIG, GENAI_CONFIG_V2, BARE, COMPOSITE, PLAIN}


def test_tokens_published_must_be_those_committed(model: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """V348: a publisher that loses a token is found out."""
    accepted = Publisher.accepted

    def losing(self: Publisher, output: str, block: Any, ids: list[int]) -> Any:
        return accepted(self, output, block, ids[:-1] if block.count == 3 else ids)

    monkeypatch.setattr(Publisher, "accepted", losing)
    with pytest.raises(ExecutionError, match="committed-tokens"):
        drafted(model(BLOCK), PROMPTS[0], max_new_tokens=12).tokens  # noqa: B018
