"""Drafted tokens: byte for byte what plain greedy decoding gives, at every width; and the counts they must come to.

The tokens to be met come from a bare ONNX Runtime loop over the target; the counts from arithmetic on these tokens.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_runtime import state

from tests.conftest import FIXTURES
from tests.runtime.test_one_row import REQUESTS
from tests.speculative_packages import (
    BLOCK,
    CASES,
    CHAIN,
    PROMPTS,
    drafted,
    edited,
    expected_blocks,
    finished,
    in_place,
    onnx_session,
    own_decoder_as_proposer,
    plain,
    variant,
    width,
    with_leaky_decoder,
)
from tests.two_routes import collect
from tools.fixtures.graph import weights
from tools.fixtures.network import HIDDEN, VOCABULARY

Models = Callable[[str], genai_runtime.Model]
ENDS = (2, 5)
DECODE, POLICY = "onnx-genai.autoregressive-decode", "onnx-genai.token-policy"
STEP = "onnx-genai.speculative-block"


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
@pytest.mark.parametrize("prompt", [PROMPTS[0], PROMPTS[2], [7] * 63], ids=len)
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


def chained_blocks(folder: Path, prompt: list[int], tokens: list[int], most: int) -> tuple[int, int, int]:
    """(blocks, drafted, accepted) of the folded-carry proposer, from scratch: no state is kept anywhere.

    What its cache would hold is a list of the inputs that it has seen, and all of them are run anew for every draft.
    """
    target, proposer = onnx_session(folder / "model.onnx"), onnx_session(folder / "draft.onnx")
    table, whole = weights(8, VOCABULARY, HIDDEN), [*prompt, *tokens]

    def run(session: Any, outputs: list[str], count: int, **fed: Any) -> list[Any]:
        empty = np.zeros((1, 2, 0, 16), np.float32)
        pasts = {each.name: empty for each in session.get_inputs() if each.name.startswith("past")}
        places = {"attention_mask": np.ones((1, count), np.int64), "position_ids": np.arange(count)[None]}
        made: list[Any] = session.run(outputs, {**pasts, **places, **fed})
        return made

    hidden = run(target, ["hidden_states"], len(whole), input_ids=np.array([whole]))[0][0]
    entries: list[Any] = []
    at, first, blocks, made, stayed = len(prompt), 1, 1, 0, 0  # at: place of the last token committed
    while at < len(whole) - 1:
        entries += [np.concatenate([table[whole[place]], hidden[place - 1]]) for place in range(first, at + 1)]
        base, guesses = len(entries), list[int]()
        while len(guesses) < min(most, len(whole) - at - 2):
            count = len(entries) + 1  # the first token of the text is no entry; positions count it
            fused = np.concatenate([np.zeros((1, 2 * HIDDEN), np.float32), entries])[None]
            places = {"position_ids": np.arange(count)[None, 1:], "attention_mask": np.ones((1, count - 1), np.int64)}
            logits, carry = run(proposer, ["logits", "carry"], count, fused=fused[:, 1:], **places)
            guesses.append(int(logits[0, -1].argmax()))
            if len(guesses) < min(most, len(whole) - at - 2):
                entries.append(np.concatenate([table[guesses[-1]], carry[0, -1]]))
        right = 0
        while right < len(guesses) and guesses[right] == whole[at + 1 + right]:
            right += 1
        blocks, made, stayed = blocks + 1, made + len(guesses), stayed + right
        if guesses:
            kept = min(right, len(guesses) - 1)
            entries, first = entries[: base + kept], at + 1 + kept
        at += right + 1
    return blocks, made, stayed


@pytest.mark.parametrize("most", [2, 5])
def test_a_folded_carry_and_its_cache_are_those_of_a_proposer_without_state(tmp_path: Path, most: int) -> None:
    model = variant(tmp_path, CHAIN, width(most))
    for prompt in PROMPTS[:3]:
        wanted, result = plain(FIXTURES / CHAIN, prompt), finished(model, prompt)
        counted = chained_blocks(FIXTURES / CHAIN, prompt, wanted, most)
        assert (result.iterations, result.drafted, result.accepted) == counted
