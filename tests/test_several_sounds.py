"""Several sounds in one prompt, and how many entries each has: told by files, by numbers beside them, by shapes.

Each sound goes through its graph alone in the plain loops here, on features written out as sums, and its entries stand
behind those of the sound before it.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime as ort
import pytest
import yaml
from genai_compiler import compile_package
from genai_compiler.convert import convert_package
from genai_runtime import RequestError
from genai_runtime.adapters.audio.one_by_one import one_sound
from onnx import helper, load, numpy_helper, save

from tests.conftest import FIXTURES
from tests.reference import features
from tests.reference.sounds import log_mel
from tests.reference.values import Array
from tests.runtime.audio.test_stated_features import noise, wav
from tests.test_own_tokens import expected, in_models
from tests.test_processor_fixtures import (
    BUDGET,
    FIELDS,
    GREEDY,
    NONE,
    WORD,
    entries,
    in_natural_bands,
    loop,
    on_fields,
    picture,
)
from tools.fixtures.genai_v2 import HEARD, SEEN, embedded_decoder, embedding, write_config
from tools.fixtures.graph import Sketch, weights
from tools.fixtures.network import CONTEXT, HEAD, HIDDEN, KV_HEADS, LAYERS, VOCABULARY
from tools.fixtures.processors import EVEN_BANDS, HTK_BANDS, MARKS, sounds, tiny_fields_v2

Models = Callable[[str], genai_runtime.Model]
OWN = "tiny-own-tokens-v1"
LENGTHS = [(1600, 4000), (4000, 1600), (1600, 1600, 3200)]


def heard_of(samples: Array) -> tuple[dict[str, Array], int]:
    """What a graph of HTK bands takes of one sound, its entries."""
    made = features.htk(samples, HTK_BANDS, 0.5).astype(np.float32)[None]
    return {"input_features": made, "input_features_mask": np.ones(made.shape[:2], bool)}, -(-made.shape[1] // 4)


# ---- several in one prompt -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("case", [BUDGET, OWN])
def test_each_sound_is_heard_by_itself_in_order(case: str, lengths: Sequence[int], model: Models) -> None:
    clips = [noise(count, seed) for seed, count in enumerate(lengths)]
    taken = [heard_of(each) for each in clips]
    end, begins, ends = 7, 60, 61
    prompt = [each for _, count in taken for each in [*WORD, end, end, begins, *[HEARD] * count, ends, end, end]]
    media = {"audio_features": np.concatenate([entries(case, "speech", each) for each, _ in taken])}
    wanted = expected(FIXTURES / case, prompt, media)[:8] if case == OWN else loop(
        case, prompt, {**media, "image_features": NONE}
    )  # fmt: skip
    files: dict[str, Any] = {"audio": [wav(each) for each in clips]}
    text = "hi<|audio|>" * len(clips)
    assert model(case).count_tokens(text, **files) == len(prompt)
    made = model(case).generate(text, **files, **GREEDY).tokens
    assert made[: len(wanted)] == wanted
    assert model(case).generate(prompt, **files, **GREEDY).tokens == made
    inputs = {"request.input_ids": [prompt], "request.audio": files["audio"], "request.max_iterations": [8]}
    assert model(case).run(inputs, stop_on_eos=False)["tokens"].tolist() == [made]


@pytest.mark.parametrize("rates", [(16000, 16000), (8000, 16000), (16000, 8000)], ids=str)
@pytest.mark.parametrize("pictures", [0, 1])
def test_sounds_of_several_rates_beside_a_picture(pictures: int, rates: Sequence[int], model: Models) -> None:
    """Each has a count and a mask of its own, and all are told the same of the media there are."""
    clips = [noise(rate // size, rate) for size, rate in zip((10, 4), rates, strict=True)]
    taken = [in_natural_bands(each, 2 + pictures, rate) for each, rate in zip(clips, rates, strict=True)]
    (levels, data) = picture(20, 50)
    seen, places = on_fields(levels)
    prompt = [*[SEEN] * (places * pictures), *[HEARD] * taken[0][1], *WORD, *[HEARD] * taken[1][1]]
    media = {
        "image_features": entries(FIELDS, "vision", seen) if pictures else NONE,
        "audio_features": np.concatenate([entries(FIELDS, "speech", each) for each, _ in taken]),
    }
    files: dict[str, Any] = {"audio": [wav(*each) for each in zip(clips, rates, strict=True)]}
    files |= {"images": [data]} if pictures else {}
    text = "<|image_1|>" * pictures + "<|audio_1|>hi<|audio_2|>"
    wanted = loop(FIELDS, prompt, media)
    assert model(FIELDS).count_tokens(text, **files) == len(prompt)
    assert model(FIELDS).generate(text, **files, **GREEDY).tokens[: len(wanted)] == wanted


def test_the_converted_document_hears_several_as_well(tmp_path: Path) -> None:
    package = tmp_path / "p"
    package.mkdir()
    tiny_fields_v2(package)
    text = convert_package(package).text
    (package / "genai_config.json").unlink()
    (package / "inference_metadata.yaml").write_text(text)
    compile_package(package, out=tmp_path / "out")
    clips = [noise(1600), noise(4000)]
    taken = [in_natural_bands(each, 2) for each in clips]
    prompt = [*[HEARD] * sum(count for _, count in taken), *WORD]
    heard = np.concatenate([entries(FIELDS, "speech", each) for each, _ in taken])
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        made = model.generate(prompt, audio=[wav(each) for each in clips], **GREEDY).tokens
    wanted = loop(FIELDS, prompt, {"audio_features": heard, "image_features": NONE})
    assert made[: len(wanted)] == wanted


REFERENCE = {
    (3200,): [4, 47, 43, 47, 43, 47, 47, 47],
    (3200, 8000): [14, 14, 4, 4, 4, 30, 30, 30],
    (8000, 3200): [14, 14, 4, 4, 30, 30, 30, 30],
}
"""Samples of the sounds -> greedy tokens by onnxruntime-genai 0.18, with a tokenizer that has the ids it looks for.

There they are rows of one batch, filled up, and the graph drops what its counts leave out."""


@pytest.mark.parametrize("lengths", REFERENCE, ids=str)
def test_tokens_are_those_of_the_reference(lengths: tuple[int, ...], tmp_path: Path) -> None:
    package = tmp_path / "p"
    package.mkdir()
    tiny_fields_v2(package)
    _dropping(package / "speech.onnx")
    compile_package(package, out=tmp_path / "out")
    text = {1: "hi<|audio_1|>", 2: "<|audio_1|>hi<|audio_2|>"}[len(lengths)]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        files = [wav(noise(each)) for each in lengths]
        assert model.generate(text, audio=files, **GREEDY).tokens == REFERENCE[lengths]


def _dropping(file: Path) -> None:
    """Of a graph's entries, those within each sound's count: its last Reshape gets a Compress behind it."""
    model = load(file)
    graph = model.graph
    last = next(node for node in graph.node if "audio_features" in node.output)
    rows, last.output[0] = last.input[0], "entries.all"
    numbers = {"zero": 0, "one": 1}
    graph.initializer.extend(numpy_helper.from_array(np.array(each), name) for name, each in numbers.items())
    graph.initializer.extend(
        numpy_helper.from_array(np.array([each]), name) for name, each in (("axis", 1), ("flat", -1))
    )
    graph.node.extend([
        helper.make_node("Shape", [rows], ["how.many"], start=1, end=2),
        helper.make_node("Squeeze", ["how.many"], ["count"]),
        helper.make_node("Range", ["zero", "count", "one"], ["at"]),
        helper.make_node("Unsqueeze", ["audio_sizes", "axis"], ["sizes.2"]),
        helper.make_node("Less", ["at", "sizes.2"], ["there.2"]),
        helper.make_node("Reshape", ["there.2", "flat"], ["there"]),
        helper.make_node("Compress", ["entries.all", "there"], ["audio_features"], axis=0),
    ])  # fmt: skip
    save(model, file)


@pytest.mark.parametrize(
    ("text", "count"), [("<|audio_1|>hi", 2), ("<|audio_1|><|audio_2|>hi", 1), ("<|audio_1|><|audio_2|>", 3)]
)
def test_places_and_sounds_that_do_not_agree(text: str, count: int, model: Models) -> None:
    with pytest.raises(RequestError, match="audio-tokens"):
        _ = model(FIELDS).generate(text, audio=[wav(noise(800))] * count, **GREEDY).tokens


def test_the_adapter_takes_one_sound_out() -> None:
    """Frames behind the bands or before them; masks and numbers too; what is not a sound's own is cut off."""
    rows = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
    mask, count, sizes = np.ones((2, 3), bool), np.array([5, 6]), np.array([2, 3])
    made = one_sound({"axis": 1})({"x": rows, "m": mask, "n": count, "sizes": sizes, "at": np.array([0])})
    assert made["x"].tolist() == rows[:1, :2].tolist()
    assert (made["m"].shape, made["n"].tolist(), made["next"].tolist(), made["more"].tolist()) == (
        (1, 2), [5], [1], [True])  # fmt: skip
    last = one_sound({"axis": 2})({"x": rows, "sizes": sizes, "at": np.array([1])})
    assert last["x"].tolist() == rows[1:, :, :3].tolist()
    assert last["more"].tolist() == [False]
    kept = one_sound({"axis": 2, "blank": 1})({"x": rows, "sizes": sizes, "at": np.array([0])})
    assert kept["x"].tolist() == rows[:1, :, :3].tolist()
    with pytest.raises(ValueError, match="axis"):
        one_sound({})


# ---- how many entries ------------------------------------------------------------------------------------------------


def strided(folder: Path, *convolutions: tuple[int, int, int], drops: bool = False, **model: Any) -> Path:
    """Version 2 with sounds in evened bands. convolutions: (kernel, stride, padding) of the graph; drops: only a run
    tells how many entries it gives; model: of a version 1 block beside.
    """
    folder.mkdir()
    sketch = Sketch("strided")
    op = sketch.op
    x = sketch.input("audio_signal", "float32", "sounds", EVEN_BANDS, "frames")
    lengths = sketch.input("length", "int64", "sounds")
    told = op.Mul(op.Unsqueeze(op.Cast(lengths, to=1), [1, 2]), op.Constant(value_float=0.001))
    for at, (kernel, stride, padding) in enumerate(convolutions):
        wide = EVEN_BANDS if at == 0 else HIDDEN
        weight = sketch.weight(
            f"conv.{at}", weights(60 + at, HIDDEN, wide * kernel, scale=0.3).reshape(HIDDEN, wide, -1)
        )
        x = op.Tanh(op.Conv(x, weight, kernel_shape=[kernel], strides=[stride], pads=[padding, padding]))
    x = op.Reshape(op.Transpose(op.Add(x, told), perm=[0, 2, 1]), [-1, HIDDEN])
    if drops:
        kept = op.Greater(op.ReduceSum(x, op.Constant(value_ints=[1]), keepdims=0), op.Constant(value_float=-1e9))
        x = op.Compress(x, kept, axis=0)
    sketch.output(x, "audio_features", "float32", "entries", HIDDEN)
    sketch.save(folder / "speech.onnx")
    embedding((("audio_features", HEARD, "frames"),)).save(folder / "embedding.onnx")
    embedded_decoder().save(folder / "decoder.onnx")
    (folder / "hears.json").write_text(json.dumps(sounds(
        ("AudioDecoder", {"max_samples": 0}), ("NemoLogMel", {"num_mels": EVEN_BANDS}), ("PerFeatureNormalize", {})
    )))  # fmt: skip
    pipeline = {
        "sessions": {name: {"file": f"{name}.onnx"} for name in ("speech", "embedding", "decoder")},
        "flow": [{"run": "speech"}, {"run": "embedding"}, {"run": "decoder", "when": "always"}],
        "dataflow": [
            {"from": "speech.audio_features", "to": "embedding.audio_features"},
            {"from": "embedding.inputs_embeds", "to": "decoder.inputs_embeds"},
        ],
        "preprocessing": {"audio": {"config": "hears.json"}},
    }
    for each in pipeline["flow"]:
        assert isinstance(each, dict)
        each.setdefault("when", "prompt")
    write_config(folder, pipeline, {"audio_token": HEARD}, MARKS)
    if model:
        config = json.loads((folder / "genai_config.json").read_text())
        (folder / "genai_config.json").write_text(json.dumps({**config, "model": model}))
    return folder


def entries_of(package: Path, samples: Array) -> Array:
    """What the package's graph makes of one sound: features with silence of half a transform at both ends."""
    rows = features.evened(features.emphasised(samples, EVEN_BANDS))
    given = {"audio_signal": rows[None].astype(np.float32), "length": np.array([rows.shape[1]])}
    session = ort.InferenceSession(package / "speech.onnx", providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, given)[0])


FORMS = {
    "halved twice, filled up": [(3, 2, 1), (3, 2, 1)],
    "thirds of what is there": [(3, 3, 0)],
    "halved twice, not filled up": [(3, 2, 0), (3, 2, 0)],
    "two, three, and a wide one": [(5, 2, 1), (3, 3, 0), (5, 1, 0)],
}
CLIPS = (5120, 6400, 8123)


@pytest.mark.parametrize("form", FORMS)
def test_the_graphs_shapes_tell_how_many_entries_a_sound_has(form: str, tmp_path: Path) -> None:
    package = strided(tmp_path / "p", *FORMS[form])
    result = compile_package(package, out=tmp_path / "out")
    assert not [each for each in result.problems if each.code == "unknown-places"]
    clips = [noise(each) for each in CLIPS]
    made = [entries_of(package, each) for each in clips]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        for each, own in zip(clips, made, strict=True):
            assert model.count_tokens("hi<|audio_1|>", audio=[wav(each)]) == len(WORD) + len(own)
        files = [wav(each) for each in clips[:2]]
        prompt = [*[HEARD] * len(made[0]), *WORD, *[HEARD] * len(made[1])]
        assert len(prompt) < 60
        tokens = model.generate("<|audio_1|>hi<|audio_2|>", audio=files, **GREEDY).tokens
        assert tokens == model.generate(prompt, audio=files, **GREEDY).tokens
    wanted = plain(package, prompt, np.concatenate(made[:2]), len(tokens))
    assert tokens[: len(wanted)] == wanted


def plain(package: Path, prompt: list[int], heard: Array, count: int) -> list[int]:
    """Greedy tokens by running the whole text anew for each."""
    names = ("embedding", "decoder")
    embed, decoder = (
        ort.InferenceSession(package / f"{each}.onnx", providers=["CPUExecutionProvider"]) for each in names
    )
    past = {each.name: np.zeros((1, 2, 0, 16), np.float32) for each in decoder.get_inputs() if "past" in each.name}
    ids = list(prompt)
    for _ in range(count):
        (rows,) = embed.run(None, {"input_ids": np.array([ids]), "audio_features": heard})
        ones = {"attention_mask": np.ones((1, len(ids)), np.int64), "position_ids": np.arange(len(ids))[None]}
        ids.append(int(decoder.run(["logits"], {"inputs_embeds": rows, **ones, **past})[0][0, -1].argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("version", [1, 2])
def test_a_number_beside_the_file_says_it_where_no_shape_does(version: int, tmp_path: Path) -> None:
    package = strided(tmp_path / "p", (3, 2, 1), (3, 2, 1), drops=True, subsampling_factor=4)
    if version == 1:
        names = ("speech", "embedding", "decoder")
        model: dict[str, Any] = {name: {"filename": f"{name}.onnx"} for name in names}
        model["speech"]["config_filename"] = "hears.json"
        model["decoder"] |= {"num_hidden_layers": LAYERS, "num_key_value_heads": KV_HEADS, "head_size": HEAD}
        model |= {"subsampling_factor": 4, "audio_token_id": HEARD, "context_length": CONTEXT, "vocab_size": VOCABULARY}
        (package / "genai_config.json").write_text(json.dumps({"model": model}))
    assert not [
        each for each in compile_package(package, out=tmp_path / "out").problems if each.code == "unknown-places"
    ]
    clip = noise(1600)
    made = entries_of(package, clip)
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.count_tokens("hi<|audio_1|>", audio=[wav(clip)]) == len(WORD) + len(made)
        tokens = model.generate("hi<|audio_1|>", audio=[wav(clip)], **GREEDY).tokens
    wanted = plain(package, [*WORD, *[HEARD] * len(made)], made, 8)
    assert tokens[: len(wanted)] == wanted


def test_where_nothing_says_it_a_prompt_is_held_against_what_the_graph_gives(tmp_path: Path) -> None:
    """The warning of the compiler, the refusal to count, and both numbers before the decoder runs."""
    package = strided(tmp_path / "p", (3, 2, 1), (3, 2, 1), drops=True)
    (doubt,) = [
        each for each in compile_package(package, out=tmp_path / "out").problems if each.code == "unknown-places"
    ]
    assert "how many entries a sound has" in doubt.what
    clip = noise(1600)
    made = entries_of(package, clip)
    full = [*WORD, *[HEARD] * len(made)]
    with genai_runtime.load(tmp_path / "out", threads=1, timings=True) as model:
        with pytest.raises(RequestError, match="unknown-count"):
            model.count_tokens("hi<|audio_1|>", audio=[wav(clip)])
        assert model.count_tokens(full, audio=[wav(clip)]) == len(full)
        for wrong in ("hi<|endoftext11|>", full[:-1], [*full, HEARD]):
            assert model.timings is not None
            model.timings.clear()
            with pytest.raises(RequestError, match=rf"audio-tokens.*these have {len(made)} entries"):
                _ = model.generate(wrong, audio=[wav(clip)], **GREEDY).tokens
            assert "decoder" not in [each.name for each in model.timings.spans]
        tokens = model.generate(full, audio=[wav(clip)], **GREEDY).tokens
    wanted = plain(package, full, made, 8)
    assert tokens[: len(wanted)] == wanted


def test_a_stated_number_that_is_false_is_refused_before_the_decoder_runs(tmp_path: Path) -> None:
    package = strided(tmp_path / "p", (3, 2, 1), (3, 2, 1), subsampling_factor=8)
    compile_package(package, out=tmp_path / "out")
    clip = noise(1600)
    with genai_runtime.load(tmp_path / "out", threads=1) as model, pytest.raises(RequestError) as refused:
        _ = model.generate("hi<|audio_1|>", audio=[wav(clip)], **GREEDY).tokens
    assert refused.value.code == "audio-tokens"
    assert f"these have {len(entries_of(package, clip))} entries" in refused.value.what


# ---- clips of one length, by a program or by what is assumed ---------------------------------------------------------

BANDS, FRAMES = 80, 100


def clipped(folder: Path, said: str) -> Path:
    """Log-mel features of one second before an embedding. said: what says so: a file, a program, or nothing."""
    strided(folder, (3, 2, 1))
    sketch = Sketch("clipped")
    op, heard = sketch.op, sketch.input("audio_signal", "float32", "sounds", BANDS, FRAMES)
    x = op.MatMul(op.Transpose(heard, perm=[0, 2, 1]), sketch.weight("mix", weights(70, BANDS, HIDDEN, scale=0.3)))
    x = op.Tanh(op.Slice(x, [0], [1 << 30], [1], [25]))
    sketch.output(op.Reshape(x, [-1, HIDDEN]), "audio_features", "float32", "entries", HIDDEN)
    sketch.save(folder / "speech.onnx")
    (folder / "hears.json").unlink()
    config = json.loads((folder / "genai_config.json").read_text())
    del config["pipeline"]["preprocessing"]
    (folder / "genai_config.json").write_text(json.dumps(config))
    if said == "file":
        flat = {"feature_size": BANDS, "n_fft": 400, "hop_length": 160, "chunk_length": 1, "sampling_rate": 16000}
        (folder / "preprocessor_config.json").write_text(json.dumps(flat))
    if said == "program":
        (folder / "genai_config.json").unlink()
        in_models(folder)
        document = yaml.safe_load((folder / "inference_metadata.yaml").read_text())
        document["pipeline"]["models"]["speech"] = {"filename": "speech.onnx"}
        document["pipeline"]["dataflow"] += [{"from": "speech.audio_features", "to": "embedding.audio_features"}]
        steps: list[dict[str, Any]] = [{"op": "decode"}, {"op": "resample", "sample_rate": 16000}]
        steps += [{"op": "pad", "target_length": 160 * FRAMES}, {"op": "log_mel", "num_mel_bins": BANDS}]
        output = {"name": "speech.audio_signal", "content": "audio_features", "dtype": "fp32"}
        document["preprocessing"] = {"audio": {"transforms": steps, "outputs": [output]}}
        (folder / "inference_metadata.yaml").write_text(yaml.safe_dump(document))
    return folder


@pytest.mark.parametrize("said", ["file", "program", "nothing"])
def test_clips_of_one_length_have_as_many_entries_as_the_graphs_shapes_say(said: str, tmp_path: Path) -> None:
    package = clipped(tmp_path / "p", said)
    codes = {each.code for each in compile_package(package, out=tmp_path / "out").problems}
    assert ("assumed-features" in codes, "unknown-places" in codes) == (said == "nothing", False)
    clips = [noise(6000, 1), noise(20000, 2)]
    session = ort.InferenceSession(package / "speech.onnx", providers=["CPUExecutionProvider"])
    silent = [np.concatenate([each, np.zeros(16000, np.float32)])[:16000] for each in clips]
    heard = [log_mel(each, BANDS)[:, :FRAMES].astype(np.float32) for each in silent]
    made = [session.run(None, {"audio_signal": each[None]})[0] for each in heard]
    assert [len(each) for each in made] == [4, 4]
    prompt = [*[HEARD] * 4, *WORD, *[HEARD] * 4]
    files = [wav(each) for each in clips]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.count_tokens("<|audio_1|>hi<|audio_2|>", audio=files) == len(prompt)
        tokens = model.generate("<|audio_1|>hi<|audio_2|>", audio=files, **GREEDY).tokens
    wanted = plain(package, prompt, np.concatenate(made), 8)
    assert tokens[: len(wanted)] == wanted
