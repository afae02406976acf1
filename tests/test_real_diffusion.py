"""Exporters' packages with a denoising loop, against what another library's schedulers made around the same graphs.

The data hold the caller's noise, both prompts, the last latents and the picture.
"""

import json
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import numpy.typing as npt
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.problem import errors
from genai_runtime import RequestError
from genai_runtime.cli import main

from tests.data import DATA, needs_data
from tests.real_packages import DRAWN, PACKAGES, Compiled, cases, once_each
from tests.reference.png import decode_rgb

pytestmark = needs_data
Arrays = dict[str, npt.NDArray[Any]]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return once_each(tmp_path_factory)


def data(name: str) -> Arrays:
    (case,) = cases(name, "diffusion")
    return dict(np.load(PACKAGES / name / case["inputs"]))


def request(given: Arrays) -> dict[str, Any]:
    return {
        "request.input_ids": given["input_ids"],
        "request.negative_input_ids": given["negative_ids"],
        "noise": given["noise"],
    }


@pytest.mark.parametrize("name", DRAWN)
def test_latents_and_picture_are_the_expected_ones(compiled: Compiled, name: str) -> None:
    given, (case,) = data(name), cases(name, "diffusion")
    made = compiled(name).run(request(given))
    assert made.iterations == case["steps"]
    for output, wanted in (("latents", given["final_latent"]), ("image", given["image"])):
        assert np.abs(made[output] - wanted).max() <= 2e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_of_token_ids_and_the_callers_noise(compiled: Compiled, name: str) -> None:
    """By `draw`: the same latents; the picture in bytes; each step told."""
    given, steps = data(name), list[tuple[int, int | None]]()
    made = compiled(name).draw(
        given["input_ids"][0].tolist(),
        given["negative_ids"][0].tolist(),
        inputs={"noise": given["noise"]},
        on_step=lambda done, total: steps.append((done, total)),
    )
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
    wanted = np.clip((given["image"][0].astype(np.float64) + 1) * 127.5, 0, 255).transpose(1, 2, 0)
    (picture,) = made.pictures
    assert picture.dtype == np.uint8
    assert np.abs(picture - wanted).max() <= 0.5 + 1e-2
    assert made.seed is None
    assert np.abs(made.result["latents"] - given["final_latent"]).max() < 1e-2


@pytest.mark.parametrize("name", DRAWN)
def test_other_requests(compiled: Compiled, name: str) -> None:
    """A seed makes a picture again; sizes are those asked for; guidance and the negative prompt have an effect."""
    model = compiled(name)
    size: dict[str, Any] = {"width": 32, "height": 24, "steps": 3}
    first = model.draw("hello world", "rain", seed=7, **size)
    assert first.pictures[0].shape == (24, 32, 3)
    again = model.draw("hello world", "rain", seed=7, **size)
    assert (again.pictures[0] == first.pictures[0]).all()
    for other in (
        model.draw("hello world", "rain", seed=8, **size),
        model.draw("hello world", "snow", seed=7, **size),
        model.draw("hello world", "rain", seed=7, guidance_scale=1.5, **size),
        model.draw("hello there", "rain", seed=7, **size),
    ):
        assert (other.result["latents"] != first.result["latents"]).any()
    fresh = model.draw("hello world", **size)
    assert fresh.seed is not None
    assert (model.draw("hello world", seed=fresh.seed, **size).pictures[0] == fresh.pictures[0]).all()


@pytest.mark.parametrize("name", DRAWN)
def test_several_seeds_are_several_pictures(compiled: Compiled, name: str, tmp_path: Path) -> None:
    """Each byte for byte that of its own run; steps are counted over all of them."""
    model, steps = compiled(name), list[tuple[int, int | None]]()
    options: dict[str, Any] = {"width": 24, "height": 16, "steps": 2}
    made = model.draw("hello world", "rain", seed=[7, 3, 7], on_step=lambda *each: steps.append(each), **options)
    alone = [model.draw("hello world", "rain", seed=seed, **options) for seed in (7, 3)]
    assert len(made.pictures) == 3
    assert made.seeds == (7, 3, 7)
    assert (made.seed, made.result) == (7, made.results[0])
    for picture, wanted in zip(made.pictures, (alone[0], alone[1], alone[0]), strict=True):
        assert (picture == wanted.pictures[0]).all()
    assert (alone[0].result["latents"] != alone[1].result["latents"]).any()
    assert (made.results[1]["latents"] == alone[1].result["latents"]).all()
    assert steps == [(at, 6) for at in range(1, 7)]
    assert [each.name for each in made.save(tmp_path / "a.png")] == ["a-1.png", "a-2.png", "a-3.png"]
    fresh = model.draw("hello world", seed=(None, 5), **options)
    assert isinstance(fresh.seeds[0], int)
    assert fresh.seeds[1] == 5
    for wrong in ([], [7, "8"], [1.5]):
        with pytest.raises(RequestError, match="bad-value"):
            model.draw("hello world", seed=wrong, on_step=lambda *each: pytest.fail("a run began"), **options)
    with pytest.raises(RequestError, match="unsupported-option"):
        model.draw([1], [2], seed=[1, 2], inputs={"noise": data(name)["noise"]})


def test_a_scale_of_one_is_the_conditional_estimate_alone(compiled: Compiled) -> None:
    model, given = compiled(DRAWN[0]), data(DRAWN[0])
    alone = {"inputs": {"noise": given["noise"]}, "guidance_scale": 1.0}
    one = model.draw([1, 40, 77], [2], **alone)  # type: ignore[arg-type]
    other = model.draw([1, 40, 77], [5, 9], **alone)  # type: ignore[arg-type]
    np.testing.assert_allclose(one.result["latents"], other.result["latents"], rtol=1e-3, atol=1e-3)


def test_what_a_picture_is_not_asked_for(compiled: Compiled) -> None:
    model = compiled(DRAWN[0])
    for options, code in (
        ({}, "bad-picture-size"),
        ({"width": 31, "height": 32}, "bad-picture-size"),
        ({"width": 32, "height": 32, "steps": 0}, "bad-steps"),
        ({"width": 32, "height": 32, "steps": 2.5}, "bad-value"),
        ({"width": 32, "height": 32, "strength": 0.5}, "unsupported-option"),
        ({"width": 32, "height": 32, "temperature": 1.0}, "unknown-option"),
    ):
        with pytest.raises(RequestError, match=code):
            model.draw("hello", **options)
    with pytest.raises(RequestError, match="empty-prompt"):
        model.draw([], width=32, height=32)
    with pytest.raises(RequestError, match="no-picture-output"):
        model.draw("hello", output="latents")
    with pytest.raises(RequestError, match="no-tokens-output"):
        list(model.generate("hello"))


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DRAWN)
def test_numbers_that_would_give_another_picture_than_was_asked_for(compiled: Compiled, name: str) -> None:
    """Not a number made all pixels black; a negative id was counted from the end of the table of embeddings."""
    for scale in (float("nan"), float("inf"), 1e39):
        with pytest.raises(RequestError) as refused:
            compiled(name).draw([4], guidance_scale=scale, width=16, height=16)
        assert refused.value.code == "bad-value"
    for prompts in (([-1], [4]), ([4], [3, -5]), ([4, 1 << 40], [4])):
        with pytest.raises(RequestError) as refused:
            compiled(name).draw(*prompts, width=16, height=16)
        assert refused.value.code == "bad-token"


def test_the_command_writes_a_picture_and_tells_of_its_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, file = str(tmp_path / "out"), tmp_path / "made.png"
    compile_package(PACKAGES / DRAWN[0], out=folder)
    size = ["--width", "32", "--height", "24", "--seed", "5"]
    assert (
        main([folder, "--prompt", "hello world", "--negative-prompt", "rain", "--steps", "2", *size, "-o", str(file)])
        == 0
    )
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["step 1 of 2", "step 2 of 2", f"{file}: 32 x 24 pixels, seed 5"]
    with genai_runtime.load(folder, threads=1) as model:
        wanted = model.draw("hello world", "rain", steps=2, width=32, height=24, seed=5).pictures[0]
    assert (decode_rgb(file.read_bytes()) == wanted).all()

    given = data(DRAWN[0])
    np.save(tmp_path / "noise.npy", given["noise"])
    ids = ",".join(map(str, given["input_ids"][0]))
    noise = ["--input", f"noise={tmp_path / 'noise.npy'}", "--json", "-o", str(file)]
    assert main([folder, "--tokens", ids, *noise]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"files": [str(file)], "seed": None, "steps": 4}

    for arguments, words in (
        (["--prompt", "x", *size], "no-file"),
        (["--prompt", "x", *size, "-o", str(tmp_path / "none" / "a.png")], "no-file"),
        (["--prompt", "x", *size, "--temperature", "0", "-o", str(file)], "--temperature: this package makes pictures"),
        (["--prompt", "x", *size, "--no-speculate", "-o", str(file)], "--no-speculate: this package makes pictures"),
        (["--prompt", "x", "--width", "32", "-o", str(file)], "bad-picture-size"),
    ):
        assert main([folder, *arguments]) == 2
        assert words in capsys.readouterr().err


def test_a_package_of_its_own_schedule_draws_by_the_same_options(tmp_path: Path) -> None:
    """A conformance package whose schedule, solver and noise are graphs: options go to its inputs by their role."""
    compile_package(DATA / "conformance" / "packages" / "txt2img_sd15", out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.draws
        made = model.draw([1, 2, 3], [0, 0, 0], seed=3, guidance_scale=2.0, steps=2)
        assert made.result.iterations == 2
        prompts = {"request.input_ids": np.array([[1, 2, 3]]), "request.negative_input_ids": np.array([[0, 0, 0]])}
        scalars = {"request.seed": np.array([3]), "request.max_iterations": np.array([2])}
        wanted = model.run({**prompts, **scalars, "request.guidance_scale": np.array([2.0], np.float32)})
        np.testing.assert_array_equal(made.result["image"], wanted["image"])
        with pytest.raises(RequestError, match="unsupported-option"):
            model.draw([1], [0], width=64)


# ---- refused ---------------------------------------------------------------------------------------------------------


def test_a_package_whose_graphs_contradict_themselves_is_refused_for_that(tmp_path: Path) -> None:
    """The denoiser's output has neither type nor shape; its text input is declared wider than its weights take."""
    with pytest.raises(CompileError) as refused:
        compile_package(PACKAGES / "mobius-flux-meta", out=tmp_path / "out")
    found = {each.code: each for each in errors(refused.value.problems)}
    assert set(found) == {"untyped-port", "config-contradicts-graph", "wrong-port"}
    assert "'noise_pred' neither type nor shape" in found["untyped-port"].what
    for word in ("'encoder_hidden_states' 4096 wide", "takes 32"):
        assert word in found["config-contradicts-graph"].what
    for word in ("[batch, 4, height, width]", "[batch, 16, height, width]"):
        assert word in found["wrong-port"].what
    assert not (tmp_path / "out").exists()
