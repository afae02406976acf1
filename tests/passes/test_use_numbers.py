"""Light runs in numbers: which ones, and that every value and failure is what sessions give."""

import shutil
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import Compiled, Options, compile_package
from genai_compiler.plan.ir import Invoke
from genai_compiler.plan.uses import walk
from genai_runtime.held import Held
from genai_runtime.settled import SETTLED
from onnx import TensorProto, helper, load, save

from tests.conftest import FIXTURES
from tests.number_packages import counting
from tests.reference.document import read_document
from tests.reference.plain_loop import greedy
from tests.runtime.test_settled import Both, outcome, same
from tests.settled_packages import Inputs
from tests.test_generated_code import check_module
from tools.fixtures.document import application, cell, tensor, write_document

CASE = "tiny-turns"
PROMPT = [1, 10, 20, 30]
STEPS = SETTLED + 17


def in_numbers(made: Compiled) -> list[str]:
    assert made.plan is not None
    return [op.component for op in walk(made.plan.body) if isinstance(op, Invoke) and op.numbers is not None]


def said(made: Compiled) -> str:
    assert made.plan is not None
    return next((each for each in made.plan.decisions if each.startswith("use_numbers: ")), "")


def two_forms(package: Path, out: Path) -> tuple[Both, Compiled]:
    """(the package, its model, the same without `use_numbers`), and what the first was compiled to."""
    made = compile_package(package, out / "numbers")
    compile_package(package, out / "sessions", Options(without=("use_numbers",)))
    return (package, *(genai_runtime.load(out / name, threads=1) for name in ("numbers", "sessions"))), made


def test_policies_of_a_decoder_are_numbers(tmp_path: Path) -> None:
    both, made = two_forms(FIXTURES / CASE, tmp_path)
    assert in_numbers(made) == ["island_1"]
    assert "island_1, in numbers" in made.executor
    assert "in numbers" not in (tmp_path / "sessions" / "executor.py").read_text(encoding="utf-8")
    for count in (0, 1, SETTLED + 1, SETTLED + 2, 40):
        wanted = greedy(FIXTURES / CASE / "model.onnx", PROMPT, count, ())
        for model in both[1:]:
            assert model.generate(PROMPT, max_new_tokens=count).tokens == wanted


@pytest.mark.parametrize("short", [SETTLED + 5, SETTLED + 6])
def test_a_place_that_the_mask_has_not_is_said_by_the_session(tmp_path: Path, short: int) -> None:
    """The row's length is told as so much that the mask ends some iterations before the loop does."""
    both, _ = two_forms(FIXTURES / CASE, tmp_path)
    width = len(PROMPT) + STEPS
    request = {"request.input_ids": np.array([PROMPT]), "request.max_iterations": np.array([STEPS])}
    found = [outcome(model, {**request, "prompt_lengths": np.array([width - short])}) for model in both[1:]]
    assert found[0] == found[1]
    code, place = found[0][1:]
    assert (code, place.split(" ")[1]) == ("step-failed", "pipeline.workflow.steps[0].steps[1]")
    assert len(found[0][0]) == short + 1


@pytest.mark.parametrize("lowest", range(0, 24, 6))
def test_any_loop_of_numbers(tmp_path: Path, lowest: int) -> None:
    """Numbers that leave their types and places that rows have not are the sessions'; batches are theirs throughout."""
    codes, marked, long = set[str](), 0, 0
    for seed in range(lowest, lowest + 6):
        both, made = two_forms(counting(tmp_path / f"{seed}" / "package", seed), tmp_path / f"{seed}")
        marked += in_numbers(made) == ["play"]
        check_module(made.executor)
        for turn in range(5):
            events, code = same(both, request(1000 * seed + turn))
            codes.add(code)
            long += len(events) > 2 * SETTLED
    assert (codes <= {"", "step-failed"}, marked, long > 5) == (True, 6, True)


def request(seed: int) -> Inputs:
    draw = np.random.default_rng(seed)
    rows = int(draw.choice([1, 1, 1, 1, 2]))
    most = int(draw.choice([9, 2**40, 2**62]))
    return {
        **{f"{name}.given": draw.integers(-most, most, (rows, 1)) for name in "ab"},
        "s.given": draw.integers(-(2**31), 2**31, (rows, 1)).astype(np.int32),
        "row.given": draw.integers(0, 9, (rows, 8)),
        "turns": np.array([STEPS]),
    }


def edited(folder: Path, name: str, *nodes: Any) -> Path:
    """The package with nodes behind all others of one of its graphs; they read what is there, for nothing."""
    shutil.copytree(FIXTURES / CASE, folder)
    model = load(folder / f"{name}.onnx")
    model.graph.node.extend(nodes)
    save(model, folder / f"{name}.onnx")
    return folder


def test_a_graph_of_other_operators_stays_a_run(tmp_path: Path) -> None:
    node = helper.make_node("Div", ["count", "one"], ["unused"])
    both, made = two_forms(edited(tmp_path / "package", "termination", node), tmp_path)
    assert (in_numbers(made), said(made)) == ([], "use_numbers: island_1 stays a run of a session: its operator Div")
    assert both[1].generate(PROMPT, max_new_tokens=30).tokens == greedy(FIXTURES / CASE / "model.onnx", PROMPT, 30, ())


def test_now_numbers_now_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where bit 2 of the length is set a number leaves its type, which counts for nothing in the end.

    The mask's sum, which cells in place are asked for, goes on whoever has made the mask.
    """
    package = tmp_path / "package"
    shutil.copytree(FIXTURES / CASE, package)
    model = load(package / "state_update.onnx")
    (last,) = [node for node in model.graph.node if "next_lengths" in node.output]
    last.output[0] = "more"
    model.graph.initializer.extend(
        helper.make_tensor(name, TensorProto.INT64, [1], [value])
        for name, value in (("bit", 4), ("high", 2**61), ("nothing", 0))
    )
    steps = ("BitwiseAnd lengths bit a", "Mul a high b", "Mul b nothing c", "Add more c next_lengths")
    model.graph.node.extend(helper.make_node(op, taken, [gives]) for op, *taken, gives in map(str.split, steps))
    save(model, package / "state_update.onnx")
    both, made = two_forms(package, tmp_path)
    assert in_numbers(made) == ["island_1"]
    assert both[1].generate(PROMPT, max_new_tokens=40).tokens == greedy(FIXTURES / CASE / "model.onnx", PROMPT, 40, ())
    compile_package(package, tmp_path / "timed")
    sums, follow = list[int](), Held.follow
    monkeypatch.setattr(Held, "follow", lambda held, valid: (sums.append(valid), follow(held, valid))[1])
    with genai_runtime.load(tmp_path / "timed", threads=1, timings=True) as model:
        model.generate(PROMPT, max_new_tokens=40).tokens  # noqa: B018
        assert model.timings is not None
        runs = [each.name for each in model.timings.spans].count("island_1")
    settled = range(len(PROMPT) + SETTLED + 1, len(PROMPT) + 40)
    assert runs == SETTLED + 1 + sum(length & 4 == 4 for length in settled)
    assert sums == [length + 1 for length in settled]


def test_a_form_that_was_asked_for_stays(tmp_path: Path) -> None:
    made = compile_package(FIXTURES / CASE, tmp_path / "out", Options(forms={"": "own"}))
    assert in_numbers(made) == []
    assert "stays a run of a session: a session of its own is its form" in said(made)


def test_a_row_that_nobody_reads_still_refuses_a_place_that_it_has_not(tmp_path: Path) -> None:
    """The graph's first result is read by nobody: it is not written, and yet the session is asked where it must be."""
    package = tmp_path / "package"
    shutil.copytree(FIXTURES / CASE, package)
    document = read_document(package)
    workflow = document["pipeline"]["workflow"]
    body = workflow["steps"][0]["steps"]
    scatter = next(each for each in body if each.get("component") == "state_update")
    outputs = {"next_lengths": "spare.next", "next_mask": "spare.mask"}
    body.insert(0, {**scatter, "inputs": {**scatter["inputs"], "lengths": "spare"}, "outputs": outputs})
    workflow["inputs"]["spare.start"] = application(tensor("int64", "batch", rows=True), "spare")
    workflow["state"]["spare"] = cell(tensor("int64", "batch", rows=True), "spare.start")
    workflow["steps"][0]["carried"].append({"cell": "spare", "next": "spare.next"})
    write_document(package, document)
    both, made = two_forms(package, tmp_path)
    assert in_numbers(made)
    request = {"request.input_ids": np.array([PROMPT]), "request.max_iterations": np.array([STEPS])}
    width = len(PROMPT) + STEPS
    codes = [same(both, {**request, "spare": np.array([width - short])})[1] for short in (SETTLED + 5, width)]
    assert codes == ["step-failed", ""]


# ---- lists and tables of end tokens ----------------------------------------------------------------------------------

CAST = TensorProto.INT64, TensorProto.BOOL
LISTED = (
    ("Equal", ["token", "eos"], "same", {}), ("Cast", ["same"], "hits", {"to": CAST[0]}),
    ("ReduceSum", ["hits", "axis"], "found", {"keepdims": 0}), ("Cast", ["found"], "ended", {"to": CAST[1]}),
)  # fmt: skip
"""Whether a token is one of a list, as nodes."""


def ending_by(kind: str, folder: Path, ends: list[int]) -> Path:
    """The package whose rows end by a constant list of tokens, a table of flags, or a list that a request gives."""
    shutil.copytree(FIXTURES / CASE, folder)
    model, document = load(folder / "termination.onnx"), read_document(folder)
    graph, workflow = model.graph, document["pipeline"]["workflow"]
    found = LISTED if kind != "table" else (("Gather", ["table", "flat"], "ended", {}),)
    nodes = [helper.make_node(op, taken, [made], **more) for op, taken, made, more in found]
    kept = [node for node in graph.node if "ended" not in node.output]
    del graph.node[:]
    graph.node.extend([kept[0], *nodes, *kept[1:]])
    port = next(each for each in graph.input if each.name == "eos")
    if kind == "given":
        port.type.tensor_type.shape.dim[0].dim_param = "ends"
        workflow["components"]["termination"]["ports"]["inputs"]["eos"]["shape"] = ["ends"]
        workflow["inputs"]["package.eos"]["contract"]["shape"] = ["ends"]
    else:
        graph.input.remove(port)
        table = helper.make_tensor("table", TensorProto.BOOL, [64], [each in ends for each in range(64)])
        graph.initializer.append(table if kind == "table" else helper.make_tensor("eos", CAST[0], [len(ends)], ends))
        del workflow["inputs"]["package.eos"]
        del workflow["components"]["termination"]["ports"]["inputs"]["eos"]
        for step in workflow["steps"][0]["steps"]:
            step.get("inputs", {}).pop("eos", None)
    save(model, folder / "termination.onnx")
    write_document(folder, document)
    return folder


@pytest.mark.parametrize("kind", ["constant", "table", "given"])
@pytest.mark.parametrize("place", [SETTLED - 1, SETTLED + 1, SETTLED + 9, 39])
def test_rows_that_end_by_a_list_are_numbers_too(tmp_path: Path, kind: str, place: int) -> None:
    """A row ends at the first token of the list, and where the list is empty it never does."""
    plain = greedy(FIXTURES / CASE / "model.onnx", PROMPT, 40, ())
    absent = next(each for each in range(64) if each not in plain)
    ends = [absent, plain[place]]
    wanted = plain[: plain.index(plain[place]) + 1]
    both, made = two_forms(ending_by(kind, tmp_path / "package", ends), tmp_path)
    check_module(made.executor)
    assert in_numbers(made) == ["island_1"], said(made)
    iteration = made.executor.partition("for step in range(SETTLED + 1")[2]
    assert "len(" not in iteration, "no list and no row changes its length"
    request = {"request.input_ids": np.array([PROMPT]), "request.max_iterations": np.array([40])}
    request["prompt_lengths"] = np.array([len(PROMPT)])
    for given, tokens in ((ends, wanted), ([], plain), ([absent] * 70, plain)):
        asked = request | ({"eos": np.array(given, np.int64)} if kind == "given" else {})
        events, code = same(both, asked)
        assert ([each[-1] for each in events], code) == (
            [[[each]] for each in (tokens if kind == "given" else wanted)],
            "",
        )
