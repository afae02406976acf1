"""Decoders merged of two networks behind a flag: which value of it is for which is read from the graph, not from names.

Tokens are held against a plain onnxruntime loop that knows the ports by name and drives the flag itself.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.convert import convert_package
from genai_compiler.driver import Options
from genai_compiler.read.load import load_package

from tests.lower.merged_decoders import (
    FLAG,
    LAYERS,
    VOCABULARY,
    Form,
    apart,
    encoder,
    merged_decoder,
    output_names,
    past_names,
    plain_loop,
)
from tests.lower.plain_folders import plain_folder

STATED: Mapping[str, Any] = {"vocab_size": VOCABULARY, "max_position_embeddings": 64, "eos_token_id": 23}
START = {"decoder_start_token_id": 1}
FREE = {"temperature": 0, "stop_on_eos": False}


def numbered(form: Form) -> Form:
    """The same decoder with ports that are called by numbers, in an order that says nothing."""
    names = ["ids", FLAG, "states", "mask", *past_names(form), *output_names(form)]
    return Form(
        form.beside,
        form.later,
        form.handed,
        form.alike,
        {each: f"port_{len(names) - at}" for at, each in enumerate(names)},
    )


FORMS = {
    "sound": Form("sound"),
    "sound, the flag the other way round": Form("sound", later=False),
    "sound, caches handed on": Form("sound", handed=True),
    "sound, results named alike": Form("sound", alike=True),
    "sound, numbered": numbered(Form("sound")),
    "tokens": Form("tokens"),
    "tokens, numbered": numbered(Form("tokens", later=False)),
    "alone": Form(""),
    "alone, numbered": numbered(Form("")),
}


def written(folder: Path, form: Form, more: Mapping[str, Any] = START) -> Path:
    graphs = {"onnx/decoder_model_merged.onnx": merged_decoder(form)}
    graphs |= {"onnx/encoder_model.onnx": encoder(form)} if form.beside else {}
    return plain_folder(folder, graphs, {**STATED, **more})


def compiled(folder: Path) -> genai_runtime.Model:
    compile_package(folder, out=folder.with_name("out"), options=Options(force=True))
    return genai_runtime.load(folder.with_name("out"), threads=1)


def samples(seed: int, count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).normal(0, 1, (1, count)).astype(np.float32)


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form.beside == "sound"])
def test_beside_an_encoder_of_sound(name: str, tmp_path: Path) -> None:
    """Nothing but the samples is given: the start token is the configuration's, the mask is as long as they are."""
    form = FORMS[name]
    folder = written(tmp_path / "p", form)
    said = set[tuple[int, ...]]()
    with compiled(folder) as model:
        for seed, count in ((0, 40), (1, 64), (2, 24)):
            wave = samples(seed, count)
            wanted = plain_loop(form, merged_decoder(form), [1], 9, {"samples": wave})
            result = model.run({"samples": wave, "request.max_iterations": [9]}, stop_on_eos=False)
            assert result["tokens"][0].tolist() == wanted
            said.add(tuple(wanted))
            prompted = model.run(
                {"samples": wave, "request.input_ids": [[1, 7, 3]], "request.max_iterations": [6]}, stop_on_eos=False
            )
            assert prompted["tokens"][0].tolist() == plain_loop(
                form, merged_decoder(form), [1, 7, 3], 6, {"samples": wave}
            )
    assert len(said) == 3, "what is said must depend on what is heard"


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form.beside == "tokens"])
def test_beside_an_encoder_of_tokens(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    with compiled(written(tmp_path / "p", form)) as model:
        said = set[tuple[int, ...]]()
        for prompt in ([5, 9, 2], [11], [4, 4, 20, 17, 8]):
            wanted = plain_loop(form, merged_decoder(form), [1], 8, {"source_ids": np.array([prompt])})
            assert model.generate(prompt, max_new_tokens=8, **FREE).tokens == wanted
            said.add(tuple(wanted))
        rows = model.generate(batch=[[5, 9, 2], [11]], max_new_tokens=8, **FREE).rows
        assert [each.tokens for each in rows] == [
            model.generate(each, max_new_tokens=8, **FREE).tokens for each in ([5, 9, 2], [11])
        ]
    assert len(said) > 1


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if not form.beside])
def test_alone(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    with compiled(written(tmp_path / "p", form, {})) as model:
        for prompt in ([5, 9, 2], [11]):
            wanted = plain_loop(form, merged_decoder(form), prompt, 10)
            assert model.generate(prompt, max_new_tokens=10, **FREE).tokens == wanted


def test_rows_of_one_length_share_their_runs(tmp_path: Path) -> None:
    form = FORMS["sound"]
    waves = [samples(seed, 40) for seed in range(3)]
    with compiled(written(tmp_path / "p", form)) as model:
        result = model.run(
            {"samples": np.concatenate(waves), "request.input_ids": [[1]] * 3, "request.max_iterations": [7]},
            stop_on_eos=False,
        )
    wanted = [plain_loop(form, merged_decoder(form), [1], 7, {"samples": wave}) for wave in waves]
    assert [row[0].tolist() for row in result.rows("tokens") if row is not None] == wanted


def test_the_plan_says_what_the_first_run_gives(tmp_path: Path) -> None:
    folder = written(tmp_path / "p", FORMS["sound"])
    compile_package(folder, out=tmp_path / "out")
    text = (tmp_path / "out" / "plan.txt").read_text()
    assert text.count("by the first run alone") == 2 * LAYERS
    assert f"{FLAG}=%package.first_pass" in text
    assert f"{FLAG}=%package.later_pass" in text


def test_the_lowered_document_compiles_to_the_same_tokens(tmp_path: Path) -> None:
    form = FORMS["sound"]
    folder = written(tmp_path / "p", form)
    wave = samples(0, 40)
    (folder / "inference_metadata.yaml").write_text(convert_package(folder).text)
    with compiled(folder) as model:
        assert model.describe()["dialect"] == "workflow"
        result = model.run({"samples": wave, "request.max_iterations": [9]}, stop_on_eos=False)
    assert result["tokens"][0].tolist() == plain_loop(form, merged_decoder(form), [1], 9, {"samples": wave})


# ---- what is refused -------------------------------------------------------------------------------------------------


def refused(folder: Path, graph: Any = None) -> dict[str, str]:
    with pytest.raises(CompileError) as caught:
        compile_package(folder, out=folder.with_name("out"), options=Options(graph=graph))
    assert not folder.with_name("out").exists()
    return {each.code: f"{each.what} {each.help}" for each in caught.value.problems}


def test_a_decoder_without_its_encoder_is_refused(tmp_path: Path) -> None:
    folder = plain_folder(tmp_path / "p", {"decoder.onnx": merged_decoder(Form("sound"))}, STATED)
    told = refused(folder)["unclaimed-input"]
    assert "'states'" in told or "'mask'" in told


def test_networks_that_both_read_the_caches_are_refused(tmp_path: Path) -> None:
    """Nothing tells which of the two is for the prompt."""
    model = merged_decoder(Form(""))
    node = model.graph.node[0]
    branches = {each.name: each.g for each in node.attribute}
    inside = next(each for each in branches["else_branch"].node if each.op_type == "Identity")
    other = onnx.helper.make_node("Add", [inside.input[0], "zero"], list(inside.output))
    size = onnx.helper.make_node("ReduceSum", ["past.0.own.key"], ["zero"], keepdims=0)
    at = list(branches["else_branch"].node).index(inside)
    branches["else_branch"].node.remove(inside)
    branches["else_branch"].node.insert(at, other)
    branches["else_branch"].node.insert(at, size)
    told = refused(plain_folder(tmp_path / "p", {"decoder.onnx": model}, STATED))["unsupported-package-class"]
    assert "which value of it is for which" in told


def test_an_encoder_of_another_width_is_refused(tmp_path: Path) -> None:
    form = Form("sound")
    other = encoder(form)
    other.graph.output[0].type.tensor_type.shape.dim[2].dim_value = 16
    folder = plain_folder(tmp_path / "p", {"a.onnx": other, "b.onnx": merged_decoder(form)}, STATED)
    assert "'states' is float32 [b, source, 8]" in refused(folder)["unclaimed-input"].replace('"', "'")


def test_one_network_of_two_and_an_encoder_are_no_decoder(tmp_path: Path) -> None:
    """The older layout: neither graph is a decoder for both, and no choice of two of the three is taken for one."""
    form, names = Form("tokens"), ("encoder_model", "decoder_model", "decoder_with_past_model")
    files = [f"onnx/{each}.onnx" for each in names]
    graphs = dict(zip(files, (encoder(form), apart(form, False), apart(form, True)), strict=True))
    folder = plain_folder(tmp_path / "p", graphs, {**STATED, **START})
    assert "0 keep caches" in refused(folder, tuple(files[:2]))["several-graphs"]
    told = refused(folder, (files[0], files[2]))["unclaimed-input"]
    assert "'past.1.source.value'" in told
    assert "take the merged decoder" in told


@pytest.mark.parametrize("beside", ["tokens", "sound"])
def test_a_merged_decoder_stands_for_the_files_of_its_networks(beside: str, tmp_path: Path) -> None:
    """The layout of exporters that write both: the same plan as without the two files, and that is said."""
    form = Form(beside)
    graphs = {"encoder_model.onnx": encoder(form), "decoder_model_merged.onnx": merged_decoder(form)}
    stated = {**STATED, **START}
    two = plain_folder(tmp_path / "two" / "p", graphs, stated)
    graphs |= {"decoder_model.onnx": apart(form, False), "decoder_with_past_model.onnx": apart(form, True)}
    four = plain_folder(tmp_path / "four" / "p", graphs, stated)
    for folder in (two, four):
        compile_package(folder, out=folder.with_name("out"))
    executors = [folder.with_name("out").joinpath("executor.py").read_text() for folder in (two, four)]
    assert executors[0] == executors[1]
    said = "left aside: 'decoder_model.onnx', 'decoder_with_past_model.onnx', which the merged decoder holds"
    assert said in load_package(four).notes
    assert not any("left aside" in each for each in load_package(two).notes)


def test_one_of_each_is_named_among_several(tmp_path: Path) -> None:
    """The hub's layout: variants of both in one folder."""
    form = Form("sound")
    graphs = {
        f"onnx/{kind}{tail}.onnx": made
        for tail in ("", "_q")
        for kind, made in (("decoder", merged_decoder(form)), ("encoder", encoder(form)))
    }
    folder = plain_folder(tmp_path / "p", graphs, {**STATED, **START})
    assert "--graph onnx/decoder.onnx --graph onnx/encoder.onnx" in refused(folder)["several-graphs"]
    assert "2 keep caches" in refused(folder, ("onnx/decoder.onnx", "onnx/decoder_q.onnx"))["several-graphs"]
    compile_package(folder, out=tmp_path / "out", options=Options(graph=("onnx/encoder_q.onnx", "onnx/decoder.onnx")))
    made = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert {each["path"] for each in made["files"]} >= {"onnx/encoder_q.onnx", "onnx/decoder.onnx"}


# ---- with a few words of a document ----------------------------------------------------------------------------------


def composed(folder: Path, form: Form) -> Path:
    """The two graphs in an older document that joins them; ports are the graph's to tell."""
    folder.mkdir()
    for name, model in (("encoder.onnx", encoder(form)), ("decoder.onnx", merged_decoder(form))):
        onnx.save(model, folder / name)
    models = {"encoder": {"filename": "encoder.onnx"}, "decoder": {"filename": "decoder.onnx", "io": {}}}
    strategy = {"kind": "composite", "stages": [
        {"name": "a", "strategy": {"kind": "single_pass", "model": "encoder"}, "run_on": "prompt_only"},
        {"name": "b", "strategy": {"kind": "autoregressive", "decoder": "decoder"}, "run_on": "every_step"},
    ]}  # fmt: skip
    pipeline = {"models": models, "strategy": strategy, "dataflow": [{"from": "encoder.made", "to": "decoder.states"}]}
    document = {"pipeline": pipeline, "model": {"max_sequence_length": 64}}
    (folder / "inference_metadata.yaml").write_text(json.dumps(document))
    return folder


def test_a_mask_over_the_encoder_s_entries_is_never_the_decoder_s_own(tmp_path: Path) -> None:
    """The document has no word for it: it is refused, where the runtime's own mask would hide nothing."""
    assert "'mask'" in refused(composed(tmp_path / "p", Form("sound")))["unclaimed-input"]
