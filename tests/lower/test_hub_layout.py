"""A folder as hubs hold models of pictures and text compiles where it has one reading, else its refusal declares it.

Expected tokens come from a plain loop over the three graphs; Pillow and numpy make the pixels.
"""

import io
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.cli import main as compile_main
from genai_compiler.convert import convert_package
from genai_compiler.driver import Options
from genai_compiler.problem import Problem
from genai_runtime.cli import main

from tests.lower.hub_layout import (
    CELLS,
    CONFIG,
    EDGE,
    MARK,
    MEAN,
    SEEN,
    STD,
    Array,
    behind_flag,
    by_hand,
    hub_folder,
    look,
    run,
    seen,
    words_and_decoder,
)
from tests.lower.plain_folders import renamed
from tests.test_convert import same_plan
from tools.fixtures.genai_v2 import HEARD
from tools.fixtures.graph import Sketch, weights
from tools.fixtures.network import HIDDEN, VOCABULARY
from tools.fixtures.tokenizer import tokenizer

Image = pytest.importorskip("PIL.Image", reason="Pillow is absent: no picture can be decoded")
ADVICE = "declare them in a genai_config.json: "
FORMS = pytest.mark.parametrize("alone", [True, False], ids=["ids alone", "takes features"])
NEW = 6


def picture(height: int, width: int) -> tuple[bytes, Array]:
    """A PNG file, and float32 [3, 8, 8] of it: resized by Pillow, in channels of the stated mean and deviation."""
    levels = np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8)
    file, whole = io.BytesIO(), Image.fromarray(levels)
    whole.save(file, "PNG")
    small = np.asarray(whole.resize((EDGE, EDGE), Image.Resampling.BILINEAR), np.float32) / np.float32(255)
    return file.getvalue(), ((small - np.float32(MEAN)) / np.float32(STD)).transpose(2, 0, 1).astype(np.float32)


def refused(folder: Path) -> Problem:
    with pytest.raises(CompileError) as caught:
        compile_package(folder, out=folder.with_name("refused"))
    (found,) = [each for each in caught.value.problems if not each.code.startswith("missing-context")]
    return found


def declared(folder: Path, alone: bool) -> dict[str, Any]:
    """The folder with what its refusal says, word by word: with a second token there are two readings."""
    hub_folder(folder, alone)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "image_token_index": SEEN + 1}))
    told = refused(folder)
    assert told.code == "several-graphs"
    assert f"config.json names {SEEN} and {SEEN + 1}" in told.what
    (folder / "config.json").write_text(json.dumps(CONFIG))
    document: dict[str, Any] = json.loads(told.help.removeprefix(ADVICE))
    (folder / "genai_config.json").write_text(json.dumps(document))
    return document


def ids_of(text: str, pictures: int = 1) -> list[int]:
    """Each place of a picture is its entries."""
    ids = tokenizer((MARK, "<unused>")).encode(text, add_special_tokens=False).ids
    assert ids.count(SEEN) == pictures
    return [one for each in ids for one in ([SEEN] * CELLS if each == SEEN else [each])]


@pytest.mark.parametrize("undeclared", [True, False], ids=["as it is", "as the refusal says"])
@FORMS
def test_it_runs_with_a_picture(
    alone: bool, undeclared: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "p", tmp_path / "out"
    if undeclared:
        hub_folder(folder, alone)
    else:
        assert declared(folder, alone)["tokens"] == {"image_token": SEEN}
    assert compile_main([str(folder), "-o", str(out)]) == 0
    data, pixels = picture(20, 12)
    (tmp_path / "a.png").write_bytes(data)
    text = f"the {MARK}hat"
    prompt = ids_of(text)
    wanted = by_hand(folder, prompt, seen(folder, [pixels]), NEW, alone)
    assert wanted != by_hand(folder, prompt, seen(folder, [pixels * 0]), NEW, alone)  # the picture counts
    capsys.readouterr()
    asked = ["-n", str(NEW), "--temperature", "0", "--ignore-eos", "--json"]
    assert main([str(out), "--prompt", text, "--image", str(tmp_path / "a.png"), *asked]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["tokens"], told["prompt_tokens"]) == (wanted, len(prompt))
    assert main([str(out), "--prompt", "the hat", *asked]) == 0
    words = tokenizer((MARK, "<unused>")).encode("the hat", add_special_tokens=False).ids
    assert json.loads(capsys.readouterr().out)["tokens"] == by_hand(folder, words, seen(folder, []), NEW, alone)
    assert main([str(out), "--prompt", "the hat", "--image", str(tmp_path / "a.png"), *asked]) == 2
    assert f"holds no places for pictures ('{MARK}'), and 1 picture was given" in capsys.readouterr().err


@FORMS
def test_several_pictures_rows_and_tensors(alone: bool, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    declared(folder, alone)
    compile_package(folder, out=tmp_path / "out")
    files, tensors = zip(*(picture(*size) for size in ((20, 12), (9, 31), (8, 8))), strict=True)
    prompt = ids_of(f"{MARK}a{MARK}the{MARK}", 3)
    wanted = by_hand(folder, prompt, seen(folder, list(tensors)), NEW, alone)
    turned = by_hand(folder, prompt, seen(folder, [tensors[1], tensors[0], tensors[2]]), NEW, alone)
    assert wanted != turned
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        greedy: dict[str, Any] = {"max_new_tokens": NEW, "temperature": 0.0, "stop_on_eos": False}
        assert model.generate(prompt, images=files, **greedy).tokens == wanted
        inputs: dict[str, Any] = {"request.input_ids": [prompt], "request.max_iterations": [NEW]}
        made = model.run({**inputs, "pixel_values": np.stack(tensors)}, stop_on_eos=False)
        assert made["tokens"][0].tolist() == wanted
        rows = [ids_of(f"the{MARK}"), ids_of(f"{MARK}a")]
        both = model.run(
            {**inputs, "request.input_ids": rows, "pixel_values": np.stack(tensors[:2])}, stop_on_eos=False
        )
        for at, row in enumerate(both.rows("tokens")):
            assert np.ravel(row).tolist() == by_hand(folder, rows[at], seen(folder, [tensors[at]]), NEW, alone)


def test_what_convert_writes_is_the_same_plan(tmp_path: Path) -> None:
    declared(tmp_path / "p", True)
    before = compile_package(tmp_path / "p", out=tmp_path / "before")
    text = convert_package(tmp_path / "p").text
    (tmp_path / "p" / "genai_config.json").unlink()
    (tmp_path / "p" / "inference_metadata.yaml").write_text(text, "utf-8")
    same_plan(before, compile_package(tmp_path / "p", out=tmp_path / "after"))


def test_a_number_of_entries_that_the_prompt_lacks_is_refused(tmp_path: Path) -> None:
    """Tensors have no file whose entries could be counted before: they are counted before the embedding runs."""
    declared(tmp_path / "p", True)
    compile_package(tmp_path / "p", out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        inputs = {"request.input_ids": [[1, *[SEEN] * 3]], "pixel_values": picture(8, 8)[1][None]}
        with pytest.raises(genai_runtime.RequestError, match="image-tokens: the prompt holds 3 tokens"):
            model.run({**inputs, "request.max_iterations": [1]})


@pytest.mark.parametrize(
    ("tokens", "code", "words"),
    [
        ({}, "missing-key", "nobody says which token"),
        ({"image_token": SEEN, "audio_token": HEARD}, "bad-value", "one for pictures and one for sounds"),
        ({"image_token": -1}, "bad-value", "-1 is none"),
    ],
)
def test_the_token_of_an_entry_has_to_be_said(tokens: dict[str, int], code: str, words: str, tmp_path: Path) -> None:
    document = declared(tmp_path / "p", True)
    (tmp_path / "p" / "genai_config.json").write_text(json.dumps({**document, "tokens": tokens}))
    told = refused(tmp_path / "p")
    assert (told.code, told.where.file) == (code, "genai_config.json")
    assert "'image_features' of 'media' goes over rows of 'embedding'" in told.what
    assert words in told.what


def test_without_a_token_in_the_configuration_the_refusal_says_where_it_goes(tmp_path: Path) -> None:
    folder = hub_folder(tmp_path / "p", True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "image_token_id": None}))
    assert "as image_token_id (or audio_token_id) in config.json" in refused(folder).help


def test_the_token_may_go_by_its_older_name(tmp_path: Path) -> None:
    folder = hub_folder(tmp_path / "p", True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "image_token_id": None, "image_token_index": SEEN}))
    notes = compile_package(folder, out=tmp_path / "out").notes
    told = f"it goes over the rows that onnx/embed_tokens.onnx gives of the token {SEEN} (image_token_index in config"
    assert any(told in each for each in notes), notes


def test_an_embedding_that_takes_features_needs_no_token(tmp_path: Path) -> None:
    """The graph has the token itself; without one in the configuration no file makes places, but tensors run."""
    folder = hub_folder(tmp_path / "p", False)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "image_token_id": None}))
    compile_package(folder, out=tmp_path / "out")
    prompt, pixels = ids_of(f"the{MARK}"), picture(8, 8)[1]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        inputs = {"request.input_ids": [prompt], "request.max_iterations": [NEW], "pixel_values": pixels[None]}
        made = model.run(inputs, stop_on_eos=False)["tokens"][0].tolist()
    assert made == by_hand(folder, prompt, seen(folder, [pixels]), NEW, False)


def test_a_token_of_another_medium_is_not_offered(tmp_path: Path) -> None:
    """Pictures do not stand where the configuration puts sound."""
    folder = hub_folder(tmp_path / "p", True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "image_token_id": None, "audio_token_id": HEARD}))
    told = refused(folder).help
    assert not told.startswith(ADVICE)
    assert "as image_token_id (or audio_token_id) in config.json" in told


@FORMS
def test_a_decoder_behind_a_flag_is_refused_in_words(alone: bool, tmp_path: Path) -> None:
    """By the folder, which offers no declaration, and by a declaration that somebody writes."""
    folder = tmp_path / "p"
    document = declared(folder, alone)
    (folder / "genai_config.json").unlink()
    decoder = folder / "onnx" / "decoder_model_merged.onnx"
    onnx.save(behind_flag(onnx.load(decoder)), decoder)
    told = refused(folder)
    assert "decoder_model_merged.onnx is merged of two networks behind a flag, and takes embeddings" in told.help
    (folder / "genai_config.json").write_text(json.dumps(document))
    told = refused(folder)
    assert (told.code, told.path) == ("unsupported-package-class", "pipeline.sessions.decoder")
    assert "merged of two networks behind 'use_cache_branch'" in told.what


# ---- one reading -----------------------------------------------------------------------------------------------------


@FORMS
def test_the_plan_is_that_of_what_declares_it(alone: bool, tmp_path: Path) -> None:
    before = compile_package(hub_folder(tmp_path / "p", alone), out=tmp_path / "before")
    declared(tmp_path / "q", alone)
    shutil.copy(tmp_path / "q" / "genai_config.json", tmp_path / "p" / "genai_config.json")
    same_plan(before, compile_package(tmp_path / "p", out=tmp_path / "after"))


def test_what_was_understood_is_said(tmp_path: Path) -> None:
    notes = "\n".join(compile_package(hub_folder(tmp_path / "p", False), out=tmp_path / "out").notes)
    assert "read from the graph onnx/decoder_model_merged.onnx, which takes embeddings" in notes
    assert "embedding: onnx/embed_tokens.onnx runs with every token; 'inputs_embeds' goes to 'inputs_embeds'" in notes
    assert "media: onnx/vision_encoder.onnx runs where its medium is given; 'image_features' goes to" in notes
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.describe()["dialect"] == "plain folder"


def test_an_embedding_and_its_decoder_are_enough(tmp_path: Path) -> None:
    folder = words_and_decoder(tmp_path / "p")
    compile_package(folder, out=tmp_path / "out")
    greedy: dict[str, Any] = {"max_new_tokens": NEW, "temperature": 0.0, "stop_on_eos": False}
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        for prompt in ([1, 9, 14], [5], [3, 40, 41, 42]):
            wanted = by_hand(folder, prompt, np.zeros((0, 1), np.float32), NEW, True)
            assert model.generate(prompt, **greedy).tokens == wanted


@FORMS
def test_no_name_decides(alone: bool, tmp_path: Path) -> None:
    """Ports called by numbers: the same tokens. What a port is called is then the caller's to know."""
    folder = hub_folder(tmp_path / "p", alone)
    pixels, prompt = picture(8, 8)[1], ids_of(f"the{MARK}hat")
    wanted = by_hand(folder, prompt, seen(folder, [pixels]), NEW, alone)
    for file in sorted((folder / "onnx").iterdir()):
        onnx.save(renamed(onnx.load(file)), file)
    compile_package(folder, out=tmp_path / "out")
    asked = onnx.load(folder / "onnx" / "vision_encoder.onnx").graph.input[0].name
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        inputs = {"request.input_ids": [prompt], "request.max_iterations": [NEW], asked: pixels[None]}
        assert model.run(inputs, stop_on_eos=False)["tokens"][0].tolist() == wanted


def test_side_files_count_as_in_other_plain_folders(tmp_path: Path) -> None:
    """The length is config.json's, defaults of a request and their faults are generation_config.json's."""
    folder = hub_folder(tmp_path / "p", True)
    said = {"do_sample": True, "temperature": 0.5, "top_k": 7}
    (folder / "generation_config.json").write_text(json.dumps({**said, "num_beams": 4}, indent=1))
    beams = refused(folder)
    assert (beams.where.file, beams.where.line, beams.path) == ("generation_config.json", 5, "num_beams")
    (folder / "generation_config.json").write_text(json.dumps({**said, "typical_p": 0.5}))
    told = compile_package(folder, out=tmp_path / "out")
    assert ("ignored-key", "typical_p") in {(each.code, each.path) for each in told.problems}
    assert not any(each.where.file == "genai_config.json" for each in told.problems)
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        facts = model.describe()
    assert facts["context_length"] == CONFIG["max_position_embeddings"]
    made = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (made["generation"]["defaults"]["temperature"], made["generation"]["defaults"]["top_k"]) == (0.5, 7)


def test_no_end_token_is_told_where_it_can_be_stated(tmp_path: Path) -> None:
    folder = hub_folder(tmp_path / "p", True)
    (folder / "config.json").write_text(json.dumps({k: v for k, v in CONFIG.items() if k != "eos_token_id"}))
    (folder / "tokenizer_config.json").unlink()
    (told,) = [x for x in compile_package(folder, out=tmp_path / "out").problems if x.code == "no-end-token"]
    assert (told.where.file, told.help) == ("config.json", "state eos_token_id in generation_config.json")


# ---- variants and doubts ---------------------------------------------------------------------------------------------


def test_of_variants_one_of_each_is_named(tmp_path: Path) -> None:
    folder = hub_folder(tmp_path / "p", True)
    for name in ("vision_encoder", "embed_tokens", "decoder_model_merged"):
        shutil.copy(folder / "onnx" / f"{name}.onnx", folder / "onnx" / f"{name}_q4.onnx")
    told = refused(folder)
    assert told.code == "several-graphs"
    assert "embedding of tokens: 2 variants, onnx/embed_tokens.onnx, onnx/embed_tokens_q4.onnx" in told.what
    advised = shlex.split(told.help.removeprefix("choose one of each, for example "))
    assert len(advised) == 6
    assert compile_main([str(folder), "-o", str(tmp_path / "out"), *advised]) == 0
    chosen = ("onnx/vision_encoder_q4.onnx", "onnx/embed_tokens.onnx", "onnx/decoder_model_merged_q4.onnx")
    compile_package(folder, out=tmp_path / "other", options=Options(graph=chosen))
    made = json.loads((tmp_path / "other" / "manifest.json").read_text())
    assert {each["path"] for each in made["files"] if each["path"].endswith(".onnx")} == set(chosen)


def test_variants_of_different_types_do_not_go_together(tmp_path: Path) -> None:
    folder = hub_folder(tmp_path / "p", True)
    half = onnx.load(folder / "onnx" / "vision_encoder.onnx")
    half.graph.node.add(op_type="Cast", input=["image_features"], output=["half"]).attribute.add(
        name="to", type=onnx.AttributeProto.INT, i=onnx.TensorProto.FLOAT16
    )
    half.graph.output[0].name = "half"
    half.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    onnx.save(half, folder / "onnx" / "vision_encoder.onnx")
    told = refused(folder)
    assert told.code == "several-graphs"
    assert "onnx/vision_encoder.onnx gives 'half', and no graph puts that among the embeddings" in told.help


def test_two_graphs_for_pictures_are_two_readings(tmp_path: Path) -> None:
    folder = hub_folder(tmp_path / "p", False)
    look(flat=True).save(folder / "onnx" / "other.onnx")
    told = refused(folder)
    assert "could each be what 'embedding.image_features' takes" in told.what
    assert told.help.startswith(ADVICE)


@pytest.mark.parametrize("colours", [3, 4])
def test_a_token_for_pictures_and_one_for_sounds(colours: int, tmp_path: Path) -> None:
    """A graph that takes three colours makes pictures; of another one nothing tells which token is its own."""
    folder = hub_folder(tmp_path / "p", True)
    if colours != 3:
        graph = onnx.load(folder / "onnx" / "vision_encoder.onnx")
        (cut,) = [each for each in graph.graph.initializer if each.name == "cut"]
        wide = np.concatenate([onnx.numpy_helper.to_array(cut)] * 2, axis=1)[:, :colours]
        cut.CopyFrom(onnx.numpy_helper.from_array(wide, "cut"))
        graph.graph.input[0].type.tensor_type.shape.dim[1].dim_value = colours
        onnx.save(graph, folder / "onnx" / "vision_encoder.onnx")
    (folder / "config.json").write_text(json.dumps({**CONFIG, "audio_token_id": HEARD}))
    if colours == 3:
        compile_package(folder, out=tmp_path / "out")
        return
    told = refused(folder)
    assert "a token for pictures and one for sounds, and onnx/vision_encoder.onnx could make either" in told.what
    assert told.help.startswith(ADVICE)


def test_a_token_that_the_embedding_has_no_row_for(tmp_path: Path) -> None:
    folder = hub_folder(tmp_path / "p", True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "image_token_id": VOCABULARY, "vocab_size": None}))
    told = refused(folder)
    assert (
        f"the token {VOCABULARY} stands for an entry, and onnx/embed_tokens.onnx has rows for {VOCABULARY}" in told.what
    )
    assert told.help.startswith(ADVICE)


def test_sounds_go_in_the_same_way(tmp_path: Path) -> None:
    """An encoder of features [rows, bands, frames], and a token for sounds alone in config.json."""
    folder = hub_folder(tmp_path / "p", True)
    (folder / "onnx" / "vision_encoder.onnx").unlink()
    (folder / "preprocessor_config.json").unlink()
    sketch = Sketch("listen")
    heard = sketch.input("input_features", "float32", "batch", 5, "frames")
    mixed = sketch.op.MatMul(sketch.op.Transpose(heard, perm=[0, 2, 1]), sketch.weight("mix", weights(7, 5, HIDDEN)))
    sketch.output(sketch.op.Tanh(mixed), "audio_features", "float32", "batch", "entries", HIDDEN)
    sketch.save(folder / "onnx" / "audio_encoder.onnx")
    stated = {**CONFIG, "image_token_id": None, "audio_token_id": SEEN}
    (folder / "config.json").write_text(json.dumps(stated))
    notes = compile_package(folder, out=tmp_path / "out").notes
    assert any(f"of the token {SEEN} (audio_token_id in config.json)" in each for each in notes)
    sound = np.random.default_rng(5).standard_normal((1, 5, 3)).astype(np.float32)
    entries = run(folder, "audio_encoder", {"input_features": sound})[0].reshape(-1, HIDDEN)
    prompt = [1, SEEN, SEEN, SEEN, 9]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        inputs = {"request.input_ids": [prompt], "request.max_iterations": [NEW], "input_features": sound}
        made = model.run(inputs, stop_on_eos=False)["tokens"][0].tolist()
    assert made == by_hand(folder, prompt, entries, NEW, True)
