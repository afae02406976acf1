"""A package with an audio program, compiled and run: what comes out is what the operations make of the file."""

from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
import yaml
from genai_compiler import CompileError, compile_package
from genai_runtime.adapters.audio.log_mel import log_mel

from tests.check.bases import broken
from tests.check.cases_steps import P, S
from tests.reference.interpreter import interpret
from tests.runtime.audio.files import tone, wav16

NAMES = ("features", "wave", "frames", "samples")
STEREO = wav16(np.stack([tone(900), -tone(900, hertz=200.0)], axis=1), channels=2)


def package(root: Path, changes: dict[str, Any]) -> Path:
    """The valid document of tests/check with every output of its program published, then changed."""
    ports = broken("audio", {})["pipeline"]["workflow"]["components"]["ears"]["ports"]["outputs"]
    outputs = {
        each: {"contract": ports[each], "role": "tensor", "stage": "pre_adapter"} for each in NAMES
    }  # fmt: skip
    emits = [{"kind": "emit", "value": f"audio.{each}", "output": each, "mode": "replace"} for each in NAMES]
    published = {f"{S}/{at + 1}": each for at, each in enumerate(emits)}
    capabilities = ["workflow_ssa", "linear_effects", "typed_emit"]
    data = broken(
        "audio", {f"{P}/outputs": outputs, f"{P}/manifest/capabilities": capabilities, **published, **changes}
    )
    root.mkdir(exist_ok=True)
    (root / "inference_metadata.yaml").write_text(yaml.safe_dump(data))
    return root


@pytest.fixture
def model(tmp_path: Path) -> Any:
    compile_package(package(tmp_path / "ears", {}), out=tmp_path / "ears.compiled")
    with genai_runtime.load(tmp_path / "ears.compiled") as loaded:
        yield loaded


def bytes_of(content: bytes) -> dict[str, Any]:
    return {"file": np.frombuffer(content, np.uint8)}


def test_a_file_becomes_tensors(model: genai_runtime.Model) -> None:
    result = model.run(bytes_of(STEREO))
    mono = ((tone(900).astype(np.float64) - tone(900, hertz=200.0)) / 65536 * 2).astype(np.float32)
    window = np.zeros(480_000, np.float32)
    window[:900] = mono
    assert np.array_equal(result["wave"][0], window)
    assert np.array_equal(result["features"][0], log_mel(window, 80))
    assert (result["frames"].tolist(), result["samples"].tolist()) == ([6], [900])


MEL = {"op": "log_mel", "num_mel_bins": 128}
PROGRAMS: dict[str, list[dict[str, Any]]] = {
    "resampled": [{"op": "resample", "sample_rate": 16000}, MEL],
    "of any rate": [MEL],
    "normalized": [
        {"op": "resample", "sample_rate": 16000}, {"op": "zero_mean_unit_variance"},
        {"op": "pad", "target_length": 2400}, MEL, {"op": "normalize"},
    ],
    "loud and short": [{"op": "rescale", "scale": 3.5}, {"op": "trim", "target_length": 500}, MEL],
}  # fmt: skip


@pytest.mark.parametrize("rate", [8000, 16000, 44100])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_what_the_reference_makes_of_them(tmp_path: Path, name: str, rate: int) -> None:
    """The same document, read by an interpreter that shares nothing with ours."""
    sources = {f"preprocessing/audio/outputs/{at}/source": "any" for at in range(4)}
    mels = {"preprocessing/audio/outputs/0/contract/shape": ["batch", 128, "frames"],
            f"{P}/components/ears/ports/outputs/features/shape": ["batch", 128, "frames"],
            f"{P}/outputs/features/contract/shape": ["batch", 128, "frames"]}  # fmt: skip
    transforms = [{"op": "decode"}, *PROGRAMS[name], {"op": "emit_valid_frames"}]
    root = package(tmp_path / "ears", {"preprocessing/audio/transforms": transforms, **sources, **mels})
    compile_package(root, out=tmp_path / "ears.compiled")
    content = wav16(np.stack([tone(1500, rate), tone(1500, rate, 700.0)], axis=1), rate=rate, channels=2)
    wanted = interpret(root, bytes_of(content)).outputs
    with genai_runtime.load(tmp_path / "ears.compiled") as loaded:
        result = loaded.run(bytes_of(content))
    for each in NAMES:
        made, expected = result[each], wanted[each]
        assert isinstance(expected, np.ndarray)
        assert (made.shape, made.dtype) == (expected.shape, expected.dtype)
        # we round samples to float32 between steps, the reference does not; the logarithm of near silence shows it
        np.testing.assert_allclose(made, expected, rtol=0, atol=2e-5, err_msg=each)


def test_several_files_are_rows(model: genai_runtime.Model) -> None:
    other = wav16(tone(700))
    together = model.run({"file": [STEREO, other]})
    alone = [model.run({"file": each}) for each in (STEREO, other)]
    for each in NAMES:
        assert np.array_equal(together[each], np.concatenate([one[each] for one in alone])), each


def test_a_file_that_is_no_sound_is_named_with_its_step(model: genai_runtime.Model) -> None:
    with pytest.raises(genai_runtime.RequestError) as failed:
        model.run(bytes_of(b"GIF89a"))
    assert (failed.value.code, failed.value.origin.split(" ")[1]) == ("bad-audio", "pipeline.workflow.steps[0]")
    assert "convert it to WAV" in failed.value.help


def test_the_executor_holds_the_program_as_data(tmp_path: Path) -> None:
    made = compile_package(package(tmp_path / "ears", {}), out=tmp_path / "ears.compiled")
    assert "resample" in made.executor
    assert "window=480000" in made.executor
    assert made.plan is not None
    assert "steps ((resample, 16000), (rescale, 2.0)), window 480000, mels 80, " in (
        tmp_path / "ears.compiled" / "plan.txt"
    ).read_text("utf-8")


def test_every_fault_of_a_program_is_said_at_once_with_its_line(tmp_path: Path) -> None:
    root = package(tmp_path / "ears", {
        "preprocessing/audio/transforms/4/n_fft": 512, "preprocessing/audio/transforms/3/pad_value": 1.0,
        "preprocessing/audio/outputs/1/source": "waved",
    })  # fmt: skip
    with pytest.raises(CompileError) as refused:
        compile_package(root, out=tmp_path / "out.compiled")
    problems = [each for each in refused.value.problems if each.code == "audio-program"]
    assert {each.path for each in problems} == {
        "preprocessing.audio.transforms[4]", "preprocessing.audio.transforms[3]", "preprocessing.audio.outputs[1]",
    }  # fmt: skip
    assert all(each.where.line > 0 and each.help for each in problems)
    assert not (tmp_path / "out.compiled").exists()
