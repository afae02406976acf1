"""genai_config.json packages of several graphs: an encoder that runs once, and what the configuration joins falsely.

Expected tokens come from a loop of bare ONNX Runtime sessions.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime as ort
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.lower.genai_config_v1 import lower_genai_config

from tests.data import DATA, ROOT, needs_data

PACKAGE = ROOT / "fixtures" / "tiny-encoder-decoder-v1"
PARTS = ("key", "value")
Array = np.ndarray[Any, Any]
ASKED: dict[str, Any] = {"temperature": 0, "stop_on_eos": False}


def plain_loop(folder: Path, source: dict[str, Array], start: list[int], count: int) -> list[int]:
    """The encoder once, then the decoder token by token with its caches."""
    encoder, decoder = (
        ort.InferenceSession(folder / f"{each}.onnx", providers=["CPUExecutionProvider"])
        for each in ("encoder", "decoder")
    )
    names = [each.name for each in encoder.get_outputs()]
    made = dict(zip(names, encoder.run(names, source), strict=True))
    cross = {f"past_{part}_cross_{at}": made[f"present_{part}_cross_{at}"] for part in PARTS for at in range(2)}
    past = {f"past_{part}_self_{at}": np.zeros((1, 2, 0, 8), np.float32) for part in PARTS for at in range(2)}
    names, fed, tokens = [each.name for each in decoder.get_outputs()], start, list[int]()
    while len(tokens) < count:
        made = dict(
            zip(names, decoder.run(names, {"input_ids": np.array([fed], np.int32), **past, **cross}), strict=True)
        )
        past = {name: made[name.replace("past", "present")] for name in past}
        fed = [int(made["logits"][0, -1].argmax())]
        tokens += fed
    return tokens


def rows_of(result: Any) -> list[int]:
    return [int(token) for each in result.rows("tokens") if each is not None for token in each.reshape(-1)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> genai_runtime.Model:
    out = tmp_path_factory.mktemp("encoded") / "out"
    compile_package(PACKAGE, out=out)
    return genai_runtime.load(out, threads=1)


def test_the_encoder_takes_the_prompt_and_the_output_starts_as_configured(model: genai_runtime.Model) -> None:
    start = json.loads((PACKAGE / "genai_config.json").read_text())["model"]["decoder_start_token_id"]
    sources = [[5, 9, 30], [7], [3, 40, 41, 42, 43, 44, 5, 4]]
    wanted = [plain_loop(PACKAGE, {"input_ids": np.array([each])}, [start], 12) for each in sources]
    assert len({tuple(each) for each in wanted}) == 3
    assert [model.generate(each, max_new_tokens=12, **ASKED).tokens for each in sources] == wanted
    assert [each.tokens for each in model.generate(batch=sources, max_new_tokens=12, **ASKED).rows] == wanted


def test_the_output_may_start_with_any_tokens(model: genai_runtime.Model) -> None:
    source, start = np.array([[5, 9, 30]]), [1, 12, 13]
    inputs = {
        "request.input_ids": source,
        "decoder_input_ids": np.array([start], np.int32),
        "request.max_iterations": [9],
    }
    assert rows_of(model.run(inputs, stop_on_eos=False)) == plain_loop(PACKAGE, {"input_ids": source}, start, 9)


def test_an_encoder_of_sound_takes_features_and_the_decoder_the_prompt(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="onnxscript is absent: the graphs can't be made")
    from tools.fixtures.encoder_decoder import BANDS, write_encoder_decoder

    (tmp_path / "package").mkdir()
    write_encoder_decoder(tmp_path / "package", sound=True)
    compile_package(tmp_path / "package", out=tmp_path / "out")
    sound = np.random.default_rng(1).normal(size=(1, BANDS, 11)).astype(np.float32)
    prompt = [1, 20, 21]
    inputs = {
        "request.input_ids": np.array([prompt], np.int32),
        "audio_features": sound,
        "request.max_iterations": [12],
    }
    with genai_runtime.load(tmp_path / "out", threads=1) as loaded:
        made = rows_of(loaded.run(inputs, stop_on_eos=False))
    assert made == plain_loop(tmp_path / "package", {"audio_features": sound}, prompt, 12)


def changed(folder: Path, package: Path, *changes: tuple[str, Any]) -> Path:
    """A copy of a package with values of its configuration set, by dotted path; ... removes one."""
    shutil.copytree(package, folder)
    config = json.loads((folder / "genai_config.json").read_text())
    for path, value in changes:
        *parents, last = path.split(".")
        holder = config
        for each in parents:
            holder = holder.setdefault(each, {})
        if value is ...:
            del holder[last]
        else:
            holder[last] = value
    (folder / "genai_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("path", "value", "code", "words"),
    [
        ("model.encoder.outputs.cross_present_key_names", "crossed_%d", "missing-output", "no output 'crossed_0'"),
        ("model.decoder.inputs.cross_past_key_names", "crossed_%d", "unclaimed-input", "'past_key_cross_0'"),
        ("model.encoder.filename", "../encoder.onnx", "outside-package", "encoder.onnx"),
        ("model.encoder.filename", "gone.onnx", "missing-file", "gone.onnx"),
        ("model.encoder.filename", "decoder.onnx", "missing-output", "cross"),
        ("model.vision", {"filename": "encoder.onnx"}, "unsupported-package-class", "nothing takes what the graph"),
        ("model.embedding", {"filename": "encoder.onnx"}, "unsupported-package-class", "nothing takes what the graph"),
        ("model.joiner", {"filename": "encoder.onnx"}, "unsupported-package-class", "'joiner'"),
        ("model.encoder.inputs.input_ids", 5, "wrong-type", "must be a string"),
    ],
)
def test_refused_with_its_place(tmp_path: Path, path: str, value: Any, code: str, words: str) -> None:
    with pytest.raises(CompileError) as caught:
        lower_genai_config(changed(tmp_path / "package", PACKAGE, (path, value)))
    found = [each for each in caught.value.problems if each.code == code and words in each.what]
    assert found, str(caught.value)
    assert found[0].where.file == "genai_config.json"


def test_without_its_encoder_nothing_computes_the_cross_caches(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="cross-attention state"):
        lower_genai_config(changed(tmp_path / "package", PACKAGE, ("model.encoder", ...)))


def test_session_options_of_its_own_are_reported(tmp_path: Path) -> None:
    own = ("model.encoder.session_options", {"intra_op_num_threads": 3})
    problems = lower_genai_config(changed(tmp_path / "package", PACKAGE, own)).problems
    assert [each.path for each in problems if each.code == "ignored-key"] == ["model.encoder.session_options"]


@needs_data
@pytest.mark.parametrize("name", ["mobius-qwen2_5_vl-og", "og-gemma2", ""])
@pytest.mark.parametrize("stated", ["a_type_of_tomorrow", ...])
def test_the_type_decides_nothing(tmp_path: Path, name: str, stated: Any) -> None:
    package = DATA / "realpkgs" / name if name else PACKAGE
    wanted = lower_genai_config(package).document
    assert lower_genai_config(changed(tmp_path / "package", package, ("model.type", stated))).document == wanted
