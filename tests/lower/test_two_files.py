"""A decoder in two files, one for prompts and one for later tokens, in folders that declare nothing.

Tokens are held against a plain onnxruntime loop over the decoder that is merged of the same two networks.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.convert import convert_package
from genai_compiler.driver import Options
from genai_compiler.plan.build_speculation import build_speculation
from genai_compiler.read.load import load_package
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.conftest import FIXTURES
from tests.lower.merged_decoders import (
    LAYERS,
    Form,
    apart,
    encoder,
    merged_decoder,
    plain_loop,
)
from tests.lower.packages import Layer, Recipe, decoder
from tests.lower.plain_folders import plain_folder, renamed
from tests.lower.test_merged_decoders import FREE, STATED, samples
from tests.reference.plain_loop import greedy

START = {"decoder_start_token_id": 1}
FIRST, LATER, ENCODER = "onnx/decoder_model.onnx", "onnx/decoder_with_past_model.onnx", "onnx/encoder_model.onnx"


def narrow(model: ModelProto) -> ModelProto:
    """The same for one token a run, as exporters declare it."""
    axis = model.graph.input[0].type.tensor_type.shape.dim[1]
    axis.ClearField("dim_param")
    axis.dim_value = 1
    return model


def written(folder: Path, form: Form, more: Mapping[str, Any] = START, numbered: bool = False) -> Path:
    graphs = {FIRST: apart(form, not form.later), LATER: narrow(apart(form, form.later))}
    graphs |= {ENCODER: encoder(form)} if form.beside else {}
    if numbered:
        graphs |= {name: renamed(graphs[name]) for name in (FIRST, LATER)}
    return plain_folder(folder, graphs, {**STATED, **more})


def compiled(folder: Path, graph: Any = None) -> genai_runtime.Model:
    compile_package(folder, out=folder.with_name("out"), options=Options(force=True, graph=graph))
    return genai_runtime.load(folder.with_name("out"), threads=1)


def refused(folder: Path, graph: Any = None) -> dict[str, str]:
    with pytest.raises(CompileError) as caught:
        compile_package(folder, out=folder.with_name("out"), options=Options(graph=graph))
    assert not folder.with_name("out").exists()
    return {each.code: f"{each.what} {each.help}" for each in caught.value.problems}


NUMBERED = pytest.mark.parametrize("numbered", [False, True], ids=["as exported", "ports called by numbers"])


@NUMBERED
def test_beside_an_encoder_of_tokens(numbered: bool, tmp_path: Path) -> None:
    """The first graph alone takes what the encoder gives, and alone gives caches over it."""
    form = Form("tokens")
    said = set[tuple[int, ...]]()
    with compiled(written(tmp_path / "p", form, numbered=numbered)) as model:
        for prompt in ([5, 9, 2], [11], [4, 4, 20, 17, 8]):
            wanted = plain_loop(form, merged_decoder(form), [1], 8, {"source_ids": np.array([prompt])})
            assert model.generate(prompt, max_new_tokens=8, **FREE).tokens == wanted
            said.add(tuple(wanted))
    assert len(said) > 1


@NUMBERED
def test_beside_an_encoder_of_sound(numbered: bool, tmp_path: Path) -> None:
    form = Form("sound")
    with compiled(written(tmp_path / "p", form, numbered=numbered)) as model:
        for seed, count in ((0, 40), (1, 64)):
            wave = samples(seed, count)
            for start in ([1], [1, 7, 3]):
                wanted = plain_loop(form, merged_decoder(form), start, 9, {"samples": wave})
                given = {"samples": wave, "request.max_iterations": [9]}
                given |= {"request.input_ids": [start]} if start != [1] else {}
                assert model.run(given, stop_on_eos=False)["tokens"][0].tolist() == wanted


@NUMBERED
def test_alone(numbered: bool, tmp_path: Path) -> None:
    form = Form("")
    with compiled(written(tmp_path / "p", form, {}, numbered)) as model:
        for prompt in ([5, 9, 2], [11]):
            wanted = plain_loop(form, merged_decoder(form), prompt, 10)
            assert model.generate(prompt, max_new_tokens=10, **FREE).tokens == wanted
        rows = model.generate(batch=[[5, 9, 2], [11]], max_new_tokens=8, **FREE).rows
        assert [each.tokens for each in rows] == [
            plain_loop(form, merged_decoder(form), prompt, 8) for prompt in ([5, 9, 2], [11])
        ]


def test_what_was_said_goes_in_again_as_a_prompt(tmp_path: Path) -> None:
    """By the first graph, with no past: no run takes several tokens behind one."""
    form = Form("")
    with compiled(written(tmp_path / "p", form, {})) as model:
        first = model.generate([5, 9, 2], max_new_tokens=4, **FREE).tokens
        again = model.generate([5, 9, 2, *first, 7], max_new_tokens=4, **FREE).tokens
    assert again == plain_loop(form, merged_decoder(form), [5, 9, 2, *first, 7], 4)


def test_rows_share_their_runs(tmp_path: Path) -> None:
    form = Form("sound")
    waves = [samples(seed, 40) for seed in range(3)]
    with compiled(written(tmp_path / "p", form)) as model:
        result = model.run(
            {"samples": np.concatenate(waves), "request.input_ids": [[1]] * 3, "request.max_iterations": [7]},
            stop_on_eos=False,
        )
    wanted = [plain_loop(form, merged_decoder(form), [1], 7, {"samples": wave}) for wave in waves]
    assert [row[0].tolist() for row in result.rows("tokens") if row is not None] == wanted


def test_what_is_understood_is_said(tmp_path: Path) -> None:
    form = Form("tokens")
    folder = written(tmp_path / "p", form)
    told = "\n".join(compile_package(folder, out=tmp_path / "out").notes)
    size = sum(numpy_helper.to_array(each).nbytes for each in apart(form, False).graph.initializer)
    assert f"two graphs: {FIRST} ({size / 1e3:.1f} kB of weights) runs with the prompt, {LATER}" in told
    assert "weights which both hold are held twice" in told
    assert "behind a past one token goes in a run" in told
    plan = (tmp_path / "out" / "plan.txt").read_text()
    assert plan.count("by the first run alone") == 2 * LAYERS
    assert "bytes of weights" in plan
    assert "are in two sessions" in plan


def test_what_convert_writes_runs_alike(tmp_path: Path) -> None:
    form = Form("tokens")
    folder = written(tmp_path / "p", form)
    (folder / "inference_metadata.yaml").write_text(convert_package(folder).text)
    with compiled(folder) as model:
        assert model.describe()["dialect"] == "workflow"
        wanted = plain_loop(form, merged_decoder(form), [1], 8, {"source_ids": np.array([[5, 9, 2]])})
        assert model.generate([5, 9, 2], max_new_tokens=8, **FREE).tokens == wanted


def test_a_prompt_of_one_token_goes_to_the_first_graph(tmp_path: Path) -> None:
    """The second one would find no keys: here it fails where there are none."""
    form = Form("tokens")
    folder = written(tmp_path / "p", form)
    later = onnx.load(folder / LATER)
    nodes = [
        helper.make_node("Shape", ["past.0.source.key"], ["past_size"], start=2, end=3),
        helper.make_node("Cast", ["past_size"], ["held"], to=TensorProto.BOOL),
        helper.make_node("Not", ["held"], ["empty"]),
        helper.make_node("Cast", ["empty"], ["place"], to=TensorProto.INT64),
        helper.make_node("Gather", ["only", "place"], ["whole"]),
    ]
    for node in reversed(nodes):
        later.graph.node.insert(0, node)
    later.graph.initializer.append(numpy_helper.from_array(np.array([7], np.int64), "only"))
    later.graph.output.append(helper.make_tensor_value_info("whole", TensorProto.INT64, [1]))
    onnx.save(later, folder / LATER)
    with compiled(folder) as model:
        wanted = plain_loop(form, merged_decoder(form), [1], 5, {"source_ids": np.array([[11]])})
        assert model.generate([11], max_new_tokens=5, **FREE).tokens == wanted


# ---- one of the two is enough ----------------------------------------------------------------------------------------


def test_a_second_graph_that_takes_prompts_stands_for_both(tmp_path: Path) -> None:
    """Weights once: it takes any number of tokens, also with no past, and lets none see a later one."""
    form = Form("")
    graphs = {FIRST: apart(form, False), LATER: apart(form, True)}
    folder = plain_folder(tmp_path / "p", graphs, STATED)
    notes = compile_package(folder, out=tmp_path / "seen").notes
    assert any(f"left aside: '{FIRST}'" in each for each in notes)
    with compiled(folder) as model:
        assert model.generate([5, 9, 2], max_new_tokens=8, **FREE).tokens == plain_loop(
            form, merged_decoder(form), [5, 9, 2], 8
        )
    (folder / FIRST).unlink()
    alone = compile_package(folder, out=tmp_path / "alone")
    assert (tmp_path / "alone" / "executor.py").read_text() == (tmp_path / "seen" / "executor.py").read_text()
    assert alone.plan is not None


def unordered(model: ModelProto) -> ModelProto:
    """The graph as it is traced with one token: nothing hides a later one. For one token it computes the same."""
    for node in model.graph.node:
        if node.op_type == "Trilu":
            fill = next(each for each in model.graph.node if each.output[0] == node.input[0])
            node.CopyFrom(helper.make_node("Mul", [fill.output[0], "nothing"], list(node.output)))
    model.graph.initializer.append(numpy_helper.from_array(np.array(0, np.float32), "nothing"))
    return model


def test_one_that_was_traced_with_one_token_does_not(tmp_path: Path) -> None:
    """Whatever its ports declare: with several tokens it would let each see those behind it."""
    form = Form("")
    folder = plain_folder(tmp_path / "p", {FIRST: apart(form, False), LATER: unordered(apart(form, True))}, STATED)
    notes = compile_package(folder, out=tmp_path / "seen").notes
    assert any("behind a past one token goes in a run" in each for each in notes)
    with compiled(folder) as model:
        assert model.generate([5, 9, 2], max_new_tokens=8, **FREE).tokens == plain_loop(
            form, merged_decoder(form), [5, 9, 2], 8
        )


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_graphs_of_different_decoders_are_refused(tmp_path: Path) -> None:
    """One cache fewer in the second: what the first gives would have no taker."""
    form = Form("tokens")
    folder = written(tmp_path / "p", form)
    first = onnx.load(folder / FIRST)
    first.graph.output.pop()
    onnx.save(first, folder / FIRST)
    told = refused(folder)["several-graphs"]
    assert f"decoder of a prompt alone: {FIRST}" in told
    assert f"{FIRST} gives 7 tensors in the form of caches, {LATER} takes 8" in told
    assert told.startswith("the folder holds 3 graphs and declares none of them")
    named = refused(folder, (FIRST, LATER, ENCODER))["several-graphs"]
    assert named.startswith("3 graphs are named, and are not told to be one decoder")
    assert "take the decoder that is merged of both" in told


def test_caches_of_another_form_are_refused(tmp_path: Path) -> None:
    form = Form("")
    folder = written(tmp_path / "p", form, {})
    later = onnx.load(folder / LATER)
    port = next(each for each in later.graph.input if each.name == "past.1.own.value")
    port.type.tensor_type.shape.dim[1].dim_value = 3
    later.graph.output[-1].type.tensor_type.shape.dim[1].dim_value = 3
    onnx.save(later, folder / LATER)
    told = refused(folder)["several-graphs"]
    assert f"'past.1.own.value' of {LATER} differ in form from what {FIRST} gives for them" in told


def test_variants_of_each_are_named(tmp_path: Path) -> None:
    form = Form("tokens")
    folder = written(tmp_path / "p", form)
    for name in (FIRST, LATER, ENCODER):
        onnx.save(onnx.load(folder / name), folder / name.replace(".onnx", "_quantized.onnx"))
    told = refused(folder)["several-graphs"]
    assert f"decoder of a prompt alone: 2 variants, {FIRST}" in told
    assert "choose one of each, for example" in told
    chosen = tuple(each.replace(".onnx", "_quantized.onnx") for each in (FIRST, LATER, ENCODER))
    with compiled(folder, chosen) as model:
        wanted = plain_loop(form, merged_decoder(form), [1], 6, {"source_ids": np.array([[5, 9, 2]])})
        assert model.generate([5, 9, 2], max_new_tokens=6, **FREE).tokens == wanted


def test_a_pair_without_its_encoder_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "p", Form("tokens"))
    told = refused(folder, (FIRST, LATER))["unclaimed-input"]
    assert "nothing feeds the graph's input 'mask'" in told or "nothing feeds the graph's input 'states'" in told


def test_a_graph_that_feeds_nothing_is_no_encoder(tmp_path: Path) -> None:
    """A decoder that is whole, and another graph beside it: which is meant is the caller's to say."""
    graphs = {"a.onnx": apart(Form(""), True), "b.onnx": encoder(Form("tokens"))}
    folder = plain_folder(tmp_path / "p", graphs, STATED)
    told = refused(folder)["several-graphs"]
    assert "b.onnx gives nothing that a.onnx takes" in told
    assert "--graph a.onnx" in told
    with compiled(folder, "a.onnx") as model:
        wanted = plain_loop(Form(""), merged_decoder(Form("")), [5, 9], 6)
        assert model.generate([5, 9], max_new_tokens=6, **FREE).tokens == wanted


@pytest.mark.parametrize("op", ["gqa", "attention"])
def test_an_operator_that_gives_its_own_caches(op: str, tmp_path: Path) -> None:
    """The first graph has the operator without a past: its presents are told by where it gives them."""
    later, first = (decoder(Recipe((Layer(0, 2, 16), Layer(1, 2, 16)), op)) for _ in range(2))
    pasts = [each.name for each in first.graph.input if each.name.startswith("past")]
    kept = [each for each in first.graph.input if each.name not in pasts]
    del first.graph.input[:]
    first.graph.input.extend(kept)
    for node in first.graph.node:
        node.input[:] = ["" if each in pasts else each for each in node.input]
    later.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1
    graphs = {FIRST: renamed(first), LATER: later}
    with compiled(plain_folder(tmp_path / "p", graphs, STATED)) as model:
        model_alone = {"model.onnx": decoder(Recipe((Layer(0, 2, 16), Layer(1, 2, 16)), op))}
        whole = plain_folder(tmp_path / "whole", model_alone, STATED)
        for prompt in ([3, 1, 7], [9]):
            wanted = greedy(whole / "model.onnx", prompt, 8)
            assert model.generate(prompt, max_new_tokens=8, **FREE).tokens == wanted


@pytest.mark.parametrize("fixture", ["tiny-block-drafts", "tiny-chained-drafts"])
def test_drafts_are_not_verified_by_another_graph_than_the_prompt_s(fixture: str) -> None:
    """A block's first run is the whole prompt's, through the graph that verifies."""
    plan = compile_package(FIXTURES / fixture, options=Options(stop_after="build")).plan
    assert plan is not None
    assert plan.speculation is not None
    assert plan.speculation.drafting is not None
    assert plan.decoder is not None
    apart_now = build_speculation(load_package(FIXTURES / fixture), replace(plan.decoder, prompt_component="first"))
    assert apart_now is not None
    assert apart_now.drafting is None
    assert "takes later tokens by another graph than a prompt" in apart_now.reason
