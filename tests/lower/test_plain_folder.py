"""Folders in which nothing is declared: what the graph alone tells, and what is left to the one who compiles.

Tokens come from the data of exporters' packages, whose metadata is taken away here, and from plain loops.
"""

import json
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.cli import main
from genai_compiler.driver import Options
from genai_compiler.problem import Problem, errors
from genai_compiler.read.load import load_package
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.data import DATA, needs_data
from tests.lower.packages import Layer, Recipe, decoder
from tests.lower.plain_folders import STATED, merged, plain_folder, renamed, undeclared
from tests.real_packages import GREEDY, PACKAGES, cases, reliable
from tests.reference.plain_loop import greedy
from tools.fixtures.network import CONTEXT, VOCABULARY, concat_decoder, gqa_decoder

_ALONE = """
    og-llama og-llama-hidden og-llama-int4 og-llama-prune og-qwen2-fp16 og-hunyuan og-phi3long og-mistral-int4
    og092-gemma2 og-lfm2-int4 og-qwen3_5 og-qwen2_5_vl-int4 mobius-llama-og mobius-llama-og-cpu mobius-gpt2-og
    mobius-qwen2_moe-og mobius-qwen3_5_text-og mobius-qwen3_next-og mobius-jamba-og mobius-llama-meta
    mobius-bloom-meta mobius-bamba-meta mobius-deepseek_v2-meta mobius-llama-f16 mobius-llama-static
    mobius-gemma4-static og-gemma2 og-gpt_oss
"""
ALONE = _ALONE.split()
REFUSED = [
    ("og-llama-nohead", "no-logits", "export the decoder with its head"),
    ("og-llama-noembed", "no-embedding-stage", "export the decoder with its embedding"),
]


def model_config(name: str) -> Mapping[str, Any]:
    """What the checkpoint's own `config.json` would say: widths that the packages' data describe (INDEX.md)."""
    head = 16
    stated = {"vocab_size": 320, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": head}
    return {**stated, "max_position_embeddings": 128, "eos_token_id": 2}


def refused(folder: Path, graph: str | None = None) -> dict[str, Problem]:
    out = folder.with_name("refused")
    with pytest.raises(CompileError) as caught:
        compile_package(folder, out=out, options=Options(graph=graph))
    assert not out.exists()
    return {each.code: each for each in errors(caught.value.problems)}


def tokens(folder: Path, prompt: list[int], count: int, graph: str | None = None) -> list[int]:
    out = folder.with_name("out")
    compile_package(folder, out=out, options=Options(graph=graph, force=True))
    with genai_runtime.load(out, threads=1) as model:
        return model.generate(prompt, max_new_tokens=count, temperature=0, stop_on_eos=False).tokens


# ---- exporters' packages without their metadata ----------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize("name", ALONE)
def test_the_graph_alone_gives_the_expected_tokens(name: str, tmp_path: Path) -> None:
    folder = undeclared(PACKAGES / name, tmp_path / name, model_config(name))
    compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.describe()["dialect"] == "plain folder"
        for case in cases(name):
            wanted = reliable(name, case)
            assert model.generate(case["prompt"], max_new_tokens=16, **GREEDY).tokens[: len(wanted)] == wanted


@needs_data
@pytest.mark.parametrize(("name", "code", "words"), REFUSED)
def test_what_is_no_decoder_is_refused_with_its_reason(name: str, code: str, words: str, tmp_path: Path) -> None:
    told = refused(undeclared(PACKAGES / name, tmp_path / "p", model_config(name)))
    assert words in f"{told[code].what} {told[code].help}"


@needs_data
def test_tokenizer_and_end_tokens_come_along(tmp_path: Path) -> None:
    folder = undeclared(PACKAGES / "og-llama", tmp_path / "p", model_config("og-llama"))
    compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.generate("a b", max_new_tokens=2, temperature=0).text is not None
    assert "config.json eos_token_id" in " ".join(compile_package(folder, out=tmp_path / "out").notes)


# ---- structure, not names --------------------------------------------------------------------------------------------


@cache
def concat() -> ModelProto:
    return concat_decoder().proto()


CONCAT = {"vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "eos_token_id": 2}


@pytest.mark.parametrize("rename", [False, True], ids=["named", "numbered"])
@pytest.mark.parametrize("form", ["concat", "gqa"])
def test_plain_operators_and_an_attention_operator_alike(form: str, rename: bool, tmp_path: Path) -> None:
    """Caches joined by Concat, keys and values told apart by the softmax; port names say nothing."""
    model = concat() if form == "concat" else gqa_decoder().proto()
    named = plain_folder(tmp_path / "named", {"model.onnx": model}, CONCAT)
    wanted = greedy(named / "model.onnx", [1, 9, 14], 12)
    folder = plain_folder(tmp_path / "p", {"model.onnx": renamed(model)}, CONCAT) if rename else named
    assert tokens(folder, [1, 9, 14], 12) == wanted


def test_a_hidden_state_beside_the_logits_is_not_taken_for_them(tmp_path: Path) -> None:
    folder = plain_folder(tmp_path / "p", {"model.onnx": concat_decoder(hidden=True).proto()}, CONCAT)
    assert tokens(folder, [1, 9, 14], 6) == greedy(folder / "model.onnx", [1, 9, 14], 6)


def test_two_outputs_as_wide_as_the_vocabulary_are_left_to_the_document(tmp_path: Path) -> None:
    model = ModelProto.FromString(concat().SerializeToString())
    model.graph.node.append(helper.make_node("Neg", ["logits"], ["other"]))
    model.graph.output.append(helper.make_tensor_value_info("other", TensorProto.FLOAT, ["batch", "sequence", 64]))
    told = refused(plain_folder(tmp_path / "p", {"model.onnx": model}, CONCAT))["ambiguous-port"]
    assert "'logits', 'other'" in told.what
    assert "model.io.logits_output" in told.help


def test_two_inputs_that_look_into_the_vocabulary_are_left_to_the_document(tmp_path: Path) -> None:
    model = decoder(Recipe(extra_inputs={"shadow": (TensorProto.INT64, ["batch", "sequence"])}))
    model.graph.node.append(helper.make_node("Gather", ["embedding", "shadow"], ["shadowed"]))
    told = refused(plain_folder(tmp_path / "p", {"model.onnx": model}))["ambiguous-port"]
    assert "'input_ids', 'shadow'" in told.what
    assert "model.io.token_input" in told.help


def test_kinds_of_tokens_are_not_positions(tmp_path: Path) -> None:
    model = decoder(Recipe(extra_inputs={"kinds": (TensorProto.INT64, ["batch", "sequence"])}))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((2, 8), np.float32), "kind_table"))
    model.graph.node.append(helper.make_node("Gather", ["kind_table", "kinds"], ["kind"]))
    told = refused(plain_folder(tmp_path / "p", {"model.onnx": model}))["ambiguous-port"]
    assert "'kinds'" in told.what


def test_an_output_that_could_be_state_too_is_left_to_the_document(tmp_path: Path) -> None:
    model = ModelProto.FromString(concat().SerializeToString())
    model.graph.node.append(helper.make_node("Neg", ["present.1.key"], ["again"]))
    shape = ["batch", 2, "present_sequence", 16]
    model.graph.output.append(helper.make_tensor_value_info("again", TensorProto.FLOAT, shape))
    assert "again" in refused(plain_folder(tmp_path / "p", {"model.onnx": model}, CONCAT))["ambiguous-port"].what


def test_a_cache_that_grows_on_another_axis_is_refused(tmp_path: Path) -> None:
    """[batch, positions, heads, head size]: the runtime would count positions on the wrong axis."""
    model = ModelProto.FromString(concat().SerializeToString())
    graph = model.graph
    for port in (*graph.input, *graph.output):
        if port.name.startswith(("past", "present")):
            for dim, extent in zip(port.type.tensor_type.shape.dim, ("batch", port.name, 2, 16), strict=True):
                dim.Clear()
                setattr(dim, "dim_value" if isinstance(extent, int) else "dim_param", extent)
    for node in graph.node:
        node.input[:] = [f"{each}.turned" if each.startswith("past") else each for each in node.input]
        node.output[:] = [f"{each}.turned" if each.startswith("present") else each for each in node.output]
    turned = [
        helper.make_node("Transpose", [each.name], [f"{each.name}.turned"], perm=[0, 2, 1, 3])
        for each in graph.input
        if each.name.startswith("past")
    ]
    nodes = [*turned, *graph.node]
    nodes += [
        helper.make_node("Transpose", [f"{each.name}.turned"], [each.name], perm=[0, 2, 1, 3])
        for each in graph.output
        if each.name.startswith("present")
    ]
    del graph.node[:]
    graph.node.extend(nodes)
    assert "third axis" in refused(plain_folder(tmp_path / "p", {"model.onnx": model}, CONCAT))["ambiguous-port"].what


def test_an_input_without_a_part_is_refused(tmp_path: Path) -> None:
    model = decoder(Recipe(extra_inputs={"noise": (TensorProto.FLOAT, ["batch", 4, 4])}))
    model.graph.node.append(helper.make_node("Neg", ["noise"], ["negated"]))
    assert "'noise'" in refused(plain_folder(tmp_path / "p", {"model.onnx": model}))["unclaimed-input"].what


@pytest.mark.parametrize("shape", [[], [1]])
def test_how_many_positions_to_give_logits_of_is_all(shape: list[int], tmp_path: Path) -> None:
    """A number that only says where a slice starts from the end: 0 keeps everything, as a loop without it does."""
    model = ModelProto.FromString(concat().SerializeToString())
    plain = plain_folder(tmp_path / "plain", {"model.onnx": concat()}, CONCAT)
    model.graph.input.append(helper.make_tensor_value_info("kept", TensorProto.INT64, shape))
    last = next(node for node in model.graph.node if "logits" in node.output)
    numbers = {"kept_end": [2**63 - 1], "kept_axis": [1], "kept_shape": [1]}
    model.graph.initializer.extend(numpy_helper.from_array(np.array(v, np.int64), k) for k, v in numbers.items())
    at = list(model.graph.node).index(last)
    nodes = [
        helper.make_node("Neg", ["kept"], ["kept_negated"]),
        helper.make_node("Reshape", ["kept_negated", "kept_shape"], ["kept_start"]),
        helper.make_node("Slice", [last.input[0], "kept_start", "kept_end", "kept_axis"], ["kept_part"]),
    ]
    for step, node in enumerate(nodes):
        model.graph.node.insert(at + step, node)
    last.input[0] = "kept_part"
    folder = plain_folder(tmp_path / "p", {"model.onnx": model}, CONCAT)
    assert tokens(folder, [1, 9, 14], 8) == greedy(plain / "model.onnx", [1, 9, 14], 8)


# ---- a decoder merged of two -----------------------------------------------------------------------------------------


def test_a_merged_decoder_runs_in_a_plain_loop_and_is_refused_by_name(tmp_path: Path) -> None:
    """Both branches read the caches: nothing proves which value of the flag is for the prompt."""
    model = merged(decoder(Recipe(layers=(Layer(0, 2, 16),))))
    folder = plain_folder(tmp_path / "p", {"decoder_model_merged.onnx": model})
    session = onnxruntime.InferenceSession(folder / "decoder_model_merged.onnx", providers=["CPUExecutionProvider"])
    empty = np.zeros((1, 2, 0, 16), np.float32)
    feeds = {
        "input_ids": np.array([[3, 1]]),
        "attention_mask": np.ones((1, 2), np.int64),
        "use_past": np.array([False]),
    }
    feeds |= {"past_key_values.0.key": empty, "past_key_values.0.value": empty}
    assert session.run(["logits"], feeds)[0].shape == (1, 2, 24)
    told = refused(folder)["unsupported-package-class"]
    assert "'use_past'" in told.what
    assert "between two networks" in told.what
    assert "decoder with past" in told.help


# ---- several graphs --------------------------------------------------------------------------------------------------


def test_several_variants_are_listed_and_one_is_chosen(tmp_path: Path) -> None:
    """The hub's layout: text files above, variants of one network in `onnx/`."""
    other = decoder(Recipe(layers=(Layer(0, 2, 16), Layer(1, 2, 16))))
    variants = {"onnx/model.onnx": decoder(Recipe(layers=(Layer(0, 2, 16),))), "onnx/model_q4.onnx": other}
    folder = plain_folder(tmp_path / "p", variants)
    told = refused(folder)["several-graphs"]
    assert "onnx/model.onnx, onnx/model_q4.onnx" in told.what
    assert "--graph onnx/model.onnx" in told.help
    for name in variants:
        assert tokens(folder, [3, 1, 7], 8, name) == greedy(folder / name, [3, 1, 7], 8)


def test_the_command_line_takes_the_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = plain_folder(tmp_path / "p", {"a.onnx": decoder(Recipe()), "b.onnx": decoder(Recipe())})
    assert main([str(folder), "-q", "-o", str(tmp_path / "out")]) == 2
    assert "several-graphs" in capsys.readouterr().err
    assert main([str(folder), "-q", "-o", str(tmp_path / "out"), "--graph", "b.onnx"]) == 0
    facts = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert "b.onnx" in json.dumps(facts)
    assert "a.onnx" not in json.dumps(facts)


@pytest.mark.parametrize(("name", "code"), [("c.onnx", "missing-file"), ("../a.onnx", "outside-package")])
def test_a_choice_that_is_not_there_is_refused(name: str, code: str, tmp_path: Path) -> None:
    folder = plain_folder(tmp_path / "p", {"a.onnx": decoder(Recipe())})
    assert "a.onnx" in refused(folder, name)[code].help


@needs_data
def test_a_choice_beside_metadata_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        compile_package(DATA / "realpkgs" / "og-llama", out=tmp_path / "out", options=Options(graph="model.onnx"))
    assert [each.code for each in caught.value.problems] == ["graph-declared"]


# ---- config.json and generation_config.json --------------------------------------------------------------------------


def test_false_numbers_of_the_configuration_are_told_with_their_lines(tmp_path: Path) -> None:
    config = {**STATED, "vocab_size": 99, "num_hidden_layers": 7, "num_key_value_heads": 5, "head_dim": 3}
    folder = plain_folder(tmp_path / "p", {"model.onnx": decoder(Recipe())}, config)
    told = {each.path: each for each in compile_package(folder, out=tmp_path / "out").problems}
    assert {"vocab_size", "num_hidden_layers", "num_key_value_heads", "head_dim"} <= set(told)
    for key in ("vocab_size", "num_hidden_layers"):
        assert told[key].code == "config-contradicts-graph"
        line = (folder / "config.json").read_text().splitlines()[told[key].where.line - 1]
        assert f'"{key}"' in line


def test_what_the_graph_leaves_open_comes_from_the_configuration(tmp_path: Path) -> None:
    """Older configurations state the head size only as width over heads."""
    graph = decoder(Recipe(layers=(Layer(0, 2, 16),), symbolic_heads=True))
    folder = plain_folder(
        tmp_path / "p", {"model.onnx": graph}, {**STATED, "n_head": 2, "n_embd": 32, "n_positions": 9}
    )
    assert tokens(folder, [3, 1, 7], 6) == greedy(folder / "model.onnx", [3, 1, 7], 6)


def test_generation_config_gives_the_defaults(tmp_path: Path) -> None:
    said = {
        "do_sample": True,
        "temperature": 0.5,
        "top_k": 7,
        "top_p": 0.9,
        "repetition_penalty": 1.5,
        "eos_token_id": [5],
    }
    folder = plain_folder(tmp_path / "p", {"model.onnx": decoder(Recipe())}, generation=said)
    notes = compile_package(folder, out=tmp_path / "out").notes
    facts = json.dumps(json.loads((tmp_path / "out" / "manifest.json").read_text()))
    for each in ('"temperature": 0.5', '"top_k": 7', '"top_p": 0.9', '"repetition_penalty": 1.5'):
        assert each in facts
    ends = next(each for each in notes if each.startswith("end tokens"))
    assert "5 (generation_config.json eos_token_id)" in ends
    assert "2 (config.json eos_token_id)" in ends


@pytest.mark.parametrize(
    ("said", "code", "path"),
    [
        ({"num_beams": 4}, "unsupported-search", "num_beams"),
        ({"temperature": -1.0}, "bad-value", "temperature"),
        ({"top_k": "many"}, "wrong-type", "top_k"),
    ],
)
def test_what_generation_config_asks_for_in_vain_is_refused(
    said: dict[str, Any], code: str, path: str, tmp_path: Path
) -> None:
    folder = plain_folder(tmp_path / "p", {"model.onnx": decoder(Recipe())}, generation=said)
    told = refused(folder)[code]
    assert (told.where.file, told.path, told.where.line) == ("generation_config.json", path, 2)


def test_rules_that_the_sampler_does_not_know_are_told(tmp_path: Path) -> None:
    said = {"suppress_tokens": [3], "min_p": 0.1, "typical_p": 1.0, "transformers_version": "4"}
    folder = plain_folder(tmp_path / "p", {"model.onnx": decoder(Recipe())}, generation=said)
    told = {each.path for each in compile_package(folder, out=tmp_path / "out").problems if each.code == "ignored-key"}
    assert told == {"suppress_tokens", "min_p"}


def test_a_configuration_that_only_python_reads_counts_all_the_same(tmp_path: Path) -> None:
    folder = plain_folder(tmp_path / "p", {"model.onnx": decoder(Recipe())})
    (folder / "config.json").write_text('{"max_position_embeddings": 31, "time_step_limit": [0.0, Infinity]}')
    compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.describe()["context_length"] == 31


def test_broken_json_is_told_with_its_line(tmp_path: Path) -> None:
    folder = plain_folder(tmp_path / "p", {"model.onnx": decoder(Recipe())})
    (folder / "config.json").write_text('{\n "vocab_size" 3}')
    told = refused(folder)
    assert {each.where.line for each in told.values()} == {2}


def test_a_graph_named_in_a_folder_without_any_config_is_told_what_is_missing(tmp_path: Path) -> None:
    """There is no file that could say which graphs there are, so none is said to."""
    shutil.copy(PACKAGES / "og-llama" / "model.onnx", tmp_path)
    with pytest.raises(CompileError) as refused:
        load_package(tmp_path, graph=("model.onnx",))
    assert "missing-file" in {each.code for each in refused.value.problems}
