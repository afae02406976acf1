"""Packages of exporters said again in version 2, compiled and run: the tokens that other runtimes got from them.

Decoders, pictures before an embedding, an encoder before its decoder; nothing but graphs tells sizes and ports.
"""

import json
from pathlib import Path
from typing import Any

import genai_runtime
import pytest
from genai_compiler import compile_package

from tests.data import needs_data
from tests.real_packages import ENCODED, GREEDY, PACKAGES, cases, reliable
from tests.said_again import DECODERS, PICTURED, SAID_AGAIN, said_again
from tests.test_real_pictures import PROMPTS
from tests.test_real_stages import encoder_inputs, media_inputs

pytestmark = needs_data


def loaded(name: str, folder: Path) -> genai_runtime.Model:
    made = compile_package(said_again(name, folder / name), out=folder / "out")
    assert made.plan is not None
    assert made.plan.dialect == "genai_config v2"
    return genai_runtime.load(folder / "out", threads=1)


def run(model: genai_runtime.Model, inputs: dict[str, Any]) -> list[int]:
    result = model.run({**inputs, "request.max_iterations": [16]}, stop_on_eos=False)
    tokens: list[int] = result["tokens"][0].tolist()
    return tokens


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder(name: str, tmp_path: Path) -> None:
    with loaded(name, tmp_path) as model:
        for case in cases(name):
            wanted = reliable(name, case)
            assert model.generate(case["prompt"], max_new_tokens=16, **GREEDY).tokens[: len(wanted)] == wanted


@pytest.mark.parametrize("name", ENCODED)
def test_an_encoder_before_its_decoder(name: str, tmp_path: Path) -> None:
    """The file's own start of the output; sound as the data's formula gives its features."""
    with loaded(name, tmp_path) as model:
        for case in cases(name):
            inputs = encoder_inputs(case)
            inputs.pop("decoder_input_ids", None)
            wanted = reliable(name, case)
            assert run(model, inputs)[: len(wanted)] == wanted


@pytest.mark.parametrize("name", PICTURED)
def test_pictures_before_an_embedding(name: str, tmp_path: Path) -> None:
    """Tensors and the picture's file; how many tokens it takes is known before."""
    pytest.importorskip("PIL.Image", reason="Pillow is absent: no picture can be decoded")
    with loaded(name, tmp_path) as model:
        for case in cases(name, "text", "image"):
            wanted = reliable(name, case)
            assert run(model, media_inputs(name, case))[: len(wanted)] == wanted
        (case,) = cases(name, "image")
        wanted, written = reliable(name, case), {"images": [PACKAGES / name / "image.png"], "add_special_tokens": False}
        made = model.generate(PROMPTS[name], max_new_tokens=16, **written, **GREEDY).tokens  # type: ignore[arg-type]
        assert made[: len(wanted)] == wanted
        assert model.count_tokens(PROMPTS[name], **written) == len(case["prompt"])  # type: ignore[arg-type]


CUT = {"source": "image_sizes", "apply_to_dims": [2, 3]}
LOOPS = {
    "mobius-gemma3_vl-og": {"loop": "batched"},
    "mobius-mistral3-og": {"loop": "per_image", "loop_over": "pixel_values", "dynamic_shape": CUT},
    "mobius-qwen2_5_vl-og": {"loop": "per_image", "loop_over": "pixel_values"},
}
"""How the proposal's flow takes the pictures of each: whole, cut to their size, or packed."""


@pytest.mark.parametrize("name", PICTURED)
def test_the_flow_and_the_wires_of_the_proposal(name: str, tmp_path: Path) -> None:
    """Written out with a device a session and what the processor is expected to make; two pictures where they fit."""
    pytest.importorskip("PIL.Image", reason="Pillow is absent: no picture can be decoded")
    folder = said_again(name, tmp_path / name)
    document = json.loads((folder / "genai_config.json").read_text("utf-8"))
    block = document["pipeline"]
    del block["extends"]
    block["sessions"]["vision"]["execution_provider"] = "QNNExecutionProvider"
    block["sessions"]["decoder"]["execution_provider"] = "CPUExecutionProvider"
    block["flow"] = [
        {"run": "vision", "when": "prompt", **LOOPS[name]},
        {"run": "embedding", "when": "prompt"},
        {"run": "decoder", "when": "always"},
    ]
    block["dataflow"] = [
        {"from": "vision.image_features", "to": "embedding.image_features"},
        {"from": "embedding.inputs_embeds", "to": "decoder.inputs_embeds"},
    ]
    rank = 2 if "qwen" in name else 4
    block["preprocessing"]["image"]["expected_outputs"] = {"pixel_values": {"rank": rank, "dtype": "float32"}}
    (folder / "genai_config.json").write_text(json.dumps(document), "utf-8")
    compile_package(folder, out=tmp_path / "out")
    (case,) = cases(name, "image")
    options: dict[str, Any] = {"add_special_tokens": False, "max_new_tokens": 16, **GREEDY}
    file = PACKAGES / name / "image.png"
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        made = model.generate(PROMPTS[name], images=[file], **options).tokens
        assert made[: len(reliable(name, case))] == reliable(name, case)
        if 2 * len(case["prompt"]) + 16 <= model.describe()["context_length"]:
            both = model.generate(PROMPTS[name] * 2, images=[file, file], **options).tokens
            compile_package(PACKAGES / name, out=tmp_path / "v1")
            with genai_runtime.load(tmp_path / "v1", threads=1) as other:
                assert both == other.generate(PROMPTS[name] * 2, images=[file, file], **options).tokens


def test_the_lists_are_whole() -> None:
    assert len(DECODERS) > 15
    assert (len(PICTURED), len(ENCODED)) == (3, 3)
    assert sorted(SAID_AGAIN) == sorted({*DECODERS, *PICTURED, *ENCODED})
