"""Packages that code of their own would run: an installed adapter takes its place, and without one they are refused.

The adapter here is a package of its own, made for the test: greedy decoding of a transducer. What it should give is
told by a plain ONNX Runtime loop over the same graphs.
"""

import json
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.convert import convert_package
from genai_compiler.plan.text import plan_text
from genai_compiler.problem import errors
from genai_runtime import LoadError
from onnx import TensorProto, helper, numpy_helper, save

BANDS, WIDTH, TOKENS, BLANK = 3, 4, 6, 5
MOST = 2
"""Symbols a frame."""
CODE = '''
import numpy as np


def transducer(parameters, graphs):
    """float32 [1, frames, bands] under the encoder's name for it -> int64 [1, tokens]."""
    blank, most = parameters["blank_id"], parameters["max_symbols_per_step"]
    encoder, prediction, joiner = (graphs[name] for name in ("encoder", "decoder", "joiner"))
    feature = parameters.get("encoder.inputs.audio_features", encoder.inputs[0][0])
    width = dict(prediction.inputs)["h"][2]

    def call(arrays):
        sound = arrays[feature]
        state = np.zeros((1, 1, 2), np.float32)
        frames = encoder({feature: sound, "cache": state})["encoded"]
        h = np.zeros((1, 1, width), np.float32)
        last, made = blank, []
        for at in range(frames.shape[1]):
            for _ in range(most):
                step = prediction({"targets": np.array([[last]]), "h": h})
                scores = joiner({"frame": frames[:, at : at + 1], "pred": step["pred"]})["scores"]
                best = int(scores.reshape(-1).argmax())
                if best == blank:
                    break
                made.append(best)
                last, h = best, step["h_next"]
        return {"tokens": np.array([made], np.int64)}

    return call


def refuses(parameters, graphs):
    raise ValueError("nothing suits it")
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution with the adapters, on the path."""
    home = tmp_path / "site"
    info = home / "some_plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (home / "some_plugin.py").write_text(CODE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-plugin\nVersion: 1.0\n")
    points = [
        "genai-compile.transducer@1 = some_plugin:transducer",
        "CreateTransducer@1 = some_plugin:transducer",
        "Refusing@1 = some_plugin:refuses",
    ]
    (info / "entry_points.txt").write_text("\n".join(["[genai_runtime.adapters]", *points, ""]))
    monkeypatch.syspath_prepend(home)


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, Any]) -> Any:
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "part", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def value(name: str, *shape: int | str, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, list(shape))


def write_graphs(folder: Path) -> None:
    """encoder: sound [1, n, 3], cache -> encoded [1, n, 4]; prediction: one token, h -> pred, h; joiner -> scores."""
    rng = np.random.default_rng(11)

    def draw(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    node = helper.make_node
    encoder = model(
        [
            node("MatMul", ["sound", "w"], ["mixed"]),
            node("Tanh", ["mixed"], ["encoded"]),
            node("Identity", ["cache"], ["cache_next"]),
        ],
        [value("sound", 1, "n", BANDS), value("cache", 1, 1, 2)],
        [value("encoded", 1, "n", WIDTH), value("cache_next", 1, 1, 2)],
        {"w": draw(BANDS, WIDTH)},
    )
    prediction = model(
        [
            node("Gather", ["table", "targets"], ["seen"]),
            node("MatMul", ["h", "u"], ["kept"]),
            node("Add", ["seen", "kept"], ["sum"]),
            node("Tanh", ["sum"], ["pred"]),
            node("Identity", ["pred"], ["h_next"]),
        ],
        [value("targets", 1, 1, kind=TensorProto.INT64), value("h", 1, 1, WIDTH)],
        [value("pred", 1, 1, WIDTH), value("h_next", 1, 1, WIDTH)],
        {"table": draw(TOKENS, WIDTH), "u": draw(WIDTH, WIDTH)},
    )
    joiner = model(
        [node("Add", ["frame", "pred"], ["both"]), node("MatMul", ["both", "v"], ["scores"])],
        [value("frame", 1, 1, WIDTH), value("pred", 1, 1, WIDTH)],
        [value("scores", 1, 1, TOKENS)],
        {"v": draw(WIDTH, TOKENS)},
    )
    folder.mkdir()
    for name, each in (("encoder", encoder), ("decoder", prediction), ("joiner", joiner)):
        save(each, folder / f"{name}.onnx")


def version_1(folder: Path, **change: Any) -> Path:
    """A v1 transducer; the files of decoder and joiner are not stated, which have the parts' names then."""
    write_graphs(folder)
    config = {
        "model": {
            "type": "nobody-knows",
            "blank_id": BLANK,
            "max_symbols_per_step": MOST,
            "tdt_durations": [0, 1, 2],
            "eos_token_id": BLANK,
            "vocab_size": TOKENS,
            "encoder": {"filename": "encoder.onnx", "inputs": {"audio_features": "sound"}},
            "decoder": {"inputs": {"targets": "targets", "lstm_hidden_state": "h"}},
            "joiner": {"outputs": {"logits": "scores"}},
            **change,
        }
    }
    (folder / "genai_config.json").write_text(json.dumps(config))
    return folder


def version_2(folder: Path, entry: str = "CreateTransducer") -> Path:
    write_graphs(folder)
    (folder / "lib.so").write_bytes(b"\x7fELF no library at all")
    sessions = {name: {"file": f"{name}.onnx"} for name in ("encoder", "decoder", "joiner")}
    document = {
        "version": 2,
        "pipeline": {"sessions": sessions, "plugin": {"library": "lib.so", "entry_point": entry}},
    }
    (folder / "genai_config.json").write_text(json.dumps(document))
    return folder


def greedy(folder: Path, sound: Any, blank: int, most: int) -> list[int]:
    """A transducer's greedy loop by ONNX Runtime alone: state is kept only where a token is emitted."""
    encoder, prediction, joiner = (
        onnxruntime.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
        for name in ("encoder", "decoder", "joiner")
    )
    frames = encoder.run(["encoded"], {"sound": sound, "cache": np.zeros((1, 1, 2), np.float32)})[0][0]
    hidden, last, made = np.zeros((1, 1, WIDTH), np.float32), blank, list[int]()
    for frame in frames:
        for _ in range(most):
            pred, following = prediction.run(["pred", "h_next"], {"targets": np.array([[last]]), "h": hidden})
            scores = joiner.run(["scores"], {"frame": frame.reshape(1, 1, -1), "pred": pred})[0]
            last_or_blank = int(scores.argmax())
            if last_or_blank == blank:
                break
            made, last, hidden = [*made, last_or_blank], last_or_blank, following
    return made


def sounds() -> list[Any]:
    rng = np.random.default_rng(5)
    return [rng.normal(size=(1, frames, BANDS)).astype(np.float32) for frames in (1, 7, 20)]


def test_a_transducer_of_version_1_runs_by_an_installed_adapter(tmp_path: Path, installed: None) -> None:
    folder = version_1(tmp_path / "p")
    told = compile_package(folder, out=tmp_path / "out").problems
    assert [each.code for each in told] == ["missing-file"], "there is no tokenizer here"
    wanted = [greedy(folder, sound, BLANK, MOST) for sound in sounds()]
    assert len({len(each) for each in wanted}) > 1, "blanks and tokens both occur"
    with genai_runtime.load(tmp_path / "out") as model:
        assert [model.run({"sound": sound})["tokens"].tolist() for sound in sounds()] == [[each] for each in wanted]
    plan = (tmp_path / "out" / "plan.txt").read_text()
    assert ") runs encoder, decoder, joiner\n" in plan
    assert "tdt_durations" in plan


def test_a_plugin_of_version_2_is_replaced_by_an_adapter_of_its_name(tmp_path: Path, installed: None) -> None:
    """The adapter knows no numbers of version 2's, so that they are its own here: it is told by name."""
    folder = version_2(tmp_path / "p")
    code = (tmp_path / "site" / "some_plugin.py").read_text()
    own = code.replace('parameters["blank_id"], parameters["max_symbols_per_step"]', f"{BLANK}, {MOST}")
    (tmp_path / "site" / "some_plugin_2.py").write_text(own)
    points = tmp_path / "site" / "some_plugin-1.0.dist-info" / "entry_points.txt"
    points.write_text(points.read_text().replace("Transducer@1 = some_plugin:", "Transducer@1 = some_plugin_2:"))
    compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out") as model:
        for sound in sounds():
            assert model.run({"sound": sound})["tokens"].tolist() == [greedy(folder, sound, BLANK, MOST)]


def refused(folder: Path) -> dict[str, str]:
    with pytest.raises(CompileError) as caught:
        compile_package(folder, out=folder.with_name("out"))
    assert not folder.with_name("out").exists()
    return {each.code: f"{each.path}: {each.what} {each.help}" for each in errors(caught.value.problems)}


def test_without_an_adapter_a_transducer_is_refused_with_what_to_install(tmp_path: Path) -> None:
    found = refused(version_1(tmp_path / "p"))
    assert list(found) == ["unsupported-package-class"]
    for words in ("model.joiner", "transducer", "'genai-compile.transducer@1'", "'genai_runtime.adapters'"):
        assert words in found["unsupported-package-class"]


def test_without_an_adapter_a_plugin_is_refused_and_its_library_stays_unloaded(tmp_path: Path) -> None:
    found = refused(version_2(tmp_path / "p"))
    assert "loads no code of a package" in found["unsupported-package-class"]
    assert "'CreateTransducer@1'" in found["unsupported-package-class"]


def test_a_missing_graph_of_a_transducer_is_said_with_the_rest(tmp_path: Path) -> None:
    folder = version_1(tmp_path / "p")
    (folder / "joiner.onnx").unlink()
    found = refused(folder)
    assert set(found) == {"unsupported-package-class", "missing-file"}
    assert "joiner.onnx" in found["missing-file"]


def test_what_stands_beside_a_joiner_is_refused(tmp_path: Path, installed: None) -> None:
    found = refused(version_1(tmp_path / "p", audio_output={"filename": "encoder.onnx"}))
    assert "'audio_output' beside a joiner" in found["unsupported-package-class"]


def test_an_adapter_that_refuses_is_named_at_load(tmp_path: Path, installed: None) -> None:
    compile_package(version_2(tmp_path / "p", "Refusing"), out=tmp_path / "out")
    with pytest.raises(LoadError, match="nothing suits it") as failed:
        genai_runtime.load(tmp_path / "out")
    assert failed.value.code == "adapter-parameters"


def test_an_adapter_that_has_gone_is_named_at_load(
    tmp_path: Path, installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_package(version_1(tmp_path / "p"), out=tmp_path / "out")
    (tmp_path / "site" / "some_plugin-1.0.dist-info" / "entry_points.txt").write_text("")
    with pytest.raises(LoadError) as failed:
        genai_runtime.load(tmp_path / "out")
    assert failed.value.code == "adapter-missing"
    assert "genai-compile.transducer@1" in str(failed.value)


def test_the_converted_document_is_the_same_plan(tmp_path: Path, installed: None) -> None:
    folder = version_1(tmp_path / "p")
    before = compile_package(folder, out=tmp_path / "before").plan
    text = convert_package(folder).text
    (folder / "genai_config.json").unlink()
    (folder / "inference_metadata.yaml").write_text(text, "utf-8")
    after = compile_package(folder, out=tmp_path / "after").plan
    assert before is not None
    assert after is not None
    assert plan_text(before).splitlines()[1:] == plan_text(after).splitlines()[1:]


def test_a_graph_that_an_adapter_wants_and_nobody_declares(tmp_path: Path, installed: None) -> None:
    folder = version_1(tmp_path / "p")
    text = convert_package(folder).text.replace("encoder, decoder, joiner", "encoder, decodr, joiner")
    (folder / "genai_config.json").unlink()
    (folder / "inference_metadata.yaml").write_text(text, "utf-8")
    assert "runs the graph of 'decodr'" in refused(folder)["unknown-component"]
