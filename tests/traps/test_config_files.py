"""Names of ports and files (genai-config, traps 41 to 54), end to end."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from genai_compiler.lower.genai_config_v1 import lower_genai_config
from genai_compiler.problem import Severity
from onnx import ModelProto, TensorProto, helper

from tests.lower.packages import Layer, Recipe, decoder, outside, write_config
from tests.lower.test_front_model import KV, MARK, SIZE, embed, images, model_of, ran, write
from tests.traps.packages import gives_plain_tokens, loaded, package, problems, told
from tests.traps.toy import toy

# ---- 41 to 43: ports of several graphs -------------------------------------------------------------------------------


def look_at(pixels: str, extra: str, extra_type: int) -> ModelProto:
    """pixels float32 [n, 2, 8] and a second input [n, 3] -> seen [2 n, 8]: pixels plus the sum of the second input."""
    nodes = [
        helper.make_node("Cast", [extra], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["numbers"], ["total"], keepdims=0),
        helper.make_node("Add", [pixels, "total"], ["moved"]),
        helper.make_node("Reshape", ["moved", "flat"], ["seen"]),
    ]
    inputs = [(pixels, TensorProto.FLOAT, ["n", 2, SIZE]), (extra, extra_type, ["n", 3])]
    return model_of(nodes, inputs, [("seen", TensorProto.FLOAT, ["m", SIZE])], {"flat": np.array([-1, SIZE], np.int64)})


def three_graphs(folder: Path, vision: ModelProto, inputs: dict[str, str]) -> Path:
    """A package of a vision model, an embedding model and a decoder. inputs: what the file says of the first one's."""
    sections = {
        "vision": {"filename": "look.onnx", "inputs": inputs, "outputs": {"image_features": "seen"}},
        "embedding": {"filename": "embed.onnx", "inputs": {"input_ids": "ids", "image_features": "entries"},
                      "outputs": {"inputs_embeds": "embeds"}},
    }  # fmt: skip
    folder.mkdir()
    write_config(
        folder, {"model": {**sections, "decoder": {"filename": "write.onnx", "inputs": {"inputs_embeds": "embeds"}}}}
    )
    for name, model in (("look", vision), ("embed", embed()), ("write", write())):
        onnx.save(model, folder / f"{name}.onnx")
    return folder


def by_hand(folder: Path, prompt: list[int], media: dict[str, Any], count: int) -> list[int]:
    """Greedy tokens by a plain loop over the three graphs."""
    see, take, say = (onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("look", "embed", "write"))
    entries: Any = see.run(None, media)[0]
    past, fresh, length, made = [np.zeros((1, 1, 0, 8), np.float32)] * 2, prompt, 0, list[int]()
    for _ in range(count):
        length += len(fresh)
        embeds = take.run(None, {"ids": np.array([fresh]), "entries": entries})[0]
        feeds = {"embeds": embeds, "attention_mask": np.ones((1, length), np.int64)} | dict(zip(KV, past, strict=True))
        logits, *past = say.run(["logits", "present.0.key", "present.0.value"], feeds)
        fresh, entries = [int(logits[0, -1].argmax())], np.zeros((0, SIZE), np.float32)
        made += fresh
    return made


@pytest.mark.parametrize(
    ("pixels", "extra", "kind", "stated"),
    [
        ("pixel_values", "image_grid_thw", TensorProto.INT64, {}),
        ("pixel_values", "image_sizes", TensorProto.INT64, {}),
        ("px", "image_grid_thw", TensorProto.INT64, {"pixel_values": "px"}),
        ("px", "image_grid_thw", TensorProto.INT64, {"pixel_values": "px", "image_grid_thw": "image_grid_thw"}),
        ("pixel_values", "attention_mask", TensorProto.FLOAT, {"attention_mask": "attention_mask"}),
        ("pixel_values", "attention_mask", TensorProto.INT32, {}),
    ],
)
def test_41_42_43_inputs_of_a_vision_model_are_the_graphs(
    tmp_path: Path, pixels: str, extra: str, kind: int, stated: dict[str, str]
) -> None:
    """A grid that the file leaves out, renamed pixels, and a mask whose name and not whose type the decoder shares."""
    folder = three_graphs(tmp_path / "p", look_at(pixels, extra, kind), stated)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    media = {pixels: images(2), extra: np.arange(6).reshape(2, 3).astype(dtype)}
    prompt = [3, *[MARK] * 4, 5]
    model = loaded(folder)
    inputs = [each["application"] or each["name"] for each in model.describe()["inputs"]]
    names = {name: next(each for each in inputs if each.split(".")[-1] == name) for name in media}
    given = {names[name]: value for name, value in media.items()}
    assert ran(model, **{"request.input_ids": [prompt], **given}) == [by_hand(folder, prompt, media, 6)]


# ---- 44, 45: weights in files of their own ---------------------------------------------------------------------------


def with_data(folder: Path, names: list[str], graph: str = "model.onnx") -> Path:
    """A decoder at `graph` whose weights lie in files of these names beside it, in turns."""
    model = outside(decoder(Recipe(layers=(Layer(0, 4, 16),))), *names)
    (folder / graph).parent.mkdir(parents=True)
    for name in names:
        (folder / graph).parent.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / graph)
    write_config(folder, {"model": {"decoder": {"filename": graph, "head_size": 16, "num_key_value_heads": 4}}})
    return folder


NAMES = [
    "model.onnx.data", "model.onnx_data", "weights.pb", "model.pb.bin", "decoder.onnx.data",
    "7c9e6679-7425-40de-944b-e07fc1f90ae7", "data/all.bin", "Model \u00e9.bin",
]  # fmt: skip


@pytest.mark.parametrize("graph", ["model.onnx", "decoder/model.onnx"])
@pytest.mark.parametrize("name", NAMES)
def test_44_45_weights_lie_where_the_graph_says(tmp_path: Path, graph: str, name: str) -> None:
    """Whatever the file is called: its name stands in the graph alone."""
    folder = with_data(tmp_path / "p", [name], graph)
    assert told(folder) == []
    gives_plain_tokens(loaded(folder), folder / graph)


def test_45_renamed_weights_are_missed_by_name_all_at_once(tmp_path: Path) -> None:
    folder = with_data(tmp_path / "p", ["one.data", "two.data", "three.data"])
    for name in ("one.data", "three.data"):
        (folder / name).rename(folder / f"renamed-{name}")
    missed = [each for each in problems(folder) if each.severity is Severity.ERROR]
    assert {each.code for each in missed} == {"missing-file"}
    text = " ".join(each.what for each in missed)
    assert all(each in text for each in ("one.data", "three.data"))
    assert "two.data" not in text


# ---- 47, 49: files elsewhere -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../draft/model.onnx", "/etc/passwd", "draft.onnx"])
def test_47_a_draft_models_file_is_not_opened(tmp_path: Path, name: str) -> None:
    """The reference opens it wherever it lies; here a draft model that is not in the package is not used, and said."""
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "model.onnx").write_bytes(b"no model at all")
    folder = package(tmp_path / "p", {"model": {"draft": {"filename": name}}})
    assert told(folder) == [("warning", "ignored-key", "model.draft")]
    gives_plain_tokens(loaded(folder), folder / "model.onnx")


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"decoder": {"filename": "sha256:9f86d081884c7d65"}}, "model.decoder.filename"),
        ({"decoder": {"filename": "sha256:9f86d081884c7d65/model.onnx"}}, "model.decoder.filename"),
        ({"tokenizer_dir": "sha256:9f86d081884c7d65"}, "model.tokenizer_dir"),
        ({"vision": {"filename": "sha256:9f86d081884c7d65"}}, "model.vision.filename"),
    ],
)
def test_49_content_named_by_hash_is_refused_by_name(tmp_path: Path, config: dict[str, Any], path: str) -> None:
    found = [each for each in problems(package(tmp_path, {"model": config})) if each.severity is Severity.ERROR]
    assert [(each.code, each.path) for each in found] == [("unsupported-package-class", path)]
    assert "by its hash" in found[0].what
    assert found[0].help


# ---- 50, 51: text files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["NeverSeenTokenizer", "LlamaTokenizerFast", "", 7, None])
def test_50_the_class_of_a_tokenizer_decides_nothing(tmp_path: Path, name: object) -> None:
    """tokenizer.json says itself what it does; another library's class is not looked for."""
    files = {"tokenizer_config.json": json.dumps({"tokenizer_class": name, "eos_token": "<end>"})}
    model = toy(tmp_path, ["<go>", "a", "b", "c", "<end>"], files=files).model
    assert model.generate("a", max_new_tokens=9).text == "bc"


TEMPLATE = "<go>{% for m in messages %}{{ m.content }}{% endfor %}"
WRONG = "<go>a"


@pytest.mark.parametrize(
    "files",
    [
        {"chat_template.jinja": TEMPLATE, "chat_template.json": json.dumps({"chat_template": WRONG})},
        {"chat_template.json": json.dumps({"chat_template": TEMPLATE}),
         "tokenizer_config.json": json.dumps({"chat_template": WRONG})},
        {"tokenizer_config.json": json.dumps({"chat_template": TEMPLATE}),
         "processor_config.json": json.dumps({"chat_template": WRONG})},
        {"tokenizer_config.json": json.dumps({"chat_template": [{"name": "default", "template": TEMPLATE},
                                                                {"name": "tool_use", "template": WRONG}]})},
        {"processor_config.json": json.dumps({"chat_template": TEMPLATE})},
    ],
    ids=["file", "json file", "tokenizer", "list", "processor"],
)  # fmt: skip
def test_51_every_place_of_a_template_in_order(tmp_path: Path, files: dict[str, str]) -> None:
    """The chain says what follows the last token: with the right template that is b."""
    model = toy(tmp_path, ["<go>", "a", "b", "c", "<end>"], files=files).model
    assert model.chat([{"role": "user", "content": "b"}], max_new_tokens=9).text == "c"


# ---- 54: operators ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", ["com.microsoft.extensions", "ai.onnx.contrib", "com.example"])
def test_54_operators_that_need_a_library_are_named(tmp_path: Path, domain: str) -> None:
    """GroupQueryAttention comes with ONNX Runtime; these do not, and a package's own library is never loaded."""
    model = decoder(Recipe())
    model.graph.node.append(helper.make_node("BpeDecoder", ["input_ids"], ["text"], domain=domain))
    model.opset_import.append(helper.make_opsetid(domain, 1))
    options = {"session_options": {"custom_ops_library": "onnxruntime_extensions"}}
    found = problems(package(tmp_path, {"model": {"decoder": options}}, model))
    errors = [each for each in found if each.severity is Severity.ERROR]
    assert [each.code for each in errors] == ["custom-operators"]
    assert domain in errors[0].what
    assert lower_genai_config(package(tmp_path / "plain")).problems != ()
