"""Every class of version 1 packages runs end to end against an independent loop: where that is shown, and the rest.

The table names the tests; those in here count session runs: an encoder's caches are computed once a request, and an
embedding runs with every token.
"""

import ast
import json
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import compile_package
from genai_compiler.plan.text import plan_text

from tests.conftest import FIXTURES
from tests.data import DATA, ROOT, needs_data
from tests.lower.test_config_models import plain_loop, rows_of
from tests.real_packages import GREEDY, PACKAGES, cases, reliable
from tests.test_real_stages import encoder_inputs
from tests.test_stages_beside import MEDIA, decoded, embedded
from tools.fixtures.stages import write_config

CLASSES = {
    "one decoder": ("traps/test_structure.py::test_b1_b2_any_type_of_an_ordinary_decoder_runs",),
    "keys and values together": ("lower/test_combined.py::test_tokens_equal_those_of_prompts_run_whole",),
    "windows with lists of layers": (
        "lower/test_windows.py::test_tokens_equal_those_of_prompts_run_whole",
        "test_real_packages.py::test_greedy_tokens_are_the_expected_ones",
    ),
    "convolution and recurrent state": (
        "lower/test_hybrids.py::test_states_carry_what_recomputing_everything_gives",
        "test_real_packages.py::test_greedy_tokens_are_the_expected_ones",
    ),
    "encoder and decoder, caches over the source": (
        "lower/test_config_models.py::test_the_encoder_takes_the_prompt_and_the_output_starts_as_configured",
        "test_v1_classes.py::test_caches_over_the_source_are_computed_once_a_request",
    ),
    "encoder and recurrent decoder of one token of each row": (
        "lower/test_one_token_rows.py::test_one_row",
        "lower/test_one_token_rows.py::test_rows_of_different_length_in_one_run_by_their_mask",
        "lower/test_one_token_rows.py::test_rows_end_at_the_end_token_each_for_itself",
        "lower/test_row_forms.py::test_in_configurations_the_end_stands_behind_the_source",
    ),
    "encoder of sound and decoder": (
        "lower/test_config_models.py::test_an_encoder_of_sound_takes_features_and_the_decoder_the_prompt",
        "test_v1_classes.py::test_a_speech_model_of_an_exporter_gives_the_expected_tokens",
    ),
    "vision, embedding and decoder": (
        "test_v1_classes.py::test_an_embedding_runs_with_every_token_and_a_vision_model_with_the_prompt",
        "test_real_stages.py::test_tokens_with_and_without_an_image_are_the_expected_ones",
    ),
    "token ids beside embeddings": (
        "test_own_tokens.py::test_text_gives_the_tokens_of_a_plain_loop_and_of_the_reference",
        "test_own_tokens.py::test_media_with_the_prompt",
        "test_own_tokens.py::test_the_first_of_several_stages_takes_both",
    ),
    "positions of three axes": (
        "lower/test_hybrids.py::test_text_has_one_position_on_all_three_axes",
        "test_real_stages.py::test_tokens_with_and_without_an_image_are_the_expected_ones",
    ),
    "a decoder of stages": (
        "test_stages.py::test_stages_give_the_tokens_of_the_whole",
        "test_stage_windows.py::test_caches_that_move_give_the_tokens_of_the_whole",
        "test_stages_beside.py::test_packages_of_exporters_give_the_expected_tokens_with_their_decoder_cut",
    ),
    "a vision model of stages, its features over rows of a decoder's": (
        "test_vision_stages.py::test_three_stages_give_the_tokens_of_a_plain_loop",
        "test_vision_stages.py::test_three_stages_stand_before_an_embedding_graph",
        "test_vision_stages.py::test_features_of_one_vision_graph_are_written_over_rows",
    ),
    "windows behind an embedding": (
        "test_windows_behind.py::test_numbers_tell_where_a_window_of_a_fixed_size_stands",
        "test_windows_behind.py::test_caches_that_move_take_embeddings",
        "test_windows_behind.py::test_entries_of_pictures_stand_in_several_windows",
    ),
    "packed rows and pages": ("lower/test_paged.py::test_the_written_out_graph_gives_the_expected_tokens",),
    "a transducer": ("test_plugins.py::test_a_transducer_of_version_1_runs_by_an_installed_adapter",),
}
NEW = 8


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text("utf-8"))
    return frozenset(each.name for each in tree.body if isinstance(each, ast.FunctionDef))


@pytest.mark.parametrize("name", CLASSES)
def test_the_named_tests_are_there(name: str) -> None:
    for each in CLASSES[name]:
        file, function = each.split("::")
        assert function in functions(file)


def types_of_the_reference() -> list[str]:
    """Every string of the reference's table of types."""
    text = (DATA / "reference" / "genai-config.md").read_text("utf-8")
    table = text[text.index("### 2.1 `model.type` table") : text.index("### 2.2")]
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ")]
    return sorted(set(re.findall(r"`([\w-]+)`", "".join(rows))))


@needs_data
@pytest.mark.parametrize("name", ["tiny-gqa-v1", "tiny-encoder-decoder-v1", "tiny-own-tokens-v1"])
def test_each_type_of_the_reference_gives_the_plan_of_none(name: str, tmp_path: Path) -> None:
    """A decoder, an encoder before one, media before an embedding: the graphs say which it is, whatever the type."""
    package = Path(shutil.copytree(FIXTURES / name, tmp_path / "p"))
    config = json.loads((package / "genai_config.json").read_text("utf-8"))
    config["model"].pop("type", None)
    kinds = types_of_the_reference()
    assert len(kinds) == 43
    plans = dict[str | None, str]()
    for kind in (None, *kinds):
        stated = {} if kind is None else {"type": kind}
        (package / "genai_config.json").write_text(json.dumps({**config, "model": {**stated, **config["model"]}}))
        plan = compile_package(package).plan
        assert plan is not None
        plans[kind] = plan_text(plan)
    assert [kind for kind, plan in plans.items() if plan != plans[None]] == []


def runs(model: genai_runtime.Model, component: str) -> int:
    """How often a component's session has run since the last question."""
    assert model.timings is not None
    count = [each.name for each in model.timings.spans].count(component)
    model.timings.clear()
    return count


@pytest.mark.parametrize("tokens", [1, NEW])
def test_caches_over_the_source_are_computed_once_a_request(tokens: int, tmp_path: Path) -> None:
    package = FIXTURES / "tiny-encoder-decoder-v1"
    start = json.loads((package / "genai_config.json").read_text())["model"]["decoder_start_token_id"]
    compile_package(package, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1, timings=True) as model:
        for source in ([5, 9, 30], [7]):
            made = model.generate(source, max_new_tokens=tokens, **GREEDY).tokens
            assert made == plain_loop(package, {"input_ids": np.array([source])}, [start], tokens)
            assert runs(model, "encoder") == 1


@pytest.mark.parametrize("pictures", [0, 1])
def test_an_embedding_runs_with_every_token_and_a_vision_model_with_the_prompt(pictures: int, tmp_path: Path) -> None:
    package = tmp_path / "p"
    package.mkdir()
    for name in ("vision", "speech", "embedding", "decoder"):
        shutil.copy(MEDIA / f"{name}.onnx", package / f"{name}.onnx")
    write_config(package, [], {"filename": "decoder.onnx"})
    config = json.loads((package / "genai_config.json").read_text())
    config["model"] |= {name: {"filename": f"{name}.onnx"} for name in ("vision", "speech", "embedding")}
    (package / "genai_config.json").write_text(json.dumps(config))
    mark = json.loads((MEDIA / "genai_config.json").read_text())["tokens"]["image_token"]
    prompt = [1, *[mark] * 4 * pictures, 9, 14]
    pixels = np.random.default_rng(4).normal(size=(pictures, 4, 8)).astype(np.float32)
    vision = onnxruntime.InferenceSession(MEDIA / "vision.onnx", providers=["CPUExecutionProvider"])
    entries = vision.run(None, {"pixel_values": pixels})[0] if pictures else np.zeros((0, 16), np.float32)
    wanted = decoded(MEDIA / "decoder.onnx", embedded(entries), prompt, NEW)
    compile_package(package, out=tmp_path / "out")
    inputs: dict[str, Any] = {"request.input_ids": [prompt], "request.max_iterations": [NEW]}
    inputs |= {"pixel_values": pixels} if pictures else {}
    with genai_runtime.load(tmp_path / "out", threads=1, timings=True) as model:
        assert rows_of(model.run(inputs, stop_on_eos=False)) == wanted
        assert model.timings is not None
        names = [each.name for each in model.timings.spans]
        assert (names.count("vision"), names.count("embedding"), names.count("decoder")) == (pictures, NEW, NEW)


SPOKEN: dict[str, Any] = {
    "type": "whisper",
    "context_length": 64,
    "eos_token_id": 2,
    "encoder": {"filename": "encoder/model.onnx", "inputs": {"audio_features": "input_features"}},
    "decoder": {
        "filename": "decoder/model.onnx",
        "inputs": {
            "input_ids": "decoder_input_ids",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {"present_key_names": "present.%d.key", "present_value_names": "present.%d.value"},
    },
}


@needs_data
def test_a_speech_model_of_an_exporter_gives_the_expected_tokens(tmp_path: Path) -> None:
    """Its graphs were written for another dialect; here a configuration of version 1 says what they are."""
    name = "mobius-whisper-meta"
    package = Path(shutil.copytree(PACKAGES / name, tmp_path / "p"))
    (package / "inference_metadata.yaml").unlink()
    (package / "genai_config.json").write_text(json.dumps({"model": SPOKEN}))
    compile_package(package, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert cases(name)
        for case in cases(name):
            wanted = reliable(name, case)
            inputs = {**encoder_inputs(case), "request.max_iterations": [len(wanted)]}
            assert rows_of(model.run(inputs, stop_on_eos=False)) == wanted
