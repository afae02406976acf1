"""Version 2 pipelines that generate nothing: each session once. Values come from the bare graphs, run one by one."""

import json
import shutil
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import compile_package
from genai_compiler.convert import convert_package
from genai_compiler.problem import Severity

from tests.conftest import FIXTURES
from tests.data import needs_data
from tests.lower.pipelines import Document, lone, named, package, pipeline, problems, vision
from tests.lower.test_front_model import MARK
from tests.lower.test_single_pass import IDS, MASK, bare, encoder
from tests.real_packages import PACKAGES, SINGLE, encoder_case
from tests.reference.values import Array

FIXTURE = "tiny-embedder-v2"
ALONE: Document = {"version": 2, "pipeline": {"sessions": {"text": {"file": "model.onnx"}}}}
SAID = pipeline(ALONE, generation_loop="single_pass")


def results(folder: Path, inputs: dict[str, Any]) -> genai_runtime.Result:
    out = folder.with_name(folder.name + ".out")
    compile_package(folder, out=out)
    with genai_runtime.load(out, threads=1) as model:
        assert model.describe()["dialect"] == "genai_config v2"
        return model.run(inputs)


def run_graph(file: Path, feeds: dict[str, Any]) -> Array:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    made: Array = session.run(None, feeds)[0]
    return made


def by_hand(ids: Array, mask: Array) -> Array:
    """The fixture's two graphs, then the mean again in numpy."""
    states = run_graph(FIXTURES / FIXTURE / "encoder.onnx", {"input_ids": ids})
    made = run_graph(FIXTURES / FIXTURE / "mean.onnx", {"states": states, "attention_mask": mask})
    rows = [each[shown == 1].mean(axis=0) for each, shown in zip(states, mask, strict=True)]
    np.testing.assert_allclose(made, np.stack(rows), rtol=1e-5)
    return made


@pytest.mark.parametrize("rows", [1, 3])
def test_two_sessions_run_once_each(rows: int, tmp_path: Path) -> None:
    folder = shutil.copytree(FIXTURES / FIXTURE, tmp_path / "p")
    ids = np.random.default_rng(rows).integers(3, 60, (rows, 5))
    mask = np.tri(5, dtype=np.int64)[np.arange(rows) + 2]
    made = results(folder, {"input_ids": ids, "attention_mask": mask})
    np.testing.assert_allclose(made["sentence"], by_hand(ids, mask), rtol=1e-5)
    np.testing.assert_allclose(made.profile("features"), by_hand(ids, mask), rtol=1e-5)


@pytest.mark.parametrize("document", [SAID, ALONE], ids=["said", "told by the graph"])
def test_a_lone_encoder(document: Document, tmp_path: Path) -> None:
    folder = package(tmp_path / "p", document, {"model.onnx": encoder()})
    made = results(folder, {"ids": IDS, "mask": MASK})
    np.testing.assert_allclose(made["states"], bare(encoder(), IDS, MASK), rtol=1e-5)
    whole = results(package(tmp_path / "q", document, {"model.onnx": encoder()}), {"ids": IDS})
    np.testing.assert_allclose(whole["states"], bare(encoder(), IDS, np.ones_like(MASK)), rtol=1e-5)


def test_two_encoders_share_the_tokens(tmp_path: Path) -> None:
    """No wire joins them: both take the request's tokens and mask, and both results are given."""
    sessions = {"first": {"file": "first.onnx"}, "second": {"file": "second.onnx"}}
    document = pipeline(SAID, sessions=sessions, flow=[{"run": "first"}, {"run": "second"}])
    document["pipeline"]["sessions"].pop("text")
    graphs = {"first.onnx": encoder(), "second.onnx": encoder(head=4)}
    made = results(package(tmp_path / "p", document, graphs), {"ids": IDS, "mask": MASK})
    np.testing.assert_allclose(made["states"], bare(encoder(), IDS, MASK), rtol=1e-5)
    feeds = {"ids": IDS, "mask": MASK, "kinds": np.zeros_like(IDS)}
    np.testing.assert_allclose(made["classes"], run_graph(tmp_path / "p" / "second.onnx", feeds), rtol=1e-5)


def test_outputs_of_one_name_say_whose_they_are(tmp_path: Path) -> None:
    sessions = {"first": {"file": "first.onnx"}, "second": {"file": "second.onnx"}}
    document = pipeline(SAID, sessions=sessions, flow=[{"run": "first"}, {"run": "second"}])
    document["pipeline"]["sessions"].pop("text")
    graphs = {"first.onnx": encoder(), "second.onnx": encoder(["other"])}
    made = results(package(tmp_path / "p", document, graphs), {"ids": IDS, "mask": MASK})
    wanted = bare(encoder(), IDS, MASK)
    for name, sign in (("first.states", 1), ("second.states", 1), ("other", -1)):
        np.testing.assert_allclose(made[name], sign * wanted, rtol=1e-5)


def test_pictures_before_an_embedding(tmp_path: Path) -> None:
    """A vision graph and an embedding without a decoder: entries of no row go into rows of tokens."""
    sessions = {name: {"file": f"{name}.onnx"} for name in ("vision", "embedding")}
    document: Document = {
        "version": 2,
        "pipeline": {
            "sessions": sessions,
            "flow": [{"run": "vision", "when": "init"}, {"run": "embedding", "when": "step"}],
            "generation_loop": "single_pass",
        },
    }
    folder = package(tmp_path / "p", document, {f"{name}.onnx": vision()[f"{name}.onnx"] for name in sessions})
    pixels = np.random.default_rng(2).standard_normal((1, 2, 8)).astype(np.float32)
    ids = np.array([[4, MARK, MARK, 5]])
    seen = run_graph(folder / "vision.onnx", {"pixel_values": pixels})
    wanted = run_graph(folder / "embedding.onnx", {"input_ids": ids, "image_features": seen})
    made = results(folder, {"pixel_values": pixels, "input_ids": ids})
    np.testing.assert_allclose(made["inputs_embeds"], wanted, rtol=1e-5)


def said_of(name: str, folder: Path) -> Path:
    """A copy of an exporter's encoder that says in version 2 that it generates nothing."""
    shutil.copytree(PACKAGES / name, folder, ignore=shutil.ignore_patterns("genai_config.json"))
    (folder / "genai_config.json").write_text(json.dumps(SAID))
    return folder


@needs_data
@pytest.mark.parametrize("name", SINGLE)
def test_an_exporter_s_encoder_said_again(name: str, tmp_path: Path) -> None:
    """The exporters' own values, which PyTorch gave."""
    inputs, wanted = encoder_case(name)
    made = results(said_of(name, tmp_path / "p"), inputs)
    for key, value in wanted.items():
        np.testing.assert_allclose(made[key], value, rtol=1e-4, atol=1e-5)


def test_it_reads_back_as_a_workflow(tmp_path: Path) -> None:
    folder = shutil.copytree(FIXTURES / FIXTURE, tmp_path / "p")
    (folder / "inference_metadata.yaml").write_text(convert_package(folder).text)
    (folder / "genai_config.json").unlink()
    out = tmp_path / "out"
    compile_package(folder, out=out)
    ids, mask = np.array([[5, 9, 17]]), np.array([[1, 1, 0]])
    with genai_runtime.load(out, threads=1) as model:
        made = model.run({"input_ids": ids, "attention_mask": mask})
    np.testing.assert_allclose(made["sentence"], by_hand(ids, mask), rtol=1e-5)


# ---- what is refused, and what is said -------------------------------------------------------------------------------


def test_a_decoder_is_no_single_pass(tmp_path: Path) -> None:
    (refused,) = problems(package(tmp_path / "p", SAID, lone()))
    assert (refused.code, refused.path) == ("unsupported-package-class", "pipeline.generation_loop")
    assert "'text' keeps caches" in refused.what
    assert "leave generation_loop out" in refused.help


def test_several_sessions_without_a_decoder_are_told_the_word(tmp_path: Path) -> None:
    document = pipeline(ALONE, sessions={"other": {"file": "model.onnx"}}, flow=[{"run": "text"}, {"run": "other"}])
    found = problems(package(tmp_path / "p", document, {"model.onnx": encoder()}))
    assert any("generation_loop" in each.help for each in found), found


def test_an_encoder_that_is_called_a_decoder_is_told_the_word(tmp_path: Path) -> None:
    document = pipeline(ALONE, sessions={"text": {"role": "decoder"}})
    graph = named(encoder(), {"ids": "input_ids", "mask": "attention_mask", "kinds": "position_ids"})
    found = problems(package(tmp_path / "p", document, {"model.onnx": graph}))
    (refused,) = [each for each in found if each.code == "no-state"]
    assert 'write "generation_loop": "single_pass"' in refused.help


def test_two_sessions_that_would_be_one_component(tmp_path: Path) -> None:
    sessions = {name: {"file": "model.onnx"} for name in ("decoder", "decoder_model")}
    flow = [{"run": name} for name in sessions]
    document = {"version": 2, "pipeline": {"sessions": sessions, "flow": flow, "generation_loop": "single_pass"}}
    (refused,) = problems(package(tmp_path / "p", document, {"model.onnx": encoder()}))
    assert (refused.code, refused.path) == ("value-defined-twice", "pipeline.sessions")


def test_a_loop_of_denoising_steps_stays_refused(tmp_path: Path) -> None:
    document = pipeline(ALONE, generation_loop="denoising")
    (refused,) = problems(package(tmp_path / "p", document, {"model.onnx": encoder()}))
    assert (refused.code, refused.path) == ("unsupported-package-class", "pipeline.generation_loop")


def test_what_speaks_of_generation_is_said_to_have_no_effect(tmp_path: Path) -> None:
    document = {
        **pipeline(SAID, state={"kv_cache": {"format": "auto"}}),
        "tokens": {"eos": [2]},
        "generation": {"max_length": 9},
    }
    folder = package(tmp_path / "p", document, {"model.onnx": encoder()})
    found = compile_package(folder, out=tmp_path / "out").problems
    said = {each.path for each in found if each.code == "ignored-key"}
    assert said == {"generation", "tokens", "pipeline.state.kv_cache"}
    assert all(each.severity is Severity.WARNING for each in found)


def test_a_wire_to_nowhere_is_reported(tmp_path: Path) -> None:
    document = pipeline(SAID, dataflow=[{"from": "text.state", "to": "text.ids"}])
    found = problems(package(tmp_path / "p", document, {"model.onnx": encoder()}))
    assert {each.code for each in found} >= {"missing-output"}
