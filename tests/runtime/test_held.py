"""Held cells publish what carried cells publish: compiled with and without the pass, and by the interpreter."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import pytest
from genai_runtime import ExecutionError, held
from onnx import TensorProto, helper, numpy_helper

from tests.conftest import FIXTURES
from tests.held_packages import ENTRIES, HEAD, KV_HEADS, NUMPY, Attention, compile_both, decision, scripted_package
from tests.reference.document import read_document
from tests.reference.interpreter import interpret
from tests.reference.plain_loop import greedy
from tests.reference.values import Array, Events, ReferenceError
from tests.two_routes import TwoRoutes
from tools.fixtures.document import Document, write_document

Inputs = dict[str, Array]
Both = tuple[genai_runtime.Model, genai_runtime.Model]
CASE = "tiny-held-state"


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers that grow several times in a short run."""
    monkeypatch.setattr(held, "FIRST_ROOM", 2)


def outcome(model: genai_runtime.Model, inputs: Inputs, **options: Any) -> tuple[list[Array], str]:
    """What a run published, event by event, and the code it failed with. Arrays are kept as they were handed out."""
    events: list[Array] = []
    try:
        events += (each.value for each in model.stream(inputs, **options))
    except ExecutionError as failure:
        return events, failure.code
    return events, ""


def same(both: Both, inputs: Inputs, **options: Any) -> tuple[list[Array], str]:
    (mine, code), (wanted, theirs) = (outcome(model, inputs, **options) for model in both)
    assert (code, len(mine)) == (theirs, len(wanted))
    for one, other in zip(mine, wanted, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)
    return mine, code


# ---- scripts of any lengths and masks --------------------------------------------------------------------------------


def script(
    steps: list[tuple[int, list[list[int]]]], past: int, *, most: int = 64, turns: int = 99, dtype: str = "float32"
) -> Inputs:
    """Inputs from (new tokens, mask) a step."""
    draw, rows = np.random.default_rng(3), len(steps[0][1])
    masks = np.zeros((len(steps), rows, 64), np.int64)
    for at, (_, mask) in enumerate(steps):
        masks[at, :, : len(mask[0])] = mask
    caches = {part: draw.standard_normal((rows, KV_HEADS, past, HEAD)).astype(NUMPY[dtype]) for part in "kv"}
    return {
        "tokens": draw.integers(0, ENTRIES, (len(steps), rows, max(new for new, _ in steps))),
        "masks": masks,
        "news": np.array([new for new, _ in steps]),
        "totals": np.array([len(mask[0]) for _, mask in steps]),
        "most": np.array([most]),
        "turns": np.array([turns]),
        **caches,
    }


def any_script(seed: int, dtype: str) -> Inputs:
    """Lengths mostly as they should be; else shorter, prompts anew, masks with gaps, rows that stand still or jump."""
    draw = np.random.default_rng(seed)
    rows, past = int(draw.integers(1, 4)), int(draw.integers(0, 5))
    extent, steps = past, list[tuple[int, list[list[int]]]]()
    for _ in range(int(draw.integers(1, 14))):
        new = 1 if rows > 1 or draw.random() < 0.7 else int(draw.integers(1, 4))
        odd = draw.random()
        total = extent + new if odd < 0.75 else int(draw.integers(1, extent + new + 1))
        new, total = (total, total) if odd > 0.95 else (new, total + 2 if odd > 0.93 else total)
        mask = np.ones((rows, total), np.int64) * (2 if odd > 0.985 else 1)
        if draw.random() < 0.4:
            mask[np.arange(rows), draw.integers(0, total, rows)] = 0
        if draw.random() < 0.3:
            mask *= draw.random(mask.shape) < 0.7
        steps.append((new, mask.tolist()))
        extent = max(extent, total)
    return script(steps, past, most=extent - int(draw.random() < 0.2), dtype=dtype)


KINDS = {
    "plain": Attention(),
    "total from sums": Attention(total="sum"),
    "window": Attention(attributes={"local_window_size": 3}),
    "no rotary": Attention(attributes={"do_rotary": 0}),
    "half": Attention(dtype="float16"),
}


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Both]]:
    """A scripted package and its two models; made once."""
    made: dict[str, tuple[Path, Both]] = {}

    def get(kind: str) -> tuple[Path, Both]:
        if kind not in made:
            folder = tmp_path_factory.mktemp("scripted")
            package = scripted_package(folder / "package", KINDS[kind])
            assert "caches is shared-buffer" in decision(package)
            made[kind] = package, compile_both(package, folder)
        return made[kind]

    return get


Scripted = Callable[[str], tuple[Path, Both]]


@pytest.mark.parametrize("kind", KINDS)
def test_any_script_gives_the_same_events_and_the_same_failure(scripted: Scripted, kind: str) -> None:
    _, both = scripted(kind)
    codes = [same(both, any_script(seed, KINDS[kind].dtype))[1] for seed in range(60)]
    assert {"", "step-failed"} <= set(codes)


@pytest.mark.parametrize("kind", KINDS)
def test_scripts_equal_the_interpreter(scripted: Scripted, kind: str) -> None:
    package, (model, _) = scripted(kind)
    for seed in range(12):
        inputs = any_script(seed, KINDS[kind].dtype)
        mine, code = outcome(model, inputs)
        try:
            wanted = interpret(package, inputs).outputs["logits"]
        except ReferenceError:
            assert code
            continue
        assert isinstance(wanted, Events)
        np.testing.assert_equal(mine, list(wanted.items))


def grown(rows: int, past: int, steps: int) -> list[tuple[int, list[list[int]]]]:
    return [(1, [[1] * (past + at)] * rows) for at in range(1, steps + 1)]


def test_room_grows_several_times(scripted: Scripted) -> None:
    events, code = same(scripted("plain")[1], script(grown(3, 2, 30), 2))
    assert (len(events), code) == (30, "")


def test_an_output_that_was_handed_out_is_not_written_again(scripted: Scripted) -> None:
    _, (model, _) = scripted("plain")
    kept = [(each.value, each.value.copy()) for each in model.stream(script(grown(2, 3, 12), 3))]
    assert all(np.array_equal(now, then) for now, then in kept)


def test_no_iteration_reads_nothing(scripted: Scripted) -> None:
    assert same(scripted("plain")[1], script(grown(2, 3, 2), 3, turns=0)) == ([], "")


def test_a_bound_is_exceeded_at_the_same_iteration(scripted: Scripted) -> None:
    events, code = same(scripted("plain")[1], script(grown(1, 2, 9), 2, most=6))
    assert (len(events), code) == (5, "recurrence")
    events, code = same(scripted("plain")[1], script(grown(1, 5, 2), 5, most=4))
    assert (len(events), code) == (1, "recurrence")


def test_several_tokens_a_step_and_a_prompt_of_one(scripted: Scripted) -> None:
    lengths = [(1, 1), (3, 4), (2, 6), (1, 7), (4, 11)]
    assert same(scripted("plain")[1], script([(new, [[1] * total]) for new, total in lengths], 0))[1] == ""


def test_a_total_below_the_extent_leaves_the_cells_as_long(scripted: Scripted) -> None:
    steps = [(1, [[1] * 4]), (1, [[1] * 9]), (1, [[1] * 11])]
    events, code = same(scripted("plain")[1], script(steps, 8, most=9))
    assert (len(events), code) == (2, "step-failed"), "8 stays 8, grows to 9; 11 is more than one token"


def test_entries_that_a_row_skips_are_zero(scripted: Scripted) -> None:
    """A row that fell back leaves entries behind that a carried cell does not have; then it jumps over them."""
    back = [(1, [[1] * 9]), (1, [[1] * 3 + [0] * 7]), (1, [[1] * 11]), (1, [[1] * 12])]
    assert same(scripted("plain")[1], script(back, 8))[1] == ""
    ragged = [(1, [[1] * 9, [1] * 4 + [0] * 5]), (1, [[1] * 10, [1] * 9 + [0]]), (1, [[1] * 11] * 2)]
    assert same(scripted("plain")[1], script(ragged, 8))[1] == ""


def test_padding_of_a_prompt_stays_until_the_next_run(scripted: Scripted) -> None:
    """A prompt writes all its columns, also those behind a row's valid ones; a jump right after it sees them."""
    steps = [(4, [[1, 1, 1, 1], [1, 0, 0, 0]]), (1, [[1] * 5] * 2), (1, [[1] * 6] * 2)]
    assert same(scripted("plain")[1], script(steps, 0))[1] == ""


@pytest.mark.parametrize("mask", [[2, 2, 2], [0, 0, 0], [1] * 9, [-1, -1, 1]], ids=str)
def test_lengths_that_the_operator_refuses_are_refused(scripted: Scripted, mask: list[int]) -> None:
    assert same(scripted("plain")[1], script([(1, [mask])], 2))[1] == "step-failed"
    assert same(scripted("plain")[1], script([*grown(1, 2, 3), (1, [mask])], 2))[1] in ("step-failed", "")


def test_cells_of_different_length_are_refused(scripted: Scripted) -> None:
    inputs = script(grown(1, 3, 2), 3)
    inputs["v"] = inputs["v"][:, :, :2]
    assert same(scripted("plain")[1], inputs)[1] == "symbol-conflict"
    assert same(scripted("plain")[1], {**inputs, "turns": np.array([0])}) == ([], "")


# ---- a decoder -------------------------------------------------------------------------------------------------------

PROMPTS = [[1, 10, 20, 30], [5], [3, 40, 41, 42, 43, 44, 5, 4]]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Both:
    return compile_both(FIXTURES / CASE, tmp_path_factory.mktemp("decoder"))


@pytest.fixture
def routes(decoder: Both) -> TwoRoutes:
    return TwoRoutes(decoder[0], FIXTURES / CASE)


def request(prompts: list[list[int]], count: int, **more: Array) -> Inputs:
    """Rows padded on the right with a token that would matter if it were read."""
    width = max(map(len, prompts))
    return {
        "request.input_ids": np.array([prompt + [17] * (width - len(prompt)) for prompt in prompts]),
        "prompt_lengths": np.array([len(prompt) for prompt in prompts]),
        "request.max_iterations": np.array([count]),
        **more,
    }


def agree(both: Both, inputs: Inputs, **options: Any) -> genai_runtime.Result:
    """Held, carried and interpreted: one result."""
    result = TwoRoutes(both[0], FIXTURES / CASE).agree(inputs, **options)
    other = both[1].run(inputs, **options)
    assert ("tokens" in result) == ("tokens" in other)
    rows = (result.rows("tokens"), other.rows("tokens")) if "tokens" in result else ([], [])
    for mine, wanted in zip(*rows, strict=True):
        np.testing.assert_array_equal(mine, wanted)
    return result


@pytest.mark.parametrize("prompts", [PROMPTS[:1], PROMPTS[1:2], PROMPTS[:2], PROMPTS], ids=len)
@pytest.mark.parametrize("count", [0, 1, 30])
def test_greedy_rows_equal_the_plain_loop(decoder: Both, prompts: list[list[int]], count: int) -> None:
    ends = {"eos_ids": np.array([[2, 5]] * len(prompts)), "eos_lengths": np.full(len(prompts), 2)}
    result = agree(decoder, request(prompts, count, **ends))
    wanted = [greedy(FIXTURES / CASE / "model.onnx", prompt, count, (2, 5)) for prompt in prompts]
    got = [row[0].tolist() for row in result.rows("tokens") if row is not None] if count else []
    assert got == (wanted if count else [])
    assert count < 30 or len(prompts) < 3 or len({*map(len, wanted)}) > 1, "rows should end at different times"


def test_seeded_rows_with_limits_of_their_own(decoder: Both) -> None:
    more = {"row_max_iterations": np.array([25, 3, 11]), "request.seed": np.array([7, 8, 9])}
    more |= {"request.temperature": np.full(3, 1.5, np.float32), "request.top_k": np.zeros(3, np.int64)}
    inputs = request(PROMPTS, 25, **more)
    batch = agree(decoder, inputs, stop_on_eos=False)
    for row, prompt in enumerate(PROMPTS):
        solo = {name: value[row : row + 1] for name, value in more.items()}
        alone = agree(decoder, request([prompt], 25, **solo), stop_on_eos=False)
        np.testing.assert_array_equal(batch.rows("tokens")[row], alone["tokens"])


def edited(folder: Path, name: str, default: object) -> Path:
    """The decoder with another literal."""
    shutil.copytree(FIXTURES / CASE, folder)
    document: Document = read_document(FIXTURES / CASE)
    document["pipeline"]["workflow"]["inputs"][name]["default"] = default
    write_document(folder, document)
    return folder


def test_the_context_ends_at_the_same_token(tmp_path: Path) -> None:
    package = edited(tmp_path / "package", "package.max_context", 20)
    inputs = request(PROMPTS, 60)
    events, code = same(compile_both(package, tmp_path), inputs, stop_on_eos=False)
    assert (len(events), code) == (3 * (20 - 8 + 1), "recurrence"), (
        "the token that does not fit is out before its cache"
    )
    with pytest.raises(ReferenceError, match="above 20"):
        interpret(package, inputs, stop_on_eos=False)


def test_rows_that_are_inactive_from_the_start(tmp_path: Path) -> None:
    package = edited(tmp_path / "package", "package.active", False)
    both = compile_both(package, tmp_path)
    assert same(both, request(PROMPTS, 5)) == ([], "")
    TwoRoutes(both[0], package).agree(request(PROMPTS, 5))
    TwoRoutes(both[0], package).agree(request(PROMPTS, 5), stop_on_eos=False)


def test_requests_do_not_share_buffers(decoder: Both) -> None:
    """Two streams of one model, step by step in turn."""
    model, _ = decoder
    wanted = [outcome(model, request([prompt], 12), stop_on_eos=False)[0] for prompt in PROMPTS[::2]]
    streams = [model.stream(request([prompt], 12), stop_on_eos=False) for prompt in PROMPTS[::2]]
    got = [[next(stream).value for stream in streams] for _ in range(12)]
    np.testing.assert_equal([[pair[at] for pair in got] for at in (0, 1)], wanted)


@pytest.mark.parametrize("shape", [[1, 1, -1], [-1], [1, -1, 1]], ids=str)
def test_masks_of_another_rank_than_their_graph_declares_fail_by_name(shape: list[int], tmp_path: Path) -> None:
    """A shape that is computed says nothing while sessions are opened; a run is told of it by ONNX Runtime."""
    package = edited(tmp_path / "package", "package.active", True)
    update = package / "policies" / "decoder_step_update.onnx"
    model = onnx.load(update)
    (node,) = (each for each in model.graph.node if "next_attention_mask" in each.output)
    node.output[:] = ["right" if each == "next_attention_mask" else each for each in node.output]
    (counted,) = (each.name for each in model.graph.input if each.name == "attention_mask")
    model.graph.initializer.append(numpy_helper.from_array(np.array(shape), "stated"))
    model.graph.initializer.append(numpy_helper.from_array(np.array([0]), "nothing"))
    model.graph.node.extend(
        [
            helper.make_node("Shape", [counted], ["extents"]),
            helper.make_node("Expand", ["nothing", "extents"], ["none"]),
            helper.make_node("ReduceMax", ["none"], ["zero"], keepdims=0),
            helper.make_node("Cast", ["zero"], ["whole"], to=TensorProto.INT64),
            helper.make_node("Add", ["stated", "whole"], ["computed"]),
            helper.make_node("Reshape", ["right", "computed"], ["next_attention_mask"]),
        ]
    )
    onnx.save(model, update)
    assert same(compile_both(package, tmp_path), request(PROMPTS[:1], 5))[1] in ("step-failed", "symbol-conflict")
