"""The memory plan's terms against arithmetic by hand."""

import subprocess
from pathlib import Path

import pytest
from genai_compiler import process_memory
from genai_compiler.driver import Options, compile_package
from genai_compiler.memory import MemoryAsk
from genai_compiler.passes import PASSES
from genai_compiler.plan.memory import MemoryPlan, Term

from tests.conftest import CASES, FIXTURES, GOLDEN

LAST = PASSES[-1].__name__
PROCESS = Term("process", 1_000_000, "of this test")
LAYERS, HEADS, SIZE, VOCABULARY = 2, 2, 16, 64
"""Of the tiny fixtures: two layers with keys and values of two heads."""
PER_TOKEN = LAYERS * 2 * HEADS * SIZE * 4


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genai_compiler.memory.imported_process", lambda: PROCESS)


def memory_of(case: str, *lengths: int, without: tuple[str, ...] = ()) -> MemoryPlan:
    found = compile_package(
        FIXTURES / case, options=Options(stop_after=LAST, without=without, memory=MemoryAsk(*lengths))
    ).memory
    assert found is not None
    return found


def term(found: MemoryPlan, name: str) -> int:
    return next(each.bytes for each in found.terms if each.name.startswith(name))


@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-concat-v1", "tiny-decoder"])
def test_a_token_costs_keys_and_values_of_every_layer(case: str) -> None:
    assert memory_of(case, 1, 8, 16).per_token == PER_TOKEN


def test_a_shared_buffer_holds_the_context_of_every_row() -> None:
    assert term(memory_of("tiny-gqa-v1", 3, 8, 16), "state") == 3 * 16 * PER_TOKEN


def test_a_buffer_moves_to_larger_ones_and_both_are_there_meanwhile() -> None:
    """513 tokens after a prompt of one, then 1026, then 2000; the last move has 1026 old and 1026 new entries."""
    found = memory_of("tiny-gqa-v1", 1, 1, 2000)
    assert term(found, "state") == 2 * 1026 * PER_TOKEN
    assert "513, 1026, 2000" in next(each.source for each in found.terms if each.name.startswith("state"))


def test_state_that_grows_is_there_twice_during_a_run() -> None:
    """At the end of the context: 15 entries of the past and 16 of the present a row, with what else a step has."""
    short, long = (memory_of("tiny-concat-v1", 2, 1, context) for context in (400, 800))
    grown = term(long, "workspace") - term(short, "workspace")
    entries = 2 * 2 * 400
    """Rows, past and present, 400 more of each."""
    assert entries * PER_TOKEN <= grown <= 1.3 * entries * PER_TOKEN


def test_caches_that_move_cost_a_column_of_one_head_a_token() -> None:
    """Of each layer a byte of a key (its columns are the last axis) and 16 of a value; 64 columns of two heads."""
    found = memory_of("tiny-shifted-v1", 1, 8, 20)
    assert found.per_token == 2 * (1 + 16)
    sizes = {axis: term(found, f"state decoder_shifted_kv_{axis}") for axis in (2, 3)}
    assert sizes == {axis: 2 * 64 * 2 * 16 + 12 * 2 * column for axis, column in ((3, 1), (2, 16))}


def test_logits_are_a_number_a_row_and_entry_of_the_vocabulary() -> None:
    assert term(memory_of("tiny-gqa-v1", 5, 8, 16), "logits") == 5 * VOCABULARY * 4


def test_selecting_the_last_position_spares_the_logits_of_the_others() -> None:
    """Without it 1,000 positions of logits are the fullest point of the run, as far as nothing else is larger."""
    whole, last = (memory_of("tiny-gqa-v1", 1, 40, 41, without=each) for each in (("select_last",), ()))
    assert term(whole, "workspace") >= 40 * VOCABULARY * 4
    assert term(last, "workspace") <= term(whole, "workspace")


def test_the_parts_add_up_to_the_last_phase_and_the_peak_is_the_largest() -> None:
    found = memory_of("tiny-gqa-v1", 2, 8, 16)
    assert sum(each.bytes for each in found.terms) == dict(found.phases)["steps up to the context"]
    assert found.peak == max(size for _, size in found.phases)


@pytest.mark.parametrize("case", CASES)
def test_every_package_that_compiles_has_a_memory_plan(case: str) -> None:
    if not (GOLDEN / case / "executor.py").exists():
        return
    small, large = (memory_of(case, rows, 4, 16) for rows in (1, 64))
    assert PROCESS.bytes < small.peak <= large.peak


def test_a_process_that_cannot_be_measured_is_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(1, "python")

    monkeypatch.setattr(process_memory.subprocess, "run", fails)
    found = process_memory.imported_process()
    assert found.estimated
    assert found.bytes == process_memory.IMPORTED


def test_lengths_are_the_packages_own_where_nobody_asks() -> None:
    """tiny-gqa-v1 states a context of 64 tokens."""
    lengths = memory_of("tiny-gqa-v1").lengths
    assert (lengths.batch, lengths.prompt, lengths.context) == (1, 32, 64)


def test_measuring_does_not_write_into_the_package(tmp_path: Path) -> None:
    before = sorted(each.name for each in FIXTURES.iterdir())
    memory_of("tiny-gqa-v1", 1, 8, 16)
    assert sorted(each.name for each in FIXTURES.iterdir()) == before


def test_a_prompt_in_chunks_takes_the_workspace_of_a_chunk() -> None:
    """The rest of the prompt is then in the state; the scores of attention are as many as a run has new tokens."""

    def of(chunk: int | None) -> MemoryPlan:
        ask = MemoryAsk(1, 60, 64, chunk)
        found = compile_package(FIXTURES / "tiny-gqa-v1", options=Options(stop_after=LAST, memory=ask)).memory
        assert found is not None
        return found

    whole, chunked = of(None), of(6)
    assert term(chunked, "workspace") <= term(whole, "workspace") / 8
    assert term(chunked, "state") == term(whole, "state")
