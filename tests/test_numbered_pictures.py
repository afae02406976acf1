"""Pictures whose entries in a prompt are their numbers below zero: squares, in a package made on the spot.

A picture takes more than two thousand entries, so the decoder has more positions than those of the fixtures.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import compile_package
from genai_runtime.media_inputs import MediaInputs
from genai_runtime.tokenizer import Tokenizer

from tests.images.processors import DECODE, made, picture, processor_file
from tests.reference.plain_loop import HEAD, KV_HEADS
from tests.test_pipelines import CACHES
from tools.fixtures import genai_v2, network
from tools.fixtures.graph import Sketch, weights
from tools.fixtures.network import HIDDEN, LAYERS, VOCABULARY
from tools.fixtures.tokenizer import BOS, EOS, PAD, tokenizer

pytest.importorskip("PIL.Image", reason="Pillow is absent: no picture can be decoded")
Array = np.ndarray[Any, Any]
POSITIONS, EDGE = 5000, 336
ENTRIES = (4 * 4 + 1) * 144 + 1 + (4 + 1) * 12
"""Of a square picture: 4x4 squares and the whole of it, a separator, and an end for each row."""
OPERATIONS = [{**DECODE, "attrs": {"color_space": "BGR"}}, {"type": "ConvertRGB"}, {"type": "Phi3ImageTransform"}]


def look() -> Sketch:
    """pixel_values float32 [pictures, 17, 3, 336, 336] and sizes -> an entry a picture: [pictures, 16]."""
    sketch = Sketch("look")
    op = sketch.op
    pixels = sketch.input("pixel_values", "float32", "pictures", 17, 3, EDGE, EDGE)
    sizes = sketch.input("image_sizes", "int64", "pictures", 2)
    colour = op.ReduceMean(pixels, op.Constant(value_ints=[1, 3, 4]), keepdims=0)
    x = op.MatMul(op.Concat(colour, op.Div(op.Cast(sizes, to=1), op.Constant(value_float=1000.0)), axis=1),
                  sketch.weight("look", weights(71, 5, HIDDEN, scale=1.0)))  # fmt: skip
    sketch.output(op.Tanh(x), "image_features", "float32", "pictures", HIDDEN)
    return sketch


def embed(from_the_end: bool = False) -> Sketch:
    """An id below zero stands for the features of the picture of that number, an id from zero for its own.

    from_the_end: the table is asked for both, and what it has for those below zero counts for nothing.
    """
    sketch = Sketch("embed")
    op, ids = sketch.op, sketch.input("input_ids", "int64", "batch", "sequence")
    features = sketch.input("image_features", "float32", "pictures", HIDDEN)
    taken = ids if from_the_end else op.Max(ids, op.Constant(value_int=0))
    own = op.Gather(sketch.weight("embedding", weights(8, VOCABULARY, HIDDEN)), taken)
    nothing = op.ConstantOfShape(op.Constant(value_ints=[1, HIDDEN]))
    seen = op.Gather(op.Concat(nothing, features, axis=0), op.Max(op.Neg(ids), op.Constant(value_int=0)))
    x = op.Where(op.Unsqueeze(op.Less(ids, op.Constant(value_int=0)), [2]), seen, own)
    sketch.output(x, "inputs_embeds", "float32", "batch", "sequence", HIDDEN)
    return sketch


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("numbered") / "package"
    folder.mkdir()
    look().save(folder / "vision.onnx")
    embed().save(folder / "embedding.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "CONTEXT", POSITIONS)
        genai_v2.embedded_decoder().save(folder / "decoder.onnx")
    processor_file(folder, *OPERATIONS)
    genai_v2.write_tokenizer(folder)
    model = {
        "type": "phi3v", "vocab_size": VOCABULARY, "context_length": POSITIONS, "eos_token_id": EOS,
        "pad_token_id": PAD, "bos_token_id": BOS,
        "vision": {"filename": "vision.onnx", "config_filename": "processor.json"},
        "embedding": {"filename": "embedding.onnx"},
        "decoder": {"filename": "decoder.onnx", "head_size": HEAD, "num_hidden_layers": LAYERS,
                    "num_key_value_heads": KV_HEADS},
    }  # fmt: skip
    (folder / "genai_config.json").write_text(json.dumps({"model": model, "search": {"max_length": POSITIONS}}))
    return folder


@pytest.fixture(scope="module")
def model(package: Path) -> genai_runtime.Model:
    told = compile_package(package, out=package.parent / "out").problems
    assert not [each for each in told if each.code == "unknown-places"]
    return genai_runtime.load(package.parent / "out", threads=1)


def by_hand(package: Path, prompt: list[int], features: Array, count: int) -> list[int]:
    """Greedy tokens by a loop over the graphs."""
    run: Callable[..., Any] = lambda name, feeds: onnxruntime.InferenceSession(  # noqa: E731
        package / f"{name}.onnx", providers=["CPUExecutionProvider"]
    ).run(None, feeds)
    past = [np.zeros((1, KV_HEADS, 0, HEAD), np.float32) for _ in CACHES]
    fresh, length, tokens = prompt, 0, list[int]()
    while len(tokens) < count:
        given = features if not length else np.zeros((0, HIDDEN), np.float32)
        (embeds,) = run("embedding", {"input_ids": np.array([fresh]), "image_features": given})
        feeds = {f"past_key_values.{each}": value for each, value in zip(CACHES, past, strict=True)}
        feeds |= {"inputs_embeds": embeds, "attention_mask": np.ones((1, length + len(fresh)), np.int64)}
        logits, *past = run("decoder", {**feeds, "position_ids": np.arange(length, length + len(fresh))[None]})
        length += len(fresh)
        fresh = [int(logits[0, -1].argmax())]
        tokens += fresh
    return tokens


def test_entries_are_the_pictures_numbers(package: Path, model: genai_runtime.Model) -> None:
    data = picture(20, 20)[1]
    word = tokenizer().encode("hello", add_special_tokens=False).ids
    prompt = [*word, *[-1] * ENTRIES, *word]
    pixels = made(package / "processor.json", [data], "pixel_values", "image_sizes")
    session = onnxruntime.InferenceSession(package / "vision.onnx", providers=["CPUExecutionProvider"])
    wanted = by_hand(package, prompt, session.run(None, pixels)[0], 4)
    options: dict[str, Any] = {"images": [data], "max_new_tokens": 4, "temperature": 0.0, "stop_on_eos": False}
    assert model.count_tokens("hello<|image_1|>hello", images=[data]) == len(prompt)
    assert model.generate("hello<|image_1|>hello", **options).tokens == wanted
    assert model.generate(prompt, **options, repetition_penalty=1.0).tokens == wanted


def test_a_table_may_be_asked_for_rows_from_its_end(package: Path, tmp_path: Path) -> None:
    """A Gather takes places below zero, and the graph puts the picture there: no such id is refused."""
    folder = shutil.copytree(package, tmp_path / "package")
    embed(from_the_end=True).save(folder / "embedding.onnx")
    compile_package(folder, out=tmp_path / "out")
    data = picture(20, 20)[1]
    prompt = [9, *[-1] * ENTRIES, 10]
    pixels = made(package / "processor.json", [data], "pixel_values", "image_sizes")
    session = onnxruntime.InferenceSession(package / "vision.onnx", providers=["CPUExecutionProvider"])
    wanted = by_hand(package, prompt, session.run(None, pixels)[0], 4)
    with genai_runtime.load(tmp_path / "out", threads=1) as tiny:
        options: dict[str, Any] = {"images": [data], "max_new_tokens": 4, "temperature": 0.0, "stop_on_eos": False}
        assert tiny.generate(prompt, **options, repetition_penalty=1.0).tokens == wanted


def test_a_text_may_name_a_picture_again(model: genai_runtime.Model) -> None:
    one, two = picture(20, 20)[1], picture(20, 21)[1]
    text = "<|image_2|><|image_1|>"
    once = model.count_tokens(text, images=[one, two])
    assert model.count_tokens(text + "<|image_1|>", images=[one, two]) == once + ENTRIES


@pytest.mark.parametrize(
    "text", ["hello", "<|image_2|>", "<|image_1|><|image_2|>", "<|image_0|>", "<|image_1|><|image_3|>"]
)
def test_numbers_that_name_no_picture_are_refused(model: genai_runtime.Model, text: str) -> None:
    with pytest.raises(genai_runtime.RequestError, match="image-tokens"):
        model.count_tokens(text, images=[picture(20, 20)[1]])


@pytest.mark.parametrize("ids", [[9], [-1], [-2] * ENTRIES, [-1] * (ENTRIES - 1), [-1] * ENTRIES + [-2]])
def test_ids_that_lack_entries_are_refused(model: genai_runtime.Model, ids: list[int]) -> None:
    data = picture(20, 20)[1]
    with pytest.raises(genai_runtime.RequestError, match="image-tokens"):
        model.count_tokens(ids, images=[data])
    with pytest.raises(genai_runtime.RequestError, match="image-tokens"):
        model.run({"request.input_ids": [ids], "request.image": data, "request.max_iterations": [1]})


def test_text_alone_has_no_numbers(model: genai_runtime.Model) -> None:
    with pytest.raises(genai_runtime.RequestError, match="image-tokens"):
        model.count_tokens([9, -1])
    assert model.count_tokens([9, 10]) == 2


def test_a_sound_beside_numbered_pictures_has_its_entries_too() -> None:
    """Two entries for the picture, three for the sound, whichever stands first; as text and as ids."""
    words = tokenizer()
    (mark,) = words.encode("hello", add_special_tokens=False).ids
    fixed: dict[str, Any] = {"resize": None, "crop": None, "tiled": False, "views": None, "required": False}
    image = {"opens": "<|image_#|>", "numbered": 1, "entries": 2}
    audio = {"entry_token": mark, "entry": "hello", "opens": "<|audio|>", "entries": 3}
    media = [
        {"kind": "image", "input": "picture", "prompt": image, "tensors": ["pixels"], **fixed},
        {"kind": "audio", "input": "sound", "prompt": audio, "tensors": ["features"], **fixed},
    ]
    inputs = MediaInputs({"media": media, "inputs": [], "sound": None})
    tensors = {name: np.frombuffer(b"file", np.uint8) for name in ("picture", "sound")}
    kept = cast(Tokenizer, _Words(words))
    for text, ids in (
        ("<|image_1|><|audio|>", [-1, -1, mark, mark, mark]),
        ("<|audio|><|image_1|>", [mark, mark, mark, -1, -1]),
    ):
        assert inputs.prompt(text, tensors, kept, False) == ids
        assert inputs.prompt(ids, tensors, kept, False) == ids
    with pytest.raises(genai_runtime.RequestError, match="audio-tokens"):
        inputs.prompt([-1, -1, mark], tensors, kept, False)


class _Words:
    """What a prompt asks of a package's tokenizer."""

    def __init__(self, words: Any) -> None:
        self._words = words

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return list(self._words.encode(text, add_special_tokens=add_special_tokens).ids)
