"""Optimisations left out: the same bytes with and without each, whatever is fused, held or proved; rows stand alone."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import CompileError, Options, compile_package
from genai_compiler.cli import main
from genai_compiler.passes import PASSES
from genai_compiler.passes.left_out import NEEDED

from tests.conftest import CASES, FIXTURES
from tests.cut_packages import cut_anything, typed
from tests.data import needs_data
from tests.real_packages import PACKAGES
from tests.reference.cases import Call, Case, load_cases, workflow_packages
from tests.reference.document import read_document
from tests.reference.values import Array
from tests.test_equivalence import DECODERS, PROMPTS

OPTIONAL = tuple(each.__name__ for each in PASSES if each.__name__ not in NEEDED)
FORMS = {
    "islands": ("fuse_islands",),
    "extents": ("prove_extents",),
    "held": ("hold_state",),
    "readers": ("link_readers",),
    "turns": ("keep_results",),
    "numbers": ("use_numbers",),
    "all": OPTIONAL,
}
"""What is left out. `all` is the plainest program: what the document says, step by step."""
TIMED = {"policy-telemetry-adapter": {"elapsed_ms"}}
"""Outputs that a clock decides."""
RUNS = {".py", ".onnx"}
"""Files of a compiled folder that run."""
Bytes = tuple[str, tuple[int, ...], bytes]


def exact(value: Array | None) -> Bytes | None:
    """An array as what it is, to the last bit."""
    return None if value is None else (str(value.dtype), value.shape, np.ascontiguousarray(value).tobytes())


def outcome(model: genai_runtime.Model, call: Call, timed: set[str]) -> Any:
    """Everything that a call publishes, to the last bit; or what it is refused with, and where."""
    try:
        result = model.run(call.inputs, stop_on_eos=call.stop_on_eos, session=call.session, overrides=call.overrides)
    except genai_runtime.GenaiError as failure:
        return failure.code, getattr(failure, "origin", None)
    whole = {name: exact(value) for name, value in result.aggregate.items() if name not in timed}
    rows = {name: [exact(each) for each in slots] for name, slots in result.row_slots.items()}
    events = {name: [exact(each) for each in items] for name, items in result.event_lists.items()}
    return whole, rows, events, result.iterations


def outcomes(cases: list[Case], compiled: Path) -> dict[str, Any]:
    """Every call of every case, each case on a fresh load."""
    found: dict[str, Any] = {}
    for case in cases:
        with genai_runtime.load(compiled, threads=1) as model:
            for at, call in enumerate(case.calls):
                found[f"{case.id}, call {at}"] = outcome(model, call, TIMED.get(case.package, set()))
    return found


@needs_data
@pytest.mark.parametrize("name", workflow_packages())
def test_what_is_left_out_changes_no_bit(name: str, tmp_path: Path) -> None:
    """Each conformance package; the values of the whole form are held against the expected ones elsewhere."""
    cases = load_cases(name)
    whole = compile_package(cases[0].folder, tmp_path / "whole").executor
    wanted = outcomes(cases, tmp_path / "whole")
    assert wanted
    for form, left in FORMS.items():
        compiled = compile_package(cases[0].folder, tmp_path / form, Options(without=left))
        if compiled.executor == whole:
            continue  # the same program
        assert outcomes(cases, tmp_path / form) == wanted, form


@pytest.mark.parametrize("left", OPTIONAL)
def test_each_can_be_seen_at_work(left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that something is compared here: some fixture's program or graphs change with each that can be left out.

    No fixture has weights that are large.
    """
    monkeypatch.setattr(sys.modules["genai_compiler.passes.gather_columns"], "LEAST", 1)
    if left == "split_opening":
        cut_anything(monkeypatch)
    case = {"speculate": "tiny-block-drafts", "keep_results": "nested-loops", "choose_forms": "wide-search",
            "use_numbers": "tiny-turns", "gather_columns": "tiny-tied-v1",
            **dict.fromkeys(("select_last", "place_state", "feed_lengths", "place_policy"), "tiny-gqa-v1"),
            **dict.fromkeys(("hold_state", "link_readers", "hoist_selection"), "tiny-held-state")}  # fmt: skip
    made: list[dict[str, bytes]] = []
    for out, without in (("whole", ()), ("part", (left,))):
        package = (
            typed("tiny-gqa-v1", tmp_path / "typed" / out)
            if left == "split_opening"
            else FIXTURES / case.get(left, "tiny-decoder")
        )
        compile_package(package, tmp_path / out, Options(without=without))
        made.append({each.name: each.read_bytes() for each in (tmp_path / out).rglob("*.*") if each.suffix in RUNS})
    assert made[0] != made[1]


# ---- rows of a batch -------------------------------------------------------------------------------------------------


def row_axes(name: str) -> dict[str, tuple[int, int] | None]:
    """Input and application names -> (row axis, entries a row); None for what all rows share. From the document."""
    found: dict[str, tuple[int, int] | None] = {}
    for input, spec in read_document(load_cases(name)[0].folder)["pipeline"]["workflow"]["inputs"].items():
        layout = spec["contract"].get("batch_layout") or {"kind": "shared"}
        rows = None if layout["kind"] == "shared" else (layout["axis"], layout.get("factor", 1))
        found |= {input: rows, spec["source"].get("name", input): rows}
    return found


def alone(inputs: Mapping[str, Array], axes: Mapping[str, tuple[int, int] | None], row: int) -> dict[str, Array]:
    """The inputs of one row of a batch."""
    return {name: array if axes[name] is None else part(array, axes[name], row) for name, array in inputs.items()}


def part(array: Array, rows: tuple[int, int] | None, row: int) -> Array:
    axis, factor = rows or (0, 1)
    return np.take(array, range(row * factor, (row + 1) * factor), axis)


def batches(name: str) -> Iterator[tuple[str, Call, int]]:
    """Calls whose expected data has several rows: (id, call, rows)."""
    for case in load_cases(name):
        for at, call in enumerate(case.calls):
            outputs = call.expect.get("outputs", {}).values()
            counts = {len(each["rows"]) for each in outputs if each["kind"] == "rows"}
            if counts - {1}:
                yield f"{case.id}, call {at}", call, counts.pop()


BATCHED = [name for name in workflow_packages() if any(batches(name))]


@needs_data
@pytest.mark.parametrize("left", [(), ("fuse_islands", "prove_extents", "hold_state")], ids=["whole", "plain"])
@pytest.mark.parametrize("name", BATCHED)
def test_each_row_of_a_batch_is_its_single_run(name: str, left: tuple[str, ...], tmp_path: Path) -> None:
    compile_package(load_cases(name)[0].folder, tmp_path / "out", Options(without=left))
    axes = row_axes(name)
    for id, call, rows in batches(name):
        with genai_runtime.load(tmp_path / "out", threads=1) as model:
            batch = model.run(call.inputs, stop_on_eos=call.stop_on_eos).row_slots
            for row in range(rows):
                one = model.run(alone(call.inputs, axes, row), stop_on_eos=call.stop_on_eos).row_slots
                for output, slots in batch.items():
                    mine = one[output][0] if output in one else None
                    assert exact(slots[row]) == exact(mine), f"{id}: {output} of row {row}"


@needs_data
def test_packages_with_rows_are_among_them() -> None:
    assert sorted(BATCHED) == ["decoder", "decoder-live", "own-emit-rows", "policy-prefix-verifier"]


# ---- decoders that the runtime drives --------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [*sorted(DECODERS), "tiny-decoder", "tiny-held-state"])
def test_a_decoder_chooses_the_same_tokens(case: str, tmp_path: Path) -> None:
    """Alone, in a batch and with drafts; where `speculate` is left out nobody can ask for drafts."""
    chosen = {}
    for left in ((), *((each,) for each in OPTIONAL), OPTIONAL):
        out = tmp_path / "-".join(("out", *left))[:60]
        compile_package(FIXTURES / case, out, Options(without=left))
        with genai_runtime.load(out, threads=1) as model:
            solo = [model.generate(each, max_new_tokens=6).tokens for each in PROMPTS]
            assert [row.tokens for row in model.generate(batch=PROMPTS, max_new_tokens=6).rows] == solo
            if case.endswith("-drafts") and "speculate" not in left:
                assert model.generate(PROMPTS[0], max_new_tokens=6, speculate=True).tokens == solo[0]
            if case.endswith("-drafts") and "speculate" in left:
                with pytest.raises(genai_runtime.RequestError, match="--without speculate"):
                    model.generate(PROMPTS[0], max_new_tokens=6, speculate=True).tokens  # noqa: B018
            chosen[left] = solo
    assert all(each == chosen[()] for each in chosen.values())


# ---- the option itself -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [each for each in CASES if each != "negatives"])
def test_the_plan_says_what_was_left_out(case: str, tmp_path: Path) -> None:
    plan = compile_package(FIXTURES / case, tmp_path / "out", Options(without=("hold_state", "fuse_islands"))).plan
    assert plan is not None
    assert not [each for each in plan.components if each.name.startswith("island")]
    lines = (tmp_path / "out" / "plan.txt").read_text("utf-8").splitlines()
    decisions = [each for each in lines if each.startswith(("decision hold_state", "decision fuse_islands"))]
    assert decisions == [f"decision {each}: left out, as --without asks" for each in ("fuse_islands", "hold_state")]


def test_the_command_takes_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form, flags in {"whole": [], "plain": ["--without", "fuse_islands", "--without", "prove_extents"]}.items():
        assert main([str(FIXTURES / "tiny-decoder"), "-o", str(tmp_path / form), *flags]) == 0
    capsys.readouterr()
    assert (tmp_path / "whole" / "graphs").is_dir()
    assert not (tmp_path / "plain" / "graphs").exists()


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("fuse_island", "unknown-pass", "did you mean fuse_islands?"),
        ("everything", "unknown-pass", "known here: drop_dead_steps, select_last"),
        ("peel_prompt", "needed-pass", "can be left out: drop_dead_steps, select_last"),
    ],
)
@pytest.mark.parametrize("flags", [[], ["--no-artifacts"], ["--check"]], ids=str)
def test_what_cannot_be_left_out_is_refused(
    name: str, code: str, said: str, flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = [] if "--check" in flags else ["-o", str(tmp_path / "out")]
    assert main([str(FIXTURES / "tiny-decoder"), *target, "--without", name, "--without", "hold_state", *flags]) == 2
    err = capsys.readouterr().err
    assert code in err
    assert said in err
    assert not (tmp_path / "out").exists()


def test_caches_of_a_fixed_size_need_their_place() -> None:
    """A decoder that takes its caches at full size only; by what numbers it writes is no matter of the pass."""
    with pytest.raises(CompileError) as refused:
        compile_package(FIXTURES / "tiny-stages-v1", options=Options(without=("place_state",)))
    assert [each.code for each in refused.value.problems] == ["needed-pass"]
    assert "the caches of 'decoder'" in refused.value.problems[0].what


@needs_data
@pytest.mark.parametrize("name", ["mobius-llama-static", "mobius-gemma4-static"])
def test_caches_that_are_written_by_numbers_do_not(name: str, tmp_path: Path) -> None:
    found = list[list[int]]()
    for form, left in (("whole", ()), ("part", ("place_state",))):
        compile_package(PACKAGES / name, tmp_path / form, Options(without=left))
        with genai_runtime.load(tmp_path / form, threads=1) as model:
            found.append(model.generate([7, 9], max_new_tokens=6, stop_on_eos=False, temperature=0).tokens)
    assert found[0] == found[1]


def test_every_fault_of_the_option_is_named() -> None:
    with pytest.raises(CompileError) as refused:
        compile_package(FIXTURES / "tiny-decoder", options=Options(without=("a", "peel_prompt", "b", "a")))
    assert sorted(each.code for each in refused.value.problems) == ["needed-pass", "unknown-pass", "unknown-pass"]
