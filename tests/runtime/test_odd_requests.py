"""Requests that no program means to make, and ones that end oddly: each has a named error, none a raw one."""

import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_runtime import ExecutionError, LoadError, Model, RequestError, binding
from genai_runtime.publish import Output, Publisher
from genai_runtime.request import Audience
from genai_runtime.values import to_value

from tests.conftest import FIXTURES
from tests.runtime.failing import failing_after

Models = Callable[[str], Model]
CASE = "tiny-gqa-v1"


def refused(call: Callable[[], object], code: str) -> RequestError:
    with pytest.raises(RequestError) as caught:
        call()
    assert caught.value.code == code
    return caught.value


# ---- rows of a batch -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [CASE, "tiny-concat-v1"])
@pytest.mark.parametrize("most", [None, 0, 30])
@pytest.mark.parametrize("max_length", [None, 20])
@pytest.mark.parametrize("stop_on_eos", [True, False])
def test_each_row_goes_as_far_as_alone(
    model: Models,
    monkeypatch: pytest.MonkeyPatch,
    case: str,
    most: int | None,
    max_length: int | None,
    stop_on_eos: bool,
) -> None:
    tiny = model(case)
    defaults = dict(tiny._manifest.data["generation"]["defaults"])
    monkeypatch.setitem(tiny._manifest.data["generation"], "defaults", {**defaults, "max_length": max_length})
    prompts = [[1], [3] * 40, [9, 10, 11]]
    options: dict[str, Any] = {"max_new_tokens": most, "stop_on_eos": stop_on_eos}
    rows = tiny.generate(batch=prompts, **options).rows
    alone = [tiny.generate(each, **options) for each in prompts]
    assert [(each.tokens, each.finish_reason) for each in rows] == [(a.tokens, a.finish_reason) for a in alone]
    if not stop_on_eos:
        room = [(max_length or 64) - len(each) if most is None else most for each in prompts]
        wanted = [max(0, min(left, 64 - len(each))) for left, each in zip(room, prompts, strict=True)]
        assert [len(each.tokens) for each in rows] == wanted


# ---- prompts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "code"),
    [
        ([1.0], "bad-token"),
        ([True], "bad-token"),
        (["1"], "bad-token"),
        ([None], "bad-token"),
        ([[1]], "bad-token"),
        ([float("nan")], "bad-token"),
        ([np.float32(1)], "bad-token"),
        ([-1], "bad-token"),
        ([2**63], "bad-token"),
        ([2**80], "bad-token"),
        (5, "bad-prompt"),
        (float("nan"), "bad-prompt"),
        (b"ab", "bad-prompt"),
        ({1: 2}, "bad-prompt"),
        (np.array([[1, 2]]), "bad-prompt"),
        (np.array(1), "bad-prompt"),
        (np.array([1.5]), "bad-prompt"),
        (np.array([True]), "bad-prompt"),
        (np.array([], dtype=np.int64), "empty-prompt"),
    ],
    ids=repr,
)
def test_ids_are_whole_numbers(model: Models, prompt: Any, code: str) -> None:
    refused(lambda: model(CASE).generate(prompt), code)
    refused(lambda: model(CASE).generate(batch=[[1], prompt]), code)


@pytest.mark.parametrize("prompt", [["a", "b"], [[1], [2]], np.array([[1, 2]]), np.array(["a", "b"])], ids=repr)
def test_several_prompts_are_told_where_they_go(model: Models, prompt: Any) -> None:
    tiny = model("tiny-gqa-v1")
    code = "bad-prompt" if isinstance(prompt, np.ndarray) else "bad-token"
    assert refused(lambda: tiny.generate(prompt), code).help == "this is one prompt; several go in as batch=[...]"
    assert "batch" not in refused(lambda: tiny.generate([1, "b"]), "bad-token").help
    assert "batch" not in refused(lambda: tiny.generate([1.5]), "bad-token").help


def test_a_fault_in_a_batch_names_its_row(model: Models) -> None:
    tiny = model("tiny-gqa-v1")
    assert refused(lambda: tiny.generate(batch=[[1], [1.5]]), "bad-token").what == "row 1: 1.5 is no token id"
    assert refused(lambda: tiny.generate(batch=[[1.5]]), "bad-token").what == "1.5 is no token id"


@pytest.mark.parametrize("batch", [5, "ab", b"ab", {"a": 1}, np.array(3)], ids=repr)
def test_a_batch_is_a_list(model: Models, batch: Any) -> None:
    refused(lambda: model(CASE).generate(batch=batch), "bad-prompt")


def test_numpys_whole_numbers_are_ids(model: Models) -> None:
    tiny = model(CASE)
    wanted = tiny.generate([1, 9], max_new_tokens=3).tokens
    for prompt in (np.array([1, 9], dtype=np.uint8), [np.int64(1), np.int32(9)], (1, 9), range(1, 10, 8)):
        assert tiny.generate(prompt, max_new_tokens=3).tokens == wanted


# ---- other arguments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        (None, "bad-inputs"),
        ([1], "bad-inputs"),
        ({3: [1]}, "bad-inputs"),
        ({"times": [[1], [1, 2]], "step": [1]}, "bad-value"),
        ({"times": None, "step": [1]}, "bad-value"),
        ({"times": ..., "step": [1]}, "bad-value"),
    ],
    ids=repr,
)
def test_inputs_of_run_are_a_mapping_of_arrays(model: Models, inputs: Any, code: str) -> None:
    refused(lambda: model("session-counter").run(inputs), code)


@pytest.mark.parametrize("session", [[], {}, 5, b"a"], ids=repr)
def test_a_session_is_named_by_text(model: Models, session: Any) -> None:
    counter = model("session-counter")
    refused(lambda: counter.run({"times": np.array([1]), "step": np.array([1])}, session=session), "bad-session")
    refused(lambda: counter.reset(session), "bad-session")


@pytest.mark.parametrize("stop", [5, b"ab", ..., [5], [None], [""], ""], ids=repr)
def test_stop_is_text(model: Models, stop: Any) -> None:
    refused(lambda: model(CASE).generate([1], stop=stop), "bad-stop")


@pytest.mark.parametrize("tools", [..., 5, "ab", {"a": 1}], ids=repr)
def test_tools_are_a_list(model: Models, tools: Any) -> None:
    refused(lambda: model(CASE).chat([{"role": "user", "content": "a"}], tools=tools), "bad-tools")


@pytest.mark.parametrize(
    "options", [5, {5: 1}, *({name: 1} for name in ("messages", "tools", "template", "tokenizer", "self"))], ids=repr
)
def test_template_options_are_new_names(model: Models, options: Any) -> None:
    messages = [{"role": "user", "content": "a"}]
    refused(lambda: model(CASE).chat(messages, template_options=options), "bad-template-options")


# ---- a folder edited by hand -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("package", "path"), "a\0b"),
        (("package", "path"), "\ud800"),
        (("graphs", "*", "file"), "\ud800"),
        (("graphs", "*", "file"), "a\0"),
        (("graphs", "*", "weights"), "\ud800"),
        (("text", "tokenizer"), "\ud800"),
        (("files", 0, "path"), "\0"),
        (("inputs", 0, "dtype"), ""),
        (("inputs", 0, "dtype"), "int65"),
        (("generation", "holes"), [-1]),
        (("generation", "pad_id"), 1 << 70),
    ],
    ids=repr,
)
def test_a_value_that_no_compiler_writes(
    compiled: Callable[[str], tuple[Path, object]], tmp_path: Path, path: tuple[Any, ...], value: object
) -> None:
    folder = shutil.copytree(compiled(CASE)[0], tmp_path / "c")
    data = json.loads((folder / "manifest.json").read_text("utf-8"))
    data["package"]["path"] = str(FIXTURES / CASE)
    holder = data
    for key in path[:-1]:
        holder = next(iter(holder.values())) if key == "*" else holder[key]
    holder[path[-1]] = value
    (folder / "manifest.json").write_text(json.dumps(data), "utf-8")
    with pytest.raises(LoadError, match="damaged-folder"):
        genai_runtime.load(folder)


@pytest.mark.parametrize(
    "text",
    ["", "Executor = None", "import sys\nsys.exit(3)", "def Executor(sessions): raise OSError(5)",
     "def Executor(): pass", "import sys\ndef Executor(sessions): sys.exit(3)"],
)  # fmt: skip
def test_an_executor_that_is_none(compiled: Callable[[str], tuple[Path, object]], tmp_path: Path, text: str) -> None:
    folder = shutil.copytree(compiled(CASE)[0], tmp_path / "c")
    text = f"ABI_VERSION = {genai_runtime.ABI_VERSION}\n{text}\n"
    (folder / "executor.py").write_text(text, "utf-8")
    data = json.loads((folder / "manifest.json").read_text("utf-8"))
    data["package"]["path"] = str(FIXTURES / CASE)
    data["executor_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(data), "utf-8")
    for _ in range(2):
        with pytest.raises(LoadError, match="damaged-folder"):
            genai_runtime.load(folder)


# ---- a generation that ends oddly ------------------------------------------------------------------------------------


def test_a_failure_stays_one(model: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "run_bound", failing_after(3, lambda: RuntimeError("no more")))
    generation = model(CASE).generate([1, 9], stop_on_eos=False)
    said = set()
    for look in ("tokens", "tokens", "text", "finish_reason", "rows", "stats"):
        with pytest.raises(ExecutionError) as caught:
            getattr(generation, look)
        said.add((caught.value.code, caught.value.origin, str(caught.value)))
    with pytest.raises(ExecutionError, match="no more"):
        list(generation)
    generation.close()
    with pytest.raises(ExecutionError, match="no more"):
        generation.tokens  # noqa: B018
    assert len(said) == 1
    assert [(len(row.tokens), row.finish_reason) for row in generation.partial] == [(3, "failed")]


def test_what_was_closed_before_it_began_took_no_time(model: Models) -> None:
    generation = model(CASE).generate([1, 9])
    generation.close()
    stats = generation.stats
    assert (stats.new_tokens, stats.ttft, stats.seconds, stats.rate) == (0, 0.0, 0.0, 0.0)
    assert generation.finish_reason == "cancelled"


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """(a run has begun, it may go on): every session run waits in between."""
    inside, go_on = threading.Event(), threading.Event()

    def slow(real: Callable[[Any], Callable[..., Any]]) -> Callable[[Any], Callable[..., Any]]:
        def opened(session: Any, origin: str = "") -> Callable[..., Any]:
            run = real(session)

            def held(*given: Any) -> Any:
                inside.set()
                assert go_on.wait(30)
                return run(*given)

            return held

        return opened

    for name in ("run_bound", "run_with_values"):
        monkeypatch.setattr(binding, name, slow(getattr(binding, name)))
    yield inside, go_on
    go_on.set()


def test_a_second_thread_is_told_that_the_generation_runs(
    model: Models, gate: tuple[threading.Event, threading.Event]
) -> None:
    generation = model(CASE).generate([1, 9], max_new_tokens=4, stop_on_eos=False)
    first = threading.Thread(target=lambda: generation.tokens)
    first.start()
    assert gate[0].wait(30)
    refused(lambda: generation.tokens, "generation-busy")
    gate[1].set()
    first.join(30)
    assert len(generation.tokens) == 4


@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-concat-v1", "tiny-decoder"])
@pytest.mark.parametrize("reader", [lambda it: it.tokens, list], ids=["at once", "piece by piece"])
def test_s3_another_thread_may_end_the_generation(
    compiled: Callable[[str], tuple[Path, object]],
    gate: tuple[threading.Event, threading.Event],
    case: str,
    reader: Callable[[Any], object],
) -> None:
    with genai_runtime.load(compiled(case)[0]) as opened:
        generation = opened.generate(batch=[[1, 9], [1, 9, 14]], max_new_tokens=20, stop_on_eos=False)
        if reader is not list:
            generation = opened.generate([1, 9], max_new_tokens=20, stop_on_eos=False)
        first = threading.Thread(target=lambda: reader(generation) if reader is not list else list(generation.pieces()))
        first.start()
        assert gate[0].wait(30)
        generation.close()  # returns, though the other thread is inside a step
        gate[1].set()
        first.join(30)
        assert not first.is_alive()
        assert {row.finish_reason for row in generation.partial} == {"cancelled"}
        assert all(len(row.tokens) <= 1 for row in generation.partial)


def test_a_generation_says_what_has_come_so_far(model: Models) -> None:
    generation = model(CASE).generate([1, 9], max_new_tokens=3, stop_on_eos=False)
    assert repr(generation) == "<Generation of 1 row: <row 0: 0 tokens, running>>"
    assert len(generation.tokens) == 3
    assert repr(generation) == "<Generation of 1 row: <row 0: 3 tokens, length>>"
    assert repr(generation.text) in repr(generation)


# ---- emits -----------------------------------------------------------------------------------------------------------

OUT = Output("out", "int64", (None, None))


def emissions(row_wise: bool, values: list[Any], axes: list[int]) -> Iterator[None]:
    made = Publisher([OUT], {})
    for step, (value, axis) in enumerate(zip(values, axes, strict=True)):
        given = to_value(np.array(value, dtype=np.int64))
        if row_wise:
            list(made.emit_rows("out", "append", given, axis, step, "steps[3]"))
        else:
            made.emit("out", "append", given, axis, step, "steps[3]")
        yield
    made.finish()


@pytest.mark.parametrize("row_wise", [False, True])
@pytest.mark.parametrize(
    ("values", "axes"),
    [([[[1]], [[1, 2]]], [0, 0]), ([[[1, 2]]], [2]), ([5], [0]), ([[[1]], [[1]], [[1, 2, 3]]], [1, 1, 0])],
    ids=["other extents", "no such axis", "a scalar", "another axis"],
)
def test_what_cannot_be_appended_names_its_step(row_wise: bool, values: list[Any], axes: list[int]) -> None:
    if row_wise and values[0] == [[1]] and axes[0] == 0:
        axes = [1, 0]  # a row is one entry of axis 0: other widths meet there only
    with pytest.raises(ExecutionError) as caught:
        list(emissions(row_wise, values, axes))
    assert (caught.value.code, caught.value.origin) == ("emit-contract", "steps[3]")


def test_chunks_on_two_axes_are_put_together_in_order() -> None:
    made = Publisher([OUT], {})
    for value, axis in (([[1]], 0), ([[2]], 0), ([[3], [4]], 1)):
        made.emit("out", "append", to_value(np.array(value, dtype=np.int64)), axis, 0, "steps[0]")
    assert made.finish()["out"].tolist() == [[1, 3], [2, 4]]


def test_a_request_that_begins_after_its_end_was_asked_for_ends_at_once() -> None:
    """Between a look at `cancelled` and the making of a request another thread may cancel."""
    audience, rows = Audience(), set[int]()
    audience.cancel()
    audience.may_end(rows, 3)
    assert rows == {0, 1, 2}
