"""Decoders of version 1 that are cut into stages give the tokens of the graph that they were cut from.

That graph runs in a plain ONNX Runtime loop, without stages, windows or lengths.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import pytest
from genai_compiler import compile_package
from genai_compiler.read.load import load_package
from genai_runtime import RequestError
from onnx import TensorProto, helper

from tests.conftest import FIXTURES
from tests.real_packages import GREEDY
from tests.reference.plain_loop import greedy
from tests.staged_packages import (
    NEW,
    PROMPTS,
    Entries,
    Graphs,
    converts,
    halves,
    package,
    refused,
    three,
    tokens,
    two_phases,
    wanted,
)
from tools.fixtures.graph import Sketch
from tools.fixtures.network import CONTEXT, concat_decoder, gqa_decoder, gqa_lengths
from tools.fixtures.stages import EMBEDDED, FINAL, cut, save, stage, tiny_stages_v1, write_config


@pytest.mark.parametrize("sketch", [concat_decoder, gqa_decoder])
@pytest.mark.parametrize("cutting", [three, halves, two_phases])
def test_stages_give_the_tokens_of_the_whole(
    tmp_path: Path, cutting: Callable[[Sketch], Graphs], sketch: Callable[[], Sketch]
) -> None:
    """Embedding, layers and head; two halves with caches of their own; other graphs with the prompt than later."""
    assert tokens(package(tmp_path / "p", cutting(sketch()))) == wanted(tmp_path / "whole", sketch())


def test_windows_of_a_prompt_give_the_tokens_of_the_whole(tmp_path: Path) -> None:
    """Prompts of one, three and nine tokens in windows of four, into caches of fixed capacity."""
    tiny_stages_v1(folder := _made(tmp_path / "p"))
    assert tokens(folder) == wanted(tmp_path / "whole", gqa_decoder())


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_windows_fill_the_caches_to_the_last_position(tmp_path: Path) -> None:
    """A prompt as long as any may be, less one: the last window ends where the caches do."""
    compile_package(FIXTURES / "tiny-stages-v1", out=tmp_path / "out")
    prompt = [3 + at % 50 for at in range(CONTEXT - 1)]
    gqa_decoder().save(tmp_path / "whole.onnx")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        generation = model.generate(prompt, max_new_tokens=5, **GREEDY)
    assert generation.tokens == greedy(tmp_path / "whole.onnx", prompt, 1)
    assert generation.finish_reason == "context"


def test_windows_may_be_of_graphs_without_fixed_lengths(tmp_path: Path) -> None:
    names = {"past_sequence_length": "past_seq_len", "total_sequence_length": "total_seq_len"}
    window = {"window_size": 3, "alignment": "left", "slide_key_value_cache": False}
    folder = package(
        tmp_path / "p", two_phases(gqa_lengths("sequence")), decoder={"inputs": names, "sliding_window": window}
    )
    assert tokens(folder) == wanted(tmp_path / "whole", gqa_decoder())


def test_lengths_are_told_without_windows_too(tmp_path: Path) -> None:
    names = {"past_sequence_length": "past_seq_len", "total_sequence_length": "total_seq_len"}
    folder = package(tmp_path / "p", three(gqa_lengths("sequence")), decoder={"inputs": names})
    assert tokens(folder) == wanted(tmp_path / "whole", gqa_decoder())


@pytest.mark.parametrize("cutting", [three, two_phases])
def test_stages_of_one_token_a_run_take_prompts_token_by_token(
    cutting: Callable[[Sketch], Graphs], tmp_path: Path
) -> None:
    """The first token goes through the stages of the prompt, where there are such."""
    names = {"past_sequence_length": "past_seq_len", "total_sequence_length": "total_seq_len"}
    folder = package(tmp_path / "p", cutting(gqa_lengths(1)), decoder={"inputs": names})
    assert tokens(folder) == wanted(tmp_path / "whole", gqa_decoder())


def test_rows_run_together_or_one_by_one(tmp_path: Path) -> None:
    """Rows of a decoder with a mask share a run; one that takes numbers for its only row gets them one by one."""
    for name, folder in (
        ("masked", package(tmp_path / "masked", three(gqa_decoder()))),
        ("lengths", FIXTURES / "tiny-stages-v1"),
    ):
        compile_package(folder, out=tmp_path / f"{name}.out")
        with genai_runtime.load(tmp_path / f"{name}.out", threads=1) as model:
            rows = model.generate(batch=list(PROMPTS), max_new_tokens=NEW, **GREEDY).rows
            same = model.generate(batch=[[5, 6], [8, 9]], max_new_tokens=NEW, **GREEDY).rows
            assert [row.tokens for row in rows] == wanted(tmp_path / "whole", gqa_decoder())
            alone = [model.generate(each, max_new_tokens=NEW, **GREEDY).tokens for each in ([5, 6], [8, 9])]
            assert [row.tokens for row in same] == alone


def test_a_workflow_request_of_several_rows_is_refused_where_one_fits(tmp_path: Path) -> None:
    compile_package(FIXTURES / "tiny-stages-v1", out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model, pytest.raises(RequestError) as refused:
        model.run({"request.input_ids": [[1, 2], [3, 4]], "request.max_iterations": [2]})
    assert refused.value.code == "one-row"


def test_an_output_may_be_renamed_for_later_stages(tmp_path: Path) -> None:
    def rename(stages: Entries) -> None:
        stages["embeddings"]["output_names_forwarder"] = {EMBEDDED: "hidden_in"}
        stages["layers"]["inputs"] = ["hidden_in" if each == EMBEDDED else each for each in stages["layers"]["inputs"]]

    graphs = three(concat_decoder())
    for each in (*graphs["layers"].graph.input,):
        each.name = "hidden_in" if each.name == EMBEDDED else each.name
    for node in graphs["layers"].graph.node:
        node.input[:] = ["hidden_in" if each == EMBEDDED else each for each in node.input]
    assert tokens(package(tmp_path / "p", graphs, rename)) == wanted(tmp_path / "whole", concat_decoder())


@pytest.mark.parametrize("form", ["one object", "list of one object"])
def test_every_form_of_the_list_is_read(form: str, tmp_path: Path) -> None:
    graphs = three(concat_decoder())
    save(tmp_path / "p", graphs)
    stages = {name: stage(name, each) for name, each in graphs.items()}
    write_config(tmp_path / "p", stages if form == "one object" else [stages], {})
    assert tokens(tmp_path / "p") == wanted(tmp_path / "whole", concat_decoder())


def test_older_spellings_of_the_phases_are_read_and_said(tmp_path: Path) -> None:
    def old(stages: Entries) -> None:
        stages["context"]["run_on_nth_token_generation"] = stages["context"].pop("run_on_token_gen")
        stages["iterator"]["run_on_first_token_generation"] = stages["iterator"].pop("run_on_prompt")

    folder = package(tmp_path / "p", two_phases(concat_decoder()), old)
    found = compile_package(folder, out=tmp_path / "out").problems
    assert [each.code for each in found] == ["config-read-as"] * 2
    assert tokens(folder) == wanted(tmp_path / "whole", concat_decoder())


@pytest.mark.parametrize("cutting", [three, halves, two_phases])
def test_the_converted_document_is_the_same_plan(cutting: Callable[[Sketch], Graphs], tmp_path: Path) -> None:
    folder = package(tmp_path / "p", cutting(gqa_decoder()))
    converts(folder, tmp_path)


def test_the_converted_document_keeps_windows_and_lengths(tmp_path: Path) -> None:
    converts(FIXTURES / "tiny-stages-v1", tmp_path)


# ---- refusals --------------------------------------------------------------------------------------------------------


def _without(name: str, key: str, port: str) -> Callable[[Entries], object]:
    return lambda stages: stages[name][key].remove(port)


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (_without("layers", "inputs", "attention_mask"), "unclaimed-input", "does not list the input 'attention_mask'"),
        (_without("embeddings", "outputs", EMBEDDED), "missing-input", "no stage before 'layers' gives 'embedded'"),
        (_without("lm_head", "outputs", "logits"), "no-logits", "no stage that runs with the prompt gives 'logits'"),
        (_without("layers", "outputs", "present.1.value"), "unpaired-state", "'past_key_values.1.value'"),
        (lambda stages: stages["lm_head"]["outputs"].append("scores"), "missing-output", "has no output 'scores'"),
        (lambda stages: stages["layers"].update(filename="absent.onnx"), "missing-file", "absent.onnx"),
        (lambda stages: stages["layers"].update(filename="../out.onnx"), "outside-package", "../out.onnx"),
        (lambda stages: stages["layers"].pop("filename"), "missing-key", "layers.filename"),
        (lambda stages: stages["lm_head"].update(run_on_token_gen=False), "no-logits", "that runs with later tokens"),
        (lambda stages: stages["layers"].update(inputs="all"), "wrong-type", "'inputs' must be a list of strings"),
    ],
)
def test_a_stage_that_does_not_fit_is_refused(
    change: Callable[[Entries], object], code: str, words: str, tmp_path: Path
) -> None:
    found = refused(package(tmp_path / "p", three(concat_decoder()), change))
    assert words in found[code]
    assert "pipeline" in found[code] or code == "unpaired-state"


@pytest.mark.parametrize("shape", [["batch"], ["batch", 3, "sequence"]])
def test_a_tensor_of_another_rank_in_a_later_stage_is_refused(shape: list[Any], tmp_path: Path) -> None:
    """Both stages take the mask; the first one as [batch, sequence]."""
    graphs = three(concat_decoder())
    mask = helper.make_tensor_value_info("attention_mask", TensorProto.INT64, shape)
    graphs["lm_head"].graph.input.append(mask)
    found = refused(package(tmp_path / "p", graphs))
    assert "has 'attention_mask' as int64 [" in found["wrong-port"]
    assert "an earlier stage as int64 [batch, total_sequence]" in found["wrong-port"]


def test_phases_that_keep_different_state_are_refused(tmp_path: Path) -> None:
    graphs = two_phases(concat_decoder())
    graphs["iterator"] = cut(gqa_decoder().proto(), EMBEDDED, FINAL)[1]
    names = {"present_key_names": "present.%d.key"}

    def drop(stages: Entries) -> None:
        for port in ("present.1.key", "present.1.value"):
            stages["iterator"]["outputs"].remove(port)

    found = refused(package(tmp_path / "p", graphs, drop, {"outputs": names}))
    assert "unpaired-state" in found


def test_a_graph_and_stages_together_are_said(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", three(concat_decoder()), decoder={"filename": "whole.onnx"})
    concat_decoder().save(folder / "whole.onnx")
    problems = compile_package(folder, out=tmp_path / "out").problems
    assert [(each.code, each.path) for each in problems] == [("ignored-key", "model.decoder.pipeline")]


@pytest.mark.parametrize("entry", [7, None, "embeddings", [{}]])
def test_an_entry_that_is_no_stage_is_said(entry: Any, tmp_path: Path) -> None:
    graphs = three(concat_decoder())
    save(tmp_path / "p", graphs)
    write_config(tmp_path / "p", [{name: stage(name, each)} for name, each in graphs.items()] + [entry], {})
    found = refused(tmp_path / "p")
    assert "model.decoder.pipeline[3]" in found["wrong-type"]


def test_more_stages_than_any_decoder_has_are_refused_unread(tmp_path: Path) -> None:
    entry = {"filename": "absent.onnx", "inputs": ["input_ids"], "outputs": ["logits"]}
    (tmp_path / "p").mkdir()
    write_config(tmp_path / "p", [{f"s{at}": entry} for at in range(5000)], {})
    found = refused(tmp_path / "p")
    assert "more than 64 stages" in found["bad-value"]
    assert len(found["missing-file"].splitlines()) == 64


def test_names_of_stages_mean_nothing(tmp_path: Path) -> None:
    """Names that the workflow has other uses for, and one with a dot."""
    graphs = dict(zip(("decoder", "token_policy", "lm.head"), three(concat_decoder()).values(), strict=True))
    assert tokens(package(tmp_path / "p", graphs)) == wanted(tmp_path / "whole", concat_decoder())


def test_a_document_may_leave_a_stages_ports_to_its_graph(tmp_path: Path) -> None:
    """Not of the head, though: then nothing says which output has the logits."""
    folder = package(tmp_path / "p", halves(gqa_decoder()))
    document = json.loads(json.dumps(load_package(folder).lowered))
    (folder / "genai_config.json").unlink()
    components = document["pipeline"]["workflow"]["components"]
    ports = components["d"].pop("ports")
    (folder / "inference_metadata.yaml").write_text(json.dumps(document))
    assert "logits" in refused(folder)["decoder-roles"]
    components["d"]["ports"] = ports
    del components["c"]["ports"]
    (folder / "inference_metadata.yaml").write_text(json.dumps(document))
    assert tokens(folder) == wanted(tmp_path / "whole", gqa_decoder())


# ---- lengths as numbers, of a decoder in one graph -------------------------------------------------------------------


@pytest.mark.parametrize("room", [CONTEXT, "past_sequence"])
@pytest.mark.parametrize("second", ["total_sequence_length", "current_sequence_length"])
def test_one_graph_may_be_told_its_lengths_too(second: str, room: int | str, tmp_path: Path) -> None:
    """The room of the caches, or the positions so far: GroupQueryAttention takes either for its total length."""
    (tmp_path / "p").mkdir()
    gqa_lengths("sequence", room).save(tmp_path / "p" / "model.onnx")
    names = {"past_sequence_length": "past_seq_len", second: "total_seq_len"}
    write_config(tmp_path / "p", [], {"filename": "model.onnx", "inputs": names})
    assert tokens(tmp_path / "p") == wanted(tmp_path / "whole", gqa_decoder())
    told = "caches have room for" if second.startswith("total") else "only row's positions:"
    assert told in (tmp_path / "p.out" / "plan.txt").read_text()
