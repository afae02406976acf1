"""A folder as hubs hold models of pictures and text is declared as its refusal says, and runs with picture files.

Expected tokens come from a plain loop over the three graphs; Pillow and numpy make the pixels.
"""

import io
import json
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.cli import main as compile_main
from genai_compiler.convert import convert_package
from genai_compiler.lower.plain_choice import Candidate, _entry_token
from genai_compiler.problem import Problem
from genai_compiler.read.signature import Port, Signature
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
    seen,
)
from tests.test_convert import same_plan
from tools.fixtures.genai_v2 import HEARD
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
    """The folder with what its refusal says, word by word."""
    told = refused(hub_folder(folder, alone))
    assert told.code == "several-graphs"
    document: dict[str, Any] = json.loads(told.help.removeprefix(ADVICE))
    (folder / "genai_config.json").write_text(json.dumps(document))
    return document


def ids_of(text: str, pictures: int = 1) -> list[int]:
    """Each place of a picture is its entries."""
    ids = tokenizer((MARK, "<unused>")).encode(text, add_special_tokens=False).ids
    assert ids.count(SEEN) == pictures
    return [one for each in ids for one in ([SEEN] * CELLS if each == SEEN else [each])]


@FORMS
def test_what_the_refusal_says_runs_with_a_picture(
    alone: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "p", tmp_path / "out"
    document = declared(folder, alone)
    assert document["tokens"] == {"image_token": SEEN}
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


@FORMS
def test_without_a_token_in_the_configuration_the_refusal_says_where_it_goes(alone: bool, tmp_path: Path) -> None:
    folder = hub_folder(tmp_path / "p", alone)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "image_token_id": None}))
    told = refused(folder).help
    assert ("as image_token_id (or audio_token_id) in config.json" in told) == alone
    assert told.startswith(ADVICE) != alone
    (folder / "config.json").write_text(json.dumps({**CONFIG, "image_token_id": None, "image_token_index": SEEN}))
    assert json.loads(refused(folder).help.removeprefix(ADVICE))["tokens"] == {"image_token": SEEN}


def test_a_token_of_another_medium_is_not_offered(tmp_path: Path) -> None:
    """Pictures do not stand where the configuration puts sound."""
    folder = hub_folder(tmp_path / "p", True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "image_token_id": None, "audio_token_id": HEARD}))
    told = refused(folder).help
    assert not told.startswith(ADVICE)
    assert "as image_token_id (or audio_token_id) in config.json" in told


def port(name: str, dtype: str, *shape: int | str) -> Port:
    return Port(name, dtype, shape)


PICTURES = [port("pixel_values", "float32", "pictures", 3, 8, 8)]
PATCHES = [port("pixel_values", "float32", "patches", 48), port("image_grid_thw", "int64", "pictures", 3)]
SOUNDS = [port("input_features", "float32", "sounds", 80, "frames")]
UNCLEAR = [port("values", "float32", "rows", "n", 40)]
BOTH = {"image_token_id": SEEN, "audio_token_index": HEARD}


@pytest.mark.parametrize(
    ("inputs", "others", "config", "tokens"),
    [
        (PICTURES, [], BOTH, {"image_token": SEEN}),
        (PICTURES, [], {"audio_token_id": HEARD}, {}),
        (PATCHES, [], BOTH, {"image_token": SEEN}),
        (SOUNDS, [], BOTH, {"audio_token": HEARD}),
        (SOUNDS, [], {"image_token_id": SEEN}, {}),
        (UNCLEAR, [], BOTH, {}),
        (UNCLEAR, [], {"audio_token_id": HEARD}, {"audio_token": HEARD}),
        (UNCLEAR, [PICTURES], BOTH, {"audio_token": HEARD}),
        (UNCLEAR, [SOUNDS], BOTH, {"image_token": SEEN}),
        (UNCLEAR, [PICTURES], {"image_token_id": SEEN}, {}),
    ],
)
def test_which_token_stands_for_what_a_graph_makes(
    inputs: list[Port], others: list[list[Port]], config: dict[str, int], tokens: dict[str, int]
) -> None:
    graphs = [Candidate("a.onnx", signature(each), None) for each in (inputs, *others)]  # type: ignore[arg-type]
    assert _entry_token(graphs[0], graphs, config) == tokens


def signature(inputs: list[Port]) -> Signature:
    return Signature(tuple(inputs), (), (), (), (), ())


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
