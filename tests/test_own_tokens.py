"""Decoders that take token ids beside the embeddings that another graph makes of them, in every dialect and form.

Expected tokens are those of plain loops over the graphs; where an embedding has a table taken away that the decoder
adds again by the ids, those of the decoder before it was parted so; and what onnxruntime-genai 0.18 gave.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime as ort
import pytest
import yaml
from genai_compiler import CompileError, compile_package
from genai_compiler.convert import convert_package
from genai_compiler.problem import errors
from onnx import ModelProto, TensorProto, helper, load, numpy_helper, save

from tests.conftest import FIXTURES
from tests.real_packages import GREEDY
from tests.staged_packages import NEW, PROMPTS, Graphs, converts, three, tokens, wanted
from tests.test_processor_fixtures import WORD, picture, under_a_budget
from tests.test_stage_windows import KEPT, LENGTHS, MOVED, anew
from tests.test_stages_beside import decoded
from tests.test_vision_stages import behind, features, pictures, written_over
from tests.test_windows_behind import embedding_apart, lengths, moving, ran, seeing
from tools.fixtures.genai_v2 import HEARD, SEEN, embedding, two_sided_decoder, write_config
from tools.fixtures.network import CONTEXT, HIDDEN, VOCABULARY, gqa_decoder
from tools.fixtures.processors import HTK_BANDS, PER_LAYER
from tools.fixtures.shifted import NAMES
from tools.fixtures.stages import EMBEDDED, FINAL, cut
from tools.fixtures.tokenizer import write_tokenizer
from tools.fixtures.vision_stages import IMAGE

Array = np.ndarray[Any, Any]
CASE = FIXTURES / "tiny-own-tokens-v1"
NONE = np.zeros((0, HIDDEN), np.float32)
REFERENCE = {
    (1, 9, 14): [32, 63, 25, 25, 25, 25, 40, 40],
    (5,): [63, 11, 11, 11, 11, 11, 11, 11],
    (1, 30, 31, 32, 7, 8): [57, 31, 57, 37, 53, 44, 11, 9],
}
"""Greedy tokens by onnxruntime-genai 0.18."""


def opened(file: Path) -> Any:
    return ort.InferenceSession(file, providers=["CPUExecutionProvider"])


def both_sides(folder: Path, given: Mapping[str, Array] | None = None) -> Callable[[Array], dict[str, Array]]:
    """What the decoder takes of new tokens: the ids, and what the embedding makes of them. given: with the prompt."""
    session, once = opened(folder / "embedding.onnx"), [dict(given or {})]
    names = [each.name for each in session.get_outputs()]
    media = [each.name for each in session.get_inputs() if each.name != "input_ids"]

    def of(ids: Array) -> dict[str, Array]:
        entries = dict.fromkeys(media, NONE) | (once.pop() if once else {})
        return {"input_ids": ids, **dict(zip(names, session.run(None, {"input_ids": ids, **entries}), strict=True))}

    return of


def expected(folder: Path, prompt: list[int], given: Mapping[str, Array] | None = None) -> list[int]:
    return decoded(folder / "decoder.onnx", both_sides(folder, given), prompt, NEW)


def made(folder: Path, prompts: list[list[int]]) -> list[list[int]]:
    out = folder.with_name(folder.name + ".out")
    compile_package(folder, out=out)
    with genai_runtime.load(out, threads=1) as model:
        rows = model.generate(batch=prompts, max_new_tokens=NEW, **GREEDY).rows
        alone = [model.generate(each, max_new_tokens=NEW, **GREEDY).tokens for each in prompts]
    assert [each.tokens for each in rows] == alone
    return alone


# ---- the fixture: media, a second stream, ids ------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", REFERENCE, ids=str)
def test_text_gives_the_tokens_of_a_plain_loop_and_of_the_reference(
    prompt: tuple[int, ...], model: Callable[[str], genai_runtime.Model]
) -> None:
    made = model(CASE.name).generate(list(prompt), max_new_tokens=8, **GREEDY).tokens
    assert made == REFERENCE[prompt] == expected(CASE, list(prompt))[:8]


@pytest.mark.parametrize("heard", [0, 1])
@pytest.mark.parametrize("pictures", [0, 1, 2])
def test_media_with_the_prompt(pictures: int, heard: int, model: Callable[[str], genai_runtime.Model]) -> None:
    """Pictures as files, features of a sound as a tensor; the ids go in at every step, the media with the prompt."""
    files = [picture(20, 20), picture(12, 40)][:pictures]
    seen = [under_a_budget(levels) for levels, _ in files]
    sound = np.random.default_rng(2).normal(size=(1, 11, HTK_BANDS)).astype(np.float32)
    features = {"input_features": sound, "input_features_mask": np.ones((1, 11), bool)}
    prompt = [*(each for _, count in seen for each in [58, *[SEEN] * count, 59]), *WORD, *[HEARD] * (3 * heard), 9]
    inputs: dict[str, Any] = {"request.input_ids": [prompt], "request.max_iterations": [NEW]}
    given: dict[str, Array] = {}
    if pictures:
        inputs |= {"request.image": [data for _, data in files]}
        given["image_features"] = np.concatenate([opened(CASE / "vision.onnx").run(None, each)[0] for each, _ in seen])
    if heard:
        inputs |= features
        given["audio_features"] = opened(CASE / "speech.onnx").run(None, features)[0]
    result = model(CASE.name).run(inputs, stop_on_eos=False)["tokens"].tolist()
    assert result == [expected(CASE, prompt, given)]


def test_the_converted_document_is_the_same_plan(tmp_path: Path) -> None:
    converts(shutil.copytree(CASE, tmp_path / "p"), tmp_path)


@pytest.mark.parametrize("named", [True, False])
def test_a_stream_that_the_configuration_leaves_out_goes_where_it_has_the_same_name(
    named: bool, tmp_path: Path
) -> None:
    package = shutil.copytree(CASE, tmp_path / "p")
    config = json.loads((package / "genai_config.json").read_text())
    if not named:
        del config["model"]["embedding"]["outputs"], config["model"]["decoder"]["inputs"]
    (package / "genai_config.json").write_text(json.dumps(config))
    assert made(package, [[1, 9, 14]]) == [expected(CASE, [1, 9, 14])]


@pytest.mark.parametrize("form", ["no shape", "another type", "another width"])
def test_a_port_of_the_same_name_and_another_form_is_no_stream(form: str, tmp_path: Path) -> None:
    """A name alone says little: what the embedding gives has to be what the decoder takes, as both graphs say it."""
    package = shutil.copytree(CASE, tmp_path / "p")
    config = json.loads((package / "genai_config.json").read_text())
    del config["model"]["embedding"]["outputs"], config["model"]["decoder"]["inputs"]
    (package / "genai_config.json").write_text(json.dumps(config))
    graph = load(package / "embedding.onnx")
    (port,) = [each for each in graph.graph.output if each.name == PER_LAYER[0]]
    kind = port.type.tensor_type
    if form == "no shape":
        kind.ClearField("shape")
    elif form == "another type":
        kind.elem_type = TensorProto.FLOAT16
    else:
        kind.shape.dim[-1].dim_param = "width"
    (package / "embedding.onnx").write_bytes(graph.SerializeToString())
    with pytest.raises(CompileError) as refused:
        compile_package(package, tmp_path / "out")
    assert any(PER_LAYER[0] in each.what for each in errors(refused.value.problems))


# ---- other dialects --------------------------------------------------------------------------------------------------


def graphs(folder: Path, streams: tuple[str, ...] = (), ids: str = "input_ids", dtype: int = TensorProto.INT64) -> Path:
    """An embedding of tokens alone and a decoder behind it. ids: what the decoder calls the ids; dtype: theirs."""
    folder.mkdir()
    embedding((), streams).save(folder / "embedding.onnx")
    model = two_sided_decoder(streams).proto()
    for port in model.graph.input:
        if port.name == "input_ids":
            port.name, port.type.tensor_type.elem_type = ids, dtype
    for node in model.graph.node:
        node.input[:] = [ids if each == "input_ids" else each for each in node.input]
    save(model, folder / "decoder.onnx")
    write_tokenizer(folder)
    return folder


def in_version_2(folder: Path) -> None:
    sessions = {name: {"file": f"{name}.onnx"} for name in ("embedding", "decoder")}
    flow = [{"run": "embedding", "when": "prompt"}, {"run": "decoder", "when": "always"}]
    wires = [{"from": "embedding.inputs_embeds", "to": "decoder.inputs_embeds"}]
    write_config(folder, {"sessions": sessions, "flow": flow, "dataflow": wires}, {})


def in_models(folder: Path, **io: Any) -> None:
    """As documents from before workflows have it. io: of the decoder, beside its embeddings."""
    caches = [f"{layer}.{half}" for layer in (0, 1) for half in ("key", "value")]
    names = [each.name for each in load(folder / "decoder.onnx").graph.input]
    ports = {
        "inputs_embeds_input": "inputs_embeds",
        "attention_mask_input": "attention_mask",
        "position_ids_input": "position_ids",
        "logits_output": "logits",
        "kv_inputs": [f"past_key_values.{each}" for each in caches],
        "kv_outputs": [f"present.{each}" for each in caches],
        **io,
    }
    document = {
        "model": {"max_sequence_length": CONTEXT},
        "pipeline": {
            "models": {
                "embedding": {"filename": "embedding.onnx", "io": {"token_input": "input_ids"}},
                "decoder": {"filename": "decoder.onnx", "io": ports},
            },
            "dataflow": [
                {"from": f"embedding.{each}", "to": f"decoder.{each}"}
                for each in ("inputs_embeds", *PER_LAYER)
                if each in names
            ],
            "strategy": {"kind": "autoregressive", "decoder": "decoder"},
        },
    }
    (folder / "inference_metadata.yaml").write_text(yaml.safe_dump(document))


def undeclared(folder: Path) -> None:
    config = {"vocab_size": VOCABULARY, "eos_token_id": 2, "max_position_embeddings": CONTEXT}
    (folder / "config.json").write_text(json.dumps(config))


DIALECTS: dict[str, Callable[[Path], None]] = {
    "version 2": in_version_2,
    "models, ids named": lambda folder: in_models(folder, token_input="input_ids"),
    "models, ids told by the graph": in_models,
    "plain folder": undeclared,
}


@pytest.mark.parametrize("streams", [(), PER_LAYER], ids=["embeddings", "two streams"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_ids_go_in_beside_the_embeddings(dialect: str, streams: tuple[str, ...], tmp_path: Path) -> None:
    folder = graphs(tmp_path / "p", streams)
    DIALECTS[dialect](folder)
    prompts = [[1, 9, 14], [5], [3, 40, 41, 42, 43, 44]]
    assert made(folder, prompts) == [expected(folder, each) for each in prompts]
    converts(folder, tmp_path) if (folder / "genai_config.json").exists() else None


@pytest.mark.parametrize("dialect", ["version 2", "plain folder"])
def test_no_name_is_needed_where_the_ids_look_into_a_table_of_the_vocabulary(dialect: str, tmp_path: Path) -> None:
    folder = graphs(tmp_path / "p", ids="words")
    DIALECTS[dialect](folder)
    plain = graphs(tmp_path / "plain")
    assert made(folder, [[1, 9, 14]]) == [expected(plain, [1, 9, 14])]


def test_three_graphs_that_declare_nothing_take_media(tmp_path: Path) -> None:
    folder = graphs(tmp_path / "p")
    embedding((("image_features", SEEN, "images"),)).save(folder / "embedding.onnx")
    shutil.copy(FIXTURES / "tiny-vision-v2" / "vision.onnx", folder / "vision.onnx")
    undeclared(folder)
    assert made(folder, [[1, 9, 14]]) == [expected(folder, [1, 9, 14])]


# ---- stages, windows, caches in place and on the move ----------------------------------------------------------------


OWN = np.random.default_rng(4).normal(size=(VOCABULARY, HIDDEN)).astype(np.float32)


def parted(graphs: Graphs, *takers: str) -> Graphs:
    """The graphs with a part of the embeddings' table taken away, which these stages add again by the ids."""
    less = ModelProto.FromString(graphs["embeddings"].SerializeToString())
    table = next(each for each in less.graph.initializer if each.name == "embedding")
    table.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(table) - OWN, table.name))
    return {**graphs, "embeddings": less, **{name: _with_ids(graphs[name]) for name in takers}}


def _with_ids(model: ModelProto) -> ModelProto:
    model = ModelProto.FromString(model.SerializeToString())
    graph = model.graph
    for node in graph.node:
        node.input[:] = ["both.sides" if each == EMBEDDED else each for each in node.input]
    shape = next(each for each in graph.input if each.name == EMBEDDED).type.tensor_type.shape.dim
    extents = [each.dim_param or each.dim_value for each in shape[:2]]
    if all(each.name != "input_ids" for each in graph.input):
        graph.input.append(helper.make_tensor_value_info("input_ids", TensorProto.INT64, extents))
    graph.initializer.append(numpy_helper.from_array(OWN, "own.rows"))
    added = [
        helper.make_node("Gather", ["own.rows", "input_ids"], ["own.side"]),
        helper.make_node("Add", [EMBEDDED, "own.side"], ["both.sides"]),
    ]
    kept = [type(each).FromString(each.SerializeToString()) for each in graph.node]
    del graph.node[:]
    graph.node.extend([*added, *kept])
    return model


def test_caches_written_in_place(tmp_path: Path) -> None:
    """Behind an embedding, in one graph: also rows of different length."""
    opened, layers = cut(gqa_decoder().proto(), EMBEDDED)
    package = embedding_apart(tmp_path / "p", parted({"embeddings": opened, "layers": layers}, "layers"), {})
    assert tokens(package) == wanted(tmp_path / "whole", gqa_decoder())
    assert made(package, [list(each) for each in PROMPTS]) == tokens(package)


@pytest.mark.parametrize("phases", [1, 2])
def test_the_first_of_several_stages_takes_both(phases: int, tmp_path: Path) -> None:
    opened, layers, head = cut(gqa_decoder().proto(), EMBEDDED, FINAL)
    names = ("layers",) if phases == 1 else ("context", "iterator")
    stages = {"embeddings": opened, **dict.fromkeys(names, layers), "lm_head": head}
    package = embedding_apart(tmp_path / "p", parted(stages, *names), {})
    assert tokens(package) == wanted(tmp_path / "whole", gqa_decoder())
    converts(package, tmp_path)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_windows_of_ids_and_embeddings(size: int, tmp_path: Path) -> None:
    """The last window is filled up, in both."""
    opened, layers, head = cut(gqa_decoder().proto(), EMBEDDED, FINAL)
    graphs = parted({"embeddings": opened, "layers": layers, "lm_head": head}, "layers")
    package = embedding_apart(tmp_path / "p", graphs, {"sliding_window": {**KEPT, "window_size": size}})
    assert tokens(package) == wanted(tmp_path / "whole", gqa_decoder())


def test_windows_of_one_size_whose_place_is_told_by_numbers(tmp_path: Path) -> None:
    window = {"inputs": LENGTHS, "sliding_window": KEPT}
    package = embedding_apart(tmp_path / "p", parted(lengths(), "context", "iterator"), window)
    assert tokens(package) == wanted(tmp_path / "whole", gqa_decoder())


@pytest.mark.parametrize("alignment", ["left", "right"])
def test_caches_that_move(alignment: str, tmp_path: Path) -> None:
    window = {**MOVED, "window_size": 4, "alignment": alignment}
    graphs = moving(4)
    graphs |= {name: _seen(graphs[name]) for name in ("context", "iterator")}
    package = embedding_apart(
        tmp_path / "p", parted(graphs, "context", "iterator"), {**NAMES, "sliding_window": window}
    )
    assert tokens(package) == [anew(each, NEW) for each in PROMPTS]


def _seen(model: ModelProto) -> ModelProto:
    """A graph of `moving`, whose own value called input_ids gives way to the input."""
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = ["like.tokens" if each == "input_ids" else each for each in names]
    return model


def test_a_later_stage_takes_ids_where_features_go_over_rows_of_the_first(tmp_path: Path) -> None:
    grids = [(4, 6), (2, 6)]
    package = seeing(tmp_path / "p", parted(three(gqa_decoder()), "layers"), {})
    given, prompt = pictures(grids), [1, 5, *[IMAGE] * 9, 9, 14]
    rows = written_over(package / "embeddings.onnx", features(package, given["pixel_values"], grids))
    whole = tmp_path / "whole.onnx"
    save(_with_ids(load(behind(tmp_path / "w"))), whole)
    assert ran(package, prompt, given) == decoded(whole, lambda ids: {**rows(ids), "input_ids": ids}, prompt, NEW)


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_ids_of_two_types_are_refused(dialect: str, tmp_path: Path) -> None:
    folder = graphs(tmp_path / "p", dtype=TensorProto.INT32)
    DIALECTS[dialect](folder)
    with pytest.raises(CompileError) as caught:
        compile_package(folder, out=tmp_path / "out")
    (problem,) = errors(caught.value.problems)
    assert problem.code == "wrong-port"
    assert "int32" in problem.what
    assert "int64" in problem.what
    assert not (tmp_path / "out").exists()


def test_a_document_must_give_the_decoder_the_tokens_that_the_embedding_takes(tmp_path: Path) -> None:
    folder = graphs(tmp_path / "p")
    in_version_2(folder)
    document = yaml.safe_load(convert_package(folder).text)
    (folder / "genai_config.json").unlink()
    loop = document["pipeline"]["workflow"]["steps"][-1]
    decoder = next(each for each in loop["steps"] if each.get("component") == "decoder")
    (own,) = [port for port, value in decoder["inputs"].items() if value == "request.input_ids"]
    document["pipeline"]["workflow"]["inputs"]["application.other"] = {
        **document["pipeline"]["workflow"]["inputs"]["request.input_ids"],
        "role": {"kind": "opaque"},
        "source": {"kind": "application", "name": "other"},
    }
    decoder["inputs"][own] = "application.other"
    (folder / "inference_metadata.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(CompileError) as caught:
        compile_package(folder, out=tmp_path / "out")
    found = {each.code: each for each in errors(caught.value.problems)}
    assert f"'{own}' takes the tokens that 'embedding' takes" in found["decoder-loop-form"].what
