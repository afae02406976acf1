"""Statements of a package's metadata that its graphs deny: each is told with its place, in one run.

The rows are the false and risky statements of the reference data (exporter-dialects, "Wrong or risky statements"; and
genai-config, section 6.2 and 6.3); docs/traps.md names the tests of all of them, here and elsewhere. The data's
packages say themselves which of these they contain.
"""

import shutil
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import compile_package
from genai_compiler.driver import check_package
from genai_compiler.problem import Problem, Severity
from genai_compiler.read.places import format_path
from genai_compiler.reference_load import reference_refusals
from genai_runtime.adapters.audio.wav import wav_header
from onnx import TensorProto, helper, load, numpy_helper, save

from tests.data import needs_data
from tests.lower.hybrids import move_logits, recomputed
from tests.lower.packages import Layer, Recipe, decoder, outside, write_package
from tests.real_packages import PACKAGES
from tests.traps.loop import plain_tokens
from tools.fixtures.network import CONTEXT, VOCABULARY, concat_decoder, gqa_decoder


def told(folder: Path, code: str = "config-contradicts-graph") -> dict[str, Problem]:
    return {each.path: each for each in check_package(folder) if each.code == code}


def package(folder: Path, config: dict[str, Any], recipe: Recipe | None = None) -> Path:
    return write_package(folder, recipe or Recipe(), config)


# ---- lengths ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["concat", "gqa"])
def test_a_context_longer_than_the_tables_of_positions(form: str, tmp_path: Path) -> None:
    """And the graph does fail there, asked by ONNX Runtime itself."""
    model = (concat_decoder() if form == "concat" else gqa_decoder()).proto()
    sizes = {"head_size": 16, "num_key_value_heads": 2, "num_hidden_layers": 2}
    folder = write_package(
        tmp_path, model, {"model": {"context_length": CONTEXT + 1, "vocab_size": VOCABULARY, "decoder": sizes}}
    )
    found = told(folder)["model.context_length"]
    assert str(CONTEXT) in found.what
    assert (found.severity, found.where.line > 0) == (Severity.WARNING, True)
    if form == "concat":
        session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
        past = [each.name for each in session.get_inputs() if each.name.startswith("past")]
        with pytest.raises(Exception, match="out of"):
            session.run(None, feeds(CONTEXT + 1, past))
    write_package(tmp_path, model, {"model": {"context_length": CONTEXT, "vocab_size": VOCABULARY, "decoder": sizes}})
    assert told(folder) == {}


@pytest.mark.parametrize("form", ["concat", "gqa"])
@pytest.mark.parametrize(
    ("stated", "elsewhere", "code"),
    [
        (None, None, "missing-context-length"),
        (None, 4 * CONTEXT, "missing-context-length"),
        (4 * CONTEXT, None, "config-contradicts-graph"),
        (CONTEXT, None, ""),
    ],
)
def test_the_table_of_positions_ends_a_row_and_no_run_fails(
    form: str, stated: int | None, elsewhere: int | None, code: str, tmp_path: Path
) -> None:
    """A misspelt key states nothing: no length is said to contradict the graph then."""
    model = (concat_decoder() if form == "concat" else gqa_decoder()).proto()
    sizes = {"head_size": 16, "num_key_value_heads": 2, "num_hidden_layers": 2}
    length: dict[str, Any] = {"context_length": stated or ...} | ({} if stated else {"contex_length": CONTEXT})
    folder = write_package(
        tmp_path / "p", model, {"model": {**length, "vocab_size": VOCABULARY, "decoder": sizes}, "search": {}}
    )
    if elsewhere:
        (folder / "config.json").write_text(f'{{"max_position_embeddings": {elsewhere}}}')
    problems = compile_package(folder, out=tmp_path / "out").problems
    found = {each.code: each for each in problems if each.path == "model.context_length"}
    assert set(found) == ({code} if code else set())
    assert all(f"{CONTEXT} rows" in each.what and "4096" not in each.what for each in found.values())
    assert ("unknown-key" in {each.code for each in problems}) == (stated is None)
    with genai_runtime.load(tmp_path / "out", threads=1) as made:
        row = made.generate([1, 2, 3], max_new_tokens=2 * CONTEXT, stop_on_eos=False)
        assert (len(row.tokens), row.finish_reason) == (CONTEXT - 3, "context")
        assert len(made.generate([1, 2, 3], stop_on_eos=False).tokens) == CONTEXT - 3


def test_positions_that_the_graph_clips_have_no_end(tmp_path: Path) -> None:
    model = concat_decoder().proto()
    assert model.graph.input[2].name == "position_ids"
    for node in model.graph.node:
        for at, name in enumerate(node.input):
            if name == "position_ids":
                node.input[at] = "clipped"
    limits = [numpy_helper.from_array(np.array(each), name) for each, name in ((0, "least"), (CONTEXT - 1, "most"))]
    model.graph.initializer.extend(limits)
    model.graph.node.insert(0, helper.make_node("Clip", ["position_ids", "least", "most"], ["clipped"]))
    sizes = {"head_size": 16, "num_key_value_heads": 2, "num_hidden_layers": 2}
    more = {"context_length": 2 * CONTEXT, "vocab_size": VOCABULARY, "decoder": sizes}
    folder = write_package(tmp_path / "p", model, {"model": more})
    assert told(folder) == {}
    compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as made:
        assert len(made.generate([1, 2], max_new_tokens=CONTEXT + 9, stop_on_eos=False).tokens) == CONTEXT + 9


def feeds(length: int, past: list[str]) -> dict[str, Any]:
    empty = np.zeros((1, 2, 0, 16), np.float32)
    ids = np.ones((1, length), np.int64)
    return {
        "input_ids": ids,
        "attention_mask": ids,
        "position_ids": np.arange(length)[None],
        **dict.fromkeys(past, empty),
    }


@needs_data
@pytest.mark.parametrize(
    ("name", "rows"),
    [("mobius-llama-og", 256), ("mobius-gpt2-og", 128), ("mobius-qwen2_5_vl-og", 256), ("og-llama", None)],
)
def test_the_floor_that_an_exporter_writes_as_context_length(name: str, rows: int | None) -> None:
    found = told(PACKAGES / name).get("model.context_length")
    assert (found is None) is (rows is None)
    assert found is None or f"{rows} rows" in found.what


# ---- 25, 28: names ---------------------------------------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize("name", ["og-qwen2_5_vl-int4", "og-qwen3_5", "og-llama"])
def test_tables_that_operators_of_rotation_take(name: str, tmp_path: Path) -> None:
    """Positions that go into such an operator look into the tables beside them, of 256 rows here."""
    folder = shutil.copytree(PACKAGES / name, tmp_path / "p")
    config = folder / "genai_config.json"
    assert "model.context_length" not in told(folder)
    config.write_text(config.read_text("utf-8").replace('"context_length": 256', '"context_length": 257'))
    assert "256 rows" in told(folder)["model.context_length"].what


@needs_data
def test_a_length_that_nobody_states_is_that_of_the_table(tmp_path: Path) -> None:
    """ONNX Runtime fails where the decoder, run bare, is given position 64; the request is refused before it runs."""
    package = PACKAGES / "mobius-whisper-meta"
    made = compile_package(package, out=tmp_path / "out")
    (found,) = [each for each in made.problems if each.path == "model.max_sequence_length"]
    assert (found.code, "has 64 rows" in found.what) == ("missing-context-length", True)
    session = onnxruntime.InferenceSession(package / "decoder" / "model.onnx")
    feeds = {
        each.name: np.zeros([n if isinstance(n, int) else 1 for n in each.shape], np.float32)
        for each in session.get_inputs()
        if each.type == "tensor(float)"
    }
    one = {"decoder_input_ids": np.array([[5]])}
    session.run(None, {**feeds, **one, "position_ids": np.array([[63]])})
    with pytest.raises(Exception, match="idx=64"):
        session.run(None, {**feeds, **one, "position_ids": np.array([[64]])})
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        silence = wav_header(1, 16000, 0)
        options = {"temperature": 0, "stop_on_eos": False}
        assert len(model.generate([1, 5], audio=[silence], **options).tokens) == 62
        with pytest.raises(genai_runtime.RequestError, match="context-exceeded"):
            model.generate([5] * 65, audio=[silence], **options)


def test_25_positions_that_are_named_and_not_there(tmp_path: Path) -> None:
    found = told(package(tmp_path, {"model": {"decoder": {"inputs": {"position_ids": "position_ids"}}}}))
    assert "'position_ids'" in found["model.decoder.inputs.position_ids"].what


def test_25_positions_that_are_there_and_not_named_are_fed(tmp_path: Path) -> None:
    model = decoder(Recipe(extra_inputs={"position_ids": (TensorProto.INT64, ["batch", "sequence"])}))
    model.graph.node.append(helper.make_node("Shape", ["position_ids"], ["places"]))
    assert check_package(write_package(tmp_path, model, {})) == check_package(package(tmp_path / "p", {}))


@pytest.mark.parametrize("stated", [{}, {"input_ids": "input_ids"}])
def test_25_positions_that_are_fed_count(stated: dict[str, str], tmp_path: Path) -> None:
    """Each token gets an entry of a table by its position: equal to a plain loop that counts them."""
    model = decoder(Recipe(op="attention", extra_inputs={"position_ids": (TensorProto.INT64, ["batch", "sequence"])}))
    table = np.random.default_rng(8).normal(size=(64, 8)).astype(np.float32) * 2
    model.graph.initializer.append(numpy_helper.from_array(table, "places"))
    nodes = list(model.graph.node)
    at = next(at for at, each in enumerate(nodes) if "embedding" in each.input)
    nodes[at].output[0] = "words"
    placed = helper.make_node("Gather", ["places", "position_ids"], ["placed"])
    nodes[at + 1 : at + 1] = [placed, helper.make_node("Add", ["words", "placed"], ["x.0"])]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    write_package(tmp_path / "p", model, {"model": {"decoder": {"inputs": stated}}})
    compile_package(tmp_path / "p", out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as loaded:
        for prompt in ([5], [3, 9, 11, 4]):
            wanted = plain_tokens(tmp_path / "p" / "model.onnx", prompt, 12)
            made = loaded.generate(prompt, max_new_tokens=12, temperature=0, stop_on_eos=False).tokens
            assert made == wanted
    assert len(set(wanted)) > 2


def test_names_of_state_that_the_graph_has_not(tmp_path: Path) -> None:
    found = told(package(tmp_path, {"model": {"decoder": {"inputs": {"past_conv_names": "conv.%d"}}}}))
    assert "'conv.%d'" in found["model.decoder.inputs.past_conv_names"].what


@pytest.mark.parametrize("layers", [0, 99, 2])
def test_28_layers_that_are_not_there(layers: int, tmp_path: Path) -> None:
    found = told(package(tmp_path, {"model": {"decoder": {"num_hidden_layers": layers}}}))
    assert ("model.decoder.num_hidden_layers" in found) is (layers > 0)


@pytest.mark.parametrize(("key", "false"), [("num_key_value_heads", 3), ("head_size", 5)])
def test_27_extents_of_caches(key: str, false: int, tmp_path: Path) -> None:
    found = told(package(tmp_path, {"model": {"decoder": {key: false}}}))[f"model.decoder.{key}"]
    assert str(false) in found.what


def test_every_lie_is_told_in_one_run(tmp_path: Path) -> None:
    lies = {"num_key_value_heads": 3, "head_size": 5, "num_hidden_layers": 7, "inputs": {"position_ids": "places"}}
    window = {"window_size": 9, "slide_inputs": False, "slide_key_value_cache": False}
    folder = package(tmp_path, {"model": {"vocab_size": 20, "decoder": {**lies, "sliding_window": window}}})
    assert set(told(folder)) == {
        "model.vocab_size",
        "model.decoder.num_key_value_heads",
        "model.decoder.head_size",
        "model.decoder.num_hidden_layers",
        "model.decoder.inputs.position_ids",
        "model.decoder.sliding_window",
    }


def test_no_weight_is_read_before_the_lies_are_told(tmp_path: Path) -> None:
    """The weights' file holds no numbers at all, only its length."""
    folder = package(tmp_path, {"model": {"decoder": {"head_size": 5}}}, Recipe(layers=(Layer(0, 4, 64),)))
    save(outside(load(folder / "model.onnx"), "weights.bin"), folder / "model.onnx")
    size = (folder / "weights.bin").stat().st_size
    assert size >= 4 * 8 * 256 * 4
    (folder / "weights.bin").write_bytes(b"\xff" * size)
    assert "model.decoder.head_size" in told(folder)


def test_33_a_search_that_keeps_one_token(tmp_path: Path) -> None:
    search = {"do_sample": True, "top_k": 0, "top_p": 0.0}
    assert "search.top_p" in told(package(tmp_path, {"search": search}), "config-read-as")


# ---- numbers and names of decoders that have no attention -----------------------------------------------------------


def test_a_number_of_heads_that_is_none_and_caches_that_are_not_there(tmp_path: Path) -> None:
    """A decoder of states alone, as an exporter writes it: -42 heads, and templates that match no port."""
    model = decoder(Recipe(op="attention"))
    graph = model.graph
    attention = next(each for each in graph.node if each.op_type == "Attention")
    graph.node.append(helper.make_node("Identity", ["qs.0"], ["a.0"]))
    graph.node.insert(list(graph.node).index(attention), graph.node.pop())
    graph.node.remove(attention)
    for ports in (graph.input, graph.output):
        for each in [port for port in ports if "past" in port.name or "present" in port.name]:
            ports.remove(each)
    with_state = _with_memory(model)
    names = {"inputs": {f"past_{half}_names": f"past_key_values.%d.{half}" for half in ("key", "value")}}
    lies = {"num_attention_heads": -42, "num_key_value_heads": -42, "head_size": -1, "num_hidden_layers": 2, **names}
    folder = write_package(tmp_path / "p", with_state, {"model": {"type": "mamba2", "decoder": lies}})
    found = {(each.severity.value, each.path) for each in check_package(folder) if each.code != "missing-file"}
    assert found == {("warning", f"model.decoder.{key}") for key in lies if key not in ("inputs",)} | {
        ("warning", f"model.decoder.inputs.past_{half}_names") for half in ("key", "value")
    }
    compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model_of:
        for prompt in ([3, 7, 11], [5]):
            made = model_of.generate(prompt, max_new_tokens=8, temperature=0, stop_on_eos=False).tokens
            assert made == recomputed(folder / "model.onnx", prompt, 8)


def _with_memory(model: Any) -> Any:
    """The model with a state whose names differ in more than one word between the two sides."""
    graph = model.graph
    graph.node.append(helper.make_node("ReduceSum", ["x.0", "axis"], ["added"], keepdims=0))
    graph.node.append(helper.make_node("Unsqueeze", ["added", "two"], ["column"]))
    graph.node.append(helper.make_node("Add", ["past_states.0.ssm", "column"], ["present.0.ssm_state"]))
    graph.node.append(helper.make_node("ReduceSum", ["present.0.ssm_state", "two"], ["summed"], keepdims=0))
    graph.node.append(helper.make_node("MatMul", ["summed", "head"], ["told"]))
    graph.node.append(helper.make_node("Unsqueeze", ["told", "axis"], ["told.all"]))
    graph.initializer.append(numpy_helper.from_array(np.array([2]), "two"))
    graph.input.append(helper.make_tensor_value_info("past_states.0.ssm", TensorProto.FLOAT, ["batch", 8, 4]))
    graph.output.append(helper.make_tensor_value_info("present.0.ssm_state", TensorProto.FLOAT, ["batch", 8, 4]))
    move_logits(model, "told.all", TensorProto.FLOAT)
    return model


# ---- types that another runtime refuses ------------------------------------------------------------------------------

_REFUSED = """
    gpt_neox gpt_oss qwen2_moe qwen3_moe qwen3_next deepseek_v2 deepseek_v3 bloom opt cohere stablelm starcoder2 falcon
    llama4_text bart t5 marian mamba2
"""


@pytest.mark.parametrize("kind", _REFUSED.split())
def test_types_that_the_reference_refuses_run_as_their_graphs_say(kind: str, tmp_path: Path) -> None:
    folder = package(tmp_path, {"model": {"type": kind}})
    assert [each.code for each in check_package(folder)] == ["missing-file"]
    assert any(f"model.type {kind!r}" in each.what for each in reference_refusals(folder))


@pytest.mark.parametrize("key", ["key_cache.0", "token_type_ids", "pixel_values", "decoder_input_ids"])
def test_keys_that_the_references_parser_refuses_are_warnings(key: str, tmp_path: Path) -> None:
    folder = package(tmp_path, {"model": {"decoder": {"inputs": {key: key}}}})
    path = format_path(("model", "decoder", "inputs", key))
    assert path in told(folder, "unknown-key")
    assert any(f"{key!r} is no key" in each.what for each in reference_refusals(folder))


# ---- 40, 48, 49, 53: keys, folders, devices --------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["decoder_start_token_id", "sep_token_id"])
def test_40_ids_that_nothing_uses(key: str, tmp_path: Path) -> None:
    assert f"model.{key}" in told(package(tmp_path, {"model": {key: 3}}), "ignored-key")


def test_40_a_penalty_that_nothing_applies(tmp_path: Path) -> None:
    assert "search.diversity_penalty" in told(package(tmp_path, {"search": {"diversity_penalty": 0.5}}), "ignored-key")


def test_48_packages_below_a_folder_are_listed(tmp_path: Path) -> None:
    for name in ("cpu/int4", "cuda"):
        package(tmp_path / "hub" / name, {})
    (tmp_path / "hub" / "config.json").write_text("{}")
    (found,) = check_package(tmp_path / "hub")
    assert found.code == "no-package"
    assert "cuda, cpu/int4" in found.what


def test_49_a_package_of_component_variants_is_named(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"component": "sha256:00"}')
    assert [each.code for each in check_package(tmp_path)] == ["unsupported-package-class"]


def test_53_a_graph_for_one_device(tmp_path: Path) -> None:
    model = decoder(Recipe())
    model.graph.node.append(helper.make_node("EPContext", [], ["blob"], domain="com.microsoft"))
    found = check_package(write_package(tmp_path, model, {}))
    assert "device-graph" in {each.code for each in found}


def test_a_refusal_names_every_lie_too(tmp_path: Path) -> None:
    """An error does not hide the warnings beside it."""
    config = {"model": {"vocab_size": 20, "decoder": {"head_size": 5, "outputs": {"logits": "scores"}}}}
    codes = {each.code for each in check_package(package(tmp_path, config))}
    assert {"no-logits", "config-contradicts-graph"} <= codes
