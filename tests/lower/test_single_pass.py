"""Encoders and classifiers alone: one call, and what is made of its outputs; nothing declared, or by a version 1 file.

Values come from the exporters' data, from the bare graph, and from the arithmetic of the pooling.
"""

import io
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.convert import convert_package
from genai_compiler.driver import Compiled, Options
from genai_runtime.cli import main
from genai_runtime.tokenizer import Tokenizer
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.conftest import FIXTURES
from tests.data import needs_data
from tests.lower.plain_folders import plain_folder, renamed, undeclared
from tests.lower.test_plain_folder import model_config
from tests.real_packages import PACKAGES, SINGLE, encoder_case

VOCABULARY, WIDTH = 30, 6
STATED = {"vocab_size": VOCABULARY, "max_position_embeddings": 32, "architectures": ["SomeModel"]}
Array = np.ndarray[Any, np.dtype[Any]]


def encoder(extra: Sequence[str] = (), head: int = 0) -> ModelProto:
    """ids, mask and kinds int64 [rows, n] -> float32 [rows, n, 6]: every position sees those that the mask shows.

    extra: further outputs, "second" [rows, n, 6]. head: a classifier's outputs instead, [rows, head].
    """
    random = np.random.default_rng(3)
    held = {
        "words": random.normal(0, 1, (VOCABULARY, WIDTH)),
        "kinds_table": random.normal(0, 1, (2, WIDTH)),
        "mix": random.normal(0, 1, (WIDTH, WIDTH)),
        "head": random.normal(0, 1, (WIDTH, max(head, 1))),
        "hidden": np.array(-1e4),
        "one": np.array(1.0),
    }
    weights = [numpy_helper.from_array(np.asarray(each, np.float32), name) for name, each in held.items()]
    weights.append(numpy_helper.from_array(np.array([1], np.int64), "axis"))
    nodes = [
        helper.make_node("Gather", ["words", "ids"], ["found"]),
        helper.make_node("Gather", ["kinds_table", "kinds"], ["of_kind"]),
        helper.make_node("Add", ["found", "of_kind"], ["x"]),
        helper.make_node("MatMul", ["x", "mix"], ["queries"]),
        helper.make_node("Transpose", ["x"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["queries", "turned"], ["scores"]),
        helper.make_node("Cast", ["mask"], ["shown"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["one", "shown"], ["left_out"]),
        helper.make_node("Mul", ["left_out", "hidden"], ["bias"]),
        helper.make_node("Unsqueeze", ["bias", "axis"], ["bias_rows"]),
        helper.make_node("Add", ["scores", "bias_rows"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["seen"], axis=-1),
        helper.make_node("MatMul", ["seen", "x"], ["states"]),
    ]
    value = helper.make_tensor_value_info
    outputs = [value("states", 1, ["rows", "n", WIDTH])]
    if head:
        nodes.append(helper.make_node("ReduceMean", ["states"], ["middle"], axes=[1], keepdims=0))
        nodes.append(helper.make_node("MatMul", ["middle", "head"], ["classes"]))
        outputs = [value("classes", 1, ["rows", head])]
    for each in extra:
        nodes.append(helper.make_node("Neg", ["states"], [each]))
        outputs.append(value(each, 1, ["rows", "n", WIDTH]))
    inputs = [value(each, 7, ["rows", "n"]) for each in ("ids", "mask", "kinds")]
    graph = helper.make_graph(nodes, "encoder", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def written(folder: Path, model: ModelProto, stated: Mapping[str, Any] = STATED, **files: Any) -> Path:
    """A folder with a graph; files: of sentence modules, by path with `__` for `/`."""
    made = plain_folder(folder, {"onnx/model.onnx": model}, stated)
    for name, data in files.items():
        file = made / f"{name.replace('__', '/')}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(data))
    return made


def modules(*kinds: str) -> list[dict[str, Any]]:
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize", "Dense": "2_Dense"}
    return [
        {"idx": at, "name": str(at), "path": paths[kind], "type": f"sentence_transformers.models.{kind}"}
        for at, kind in enumerate(kinds)
    ]


def mode(name: str) -> dict[str, Any]:
    """A pooling's `config.json` as hub folders have it."""
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    return {"word_embedding_dimension": WIDTH, **{f"pooling_mode_{each}": each == name for each in modes}}


def compiled(folder: Path) -> Compiled:
    return compile_package(folder, out=folder.with_name("out"), options=Options(force=True))


def loaded(folder: Path) -> genai_runtime.Model:
    compiled(folder)
    return genai_runtime.load(folder.with_name("out"), threads=1)


def bare(model: ModelProto, ids: Array, mask: Array) -> Array:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (states,) = session.run(["states"], {"ids": ids, "mask": mask, "kinds": np.zeros_like(ids)})
    found: Array = states
    return found


IDS = np.array([[4, 9, 2, 0], [7, 1, 0, 0]])
MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 0]])

# ---- exporters' packages ---------------------------------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize("name", SINGLE)
def test_an_exporter_s_encoder_needs_no_metadata(name: str, tmp_path: Path) -> None:
    inputs, wanted = encoder_case(name)
    with loaded(undeclared(PACKAGES / name, tmp_path / "p", model_config(name))) as model:
        assert model.describe()["dialect"] == "plain folder"
        result = model.run(inputs)
        for key, value in wanted.items():
            np.testing.assert_allclose(result[key], value, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(result.profile("features"), value, rtol=1e-4, atol=1e-5)


@needs_data
def test_a_text_is_encoded_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The data's own ids of that text go through the bare graph."""
    package = PACKAGES / "mobius-bert-og"
    compile_package(package, out=tmp_path / "out")
    text = json.loads((package / "expected.json").read_text())["tokenizer_check"]
    ids = np.array([text["tokenizers"]])
    session = onnxruntime.InferenceSession(package / "model.onnx", providers=["CPUExecutionProvider"])
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    (wanted,) = session.run(None, feeds)
    run = [str(tmp_path / "out"), "--task", "features", "--prompt", text["text"]]
    assert main([*run, "--json"]) == 0
    np.testing.assert_allclose(json.loads(capsys.readouterr().out)["value"], wanted, rtol=1e-4, atol=1e-5)
    assert main([*run, "--save", str(tmp_path / "a.npy")]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "a.npy"), wanted, rtol=1e-4, atol=1e-5)


@needs_data
def test_the_command_needs_no_name_of_an_only_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data's own ids of that text, by option and by standard input; an array, JSON in a file and on the screen."""
    package = PACKAGES / "mobius-bert-og"
    compile_package(package, out=tmp_path / "out")
    text = json.loads((package / "expected.json").read_text())["tokenizer_check"]
    ids = np.array([text["tokenizers"]])
    session = onnxruntime.InferenceSession(package / "model.onnx", providers=["CPUExecutionProvider"])
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    (wanted,) = session.run(None, feeds)
    run = str(tmp_path / "out")
    assert main([run, "--prompt", text["text"], "-o", str(tmp_path / "a.npy")]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "a.npy"), wanted, rtol=1e-4, atol=1e-5)
    assert main([run, "--tokens", ",".join(map(str, text["tokenizers"])), "-o", str(tmp_path / "a.json")]) == 0
    assert capsys.readouterr().out == ""
    held = json.loads((tmp_path / "a.json").read_text())
    assert (held["profile"], held["kind"]) == ("features", "embedding")
    np.testing.assert_allclose(held["value"], wanted, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text["text"].encode())))
    assert main([run]) == 0
    np.testing.assert_allclose(json.loads(capsys.readouterr().out), wanted, rtol=1e-4, atol=1e-5)


@needs_data
@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("mobius-bert-og", ["--prompt", "a", "-n", "3", "--width", "8"], "-n, --width: this"),
        ("mobius-bert-og", ["--chat", "a"], "--chat: this package makes neither text nor pictures"),
        ("mobius-bert-og", ["--prompt", "a", "-o", "a.png"], "would hold an .npy file"),
        ("mobius-vit-og", ["--prompt", "a"], "no-prompt-input"),
        ("mobius-vit-og", ["--image", "a.png"], "no-image-input"),
        ("mobius-vit-og", ["--input", "pixel_value=1"], "inputs: pixel_values"),
    ],
)  # fmt: skip
def test_what_an_encoder_is_asked_for_in_vain_is_said(
    name: str,
    given: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compile_package(PACKAGES / name, out=tmp_path / "out")
    (tmp_path / "a.png").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert main([str(tmp_path / "out"), *given]) == 2
    assert words in capsys.readouterr().err


def test_of_several_profiles_one_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"modules": modules("Transformer", "Pooling"), "1_Pooling__config": mode("mean_tokens")}
    compiled(written(tmp_path / "p", encoder(), **files))
    assert main([str(tmp_path / "out"), "--tokens", "4,9,2"]) == 2
    assert "add --task embedding or --task features" in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["", "words"])
def test_without_a_prompt_it_says_what_it_wants(
    typed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoder of tokens and marks of its own: nothing on standard input is no prompt."""
    compile_package(FIXTURES / "tiny-embedder-v2", out=tmp_path / "out")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
    assert main([str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    if typed:
        assert "missing-input: input 'application.attention_mask'" in told
        return
    assert "empty-prompt: the package makes its result of a prompt, and was given none" in told
    assert (
        "--prompt TEXT or --tokens 1,2,3, or a text on standard input; with it, by --input NAME=VALUE: attention_mask"
        in told
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--tokens", "9" * 20], "bad-token: no such token ids"),
        (["--prompt", ""], "empty-prompt"),
        (["--input", "mask=" + "[" * 100_000], "bad-value: input 'mask' can't be read"),
        (["--input", "mask={folder}/huge.npy"], "bad-value: input 'mask' can't be read"),
    ],
)
def test_values_that_nothing_can_hold_are_refused(
    given: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id of more than 64 bits, no id at all, lists deeper than Python's own, an array whose header says 2^60."""
    with (tmp_path / "huge.npy").open("wb") as file:
        header = {"descr": "<i8", "fortran_order": False, "shape": (1 << 60,)}
        np.lib.format.write_array_header_1_0(file, header)
    monkeypatch.setattr(Tokenizer, "encode", lambda *_: [])
    shutil.copy(FIXTURES / "tiny-gqa-v1" / "tokenizer.json", written(tmp_path / "p", encoder()) / "tokenizer.json")
    compiled(tmp_path / "p")
    given = [each.replace("{folder}", str(tmp_path)) for each in given]
    assert main([str(tmp_path / "out"), *given]) == 2
    assert words in capsys.readouterr().err


def test_several_outputs_go_into_a_json_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = encoder(extra=("second",))
    compiled(written(tmp_path / "p", model))
    ids = IDS[:1, :3]
    assert main([str(tmp_path / "out"), "--tokens", "4,9,2", "-o", str(tmp_path / "a.npy")]) == 2
    assert "name a .json file" in capsys.readouterr().err
    assert main([str(tmp_path / "out"), "--tokens", "4,9,2", "-o", str(tmp_path / "a.json")]) == 0
    held = json.loads((tmp_path / "a.json").read_text())["value"]
    wanted = bare(model, ids, np.ones_like(ids))
    np.testing.assert_allclose(held["states"], wanted, atol=1e-5)
    np.testing.assert_allclose(held["second"], -wanted, atol=1e-5)


# ---- inputs ----------------------------------------------------------------------------------------------------------


def test_masks_and_kinds_have_their_usual_values(tmp_path: Path) -> None:
    model = encoder()
    with loaded(written(tmp_path / "p", model)) as found:
        ids = IDS[:1, :3]
        np.testing.assert_allclose(found.run({"ids": ids})["states"], bare(model, ids, np.ones_like(ids)), atol=1e-6)
        both = found.run({"ids": IDS, "mask": MASK})["states"]
        np.testing.assert_allclose(both, bare(model, IDS, MASK), atol=1e-6)
        np.testing.assert_allclose(both[0, :3], found.run({"ids": ids})["states"][0], atol=1e-5)


def test_ports_are_told_by_the_graph_not_by_name(tmp_path: Path) -> None:
    model = encoder()
    names = {each.name: f"port_{at}" for at, each in enumerate(reversed([*model.graph.input, *model.graph.output]))}
    with loaded(written(tmp_path / "p", renamed(model))) as found:
        made = found.run({names["ids"]: IDS[:1]})[names["states"]]
    np.testing.assert_allclose(made, bare(model, IDS[:1], np.ones_like(IDS[:1])), atol=1e-6)


def test_a_classifier_is_one_call_too(tmp_path: Path) -> None:
    model = encoder(head=3)
    with loaded(written(tmp_path / "p", model)) as found:
        result = found.run({"ids": IDS[:1]})
        assert result["classes"].shape == (1, 3)
        np.testing.assert_array_equal(result.profile("features"), result["classes"])


# ---- sentences -------------------------------------------------------------------------------------------------------


def pooled(name: str, states: Array, mask: Array) -> Array:
    """The pooling's arithmetic, row by row."""
    rows = [row[shown == 1].astype(np.float64) for row, shown in zip(states, mask, strict=True)]
    how = {
        "cls_token": lambda row: row[0],
        "mean_tokens": lambda row: row.mean(axis=0),
        "max_tokens": lambda row: row.max(axis=0),
        "lasttoken": lambda row: row[-1],
    }
    return np.stack([how[name](row) for row in rows])


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("name", ["cls_token", "mean_tokens", "max_tokens", "lasttoken"])
def test_sentences_are_pooled_as_the_modules_say(name: str, normalize: bool, tmp_path: Path) -> None:
    model = encoder()
    listed = modules("Transformer", "Pooling", *(["Normalize"] if normalize else []))
    wanted = pooled(name, bare(model, IDS, MASK), MASK)
    wanted = wanted / np.linalg.norm(wanted, axis=1, keepdims=True) if normalize else wanted
    folder = written(tmp_path / "p", model, modules=listed, **{"1_Pooling__config": mode(name)})
    with loaded(folder) as found:
        made = found.run({"ids": IDS, "mask": MASK}).profile("embedding")
        np.testing.assert_allclose(made, wanted, atol=1e-5)
        assert found.profiles["embedding"].kind == "embedding"
        alone = found.run({"ids": IDS[1:, :2]}).profile("embedding")
        np.testing.assert_allclose(alone[0], wanted[1], atol=1e-5)


def test_the_command_writes_an_embedding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = encoder()
    listed = modules("Transformer", "Pooling", "Normalize")
    compiled(written(tmp_path / "p", model, modules=listed, **{"1_Pooling__config": mode("mean_tokens")}))
    ids = IDS[:1, :3]
    wanted = pooled("mean_tokens", bare(model, ids, np.ones_like(ids)), np.ones_like(ids))
    wanted = wanted / np.linalg.norm(wanted)
    run = [str(tmp_path / "out"), "--task", "embedding", "--tokens", "4,9,2"]
    assert main([*run, "--json"]) == 0
    np.testing.assert_allclose(json.loads(capsys.readouterr().out)["value"], wanted, atol=1e-5)
    assert main([*run, "--save", str(tmp_path / "e.npy")]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "e.npy"), wanted, atol=1e-5)


def test_the_document_that_convert_writes_pools_alike(tmp_path: Path) -> None:
    folder = written(
        tmp_path / "p",
        encoder(),
        modules=modules("Transformer", "Pooling"),
        **{"1_Pooling__config": mode("max_tokens")},
    )
    with loaded(folder) as found:
        wanted = found.run({"ids": IDS, "mask": MASK}).profile("embedding")
    (folder / "inference_metadata.yaml").write_text(convert_package(folder).text)
    with loaded(folder) as found:
        assert found.describe()["dialect"] == "workflow"
        np.testing.assert_array_equal(found.run({"ids": IDS, "mask": MASK}).profile("embedding"), wanted)


@pytest.mark.parametrize(
    ("listed", "pooling", "words"),
    [
        (modules("Transformer", "Pooling", "Dense"), mode("mean_tokens"), "Dense"),
        (modules("Transformer"), mode("mean_tokens"), "0 poolings"),
        (modules("Transformer", "Pooling"), mode("weightedmean_tokens"), "first or last token"),
        (modules("Transformer", "Pooling"), {**mode("mean_tokens"), "pooling_mode_cls_token": True}, "first or last"),
        (modules("Transformer", "Pooling"), None, "no file '1_Pooling/config.json'"),
        ([{"type": "x.Transformer"}, {"type": "x.Pooling", "path": "../elsewhere"}], mode("mean_tokens"), "outside"),
        ({"type": "x.Pooling"}, mode("mean_tokens"), "0 poolings"),
    ],
)
def test_a_pooling_that_is_not_offered_is_a_warning(listed: Any, pooling: Any, words: str, tmp_path: Path) -> None:
    files = {"modules": listed} | ({"1_Pooling__config": pooling} if pooling is not None else {})
    made = compiled(written(tmp_path / "p", encoder(), **files))
    assert words in " ".join(f"{each.code} {each.what}" for each in made.problems)
    with genai_runtime.load(tmp_path / "out") as found:
        assert list(found.profiles) == ["features"]


def test_of_two_outputs_none_is_pooled(tmp_path: Path) -> None:
    files = {"modules": modules("Transformer", "Pooling"), "1_Pooling__config": mode("mean_tokens")}
    made = compiled(written(tmp_path / "p", encoder(extra=("second",)), **files))
    assert [each.code for each in made.problems] == ["sentence-modules"]
    with genai_runtime.load(tmp_path / "out") as found:
        assert set(found.run({"ids": IDS}).profile("features")) == {"states", "second"}


# ---- two readings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [{"is_decoder": True}, {"architectures": ["SomeForCausalLM"]}])
def test_what_is_said_to_be_a_decoder_is_no_encoder(said: Mapping[str, Any], tmp_path: Path) -> None:
    folder = written(tmp_path / "p", encoder(), {**STATED, **said})
    with pytest.raises(CompileError) as caught:
        compiled(folder)
    assert "no-logits" in {each.code for each in caught.value.problems}
    assert not (tmp_path / "out").exists()
