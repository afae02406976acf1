"""Pictures and sounds in one request, whose graphs call what they take the same: the loops over them stay apart."""

import shutil
from pathlib import Path

import genai_runtime
from genai_compiler import compile_package
from genai_compiler.convert import convert_package
from onnx import load, save

from tests.conftest import FIXTURES
from tests.runtime.audio.test_stated_features import noise, wav
from tests.test_own_tokens import expected
from tests.test_processor_fixtures import GREEDY, WORD, entries, picture, under_a_budget
from tests.test_several_sounds import OWN, heard_of
from tools.fixtures.genai_v2 import HEARD, SEEN


def test_pictures_and_sounds_that_go_in_at_ports_of_one_name(tmp_path: Path) -> None:
    """In the document that is converted, values of both loops have one name."""
    package = shutil.copytree(FIXTURES / OWN, tmp_path / "p")
    model = load(package / "speech.onnx")
    names = {"input_features": "pixel_values", "input_features_mask": "pixel_position_ids"}
    for port in model.graph.input:
        port.name = names[port.name]
    for node in model.graph.node:
        node.input[:] = [names.get(each, each) for each in node.input]
    save(model, package / "speech.onnx")
    text = convert_package(package).text
    (package / "genai_config.json").unlink()
    (package / "inference_metadata.yaml").write_text(text)
    compile_package(package, tmp_path / "out")
    (levels, data), clip = picture(20, 20), noise(3200)
    seen, places = under_a_budget(levels)
    heard, count = heard_of(clip)
    prompt = [*[SEEN] * places, *WORD, *[HEARD] * count, 9]
    media = {
        "image_features": entries(OWN, "vision", seen),
        "audio_features": entries(OWN, "speech", heard),
    }
    with genai_runtime.load(tmp_path / "out", threads=1) as loaded:
        made = loaded.generate(prompt, images=[data], audio=[wav(clip)], **GREEDY).tokens
    assert len(made) == 8
    assert made == expected(FIXTURES / OWN, prompt, media)[:8]
