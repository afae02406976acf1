"""Picture files into packages of the field's own exporters: pixels, prompts, positions, tokens; several pictures.

Expected values are another runtime's own (INDEX.md of the data), or come from a loop of bare ONNX Runtime sessions.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime as ort
import pytest
from genai_compiler import compile_package
from genai_runtime.adapters.grid_positions import grid_positions
from genai_runtime.adapters.registry import Adapter
from genai_runtime.cli import main
from genai_runtime.pictures import png_bytes

from tests.data import needs_data
from tests.real_packages import GREEDY, PACKAGES, Compiled, cases, once_each, reliable

pytestmark = needs_data
Image = pytest.importorskip("PIL.Image", reason="Pillow is absent: no picture can be decoded")
Array = np.ndarray[Any, Any]
WITH_PICTURE = ["mobius-gemma3_vl-og", "mobius-mistral3-og", "mobius-qwen2_5_vl-og"]
PLACED = ["mobius-qwen2_5_vl-og", "mobius-qwen3_5-meta"]
PROMPTS = {
    "mobius-gemma3_vl-og": "<start_of_image>hello",
    "mobius-mistral3-og": "[IMG]hello",
    "mobius-qwen2_5_vl-og": "<|vision_start|><|image_pad|><|vision_end|>hello",
}
"""One place for a picture and a word, as the cases' prompts have them with all entries written out."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """A package, compiled and loaded once."""
    return once_each(tmp_path_factory)


def case_of(name: str) -> dict[str, Any]:
    (case,) = cases(name, "image")
    return case


def held(name: str) -> dict[str, Array]:
    with np.load(PACKAGES / name / "image_case.npz") as file:
        return dict(file)


def test_what_is_no_file_is_refused_by_its_type(compiled: Compiled) -> None:
    """What is neither path nor bytes was taken for a file's content."""
    for name in WITH_PICTURE:
        for odd in (np.zeros((3, 3, 3), np.uint8), 5):
            given: Any = [PACKAGES / name / "image.png", odd]
            with pytest.raises(genai_runtime.RequestError) as refused:
                compiled(name).generate(PROMPTS[name], images=given)
            assert (refused.value.code, type(odd).__name__ in refused.value.what) == ("bad-inputs", True)
            assert "images[1]" in refused.value.what


# ---- one picture -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITH_PICTURE)
def test_pixels_are_those_of_the_other_runtime(compiled: Compiled, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the compiled executor makes of the file; within half-precision rounding where the data keeps them so."""
    made: dict[str, Array] = {}
    original = Adapter.__call__

    def seen(adapter: Adapter, *values: Any) -> Any:
        results = original(adapter, *values)
        made.update({port: each.numpy() for (port, _), each in zip(adapter.outputs, results, strict=True)})
        return results

    monkeypatch.setattr(Adapter, "__call__", seen)
    case = case_of(name)
    inputs = {"request.input_ids": [case["prompt"]], "request.image": PACKAGES / name / "image.png"}
    compiled(name).run({**inputs, "request.max_iterations": [1]})
    wanted = held(name)
    rounding = 1e-3 if wanted["pixel_values"].dtype == np.float16 else 0
    np.testing.assert_allclose(made["pixel_values"], wanted["pixel_values"].astype(np.float32), atol=rounding)
    if "image_grid_thw" in wanted:
        assert np.array_equal(made["image_grid_thw"], wanted["image_grid_thw"])
        assert np.array_equal(made["positions"], wanted["position_ids"])


@pytest.mark.parametrize("name", WITH_PICTURE)
def test_tokens_of_a_picture_file_are_the_expected_ones(compiled: Compiled, name: str) -> None:
    """From a text with a place for it, from ids with all entries, at the level of generate and of run."""
    case, file, model = case_of(name), PACKAGES / name / "image.png", compiled(name)
    wanted = reliable(name, case)
    assert wanted
    options: dict[str, Any] = {"images": [file], "max_new_tokens": 16, **GREEDY}
    written = model.generate(PROMPTS[name], add_special_tokens=False, **options)
    assert written.tokens[: len(wanted)] == wanted
    assert written.stats.prompt_tokens == len(case["prompt"])
    assert model.generate(case["prompt"], **options).tokens == written.tokens
    assert model.generate(case["prompt"], **{**options, "images": [file.read_bytes()]}).tokens == written.tokens
    inputs = {"request.input_ids": [case["prompt"]], "request.image": file, "request.max_iterations": [16]}
    assert model.run(inputs, stop_on_eos=False)["tokens"].tolist() == [written.tokens]


SHOWN = """{% for each in messages %}{% if each.content is string %}{{ each.content }}{% else %}
{%- for part in each.content %}{% if part.type == 'image' %}PLACE{% else %}{{ part.text }}{% endif %}
{%- endfor %}{% endif %}{% endfor %}"""


def test_the_command_chats_about_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A template with a word for pictures writes the place; one without any leaves that to the message."""
    name = "mobius-qwen2_5_vl-og"
    package, case, place = tmp_path / name, case_of(name), PROMPTS[name].removesuffix("hello")
    shutil.copytree(PACKAGES / name, package)
    wanted = reliable(name, case)
    asked = ["--image", str(PACKAGES / name / "image.png"), "-n", "16", "--temperature", "0", "--ignore-eos", "--json"]
    for template, said in ((SHOWN.replace("PLACE", place), "hello"), ("{{ messages[0].content }}", PROMPTS[name])):
        (package / "chat_template.jinja").write_text(template)
        compile_package(package, out=tmp_path / "out")
        assert main([str(tmp_path / "out"), "--chat", said, *asked]) == 0
        made = json.loads(capsys.readouterr().out)
        assert made["tokens"][: len(wanted)] == wanted
        assert made["prompt_tokens"] == len(case["prompt"])


@pytest.mark.parametrize("name", WITH_PICTURE)
def test_text_alone_is_as_before(compiled: Compiled, name: str) -> None:
    case = cases(name, "text")[0]
    made = compiled(name).generate(case["prompt"], max_new_tokens=16, **GREEDY).tokens
    assert made[: len(reliable(name, case))] == reliable(name, case)


@pytest.mark.parametrize("name", WITH_PICTURE)
def test_tokens_are_counted_before_a_run(compiled: Compiled, name: str) -> None:
    """As many as the expected prompt has; the file's pixels are not looked at: cut off behind the header they count."""
    case, model, file = case_of(name), compiled(name), PACKAGES / name / "image.png"
    written = {"add_special_tokens": False, "images": [file]}
    assert model.count_tokens(PROMPTS[name], **written) == len(case["prompt"])
    assert model.count_tokens(case["prompt"], images=[file]) == len(case["prompt"])
    assert model.count_tokens("hello", add_special_tokens=False) == 4
    assert model.count_tokens([1, 40, 77]) == 3


@pytest.mark.parametrize("name", PLACED)
def test_positions_follow_from_the_grid(compiled: Compiled, name: str) -> None:
    """The data's own positions, and the tokens that a caller gets who gives no positions, or gives these."""
    case, tensors = case_of(name), held(name)
    entry = 8
    call = grid_positions({"entry_token": entry, "merge": 2})
    none = np.full((3, 1, 1), -1)
    ids = np.array([case["prompt"]])
    made = call({"tokens": ids, "grids": tensors["image_grid_thw"], "given": none})["positions"]
    assert np.array_equal(made, tensors["position_ids"])
    inputs: dict[str, Any] = {"request.input_ids": ids, "request.max_iterations": [16]}
    inputs |= {key: tensors[key] for key in ("pixel_values", "image_grid_thw")}
    wanted = reliable(name, case)
    for positions in ({}, {"position_ids": tensors["position_ids"]}):
        result = compiled(name).run({**inputs, **positions}, stop_on_eos=False)["tokens"].tolist()[0]
        assert result[: len(wanted)] == wanted


@pytest.mark.parametrize("far", [0, 40, 150])
def test_positions_that_a_caller_gives_need_not_be_the_number_of_tokens(compiled: Compiled, far: int) -> None:
    """All but the first three tokens stand further on: later tokens stand behind these."""
    name, folder = "mobius-qwen2_5_vl-og", PACKAGES / "mobius-qwen2_5_vl-og"
    prompt, tensors = case_of(name)["prompt"], held(name)
    places, seen = tensors["position_ids"].copy(), session(folder, "vision_encoder")
    places[..., 3:] += far
    taken = {key: tensors[key] for key in ("pixel_values", "image_grid_thw")}
    features = seen.run(None, {each.name: taken[each.name] for each in seen.get_inputs()})[0]
    inputs = {"request.input_ids": np.array([prompt]), "request.max_iterations": [12], "position_ids": places, **taken}
    made = compiled(name).run(inputs, stop_on_eos=False)["tokens"].tolist()[0]
    assert made == plain_loop(folder, prompt, features, places, 12)


def test_positions_of_pictures_with_text_between_and_repeats_in_time() -> None:
    """Worked by hand: text 0, 1; a picture of 1x2x1 groups; text; one of two moments, of 1x2 groups; text."""
    call = grid_positions({"entry_token": 9, "merge": 1})
    tokens = np.array([[5, 5, 9, 9, 5, 9, 9, 9, 9, 5]])
    grids = np.array([[1, 2, 1], [2, 1, 2]])
    made = call({"tokens": tokens, "grids": grids, "given": np.full((3, 1, 1), -1)})["positions"]
    assert made[:, 0].tolist() == [
        [0, 1, 2, 2, 4, 5, 5, 5, 5, 7],
        [0, 1, 2, 3, 4, 5, 5, 5, 5, 7],
        [0, 1, 2, 2, 4, 5, 6, 5, 6, 7],
    ]


# ---- several pictures ------------------------------------------------------------------------------------------------


def png(height: int, width: int) -> bytes:
    levels = np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8)
    return png_bytes(levels)


def session(folder: Path, part: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(folder / part / "model.onnx", options)


def plain_loop(folder: Path, prompt: list[int], features: Array, positions: Array, count: int) -> list[int]:
    """Greedy tokens of the package's own graphs. positions: of the prompt, [1, n] or [3, 1, n]."""
    embed, decode = session(folder, "embedding"), session(folder, "decoder")
    names = [each.name for each in decode.get_inputs() if each.name.startswith("past")]
    past = {name: np.zeros((1, 2, 0, 16), np.float32) for name in names}
    outputs = [each.name for each in decode.get_outputs()]
    fed, length, made = np.array([prompt]), 0, list[int]()
    while len(made) < count:
        embeds = embed.run(None, {"input_ids": fed, "image_features": features})[0]
        length += fed.shape[1]
        feeds = {"inputs_embeds": embeds, "attention_mask": np.ones((1, length), np.int64), "position_ids": positions}
        result = dict(zip(outputs, decode.run(None, {**feeds, **past}), strict=True))
        past = {name: result[name.replace("past_key_values", "present")] for name in names}
        made.append(int(result["logits"][0, -1].argmax()))
        fed, features = np.array([[made[-1]]]), np.zeros((0, features.shape[1]), np.float32)
        positions = np.full((*positions.shape[:-1], 1), positions.max() + 1)
    return made


def test_pictures_of_different_size_run_one_by_one(compiled: Compiled) -> None:
    """A graph for one picture, cropped to its own size: three and two columns of cells, one after the other."""
    name, folder = "mobius-mistral3-og", PACKAGES / "mobius-mistral3-og"
    files = [png(56, 84), png(28, 56)]
    seen = session(folder, "vision_encoder")
    mean, std = np.array([0.48145466, 0.4578275, 0.40821073]), np.array([0.26862954, 0.26130258, 0.27577711])
    features: list[Array] = []
    for (height, width), file in zip(((56, 84), (28, 56)), files, strict=True):
        levels = np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8)
        assert file == png_bytes(levels)
        pixels = ((levels[..., ::-1] / 255 - mean) / std).astype(np.float32)  # the file's ConvertRGB turns them around
        features.append(seen.run(None, {"pixel_values": pixels.transpose(2, 0, 1)[None]})[0])
    prompt = [4, 4, 4, 12, 4, 4, 4, 13, 274, 4, 4, 13, 91]
    wanted = plain_loop(folder, prompt, np.concatenate(features), np.arange(len(prompt))[None], 12)
    model = compiled(name)
    options: dict[str, Any] = {"images": files, "max_new_tokens": 12, **GREEDY}
    assert model.generate(prompt, **options).tokens == wanted
    assert model.generate([4, 274, 4, 91], **options).tokens == wanted
    assert model.count_tokens([4, 274, 4, 91], images=files) == len(prompt)


def test_pictures_with_grids_run_together(compiled: Compiled) -> None:
    """A graph for all patches; places of the second picture lie behind the first one's. Positions by hand."""
    folder = PACKAGES / "mobius-qwen2_5_vl-og"
    files = [png(56, 84), png(56, 28)]
    model = compiled(folder.name)
    made: list[Array] = []
    seen = session(folder, "vision_encoder")
    for at, grid in enumerate(([1, 4, 6], [1, 4, 2])):
        read = model._executor.image_processor  # type: ignore[attr-defined]
        tensors = read.call({"encoded": np.frombuffer(files[at], np.uint8)})
        assert tensors["image_grid_thw"].tolist() == [grid]
        made.append(seen.run(None, {"pixel_values": tensors["pixel_values"], "image_grid_thw": np.array([grid])})[0])
    prompt = [6, *[8] * 6, 7, 6, *[8] * 2, 7, 274]
    text = [[0], [4], [5], [8], [9]]
    axes = [
        [0, *[1] * 6, 4, 5, *[6] * 2, 8, 9],
        [0, 1, 1, 1, 2, 2, 2, 4, 5, 6, 7, 8, 9],
        [0, 1, 2, 3, 1, 2, 3, 4, 5, 6, 6, 8, 9],
    ]
    assert all([axis[at] for axis in axes] == place * 3 for at, place in zip((0, 7, 8, 11, 12), text, strict=True))
    wanted = plain_loop(folder, prompt, np.concatenate(made), np.array(axes)[:, None], 12)
    assert model.generate(prompt, images=files, max_new_tokens=12, **GREEDY).tokens == wanted
    one = "<|vision_start|><|image_pad|><|vision_end|>"
    written = model.tokenizer.decode([274])
    counted = model.count_tokens(one + one + written, images=files, add_special_tokens=False)
    assert counted == len(model.tokenizer.encode(written, add_special_tokens=False)) + len(prompt) - 1


def test_rows_of_a_batch_see_the_same_pictures(compiled: Compiled) -> None:
    model, files = compiled("mobius-mistral3-og"), [PACKAGES / "mobius-mistral3-og" / "image.png"]
    options: dict[str, Any] = {"images": files, "max_new_tokens": 8, **GREEDY}
    prompts = [[4, 274], [4, 91, 91]]
    rows = model.generate(batch=prompts, **options).rows
    assert [row.tokens for row in rows] == [model.generate(each, **options).tokens for each in prompts]


def test_a_program_of_the_document_takes_pictures(compiled: Compiled) -> None:
    """Patches under a budget of 36, an entry each 3x3: pictures of 4, 3 and 2 entries, and what each takes of a prompt.

    The graph takes one picture a run; entries are those that its features have.
    """
    model = compiled("mobius-gemma4_vl-meta")
    for size, entries in (((96, 96), 4), ((56, 84), 2), ((48, 96), 2), ((30, 96), 3)):
        prompt = [1, 10, *[4] * entries, 11, 40]
        made = model.generate([1, 10, 4, 11, 40], images=[png(*size)], max_new_tokens=3, **GREEDY)
        assert made.stats.prompt_tokens == len(prompt), size
        assert made.tokens == model.generate(prompt, images=[png(*size)], max_new_tokens=3, **GREEDY).tokens
    two = [png(96, 96), png(48, 96)]
    assert model.count_tokens([4, 9, 4], images=two) == 4 + 1 + 2
    assert len(model.generate([4, 9, 4], images=two, max_new_tokens=3, **GREEDY).tokens) == 3


# ---- what is refused before a run ------------------------------------------------------------------------------------

ABSURD = [
    ("[IMG]hello", 0, "holds 1 place for pictures ('[IMG]'), and no pictures were given"),
    ("hello", 1, "holds no places for pictures ('[IMG]'), and 1 picture was given (6 tokens)"),
    ("[IMG]hello", 2, "holds 1 place for pictures ('[IMG]'), and 2 pictures were given (6, 6 tokens)"),
    ("[IMG][IMG]hello", 1, "holds 2 places for pictures"),
    ([4] * 5, 1, "holds 5 places for pictures"),
    ([4] * 7, 1, "holds 7 places for pictures"),
    ([1, 40], 1, "holds no places for pictures"),
    ([1, 4, 40], 0, "holds 1 of '[IMG]', and no pictures were given"),
]


@pytest.mark.parametrize(("prompt", "count", "words"), ABSURD)
def test_numbers_that_do_not_agree_are_refused_both_ways(
    compiled: Compiled, prompt: Any, count: int, words: str
) -> None:
    model, file = compiled("mobius-mistral3-og"), PACKAGES / "mobius-mistral3-og" / "image.png"
    calls: list[Callable[[], Any]] = [
        lambda: model.generate(prompt, images=[file] * count),
        lambda: model.count_tokens(prompt, images=[file] * count),
    ]
    for call in calls:
        with pytest.raises(genai_runtime.RequestError) as refused:
            call()
        assert refused.value.code == "image-tokens"
        assert words in refused.value.what


def test_pictures_of_a_batch_hold_for_every_row(compiled: Compiled) -> None:
    """Two prompts of one place, and two pictures, are no picture each: the row that does not agree is named."""
    model, file = compiled("mobius-mistral3-og"), PACKAGES / "mobius-mistral3-og" / "image.png"
    for batch, images, row in ((["[IMG]a", "[IMG]b"], 2, 0), (["[IMG]a", "b"], 1, 1)):
        with pytest.raises(genai_runtime.RequestError) as refused:
            model.generate(batch=batch, images=[file] * images)
        assert refused.value.what.startswith(f"row {row}: the prompt holds ")
        assert refused.value.help.endswith("; images=[...] holds for every row: each sees all of them")


def test_a_run_of_files_holds_its_prompt_against_them(compiled: Compiled) -> None:
    model, file = compiled("mobius-mistral3-og"), PACKAGES / "mobius-mistral3-og" / "image.png"
    with pytest.raises(genai_runtime.RequestError) as refused:
        model.run({"request.input_ids": [[4, 4, 274]], "request.image": file})
    assert refused.value.code == "image-tokens"
    assert "2 of '[IMG]'" in refused.value.what
    with pytest.raises(genai_runtime.RequestError, match="as files and as tensors"):
        model.run(
            {
                "request.input_ids": [[4] * 6],
                "request.image": file,
                "pixel_values": held("mobius-mistral3-og")["pixel_values"],
            }
        )


def test_a_package_that_takes_no_pictures_names_the_switch(
    compiled: Compiled, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compile_package(PACKAGES / "mobius-llama-og", out=tmp_path / "out")
    (tmp_path / "file").write_bytes(b"")
    for switch in ("--image", "--audio"):
        assert main([str(tmp_path / "out"), "--tokens", "1,40", switch, str(tmp_path / "file")]) == 2
        assert f"{switch}: the package has no input" in capsys.readouterr().err


@pytest.mark.parametrize("name", WITH_PICTURE)
def test_the_command_takes_pictures(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compile_package(PACKAGES / name, out=tmp_path / "out")
    case, file = case_of(name), str(PACKAGES / name / "image.png")
    ids = ",".join(map(str, case["prompt"]))
    options = ["-n", "8", "--temperature", "0", "--ignore-eos", "--image", file]
    assert main([str(tmp_path / "out"), "--tokens", ids, *options]) == 0
    count = min(8, len(reliable(name, case)))
    assert [int(each) for each in capsys.readouterr().out.split(",")][:count] == case["greedy"][:count]
    assert main([str(tmp_path / "out"), "--prompt", PROMPTS[name], "--json", *options]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["prompt_tokens"] == len(case["prompt"])
    assert shown["tokens"][:count] == case["greedy"][:count]
