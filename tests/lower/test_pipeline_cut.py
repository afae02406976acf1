"""Version 2 pipelines whose decoder is several sessions: the stages of version 1, said in the flow and the wires.

They give the tokens of the uncut graph in a plain ONNX Runtime loop, and the plan of the same stages in version 1.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import compile_package
from genai_compiler.plan.text import plan_text
from onnx import ModelProto, TensorProto, helper

from tests.lower.pipelines import Document, package, pipeline, problems
from tests.real_packages import GREEDY
from tests.staged_packages import NEW, PROMPTS, Graphs, converts, halves, three, two_phases
from tests.staged_packages import package as version_1
from tests.staged_packages import tokens as made_of
from tests.staged_packages import wanted as whole
from tools.fixtures.graph import Sketch
from tools.fixtures.network import CONTEXT, HIDDEN, concat_decoder, gqa_decoder
from tools.fixtures.stages import EMBEDDED, FINAL, cut
from tools.fixtures.tokenizer import EOS, write_tokenizer

Flow = Sequence[tuple[str, str]]


def document(graphs: Graphs, when: dict[str, str] | None = None, **over: Any) -> Document:
    """A flow of these sessions in this order, each at every token where `when` says nothing else."""
    phases = dict.fromkeys(graphs, "always") | ({"context": "prompt"} if "context" in graphs else {})
    phases |= when or {}
    made: Document = {
        "version": 2,
        "pipeline": {
            "sessions": {each: {"file": f"{each}.onnx"} for each in graphs},
            "flow": [{"run": each, "when": phases[each]} for each in graphs],
        },
        "tokens": {"eos": EOS},
        "generation": {"max_length": CONTEXT},
    }
    return pipeline(made, **over) if over else made


def written(folder: Path, graphs: Graphs, stated: Document | None = None) -> Path:
    package(folder, stated or document(graphs), {f"{name}.onnx": each for name, each in graphs.items()})
    write_tokenizer(folder)
    return folder


def head_apart(sketch: Sketch) -> Graphs:
    return dict(zip(("layers", "lm_head"), cut(sketch.proto(), FINAL), strict=True))


def plan_of(folder: Path, out: Path) -> list[str]:
    plan = compile_package(folder, out=out).plan
    assert plan is not None
    return plan_text(plan).splitlines()[1:]


@pytest.mark.parametrize("sketch", [concat_decoder, gqa_decoder])
@pytest.mark.parametrize("cutting", [three, halves, head_apart, two_phases])
def test_sessions_of_a_decoder_are_the_stages_of_version_1(
    cutting: Callable[[Sketch], Graphs], sketch: Callable[[], Sketch], tmp_path: Path
) -> None:
    """Joined by equal names: an embedding, layers, halves with caches of their own, a head, layers for each phase."""
    graphs = cutting(sketch())
    folder = written(tmp_path / "two" / "p", graphs)
    assert made_of(folder) == whole(tmp_path / "whole", sketch())
    (tmp_path / "one").mkdir()
    stages = version_1(tmp_path / "one" / "p", graphs)
    assert plan_of(folder, tmp_path / "two.out") == plan_of(stages, tmp_path / "one.out")


def renamed(graphs: Graphs) -> tuple[Graphs, list[dict[str, str]]]:
    """The layers' graphs with other names for what they take and give, and the wires that join them all the same."""
    names = {EMBEDDED: "hidden_in", FINAL: "hidden_out"}
    layers = [each for each in graphs if each not in ("embeddings", "lm_head")]
    for name in layers:
        model = ModelProto.FromString(graphs[name].SerializeToString())
        for each in (*model.graph.input, *model.graph.output):
            each.name = names.get(each.name, each.name)
        for node in model.graph.node:
            node.input[:] = [names.get(each, each) for each in node.input]
            node.output[:] = [names.get(each, each) for each in node.output]
        graphs[name] = model
    into = [{"from": f"embeddings.{EMBEDDED}", "to": f"{name}.hidden_in"} for name in layers]
    return graphs, into + [{"from": f"{name}.hidden_out", "to": f"lm_head.{FINAL}"} for name in layers]


@pytest.mark.parametrize("cutting", [three, two_phases])
def test_wires_join_what_names_do_not(cutting: Callable[[Sketch], Graphs], tmp_path: Path) -> None:
    """The head is fed twice where the prompt's layers and those of later tokens are two sessions."""
    graphs, wires = renamed(cutting(concat_decoder()))
    folder = written(tmp_path / "p", graphs, document(graphs, dataflow=wires))
    assert made_of(folder) == whole(tmp_path / "whole", concat_decoder())


def test_rows_equal_their_own_runs(tmp_path: Path) -> None:
    folder = written(tmp_path / "p", two_phases(gqa_decoder()))
    compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        rows = model.generate(batch=list(PROMPTS), max_new_tokens=NEW, **GREEDY).rows
    assert [row.tokens for row in rows] == whole(tmp_path / "whole", gqa_decoder())


@pytest.mark.parametrize("cutting", [halves, two_phases])
def test_the_converted_document_is_the_same_plan(cutting: Callable[[Sketch], Graphs], tmp_path: Path) -> None:
    converts(written(tmp_path / "p", cutting(gqa_decoder())), tmp_path)


def test_an_embedding_said_to_run_with_the_prompt_runs_at_every_token(tmp_path: Path) -> None:
    graphs = two_phases(concat_decoder())
    folder = written(tmp_path / "p", graphs, document(graphs, {"embeddings": "prompt"}))
    assert made_of(folder) == whole(tmp_path / "whole", concat_decoder())
    notes = compile_package(folder, out=tmp_path / "out").notes
    assert any("embeddings is said to run before the first token" in each for each in notes)
    assert any("context runs with the prompt, iterator in its place with later tokens" in each for each in notes)


# ---- graphs between --------------------------------------------------------------------------------------------------


def scaled(sketch: Sketch) -> Graphs:
    """A graph between the embedding and the decoder, which keeps nothing and takes no tokens."""
    embeddings, rest = cut(sketch.proto(), EMBEDDED)
    kind = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "sequence", HIDDEN]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "twice", kind[:1], kind[1:])
    between = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return {"embeddings": embeddings, "between": between, "rest": rest}


def by_sessions(graphs: Graphs, renames: dict[str, str], prompt: Sequence[int]) -> list[int]:
    """Greedy tokens of a loop over these graphs in order. renames: input -> the tensor that it takes."""
    run = {name: onnxruntime.InferenceSession(each.SerializeToString()) for name, each in graphs.items()}
    names = [f"past_key_values.{at}.{part}" for at in (0, 1) for part in ("key", "value")]
    kept: dict[str, Any] = {name: np.zeros((1, 2, 0, 16), np.float32) for name in names}
    fed, ids = list(prompt), list(prompt)
    for _ in range(NEW):
        known = {"input_ids": np.array([fed]), "attention_mask": np.ones((1, len(ids)), np.int64), **kept}
        known["position_ids"] = np.arange(len(ids) - len(fed), len(ids))[None]
        for session in run.values():
            feeds = {each.name: known[renames.get(each.name, each.name)] for each in session.get_inputs()}
            names = [each.name for each in session.get_outputs()]
            known |= dict(zip(names, session.run(names, feeds), strict=True))
        kept = {name: known[name.replace("past_key_values", "present")] for name in kept}
        fed = [int(known["logits"][0, -1].argmax())]
        ids += fed
    return ids[len(prompt) :]


def test_a_graph_between_the_tokens_and_the_decoder_is_of_the_decoder(tmp_path: Path) -> None:
    graphs = scaled(concat_decoder())
    wires = [
        {"from": f"embeddings.{EMBEDDED}", "to": "between.x"},
        {"from": "between.y", "to": f"rest.{EMBEDDED}"},
    ]
    folder = written(tmp_path / "p", graphs, document(graphs, dataflow=wires))
    wanted = [by_sessions(graphs, {"x": EMBEDDED, EMBEDDED: "y"}, each) for each in PROMPTS]
    assert made_of(folder) == wanted
    assert wanted != whole(tmp_path / "whole", concat_decoder())


def test_an_embedding_of_its_own_is_no_cut(tmp_path: Path) -> None:
    """One session behind it: they stay the two models that they are."""
    graphs = dict(zip(("embeddings", "rest"), cut(concat_decoder().proto(), EMBEDDED), strict=True))
    folder = written(tmp_path / "p", graphs)
    assert made_of(folder) == whole(tmp_path / "whole", concat_decoder())


# ---- refusals --------------------------------------------------------------------------------------------------------


def refused(folder: Path) -> dict[tuple[str, str], str]:
    """(code, path) -> what is wrong and the way out, of every error."""
    found = [each for each in problems(folder) if each.severity.name == "ERROR"]
    return {(each.code, each.path): f"{each.what}; {each.help}" for each in found}


def test_a_tensor_that_nobody_gives_is_refused_by_its_session(tmp_path: Path) -> None:
    graphs, _ = renamed(three(concat_decoder()))
    said = refused(written(tmp_path / "p", graphs, document(graphs)))
    told = said["missing-input", "pipeline.flow[1]"]
    assert "no stage before 'layers' gives 'hidden_in'" in told
    assert "join it in pipeline.dataflow" in told


def test_layers_of_the_prompt_alone_that_feed_later_tokens_are_refused(tmp_path: Path) -> None:
    """The head's only wire comes from what does not run then."""
    graphs, wires = renamed(two_phases(concat_decoder()))
    said = refused(written(tmp_path / "p", graphs, document(graphs, dataflow=wires[:-1])))
    told = said["missing-input", "pipeline.flow[3]"]
    assert "from 'context.hidden_out', and no stage that runs with later tokens gives it" in told


def test_two_sessions_of_one_phase_that_feed_one_input_are_refused(tmp_path: Path) -> None:
    graphs, wires = renamed(two_phases(concat_decoder()))
    said = refused(written(tmp_path / "p", graphs, document(graphs, {"context": "always"}, dataflow=wires)))
    assert said["wrong-port", "pipeline.dataflow[3].to"].startswith(
        f'Dataflow feeds input "{FINAL}" of session "lm_head" twice'
    )


def test_sessions_that_keep_different_state_are_refused(tmp_path: Path) -> None:
    graphs = two_phases(concat_decoder())
    layers = graphs["iterator"] = ModelProto.FromString(graphs["iterator"].SerializeToString())
    (gone,) = [each for each in layers.graph.output if each.name == "present.1.value"]
    layers.graph.output.remove(gone)
    said = refused(written(tmp_path / "p", graphs))
    assert any(code == "unpaired-state" for code, _ in said)


def test_a_decoder_without_logits_is_refused_in_the_words_of_version_2(tmp_path: Path) -> None:
    graphs = halves(concat_decoder())
    del graphs["d"]
    said = refused(written(tmp_path / "p", graphs))
    assert "export a session with its head" in said["no-logits", "pipeline.flow"]


def test_several_embeddings_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    graphs = three(concat_decoder())
    again = ModelProto.FromString(graphs["embeddings"].SerializeToString())
    graphs = {"embeddings": graphs["embeddings"], "others": again, **{n: graphs[n] for n in ("layers", "lm_head")}}
    both = ModelProto.FromString(graphs["layers"].SerializeToString())
    (place,) = [each for each in both.graph.input if each.name == EMBEDDED]
    more = both.graph.input.add()
    more.CopyFrom(place)
    more.name = "more"
    reader = next(node for node in both.graph.node if EMBEDDED in node.input)
    both.graph.node.insert(0, helper.make_node("Add", [EMBEDDED, "more"], ["both"]))
    for node in both.graph.node[1:]:
        node.input[:] = ["both" if each == EMBEDDED else each for each in node.input]
    assert reader is not None
    graphs["layers"] = both
    wires = [
        {"from": f"embeddings.{EMBEDDED}", "to": f"layers.{EMBEDDED}"},
        {"from": f"others.{EMBEDDED}", "to": "layers.more"},
    ]
    said = refused(written(tmp_path / "p", graphs, document(graphs, dataflow=wires)))
    told = said["unsupported-package-class", "pipeline.flow"]
    assert "'embeddings' and 'others' could each make the embeddings" in told


def test_a_bias_and_a_draft_model_beside_a_cut_decoder(tmp_path: Path) -> None:
    """The bias holds, by arithmetic; whether drafts can be driven or not, the tokens are the uncut graph's."""
    graphs = three(concat_decoder())
    biased = document(graphs) | {"generation": {"logits": [{"op": "logit_bias", "map": {"7": 1e9}}]}}
    compile_package(written(tmp_path / "biased", graphs, biased), out=tmp_path / "biased.out")
    with genai_runtime.load(tmp_path / "biased.out", threads=1) as model:
        assert model.generate([1, 9, 14], max_new_tokens=4).tokens == [7] * 4
    stated = document(graphs, roles={"draft": "small"}, strategy={"kind": "speculative"})
    stated["pipeline"]["sessions"]["small"] = {"file": "small.onnx"}
    folder = written(tmp_path / "drafted", graphs, stated)
    concat_decoder().save(folder / "small.onnx")
    assert made_of(folder) == whole(tmp_path / "whole", concat_decoder())
    outside = biased | {"generation": {"logits": [{"op": "logit_bias", "map": {"64": 1}}]}}
    found = problems(written(tmp_path / "outside", graphs, outside))
    assert 'generation.logits[0].map["64"]' in [each.path for each in found]
