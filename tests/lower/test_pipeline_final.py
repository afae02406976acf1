"""Sessions of version 2 that run behind the loop (`when: final`), on what the loop left.

What they give is held against the same graphs in a plain loop: the decoder's last run is the one that the last token
was chosen after.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import compile_package
from genai_compiler.driver import Options
from genai_compiler.memory import MemoryAsk
from genai_runtime import RequestError
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.lower.pipelines import Document, pipeline, problems
from tests.lower.test_pipeline_cut import document, refused, written
from tests.real_packages import GREEDY
from tests.staged_packages import Graphs, converts, three, two_phases
from tools.fixtures.network import HIDDEN, concat_decoder, gqa_decoder
from tools.fixtures.stages import FINAL

PROMPT = [1, 9, 14]
Array = np.ndarray[Any, Any]


def model_of(nodes: list[Any], inputs: dict[str, list[Any]], outputs: dict[str, list[Any]]) -> ModelProto:
    ports = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in each.items()]
        for each in (inputs, outputs)
    ]
    last = [numpy_helper.from_array(np.array([1]), "axis")]
    graph = helper.make_graph(nodes, "graph", *ports, initializer=last)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def judge(**more: list[Any]) -> ModelProto:
    """hidden_states [rows, positions, width], weight [rows, width] -> score [rows, width]: the sum, weighed."""
    nodes = [
        helper.make_node("ReduceSum", ["hidden_states", "axis"], ["sum"], keepdims=0),
        helper.make_node("Mul", ["sum", "weight"], ["score"]),
    ]
    taken: dict[str, list[Any]] = {"hidden_states": ["rows", "positions", HIDDEN], "weight": ["rows", HIDDEN]}
    return model_of(nodes, taken | more, {"score": ["rows", HIDDEN]})


def lens() -> ModelProto:
    """ratings [rows, width] -> weight: twice that."""
    node = helper.make_node("Add", ["ratings", "ratings"], ["weight"])
    return model_of([node], {"ratings": ["rows", HIDDEN]}, {"weight": ["rows", HIDDEN]})


def graphs(decoder: ModelProto | None = None, **more: ModelProto) -> Graphs:
    return {"lens": lens(), "decoder": decoder or concat_decoder(hidden=True).proto(), "judge": judge(), **more}


def without_lens() -> Graphs:
    """The decoder, and a judge that weighs nothing."""
    only = model_of(
        [helper.make_node("ReduceSum", ["hidden_states", "axis"], ["score"], keepdims=0)],
        {"hidden_states": ["rows", "positions", HIDDEN]},
        {"score": ["rows", HIDDEN]},
    )
    return {"decoder": concat_decoder(hidden=True).proto(), "judge": only}


def flow(made: Graphs, when: dict[str, str] | None = None, **over: Any) -> Document:
    return document(made, {"lens": "init", "judge": "final", **(when or {})}, **over)


def by_hand(made: Graphs, count: int, ratings: Array) -> tuple[list[int], Array]:
    """(tokens, what the judge gives) of a loop over the graphs."""
    run = {name: onnxruntime.InferenceSession(each.SerializeToString()) for name, each in made.items()}
    weight = run["lens"].run(None, {"ratings": ratings})[0]
    names = [f"past_key_values.{at}.{part}" for at in (0, 1) for part in ("key", "value")]
    past: dict[str, Any] = {name: np.zeros((1, 2, 0, 16), np.float32) for name in names}
    ids, fed, hidden = list(PROMPT), list(PROMPT), np.zeros(0)
    outputs = [each.name for each in run["decoder"].get_outputs()]
    for _ in range(count):
        feeds = {"input_ids": np.array([fed]), "attention_mask": np.ones((1, len(ids)), np.int64), **past}
        feeds["position_ids"] = np.arange(len(ids) - len(fed), len(ids))[None]
        feeds = {each.name: feeds[each.name] for each in run["decoder"].get_inputs()}
        told = dict(zip(outputs, run["decoder"].run(outputs, feeds), strict=True))
        past = {name: told[name.replace("past_key_values", "present")] for name in past}
        hidden, fed = told["hidden_states"], [int(told["logits"][0, -1].argmax())]
        ids += fed
    return ids[len(PROMPT) :], run["judge"].run(None, {"hidden_states": hidden, "weight": weight})[0]


def in_place() -> ModelProto:
    """The decoder whose operators write in place, which gives what its head takes, too."""
    model = gqa_decoder().proto()
    reader = next(node for node in model.graph.node if "final_norm" in node.input)
    model.graph.node.append(helper.make_node("Identity", [reader.input[0]], ["hidden_states"]))
    shape = ["batch", "sequence", HIDDEN]
    model.graph.output.append(helper.make_tensor_value_info("hidden_states", TensorProto.FLOAT, shape))
    return model


@pytest.mark.parametrize("decoder", [lambda: concat_decoder(hidden=True).proto(), in_place])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_session_behind_the_loop_reads_the_last_run_and_what_ran_before(
    count: int, decoder: Callable[[], ModelProto], tmp_path: Path
) -> None:
    """Joined by equal names; after one token the last run is the prompt's."""
    made = graphs(decoder())
    compile_package(written(tmp_path / "p", made, flow(made)), out=tmp_path / "out")
    ratings = np.random.default_rng(3).normal(size=(1, HIDDEN)).astype(np.float32)
    tokens, score = by_hand(made, count, ratings)
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        asked: dict[str, Any] = {"request.input_ids": [PROMPT], "ratings": ratings, "request.temperature": 0.0}
        result = model.run({**asked, "request.max_iterations": [count]}, stop_on_eos=False)
        assert [int(each) for each in result.rows("tokens")[0].reshape(-1)] == tokens
        np.testing.assert_allclose(result["score"], score, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("asked_for", [{"prefill_chunk": 2}, {}])
def test_a_prompt_is_whole_where_its_run_may_be_the_last(asked_for: dict[str, int], tmp_path: Path) -> None:
    """Whoever asks for chunks, a caller or the package: the last one has only some of the prompt's positions."""
    made = graphs()
    stated = flow(made) | ({} if asked_for else {"search": {"chunk_size": 2}})
    compile_package(written(tmp_path / "p", made, stated), out=tmp_path / "out")
    ratings = np.ones((1, HIDDEN), np.float32)
    _, score = by_hand(made, 1, ratings)
    with genai_runtime.load(tmp_path / "out", threads=1, **asked_for) as model:
        asked: dict[str, Any] = {"request.input_ids": [PROMPT], "ratings": ratings, "request.max_iterations": [1]}
        np.testing.assert_allclose(model.run(asked)["score"], score, rtol=1e-5, atol=1e-6)


def test_nothing_drafts_where_the_last_run_is_read(tmp_path: Path) -> None:
    """A run that verifies drafts has more positions than the last token's, some of which are taken back."""
    made = {**without_lens(), "small": concat_decoder().proto()}
    stated = flow(made, roles={"target": "decoder", "draft": "small"})
    stated["pipeline"]["flow"] = [each for each in stated["pipeline"]["flow"] if each["run"] != "small"]
    stated["pipeline"]["strategy"] = {"kind": "speculative"}
    done = compile_package(written(tmp_path / "p", made, stated), out=tmp_path / "out")
    (told,) = [each for each in done.problems if each.path == "pipeline.roles.draft"]
    assert "what the decoder's last run gave is read behind the loop" in told.what
    tokens, score = by_hand({**graphs(), "decoder": made["decoder"]}, 7, np.full((1, HIDDEN), 0.5, np.float32))
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        asked: dict[str, Any] = {"request.input_ids": [PROMPT], "request.max_iterations": [7]}
        result = model.run(asked | {"request.temperature": 0.0}, stop_on_eos=False)
        assert [int(each) for each in result.rows("tokens")[0].reshape(-1)] == tokens
        np.testing.assert_allclose(result["score"], score, rtol=1e-5, atol=1e-6)
        with pytest.raises(RequestError) as caught:
            model.run(asked, speculate=True)
        assert caught.value.code == "no-proposer"


def test_several_rows_are_refused_where_the_last_run_is_read(tmp_path: Path) -> None:
    """Rows end at different steps: a last run would not be the last of each."""
    made = graphs()
    compile_package(written(tmp_path / "p", made, flow(made)), out=tmp_path / "out")
    asked: dict[str, Any] = {"request.input_ids": [PROMPT, PROMPT], "request.max_iterations": [2]}
    asked["ratings"] = np.zeros((2, HIDDEN), np.float32)
    with genai_runtime.load(tmp_path / "out", threads=1) as model, pytest.raises(RequestError) as caught:
        model.run(asked)
    assert caught.value.code == "one-row"


def test_texts_are_generated_all_the_same(tmp_path: Path) -> None:
    """Rows of a batch go one by one; who asks for text gets text. What it takes of memory is told."""
    made = without_lens()
    result = compile_package(
        written(tmp_path / "p", made, flow(made)), out=tmp_path / "out", options=Options(memory=MemoryAsk())
    )
    assert result.memory is not None
    wanted, _ = by_hand({**made, "lens": lens(), "judge": judge()}, 7, np.ones((1, HIDDEN), np.float32))
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.generate(PROMPT, max_new_tokens=7, **GREEDY).tokens == wanted
        rows = model.generate(batch=[PROMPT, [7], PROMPT], max_new_tokens=7, **GREEDY).rows
        assert [row.tokens for row in rows][::2] == [wanted, wanted]


def test_sessions_behind_the_loop_feed_each_other(tmp_path: Path) -> None:
    """What the second takes is no output of the package; what none takes is."""
    node = helper.make_node("Neg", ["score"], ["verdict"])
    last = model_of([node], {"score": ["rows", HIDDEN]}, {"verdict": ["rows", HIDDEN]})
    made = graphs(last=last)
    compile_package(written(tmp_path / "p", made, flow(made, {"last": "final"})), out=tmp_path / "out")
    ratings = np.ones((1, HIDDEN), np.float32)
    _, score = by_hand(made, 3, ratings)
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        asked: dict[str, Any] = {"request.input_ids": [PROMPT], "ratings": ratings, "request.temperature": 0.0}
        result = model.run({**asked, "request.max_iterations": [3]}, stop_on_eos=False)
        assert {*result.aggregate} == {"verdict"}
        np.testing.assert_allclose(result["verdict"], -score, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cutting", [three, two_phases])
def test_behind_stages_a_session_reads_what_ran_before_the_loop(cutting: Any, tmp_path: Path) -> None:
    parts = cutting(gqa_decoder())
    only = model_of(
        [helper.make_node("Neg", ["weight"], ["score"])], {"weight": ["r", HIDDEN]}, {"score": ["r", HIDDEN]}
    )
    made = {"lens": lens(), **parts, "judge": only}
    compile_package(written(tmp_path / "p", made, flow(made)), out=tmp_path / "out")
    ratings = np.arange(HIDDEN, dtype=np.float32)[None]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        asked: dict[str, Any] = {"request.input_ids": [PROMPT], "ratings": ratings, "request.max_iterations": [2]}
        np.testing.assert_array_equal(model.run(asked)["score"], -2 * ratings)


def test_the_converted_document_is_the_same_plan(tmp_path: Path) -> None:
    made = graphs()
    converts(written(tmp_path / "p", made, flow(made)), tmp_path)


# ---- refusals --------------------------------------------------------------------------------------------------------


def wired(source: str, made: Graphs) -> Document:
    return flow(made, dataflow=[{"from": source, "to": "judge.hidden_states"}])


@pytest.mark.parametrize(
    ("source", "shape", "words"),
    [
        ("decoder.logits", ["rows", "positions", 64], "takes 'logits' of the decoder, which the loop itself reads"),
        ("decoder.present.0.key", ["rows", 2, "positions", 16], "which the loop itself reads"),
    ],
)
def test_what_the_loop_itself_reads_is_not_kept(source: str, shape: list[Any], words: str, tmp_path: Path) -> None:
    taker = model_of(
        [helper.make_node("Neg", ["hidden_states"], ["score"])], {"hidden_states": shape}, {"score": shape}
    )
    made = {"decoder": concat_decoder().proto(), "judge": taker}
    said = refused(written(tmp_path / "p", made, wired(source, made)))
    told = said["unsupported-package-class", "pipeline.flow[1]"]
    assert "the session 'judge' runs behind the loop" in told
    assert words in told


def test_a_last_run_over_caches_of_one_length_is_not_kept(tmp_path: Path) -> None:
    """They can't grow, and what is written in place leaves no room for what else a run gives."""
    made = graphs(in_place())
    for each in (*made["decoder"].graph.input, *made["decoder"].graph.output):
        if each.name.startswith(("past", "present")):
            each.type.tensor_type.shape.dim[2].dim_value = 64
    said = refused(written(tmp_path / "p", made, flow(made)))
    assert "fixes how long its caches are" in said["unsupported-package-class", "pipeline.flow[2]"]


def test_a_last_run_of_several_sessions_is_not_kept(tmp_path: Path) -> None:
    taker = model_of(
        [helper.make_node("Neg", [FINAL], ["score"])], {FINAL: ["r", "s", HIDDEN]}, {"score": ["r", "s", HIDDEN]}
    )
    made = {**three(concat_decoder()), "judge": taker}
    said = refused(written(tmp_path / "p", made, flow(made)))
    assert f"'layers.{FINAL}' is made at every token" in said["unsupported-package-class", "pipeline.flow[3]"]


def test_the_prompt_is_not_kept(tmp_path: Path) -> None:
    taker = judge()
    taker.graph.input.append(helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["rows", "positions"]))
    made = graphs() | {"judge": taker}
    said = refused(written(tmp_path / "p", made, flow(made)))
    assert "what the loop forms as 'input_ids' is not kept" in said["unsupported-package-class", "pipeline.flow[2]"]


@pytest.mark.parametrize("order", ["judge decoder lens", "decoder judge lens", "lens judge decoder"])
def test_nothing_behind_the_loop_feeds_it(order: str, tmp_path: Path) -> None:
    """Whatever the flow lists first: a session runs behind the loop because it says so."""
    made = graphs()
    stated = flow(made, {"lens": "final"}, dataflow=[{"from": "judge.score", "to": "decoder.bias"}])
    decoder = ModelProto.FromString(made["decoder"].SerializeToString())
    decoder.graph.input.append(helper.make_tensor_value_info("bias", TensorProto.FLOAT, ["rows", HIDDEN]))
    stated["pipeline"]["flow"] = [
        {"run": each, **({} if each == "decoder" else {"when": "final"})} for each in order.split()
    ]
    (said,) = problems(written(tmp_path / "p", made | {"decoder": decoder}, stated))
    assert (said.code, said.path) == ("bad-value", "pipeline.dataflow[0].from")
    assert "'judge.score' is made behind the loop, and 'decoder' takes it before" in said.what


def test_one_listed_first_runs_last_all_the_same(tmp_path: Path) -> None:
    made = graphs()
    wires = [{"from": f"{source}", "to": f"judge.{source.partition('.')[2]}"} for source in (
        "decoder.hidden_states", "lens.weight")]  # fmt: skip
    stated = flow(made, dataflow=wires)
    stated["pipeline"]["flow"].insert(0, stated["pipeline"]["flow"].pop())
    compile_package(written(tmp_path / "p", made, stated), out=tmp_path / "out")
    ratings = np.arange(HIDDEN, dtype=np.float32)[None]
    tokens, score = by_hand(made, 4, ratings)
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        asked: dict[str, Any] = {"request.input_ids": [PROMPT], "ratings": ratings, "request.temperature": 0.0}
        result = model.run({**asked, "request.max_iterations": [4]}, stop_on_eos=False)
    assert result["tokens"].reshape(-1).tolist() == tokens
    np.testing.assert_allclose(result["score"], score, rtol=1e-5, atol=1e-6)


def test_of_two_behind_the_loop_the_one_that_gives_runs_first(tmp_path: Path) -> None:
    made = graphs()
    stated = flow(made, {"lens": "final"}, dataflow=[{"from": "lens.weight", "to": "judge.weight"}])
    stated["pipeline"]["flow"] = [{"run": "decoder"}, *({"run": e, "when": "final"} for e in ("judge", "lens"))]
    (said,) = problems(written(tmp_path / "p", made, stated))
    assert (said.code, said.path) == ("bad-value", "pipeline.flow")
    assert said.what == 'Flow runs session "judge" before "lens", whose output "weight" it takes'


def test_a_session_behind_no_loop_is_refused(tmp_path: Path) -> None:
    made = {"judge": lens()}
    said = refused(written(tmp_path / "p", made, flow(made)))
    assert "nothing could decode" in said["missing-key", "pipeline.flow"]


def test_one_session_runs_on_one_side_of_the_loop(tmp_path: Path) -> None:
    made = graphs()
    stated = flow(made)
    stated["pipeline"]["flow"].append({"run": "lens", "when": "final"})
    said = refused(written(tmp_path / "p", made, pipeline(stated)))
    assert "behind it" in said["unsupported-package-class", "pipeline.flow[3].when"]


def test_results_without_rows_are_refused(tmp_path: Path) -> None:
    """Whose they are is not told."""
    nodes = [
        helper.make_node("ReduceMean", ["hidden_states"], ["all"], keepdims=0),
        helper.make_node("Mul", ["all", "weight"], ["score"]),
    ]
    taken: dict[str, list[Any]] = {"hidden_states": ["rows", "positions", HIDDEN], "weight": ["entries", HIDDEN]}
    made = graphs() | {"judge": model_of(nodes, taken, {"score": ["entries", HIDDEN]})}
    said = refused(written(tmp_path / "p", made, flow(made)))
    assert "is the request's rows" in said["unsupported-package-class", "pipeline.flow[2]"]
