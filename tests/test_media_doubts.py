"""Statements about pictures and sounds that the graphs contradict: told when compiling; an error where tensors differ.

What the graphs hold is read here with the onnx library, by the names that these exporters give.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import pytest
import yaml
from genai_compiler import CompileError, compile_package
from genai_compiler.lower.media_doubts import media_doubts
from genai_compiler.lower.media_notes import AUDIO, Said
from genai_compiler.lower.stages import Medium
from genai_compiler.problem import Place, Problem, Severity
from genai_compiler.read.media_traits import MediaTraits, media_traits
from genai_compiler.read.signature import Port
from genai_compiler.read.special_tokens import SpecialTokens
from onnx import TensorProto, helper, numpy_helper

from tests.data import needs_data
from tests.lower.test_config_models import changed
from tests.real_packages import GREEDY, PACKAGES
from tests.test_real_pictures import PROMPTS, case_of
from tests.test_real_processors import refused, with_processor

pytestmark = needs_data
TWO, THREE, FOUR = "mobius-qwen2_5_vl-og", "mobius-mistral3-og", "mobius-gemma4_vl-meta"
POOLED = "Gemma4ImageTransform"
node = helper.make_node


def mismatches(package: Path) -> list[str]:
    return [each.what for each in refused(package) if each.code == "processor-mismatch"]


def false_words(package: Path, out: Path) -> list[Problem]:
    found = compile_package(package, out=out).problems
    other = "model.context_length"  # 4096 of these exporters, beside a table of 256 rows
    return [each for each in found if each.code in ("config-contradicts-graph", "bad-token-id") and each.path != other]


def constant(name: str, graph: str, suffix: str) -> int:
    """The number of a graph's Constant node."""
    model = onnx.load(PACKAGES / name / graph, load_external_data=False)
    found = next(each for each in model.graph.node if each.output[0].endswith(suffix))
    held = found.attribute[0]
    return int(held.i or (list(held.ints) or numpy_helper.to_array(held.t).reshape(-1))[0])


# ---- what graphs tell ------------------------------------------------------------------------------------------------


def traits(name: str, graph: str) -> MediaTraits:
    return media_traits(onnx.load(PACKAGES / name / graph, load_external_data=False))


def test_the_token_of_an_entry() -> None:
    for name, suffix in ((TWO, "Constant_1"), (THREE, "Constant_1"), (FOUR, "Constant_2")):
        token = constant(name, "embedding/model.onnx", f"v_embedding.{suffix}")
        assert traits(name, "embedding/model.onnx").entries == (("image_features", token),)


def test_patches_and_what_is_made_of_them() -> None:
    merger = constant(THREE, "vision_encoder/model.onnx", "patch_merger.Constant_76")
    assert traits(THREE, "vision_encoder/model.onnx").merge == merger == 2
    pooler = constant(FOUR, "vision_encoder/model.onnx", "pooler.Constant_241")
    assert traits(FOUR, "vision_encoder/model.onnx").merge == pooler == 3
    four = constant(TWO, "vision_encoder/model.onnx", "v_vision_encoder.visual.Constant_121")
    assert traits(TWO, "vision_encoder/model.onnx").merge ** 2 == four
    convolution = next(
        each
        for each in onnx.load(PACKAGES / THREE / "vision_encoder/model.onnx", load_external_data=False).graph.node
        if each.op_type == "Conv"
    )
    strides = next(list(each.ints) for each in convolution.attribute if each.name == "strides")
    assert [traits(THREE, "vision_encoder/model.onnx").patch] * 2 == strides


def embedding(*tokens: int, scattered: bool = False) -> onnx.ModelProto:
    """An embedding of two media: where each of these ids stands, entries of the medium go in."""
    held = {"table": numpy_helper.from_array(np.ones((9, 4), "float32"), "table")}
    value = helper.make_tensor_value_info
    inputs = [value("ids", TensorProto.INT32, ["n"])]
    nodes, last = [node("Gather", ["table", "ids"], ["x0"])], "x0"
    axes = numpy_helper.from_array(np.array([1]), "axes")
    for at, token in enumerate(tokens):
        inputs.append(value(f"media{at}", TensorProto.FLOAT, ["m", 4]))
        held[f"t{at}"] = numpy_helper.from_array(np.array(token), f"t{at}")
        nodes += [
            node("Cast", ["ids"], [f"i{at}"], to=TensorProto.INT64),
            node("Equal", [f"t{at}", f"i{at}"], [f"e{at}"]),
        ]
        if scattered:
            nodes += [node("NonZero", [f"e{at}"], [f"z{at}"]), node("Transpose", [f"z{at}"], [f"p{at}"])]
            nodes += [node("ScatterND", [last, f"p{at}", f"media{at}"], [f"x{at + 1}"])]
        else:
            nodes += [node("Unsqueeze", [f"e{at}", "axes"], [f"u{at}"])]
            nodes += [node("Where", [f"u{at}", f"media{at}", last], [f"x{at + 1}"])]
        last = f"x{at + 1}"
    graph = helper.make_graph(nodes, "g", inputs, [value(last, TensorProto.FLOAT, None)], [*held.values(), axes])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


@pytest.mark.parametrize("scattered", [False, True])
def test_each_medium_has_a_token_of_its_own(scattered: bool) -> None:
    made = embedding(7, 5, scattered=scattered)
    assert media_traits(made).entries == (("media0", 7), ("media1", 5))


def test_no_comparison_is_no_token() -> None:
    made = embedding()
    assert media_traits(made) == MediaTraits()


# ---- processor files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        (TWO, lambda of: of["Resize"].update(merge_size=3), "says 3 patches of"),
        (THREE, lambda of: of["Resize"].update(merge_size=1), "says 1 patches of"),
        (THREE, lambda of: of["Resize"].update(patch_size=16), "edge, and the graph has 14"),
    ],
)  # fmt: skip
def test_a_file_of_operations(name: str, change: Callable[[Any], None], words: str, tmp_path: Path) -> None:
    assert any(
        words in each and "and the graph has" in each for each in mismatches(with_processor(tmp_path, change, name))
    )


@pytest.mark.parametrize("pooling", [2, 3])
def test_a_pooling_factor_of_a_processor_file(pooling: int, tmp_path: Path) -> None:
    """The graph divides places by 3, whatever the file says (exporters take it from two places)."""
    package = shutil.copytree(PACKAGES / FOUR, tmp_path / "package")
    document = yaml.safe_load((package / "inference_metadata.yaml").read_text())
    del document["preprocessing"]
    (package / "inference_metadata.yaml").write_text(yaml.safe_dump(document))
    (package / "preprocessor_config.json").unlink()
    budget = {"patch_size": 16, "max_soft_tokens": 4, "pooling_kernel_size": pooling}
    entries = [{"type": "DecodeImage", "attrs": {"color_space": "RGB"}}, {"type": POOLED, "attrs": budget}]
    operations = [{"operation": {"name": each["type"], **each}} for each in entries]
    written = {"processor": {"name": "images", "transforms": operations}}
    (package / "image_processor.json").write_text(json.dumps(written))
    if pooling == 3:
        compile_package(package, out=tmp_path / "out")
    else:
        assert any("says 2 patches" in each and "the graph has 3" in each for each in mismatches(package))


@pytest.mark.parametrize("pooling", [2, 3])
def test_a_pooling_factor_of_a_program(pooling: int, tmp_path: Path) -> None:
    package = shutil.copytree(PACKAGES / FOUR, tmp_path / "package")
    document = package / "inference_metadata.yaml"
    text = document.read_text()
    assert "pooling_kernel_size: 3" in text
    document.write_text(text.replace("pooling_kernel_size: 3", f"pooling_kernel_size: {pooling}"))
    if pooling == 3:
        compile_package(package, out=tmp_path / "out")
    else:
        assert any("2 x 2 patches, and the graph of 3 x 3" in each for each in mismatches(package))


def test_a_pooling_factor_that_nothing_uses(tmp_path: Path) -> None:
    package = shutil.copytree(PACKAGES / FOUR, tmp_path / "package")
    document = package / "inference_metadata.yaml"
    document.write_text(document.read_text().replace("token_pooling_factor: 9", "token_pooling_factor: 4"))
    (found,) = false_words(package, tmp_path / "out")
    assert (found.severity, found.path) == (Severity.WARNING, "pipeline.vision.token_pooling_factor")
    assert "is 4, but the graph has 9" in found.what


# ---- the configuration -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "value", "known"), [("spatial_merge_size", 3, 2), ("patch_size", 16, 14)])
def test_sizes_that_the_configuration_states(key: str, value: int, known: int, tmp_path: Path) -> None:
    package = changed(tmp_path / "package", PACKAGES / THREE, (f"model.vision.{key}", value))
    (found,) = false_words(package, tmp_path / "out")
    assert (found.severity, found.path) == (Severity.WARNING, f"model.vision.{key}")
    assert f"is {value}, but the graph has {known}" in found.what


def test_an_image_token_that_the_graph_does_not_look_for(tmp_path: Path) -> None:
    """The graph's own counts: tokens of a picture stay what they are."""
    package = changed(tmp_path / "package", PACKAGES / TWO, ("model.image_token_id", 9))
    (found,) = false_words(package, tmp_path / "out")
    assert (found.severity, found.path) == (Severity.WARNING, "model.image_token_id")
    assert "is 9, but the graph puts what it makes of image where token 8 stands" in found.what
    case = case_of(TWO)
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        options: dict[str, Any] = {"images": [package / "image.png"], "max_new_tokens": 8, **GREEDY}
        assert model.generate(PROMPTS[TWO], add_special_tokens=False, **options).tokens == case["greedy"][:8]


def test_an_image_token_that_nobody_states_is_the_graphs(tmp_path: Path) -> None:
    package = changed(tmp_path / "package", PACKAGES / TWO, ("model.image_token_id", ...))
    assert false_words(package, tmp_path / "out") == []
    case = case_of(TWO)
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        options: dict[str, Any] = {"images": [package / "image.png"], "max_new_tokens": 8, **GREEDY}
        assert model.generate(case["prompt"], **options).tokens == case["greedy"][:8]


def test_a_sound_token_of_another_id_and_one_that_the_tokenizer_lacks() -> None:
    spot = (Place("genai_config.json"), "model.audio_token_id")
    medium = Medium((), Port("audio_features", "float32", ("n", 4)), "", "", "", entry=40)
    tokens = SpecialTokens({}, 30)
    told = list(media_doubts(AUDIO, Said(token=41, token_spot=spot), medium, tokens))
    assert [each.code for each in told] == ["config-contradicts-graph", "bad-token-id"]
    assert "audio_token_id is 41" in told[0].what
    assert "the tokenizer has 30 ids" in told[1].what
    assert list(media_doubts(AUDIO, Said(token=40, token_spot=spot), medium, SpecialTokens({}, 41))) == []


def test_all_of_it_is_said_in_one_run(tmp_path: Path) -> None:
    pairs = [("model.image_token_id", 9), ("model.vision.spatial_merge_size", 4), ("model.decoder.filename", "gone")]
    package = changed(tmp_path / "package", PACKAGES / TWO, *pairs[:2])
    processor = package / "processor_config.json"
    processor.write_text(processor.read_text().replace('"merge_size": 2', '"merge_size": 3'))
    with pytest.raises(CompileError) as caught:
        compile_package(package, out=tmp_path / "out")
    found = {each.path for each in caught.value.problems}
    assert {"model.image_token_id", "model.vision.spatial_merge_size"} <= found
    assert "processor-mismatch" in {each.code for each in caught.value.problems}
