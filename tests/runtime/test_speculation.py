"""Drafted tokens: byte for byte what plain greedy decoding gives, at every width; and the counts they must come to.

The tokens to be met come from a bare ONNX Runtime loop over the target; the counts from arithmetic on these tokens.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import pytest
from genai_runtime import ExecutionError, RequestError, state
from genai_runtime.publish import Publisher

from tests.conftest import FIXTURES
from tests.reference.plain_loop import greedy
from tests.runtime.test_one_row import REQUESTS
from tests.speculative_packages import (
    edited,
    expected_blocks,
    in_place,
    own_decoder_as_proposer,
    variant,
    width,
    with_leaky_decoder,
)
from tests.two_routes import collect
from tools.fixtures.document import Document, tensor
from tools.fixtures.document import onnx as component
from tools.fixtures.graph import Sketch, weights
from tools.fixtures.network import CONTEXT, HIDDEN, VOCABULARY, concat_decoder

Models = Callable[[str], genai_runtime.Model]
BLOCK, CHAIN = "tiny-block-drafts", "tiny-chained-drafts"
CASES = (BLOCK, CHAIN)
PROMPTS = [[1, 10, 20, 30], [5], [3, 40, 41, 42, 43, 44, 5, 4], [1, 2, 3] * 5, [7] * 60]
ENDS = (2, 5)
DECODE, POLICY = "onnx-genai.autoregressive-decode", "onnx-genai.token-policy"
STEP = "onnx-genai.speculative-block"


def plain(folder: Path, prompt: list[int], count: int = CONTEXT, stop: tuple[int, ...] = ()) -> list[int]:
    """Greedy tokens of the target alone."""
    return greedy(folder / "model.onnx", prompt, min(count, CONTEXT - len(prompt)), stop)


def drafted(model: genai_runtime.Model, prompt: list[int], **options: Any) -> genai_runtime.Generation:
    return model.generate(prompt, **{"temperature": 0, "stop_on_eos": False, "speculate": True, **options})


def finished(model: genai_runtime.Model, prompt: list[int]) -> genai_runtime.Result:
    """The result of a generation with drafts, run to its end."""
    generation = drafted(model, prompt)
    assert generation.tokens
    assert generation.result is not None
    return generation.result


# ---- equal to plain greedy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("most", [1, 2, 3, 4, 6, 9])
def test_tokens_at_every_width_are_those_of_plain_greedy(tmp_path: Path, case: str, most: int) -> None:
    model = variant(tmp_path, case, width(most))
    made, stayed = 0, 0
    for prompt in PROMPTS:
        generation = drafted(model, prompt)
        assert generation.tokens == plain(FIXTURES / case, prompt), prompt
        assert generation.finish_reason == "context"
        made, stayed = made + generation.stats.drafted, stayed + generation.stats.accepted
    assert 0 < stayed < made, "some drafts stay, and some go"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("most", [1, 4])
@pytest.mark.parametrize("hidden", [False, True], ids=["room enough", "growing buffers"])
def test_state_in_one_buffer_is_rolled_back_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, most: int, hidden: bool
) -> None:
    monkeypatch.setattr(state, "FIRST_ROOM", 2 if hidden else 512)
    model = variant(tmp_path, case, width(most), in_place(hidden=case == CHAIN))
    assert [each["storage"] for each in model.describe()["state_groups"]] == ["shared-buffer"]
    for prompt in PROMPTS:
        generation = drafted(model, prompt)
        assert generation.tokens == plain(tmp_path / "package", prompt), prompt
        assert generation.stats.drafted > 0


@pytest.mark.parametrize("most", [1, 3, 5])
def test_state_of_one_size_is_put_back_and_run_again(tmp_path: Path, most: int) -> None:
    model = variant(tmp_path, BLOCK, with_leaky_decoder, width(most))
    session = onnx_session(tmp_path / "package" / "model.onnx")
    made, stayed = 0, 0
    for prompt in PROMPTS[:4]:
        wanted, past, fresh = [], np.zeros((1, 16), np.float32), np.array([prompt])
        for _ in range(40):
            logits, past = session.run(["logits", "present_state"], {"input_ids": fresh, "past_state": past})
            fresh = logits[:, -1].argmax(axis=-1)[:, None]
            wanted.append(int(fresh[0, 0]))
        generation = drafted(model, prompt, max_new_tokens=40)
        assert generation.tokens == wanted
        made, stayed = made + generation.stats.drafted, stayed + generation.stats.accepted
    assert 0 < stayed < made


def onnx_session(path: Path) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


# ---- ends inside a block -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("count", range(12))
def test_limits_and_end_tokens_inside_a_block(model: Models, case: str, count: int) -> None:
    for prompt in PROMPTS[:4]:
        for stop_on_eos, stop in ((False, ()), (True, ENDS)):
            generation = drafted(model(case), prompt, max_new_tokens=count, stop_on_eos=stop_on_eos)
            alone = drafted(model(case), prompt, max_new_tokens=count, stop_on_eos=stop_on_eos, speculate=False)
            assert generation.tokens == alone.tokens == plain(FIXTURES / case, prompt, count, stop)
            assert generation.finish_reason == alone.finish_reason
            assert alone.stats.drafted == 0


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("prompt", [*PROMPTS, [7] * 63], ids=len)
@pytest.mark.parametrize("name", REQUESTS)
def test_every_option_means_what_it_means_without_drafts(
    model: Models, case: str, name: str, prompt: list[int]
) -> None:
    """Penalties, sampling by a seed, held-back ends, stop strings: the loop without drafts is the other route."""
    options = {"temperature": 0, **REQUESTS[name]}
    alone = model(case).generate(prompt, speculate=False, **options)
    wanted = alone.tokens, alone.finish_reason, alone.text
    for read in (list, lambda each: each.tokens):
        generation = model(case).generate(prompt, speculate=True, **options)
        read(generation)
        assert (generation.tokens, generation.finish_reason, generation.text) == wanted


@pytest.mark.parametrize("case", CASES)
def test_a_stop_string_inside_a_block_cuts_it(model: Models, case: str) -> None:
    """Whichever string of the text is asked for, the row ends where it ends without drafts."""
    whole = drafted(model(case), PROMPTS[2], max_new_tokens=24, speculate=False).text
    for at in range(0, len(whole) - 2, 3):
        stop = whole[at : at + 2]
        generation = drafted(model(case), PROMPTS[2], max_new_tokens=24, stop=stop)
        alone = drafted(model(case), PROMPTS[2], max_new_tokens=24, stop=stop, speculate=False)
        assert (generation.text, generation.tokens) == (alone.text, alone.tokens)
        assert (generation.finish_reason, generation.text) == ("stop_string", whole[: whole.index(stop)])


# ---- rows, events, counts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_each_row_of_a_batch_has_accepted_lengths_of_its_own(model: Models, case: str) -> None:
    batch = model(case).generate(batch=PROMPTS, temperature=0, stop_on_eos=False, speculate=True)
    assert [row.tokens for row in batch.rows] == [plain(FIXTURES / case, prompt) for prompt in PROMPTS]
    alone = [drafted(model(case), prompt).stats for prompt in PROMPTS]
    assert batch.stats.drafted == sum(each.drafted for each in alone) > 0
    assert batch.stats.accepted == sum(each.accepted for each in alone)


@pytest.mark.parametrize("case", CASES)
def test_several_rows_in_one_run_draft_nothing(model: Models, case: str) -> None:
    inputs = {"request.input_ids": np.array([PROMPTS[0]] * 2), "request.max_iterations": np.array([9])}
    result = model(case).run(inputs, stop_on_eos=False, speculate=True)
    wanted = plain(FIXTURES / case, PROMPTS[0], 9)
    assert [row[0].tolist() for row in result.rows("tokens") if row is not None] == [wanted, wanted]
    assert (result.drafted, result.runtime_steps[STEP], result.runtime_steps[POLICY]) == (0, 0, 9)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("limit", [0, 1, 2, 7, 40])
def test_a_block_publishes_its_accepted_prefix_at_once(model: Models, case: str, limit: int) -> None:
    """An emit with valid_length on axis 1: one event a block, [1, accepted]; the bound still counts tokens."""
    inputs = {"request.input_ids": np.array([PROMPTS[2]]), "request.max_iterations": np.array([limit])}
    result, events = collect(model(case), inputs, stop_on_eos=False, speculate=True)
    wanted = plain(FIXTURES / case, PROMPTS[2], limit)
    assert [token for event in events for token in event.value[0].tolist()] == wanted
    assert all(event.value.shape[0] == 1 and 1 <= event.value.shape[1] <= 5 for event in events)
    assert [event.step for event in events] == list(range(len(events)))
    assert result.iterations == len(events) == result.runtime_steps[STEP]
    assert result.runtime_steps[DECODE] == 1, "the prompt"
    assert result.accepted == len(wanted) - len(events), "a block commits what it accepts, and one token more"
    assert ("tokens" in result) == bool(limit)
    assert not limit or result["tokens"].tolist() == [wanted]


def test_a_proposer_with_promises_needs_no_asking(model: Models) -> None:
    by_itself = model(CHAIN).generate(PROMPTS[0], temperature=0)
    assert by_itself.stats.drafted > 0
    assert model(BLOCK).generate(PROMPTS[0], temperature=0).stats.drafted == 0
    told = {case: model(case).describe()["speculation"] for case in CASES}
    assert {case: (each["by_itself"], each["driven"], each["kind"], each["width"]) for case, each in told.items()} == {
        BLOCK: (False, True, "block", 4),
        CHAIN: (True, True, "chained", 4),
    }
    assert model("tiny-gqa-v1").describe()["speculation"] is None


@pytest.mark.parametrize(
    ("known", "most", "one_position"),
    [(VOCABULARY, 1, False), (VOCABULARY, 4, False), (48, 1, False), (48, 4, False), (48, 7, False), (20, 3, False),
     (VOCABULARY, 3, True), (48, 4, True)],
)  # fmt: skip
def test_a_proposer_whose_state_is_right_is_right_where_it_can_be(
    tmp_path: Path, known: int, most: int, one_position: bool
) -> None:
    """The decoder drafts for itself and knows the ids below `known`: any entry of its cache too many or too few would
    make it wrong elsewhere too. What it must come to is counted on the tokens."""
    (tmp_path / "package").mkdir()
    document = own_decoder_as_proposer(tmp_path / "package", known, one_position)
    model = edited(tmp_path, document, width(most))
    for prompt in PROMPTS[:4]:
        wanted, result = plain(tmp_path / "package", prompt), finished(model, prompt)
        assert result["tokens"][0].tolist() == wanted
        assert (result.iterations, result.drafted, result.accepted) == expected_blocks(wanted, known, most)


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
    assert failure.value.origin == "speculative.proposer (component 'draft')"
    assert drafted(model, PROMPTS[0], speculate=False).tokens == plain(tmp_path / "package", PROMPTS[0])


# ---- the proposal budget -----------------------------------------------------------------------------------------


def with_budget(folder: Path, document: Document) -> None:
    """A budget graph: one draft more than were accepted the last time; its estimates count the blocks."""
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


def test_a_package_without_a_proposer_refuses_to_draft(model: Models) -> None:
    with pytest.raises(RequestError, match="no-proposer"):
        drafted(model("tiny-gqa-v1"), PROMPTS[0])


def test_tokens_published_must_be_those_committed(model: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """V348: a publisher that loses a token is found out."""
    accepted = Publisher.accepted

    def losing(self: Publisher, output: str, block: Any, ids: list[int], step: int) -> Any:
        return accepted(self, output, block, ids[:-1] if step == 3 else ids, step)

    monkeypatch.setattr(Publisher, "accepted", losing)
    with pytest.raises(ExecutionError, match="committed-tokens"):
        drafted(model(BLOCK), PROMPTS[0], max_new_tokens=12).tokens  # noqa: B018
