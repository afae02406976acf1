"""How far prompt and output may go together, where only a graph knows: the rows of its table of positions.

What the number has to be is read from the graph's own initializers; what comes up to there from a plain loop over it.
"""

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import onnxruntime
import pytest
from genai_compiler import compile_package
from genai_compiler.check.context import context_of
from genai_compiler.cli import main
from genai_compiler.driver import check_package
from genai_compiler.read.document import LoopStep
from genai_compiler.read.load import load_package
from genai_compiler.read.own_tables import grown_rows
from genai_runtime import ExecutionError, RequestError
from genai_runtime.model import Model
from onnx import TensorProto, helper, numpy_helper

from tests.conftest import FIXTURES
from tests.reference.plain_loop import greedy

AUTHORED = ["tiny-decoder", "tiny-held-state", "tiny-turns"]
"""No document of these states a length."""
Loaded = Callable[[str], Model]


def rows(case: str) -> int:
    """Of the table of cosines, whatever it is called."""
    graph = onnx.load(FIXTURES / case / "model.onnx", load_external_data=False).graph
    (found,) = {each.dims[0] for each in graph.initializer if "cos" in each.name}
    return int(found)


def stating(folder: Path, length: int) -> Path:
    """tiny-decoder with a length in its document."""
    package = shutil.copytree(FIXTURES / "tiny-decoder", folder / "package")
    document = package / "inference_metadata.yaml"
    text = document.read_text("utf-8")
    document.write_text(f"model:\n  max_sequence_length: {length}\n{text}", "utf-8")
    return package


@pytest.mark.parametrize("case", AUTHORED)
def test_the_table_of_positions_is_the_context(model: Loaded, case: str) -> None:
    loaded, most = model(case), rows(case)
    assert loaded.describe()["context_length"] == most
    prompt = [1 + at % 50 for at in range(most - 4)]
    made = loaded.generate(prompt, max_new_tokens=20, stop_on_eos=False)
    assert (len(made.tokens), made.finish_reason) == (4, "context")
    if case == "tiny-decoder":
        assert made.tokens == greedy(FIXTURES / case / "model.onnx", prompt, 4, ())
    unbounded = loaded.generate(prompt, stop_on_eos=False)
    assert (unbounded.tokens, unbounded.finish_reason) == (made.tokens, "context")


@pytest.mark.parametrize("case", AUTHORED)
def test_a_prompt_that_fills_it_is_refused_with_the_numbers(model: Loaded, case: str) -> None:
    with pytest.raises(RequestError, match=rf"the prompt has {rows(case)} tokens .* holds {rows(case)} in all") as said:
        model(case).generate([1] * rows(case), max_new_tokens=3)
    assert said.value.code == "context-exceeded"


@pytest.mark.parametrize("case", AUTHORED)
def test_a_run_that_goes_behind_it_says_so(model: Loaded, case: str) -> None:
    """The document's own loop decides how far it goes."""
    inputs = {"request.input_ids": np.ones((1, rows(case) - 4), np.int64), "request.max_iterations": np.array([10])}
    with pytest.raises(ExecutionError) as said:
        model(case).run(inputs, stop_on_eos=False)
    assert said.value.code == "step-failed"
    assert said.value.origin
    for number in (rows(case), rows(case) - 4, 10):
        assert f" {number} " in said.value.help
    assert said.value.__cause__ is not said.value


def test_another_failure_of_a_step_has_no_such_help(model: Loaded) -> None:
    inputs = {"request.input_ids": np.full((1, 3), 1000), "request.max_iterations": np.array([2])}
    with pytest.raises((ExecutionError, RequestError)) as said:
        model("tiny-decoder").run(inputs)
    assert "positions together" not in str(said.value)


@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-runtime-policy", "tiny-concat-v1"])
def test_a_prompt_for_the_runtimes_own_decoding_is_refused_by_run_too(model: Loaded, case: str) -> None:
    context = model(case).describe()["context_length"]
    ids = np.ones((1, context + 1), np.int64)
    with pytest.raises(RequestError, match=f"the prompt has {context + 1} tokens; the context holds {context} in all"):
        model(case).run({"request.input_ids": ids, "request.max_iterations": np.array([1])})


@pytest.mark.parametrize(("stated", "taken"), [(100, 64), (64, 64), (20, 20)])
def test_what_the_document_states_counts_as_far_as_the_graph_goes(tmp_path: Path, stated: int, taken: int) -> None:
    package = stating(tmp_path, stated)
    doubts = [each for each in check_package(package) if each.code == "config-contradicts-graph"]
    assert [(each.path, each.where.line) for each in doubts] == [("model.max_sequence_length", 2)] * (stated > 64)
    assert all("100" in each.what and "64 rows" in each.what for each in doubts)
    compile_package(package, tmp_path / "made")
    with genai_runtime.load(tmp_path / "made", threads=1) as loaded:
        assert loaded.describe()["context_length"] == taken


@pytest.mark.parametrize("case", ["tiny-media-v2", "tiny-own-tokens-v1"])
def test_a_decoder_of_embeddings_has_a_table_as_well(case: str) -> None:
    """Whatever it takes an entry a position of: ids, or what is made of them."""
    graph = onnx.load(FIXTURES / case / "decoder.onnx", load_external_data=False).graph
    (most,) = {each.dims[0] for each in graph.initializer if "cos" in each.name}
    found = context_of(load_package(FIXTURES / case))
    assert (found.component, found.rows) == ("decoder", most)


def test_positions_of_a_loop_within_another_may_begin_anew() -> None:
    """A decoder of a few codes a frame has a table as short as a frame."""
    package = load_package(FIXTURES / "tiny-decoder")
    assert context_of(package).length == 64
    (loop,) = package.workflow.steps
    assert isinstance(loop, LoopStep)
    outer = loop.model_copy(update={"setup": (), "steps": (loop,)})
    object.__setattr__(package.workflow, "steps", (outer,))
    assert context_of(package).length == 0


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--context", "100"], "the context has 100 tokens, and the package allows 64 tokens"),
        (["--prompt", "64"], "the prompt has 64 tokens, and the package allows 64 tokens"),
        (["--context", "64"], ""),
        (["--prompt", "63"], ""),
    ],
)
@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-decoder"])
def test_a_prediction_for_more_says_that_no_request_comes_there(
    case: str, asked: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(FIXTURES / case), "--memory", *asked]) == 0
    told = [each for each in capsys.readouterr().out.splitlines() if "no request comes as far" in each]
    assert len(told) == bool(said)
    assert all(said in each for each in told)


def test_where_only_the_graph_says_it_the_summary_does(tmp_path: Path, capsys: pytest.CaptureFixture[Any]) -> None:
    assert main([str(FIXTURES / "tiny-decoder"), "--check"]) == 0
    assert "prompt and output: 64 tokens at most" in capsys.readouterr().out
    assert main([str(stating(tmp_path, 64)), "--check"]) == 0
    assert "prompt and output" not in capsys.readouterr().out


def test_a_table_that_is_counted_by_what_the_caches_hold(tmp_path: Path) -> None:
    """A decoder beside an encoder: no input has its positions, the graph adds past and new extents up."""
    package = shutil.copytree(FIXTURES / "tiny-encoder-decoder-v1", tmp_path / "package")
    graph = onnx.load(package / "decoder.onnx", load_external_data=False).graph
    (most,) = [each.dims[0] for each in graph.initializer if each.name == "positions"]
    config = package / "genai_config.json"
    stated = re.sub(r'("(?:context_length|max_length)": )\d+', r"\g<1>500", config.read_text("utf-8"))
    config.write_text(stated, "utf-8")
    made = compile_package(package, tmp_path / "made")
    told = [each.what for each in made.problems if each.path == "model.context_length"]
    assert len(told) == 1
    assert f"context_length is 500, but the graph's table of positions has {most} rows" in told[0]
    with genai_runtime.load(tmp_path / "made", threads=1) as loaded:
        generation = loaded.generate([1, 2, 3], max_new_tokens=300, stop_on_eos=False)
        assert (len(generation.tokens), generation.finish_reason) == (most - 1, "context")


@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("inside", [True, False])
def test_positions_may_begin_further_on(offset: int, inside: bool) -> None:
    """A table with rows in front that no position has: what is added before or behind the counting is used up."""
    nodes = [
        helper.make_node("Shape", ["past"], ["held"], start=2, end=3),
        helper.make_node("Shape", ["ids"], ["new"], start=1, end=2),
        helper.make_node("Add", ["held", "offset"], ["first"])
        if inside
        else helper.make_node("Identity", ["held"], ["first"]),
        helper.make_node("Add", ["first", "new"], ["last"]),
        helper.make_node("Squeeze", ["first"], ["a"]),
        helper.make_node("Squeeze", ["last"], ["b"]),
        helper.make_node("Range", ["a", "b", "one"], ["counted"]),
        helper.make_node("Identity", ["counted"], ["at"])
        if inside
        else helper.make_node("Add", ["counted", "offset"], ["at"]),
        helper.make_node("Gather", ["table", "at"], ["found"]),
    ]
    ports = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["rows", "new"]),
        helper.make_tensor_value_info("past", TensorProto.FLOAT, ["rows", 2, "past", 4]),
    ]
    result = helper.make_tensor_value_info("found", TensorProto.FLOAT, ["new", 4])
    constants = [
        numpy_helper.from_array(np.array([offset]), "offset"), numpy_helper.from_array(np.array(1), "one"),
        numpy_helper.from_array(np.zeros((34, 4), np.float32), "table"),
    ]  # fmt: skip
    graph = helper.make_graph(nodes, "decoder", ports, [result], constants)
    assert grown_rows(helper.make_model(graph)) == 34 - offset
    session = onnxruntime.InferenceSession(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    )
    feeds = {"ids": np.ones((1, 4), np.int64), "past": np.zeros((1, 2, 30 - offset, 4), np.float32)}
    assert session.run(None, feeds)[0].shape == (4, 4)
