"""Decoders of stages beside other models: an encoder whose results or caches they read, an embedding, media before it.

Each package is one with a decoder in one graph, whose graph is cut before its head. Expected tokens are those of bare
ONNX Runtime sessions over the uncut graphs, or of another runtime for packages of the field's own exporters.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from genai_compiler import compile_package
from onnx.inliner import inline_local_functions
from onnx.utils import Extractor

from tests.conftest import FIXTURES
from tests.data import needs_data
from tests.lower.test_config_models import plain_loop, rows_of
from tests.real_packages import GREEDY, PACKAGES, cases, reliable
from tests.staged_packages import converts, refused
from tools.fixtures.encoder_decoder import BANDS, write_encoder_decoder
from tools.fixtures.stages import stage, write_config

Array = np.ndarray[Any, Any]
NEW = 10
FINAL = "before.head"


def cut_head(file: Path) -> dict[str, onnx.ModelProto]:
    """A decoder's graph as its layers and its head, joined by one value."""
    model = inline_local_functions(onnx.load(file))
    head = next(node for node in model.graph.node if "logits" in node.output)
    before = head.input[0]
    for node in model.graph.node:
        node.input[:] = [FINAL if each == before else each for each in node.input]
        node.output[:] = [FINAL if each == before else each for each in node.output]
    held = {each.name for each in model.graph.initializer}
    inputs = [each.name for each in model.graph.input if each.name not in held]
    outputs = [each.name for each in model.graph.output if each.name != "logits"]
    model.graph.value_info.append(onnx.helper.make_tensor_value_info(FINAL, 1, ["b", "s", "h"]))
    extractor = Extractor(model)
    parts = extractor.extract_model(inputs, [FINAL, *outputs]), extractor.extract_model([FINAL], ["logits"])
    return dict(zip(("layers", "lm_head"), parts, strict=True))


def in_stages(folder: Path, graph: str, phases: int) -> list[dict[str, Any]]:
    """The entries of a package's decoder, cut, whose stages are written; phases: 2 for layers of the prompt apart."""
    parts = cut_head(folder / graph)
    names = {"layers": ("layers",) if phases == 1 else ("context", "iterator"), "lm_head": ("lm_head",)}
    entries: list[dict[str, Any]] = []
    for part, model in parts.items():
        for name in names[part]:
            onnx.save(model, folder / f"{name}.onnx")
            phase = {"context": {"run_on_token_gen": False}, "iterator": {"run_on_prompt": False}}.get(name, {})
            entries.append({name: stage(name, model) | phase})
    (folder / graph).unlink()
    return entries


def staged(folder: Path, package: Path, graph: str, phases: int) -> Path:
    """A copy of a version 1 package with its decoder cut."""
    shutil.copytree(package, folder)
    config = json.loads((folder / "genai_config.json").read_text())
    config["model"]["decoder"]["pipeline"] = in_stages(folder, graph, phases)
    del config["model"]["decoder"]["filename"]
    (folder / "genai_config.json").write_text(json.dumps(config))
    return folder


# ---- an encoder ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phases", [1, 2])
def test_stages_read_the_caches_that_an_encoder_gives(phases: int, tmp_path: Path) -> None:
    whole = FIXTURES / "tiny-encoder-decoder-v1"
    start = json.loads((whole / "genai_config.json").read_text())["model"]["decoder_start_token_id"]
    compile_package(staged(tmp_path / "p", whole, "decoder.onnx", phases), out=tmp_path / "out")
    sources = [[5, 9, 30], [7], [3, 40, 41, 42, 43, 44, 5, 4]]
    wanted = [plain_loop(whole, {"input_ids": np.array([each])}, [start], NEW) for each in sources]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert [model.generate(each, max_new_tokens=NEW, **GREEDY).tokens for each in sources] == wanted
        rows = model.generate(batch=sources, max_new_tokens=NEW, **GREEDY).rows
        assert [each.tokens for each in rows] == wanted


def test_stages_read_the_caches_of_an_encoder_of_sound(tmp_path: Path) -> None:
    """The encoder takes features of sound, the stages the prompt."""
    (tmp_path / "whole").mkdir()
    write_encoder_decoder(tmp_path / "whole", sound=True)
    compile_package(staged(tmp_path / "p", tmp_path / "whole", "decoder.onnx", 2), out=tmp_path / "out")
    sound = np.random.default_rng(1).normal(size=(1, BANDS, 11)).astype(np.float32)
    prompt = [1, 20, 21]
    inputs = {"request.input_ids": np.array([prompt], np.int32), "audio_features": sound}
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        made = rows_of(model.run({**inputs, "request.max_iterations": [NEW]}, stop_on_eos=False))
    assert made == plain_loop(tmp_path / "whole", {"audio_features": sound}, prompt, NEW)


@pytest.mark.parametrize("phases", [1, 2])
def test_stages_read_an_encoders_hidden_states(phases: int, tmp_path: Path) -> None:
    folder = FIXTURES / "tiny-encoder-v2"
    package = tmp_path / "p"
    package.mkdir()
    for name in ("encoder", "decoder"):
        shutil.copy(folder / f"{name}.onnx", package / f"{name}.onnx")
    write_config(package, in_stages(package, "decoder.onnx", phases), {})
    _add(package, {"encoder": {"filename": "encoder.onnx"}}, decoder_start_token_id=1)
    compile_package(package, out=tmp_path / "out")
    prompt = [5, 9, 30, 12]
    encoder = ort.InferenceSession(folder / "encoder.onnx", providers=["CPUExecutionProvider"])
    hidden = encoder.run(None, {"input_ids": np.array([prompt])})[0]
    wanted = decoded(folder / "decoder.onnx", lambda ids: {"input_ids": ids, "encoder_hidden_states": hidden}, [1])
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.generate(prompt, max_new_tokens=NEW, **GREEDY).tokens == wanted


def _add(package: Path, components: Mapping[str, Any], **more: Any) -> None:
    config = json.loads((package / "genai_config.json").read_text())
    config["model"] |= {**components, **more}
    (package / "genai_config.json").write_text(json.dumps(config))


def decoded(
    graph: Path, feeds: Callable[[Array], Mapping[str, Array]], start: list[int], count: int = NEW
) -> list[int]:
    """Greedy tokens of the growing decoder of the fixtures. feeds: what a run takes for these new tokens."""
    session = ort.InferenceSession(graph, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    takes = {each.name for each in session.get_inputs()}
    past = {f"past_key_values.{at}.{part}": np.zeros((1, 2, 0, 16), np.float32) for at in (0, 1) for part in PARTS}
    fed, ids = start, list(start)
    while len(ids) < len(start) + count:
        ones = {"attention_mask": np.ones((1, len(ids)), np.int64)}
        places = {"position_ids": np.arange(len(ids) - len(fed), len(ids))[None]}
        known = {name: each for name, each in {**ones, **places}.items() if name in takes}
        made = dict(zip(names, session.run(names, {**feeds(np.array([fed])), **known, **past}), strict=True))
        past = {name: made[name.replace("past_key_values", "present")] for name in past}
        fed = [int(made["logits"][0, -1].argmax())]
        ids += fed
    return ids[len(start) :]


PARTS = ("key", "value")

# ---- an embedding, and media before it -------------------------------------------------------------------------------

MEDIA = FIXTURES / "tiny-media-v2"


def seeing(tmp_path: Path, phases: int) -> Path:
    """A version 1 package of vision, speech, embedding, and a decoder of stages."""
    package = tmp_path / "p"
    package.mkdir()
    for name in ("vision", "speech", "embedding", "decoder"):
        shutil.copy(MEDIA / f"{name}.onnx", package / f"{name}.onnx")
    write_config(package, in_stages(package, "decoder.onnx", phases), {})
    components = {name: {"filename": f"{name}.onnx"} for name in ("vision", "speech", "embedding")}
    _add(package, components)
    return package


def embedded(entries: Array) -> Callable[[Array], dict[str, Array]]:
    """What the decoder takes of new tokens: those of the prompt with these entries of an image."""
    session = ort.InferenceSession(MEDIA / "embedding.onnx", providers=["CPUExecutionProvider"])
    nothing = np.zeros((0, 16), np.float32)

    def of(ids: Array) -> dict[str, Array]:
        seen = entries if ids.shape[1] > 1 else nothing
        fed = {"input_ids": ids, "image_features": seen, "audio_features": nothing}
        return {"inputs_embeds": session.run(None, fed)[0]}

    return of


@pytest.mark.parametrize("phases", [1, 2])
@pytest.mark.parametrize("pictures", [0, 1])
def test_stages_take_embeddings_with_media_and_without(pictures: int, phases: int, tmp_path: Path) -> None:
    tokens = json.loads((MEDIA / "genai_config.json").read_text())["tokens"]
    prompt = [1, *[tokens["image_token"]] * 4 * pictures, 9, 14]
    pixels = np.random.default_rng(3).normal(size=(pictures, 4, 8)).astype(np.float32)
    vision = ort.InferenceSession(MEDIA / "vision.onnx", providers=["CPUExecutionProvider"])
    entries = vision.run(None, {"pixel_values": pixels})[0] if pictures else np.zeros((0, 16), np.float32)
    wanted = decoded(MEDIA / "decoder.onnx", embedded(entries), prompt)
    compile_package(seeing(tmp_path, phases), out=tmp_path / "out")
    inputs: dict[str, Any] = {"request.input_ids": [prompt], "request.max_iterations": [NEW]}
    inputs |= {"pixel_values": pixels} if pictures else {}
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert rows_of(model.run(inputs, stop_on_eos=False)) == wanted
        if not pictures:
            assert model.generate(prompt, max_new_tokens=NEW, **GREEDY).tokens == wanted


@pytest.mark.parametrize("phases", [1, 2])
def test_the_converted_document_of_stages_behind_an_embedding_is_the_same_plan(phases: int, tmp_path: Path) -> None:
    converts(seeing(tmp_path, phases), tmp_path)


def test_a_stage_may_be_called_as_a_model_beside_it_is(tmp_path: Path) -> None:
    package = seeing(tmp_path, 1)
    config = json.loads((package / "genai_config.json").read_text())
    first, last = config["model"]["decoder"]["pipeline"]
    config["model"]["decoder"]["pipeline"] = [{"embedding": first["layers"]}, {"vision": last["lm_head"]}]
    (package / "genai_config.json").write_text(json.dumps(config))
    compile_package(package, out=tmp_path / "out")
    wanted = decoded(MEDIA / "decoder.onnx", embedded(np.zeros((0, 16), np.float32)), [1, 9, 14])
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.generate([1, 9, 14], max_new_tokens=NEW, **GREEDY).tokens == wanted


@needs_data
@pytest.mark.parametrize("phases", [1, 2])
@pytest.mark.parametrize("name", ["mobius-mistral3-og", "mobius-qwen2_5_vl-og", "mobius-gemma3_vl-og"])
def test_packages_of_exporters_give_the_expected_tokens_with_their_decoder_cut(
    name: str, phases: int, tmp_path: Path
) -> None:
    """With an image and without; one of them has positions of three axes, which the caller gives."""
    compile_package(staged(tmp_path / "p", PACKAGES / name, "decoder/model.onnx", phases), out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        for case in cases(name, "text"):
            assert model.generate(case["prompt"], max_new_tokens=16, **GREEDY).tokens == case["greedy"]
        for case in cases(name, "image"):
            with np.load(PACKAGES / name / case["inputs"]) as held:
                given = {each: held[each] for each in held.files if each != "image_features"}
            given["pixel_values"] = given["pixel_values"].astype(np.float32)  # kept in fewer bits to save room
            inputs = {"request.input_ids": [case["prompt"]], **given, "request.max_iterations": [16]}
            assert rows_of(model.run(inputs, stop_on_eos=False)) == case["greedy"]


@needs_data
@pytest.mark.parametrize("phases", [1, 2])
@pytest.mark.parametrize("name", ["og-llama", "og-gemma2", "og-lfm2-int4", "mobius-qwen3_5_text-og"])
def test_decoders_of_exporters_give_the_expected_tokens_cut(name: str, phases: int, tmp_path: Path) -> None:
    """Caches written in place, with windows a layer, convolution and recurrent state."""
    compile_package(staged(tmp_path / "p", PACKAGES / name, "model.onnx", phases), out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        for case in cases(name):
            wanted = reliable(name, case)
            assert model.generate(case["prompt"], max_new_tokens=16, **GREEDY).tokens[: len(wanted)] == wanted


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_a_vision_model_whose_results_no_graph_takes_is_refused(tmp_path: Path) -> None:
    package = seeing(tmp_path, 1)
    config = json.loads((package / "genai_config.json").read_text())
    config["model"]["embedding"]["inputs"] = {"image_features": "absent"}
    (package / "genai_config.json").write_text(json.dumps(config))
    assert "nothing takes what the graph of 'vision' gives" in refused(package)["unsupported-package-class"]
