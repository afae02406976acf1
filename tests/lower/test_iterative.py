"""Denoising loops (`strategy.kind: iterative`) around small graphs: each form runs as a loop over ONNX Runtime's own
sessions does.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import compile_package
from genai_compiler.convert import convert_package
from genai_compiler.driver import Options
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.conftest import FIXTURES
from tests.lower.iterative_packages import (
    DOCUMENT,
    FLOAT,
    HALF,
    INT,
    Denoiser,
    opened,
    package,
    painter,
    strategy,
    told,
    words,
)

NOISE = np.random.default_rng(9).normal(size=(2, 4, 3, 2)).astype(np.float32)
IDS = np.array([[1, 2, 3], [4, 5, 6]])
NEGATIVE = np.array([[7], [8]])
REQUEST: dict[str, Any] = {"request.input_ids": IDS, "request.negative_input_ids": NEGATIVE, "noise": NOISE}


STEPS = ((667, 334), (334, 1), (1, 0))
"""Timesteps that DDIM visits in 3 steps, and where each leads."""


def by_hand(
    folder: Path,
    scale: float | None,
    divided: float = 0.5,
    when: Any = np.int64,
    noisy: Any = NOISE,
    steps: tuple[tuple[int, int], ...] = STEPS,
) -> dict[str, Any]:
    """DDIM over the sessions themselves, to the noise of the first timestep."""
    run = {each: onnxruntime.InferenceSession(folder / f"{each}.onnx") for each in ("words", "denoiser", "painter")}
    types = {each.name: each.type for each in (*run["denoiser"].get_inputs(), *run["painter"].get_inputs())}
    numpy = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    signal = np.cumprod(1 - np.linspace(0.0001, 0.02, 1000))
    texts = [run["words"].run(["meaning"], {"ids": each})[0] for each in (IDS, NEGATIVE)]
    x = noisy.astype(np.float64)
    for now, then in steps:
        taken = x.astype(numpy[types["noisy"]])
        rank = len(run["denoiser"].get_inputs()[1].shape)
        time = np.full((2,) * rank, now, when)
        guesses = [run["denoiser"].run(None, {"noisy": taken, "when": time, "text": text})[0] for text in texts]
        towards, without = (each.astype(np.float64) for each in guesses)
        guess = towards if scale is None else without + scale * (towards - without)
        clean = (x - np.sqrt(1 - signal[now]) * guess) / np.sqrt(signal[now])
        x = np.sqrt(signal[then]) * clean + np.sqrt(1 - signal[then]) * guess
    picture = run["painter"].run(None, {"latents": (x / divided).astype(numpy[types["latents"]])})[0]
    return {"latents": x, "image": picture}


def close(made: Any, wanted: dict[str, Any], rough: bool = False) -> None:
    for name, each in wanted.items():
        assert np.abs(made[name] - each).max() <= (1e-2 if rough else 2e-5) * np.abs(each).max(), name


# ---- forms -----------------------------------------------------------------------------------------------------------


def test_a_guided_loop_equals_one_over_the_sessions(tmp_path: Path) -> None:
    """Prompts of different length; two rows, each as its run alone; latents divided by what the document states."""
    folder = package(tmp_path / "p")
    with opened(folder, tmp_path / "out") as model:
        made = model.run(REQUEST)
        close(made, by_hand(folder, 3.0))
        assert made.iterations == 3
        alone = model.run({name: value[1:] for name, value in REQUEST.items()})
        np.testing.assert_array_equal(alone["latents"][0], made["latents"][1])
        per_row = model.run({**REQUEST, "request.guidance_scale": np.array([1.0, 3.0], np.float32)})
        np.testing.assert_array_equal(per_row["latents"][1], made["latents"][1])
        close({"latents": per_row["latents"][0]}, {"latents": by_hand(folder, 1.0)["latents"][0]})
        assert model.run({**REQUEST, "request.max_iterations": [5]}).iterations == 5


@pytest.mark.parametrize(
    "denoiser",
    [
        Denoiser(time=FLOAT, time_shape=[]),
        Denoiser(time=TensorProto.INT32, time_shape=["b"]),
        Denoiser(latents=HALF, guess=HALF),
    ],
    ids=["one float", "int32 a row", "half precision"],
)
def test_timesteps_and_latents_go_in_as_the_graph_takes_them(denoiser: Denoiser, tmp_path: Path) -> None:
    half = denoiser.latents == HALF
    folder = package(tmp_path / "p", denoiser=denoiser.made(), painter=painter(HALF if half else FLOAT))
    when = {FLOAT: np.float32, INT: np.int64, TensorProto.INT32: np.int32}[denoiser.time]
    request = {**REQUEST, "noise": NOISE.astype(np.float16 if half else np.float32)}
    with opened(folder, tmp_path / "out") as model:
        close(model.run(request), by_hand(folder, 3.0, when=when), rough=half)


def test_without_guidance_there_is_one_pass_and_no_negative_prompt(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", strategy(guidance_scale=..., cfg_conditioning_input=...))
    with opened(folder, tmp_path / "out") as model:
        names = {each["name"] for each in model.describe()["inputs"]}
        assert not names & {"request.negative_input_ids", "request.guidance_scale"}
        close(model.run({"request.input_ids": IDS, "noise": NOISE}), by_hand(folder, None))


def test_without_a_text_encoder_the_caller_gives_both_texts(tmp_path: Path) -> None:
    flows = [each for each in DOCUMENT["pipeline"]["dataflow"] if "words" not in each["from"]]
    folder = package(tmp_path / "p", {"pipeline": {"models": {"words": ...}, "dataflow": flows}})
    session = onnxruntime.InferenceSession(folder / "words.onnx")
    texts = [session.run(None, {"ids": each})[0] for each in (IDS, NEGATIVE)]
    with opened(folder, tmp_path / "out") as model:
        made = model.run({"text": texts[0], "negative_text": texts[1], "noise": NOISE})
        close(made, by_hand(folder, 3.0))


def test_a_second_conditioning_is_varied_with_the_first_and_others_are_shared(tmp_path: Path) -> None:
    """Two outputs of one text encoder feed the denoiser; a third input is the caller's, for both passes."""
    denoiser = Denoiser().made()
    denoiser.graph.input.append(helper.make_tensor_value_info("pooled", FLOAT, ["b", "m", 5]))
    denoiser.graph.input.append(helper.make_tensor_value_info("ratio", FLOAT, ["b"]))
    mean = helper.make_node("ReduceMean", ["pooled", "inner"], ["share"], keepdims=1)
    denoiser.graph.initializer.append(numpy_helper.from_array(np.array([1, 2]), "inner"))
    denoiser.graph.node[-1].input[0] = "whole"
    extra = [
        mean,
        helper.make_node("Unsqueeze", ["share", "fourth"], ["share4"]),
        helper.make_node("Reshape", ["ratio", "column"], ["ratio4"]),
        helper.make_node("Mul", ["share4", "ratio4"], ["weighed"]),
        helper.make_node("Add", ["sum", "weighed"], ["whole"]),
    ]
    denoiser.graph.initializer.append(numpy_helper.from_array(np.array([3]), "fourth"))
    last = denoiser.graph.node.pop()
    denoiser.graph.node.extend([*extra, last])
    flows = [*DOCUMENT["pipeline"]["dataflow"], {"from": "words.summary", "to": "denoiser.pooled"}]
    over = {"pipeline": {"dataflow": flows}}
    folder = package(tmp_path / "p", over, words=words("meaning", "summary"), denoiser=denoiser)
    ratio = np.array([0.5, 2.0], np.float32)
    with opened(folder, tmp_path / "out") as model:
        made = model.run({**REQUEST, "ratio": ratio})
    run = {each: onnxruntime.InferenceSession(folder / f"{each}.onnx") for each in ("words", "denoiser")}
    signal = np.cumprod(1 - np.linspace(0.0001, 0.02, 1000))
    texts = [run["words"].run(["meaning", "summary"], {"ids": each}) for each in (NEGATIVE, IDS)]
    x = NOISE.astype(np.float64)
    for now, then in STEPS:
        fed = {"noisy": x.astype(np.float32), "when": np.full(2, now), "ratio": ratio}
        without, towards = (
            run["denoiser"].run(None, {**fed, "text": text, "pooled": pooled})[0] for text, pooled in texts
        )
        guess = without + 3 * (towards - without)
        clean = (x - np.sqrt(1 - signal[now]) * guess) / np.sqrt(signal[now])
        x = np.sqrt(signal[then]) * clean + np.sqrt(1 - signal[then]) * guess
    close(made, {"latents": x})


def test_a_loop_alone_gives_its_latents(tmp_path: Path) -> None:
    flows = DOCUMENT["pipeline"]["dataflow"][:2]
    folder = package(tmp_path / "p", {"pipeline": {"models": {"painter": ...}, "dataflow": flows}})
    with opened(folder, tmp_path / "out") as model:
        assert not model.draws
        close(model.run(REQUEST), {"latents": by_hand(folder, 3.0)["latents"]})


@pytest.mark.parametrize("extents", [True, False])
def test_width_and_height_become_latents_by_the_decoders_extents(extents: bool, tmp_path: Path) -> None:
    """Said by its ports (2*h, w * 3), or found by shape inference."""
    folder = package(tmp_path / "p", painter=painter(extents=extents))
    ids = {name: value for name, value in REQUEST.items() if name != "noise"}
    with opened(folder, tmp_path / "out") as model:
        made = model.run({**ids, "request.width": [9], "request.height": [8], "request.seed": [4, 5]})
        assert made["latents"].shape == (2, 4, 4, 3)
        assert made["image"].shape == (2, 3, 8, 9)
        other = model.run({**ids, "request.width": [9], "request.height": [8], "request.seed": [5, 5]})
        np.testing.assert_array_equal(other["latents"][1], made["latents"][1])
        assert (other["latents"][0] != made["latents"][0]).any()


def test_steps_are_asked_for_where_the_document_has_none(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", strategy(num_steps=...))
    with opened(folder, tmp_path / "out") as model:
        with pytest.raises(genai_runtime.RequestError, match="missing-input"):
            model.run(REQUEST)
        close(model.run({**REQUEST, "request.max_iterations": [3]}), by_hand(folder, 3.0))


def test_a_loop_that_starts_from_latents_runs_the_steps_that_are_left(tmp_path: Path) -> None:
    """`start_step: 1` of 3: the caller's latents under the noise of timestep 334, then 334 and 1; or another part."""
    folder = package(tmp_path / "p", strategy(start_step=1))
    clean = np.random.default_rng(12).normal(size=NOISE.shape).astype(np.float32)
    signal = np.cumprod(1 - np.linspace(0.0001, 0.02, 1000))
    with opened(folder, tmp_path / "out") as model:
        made = model.run({**REQUEST, "latents": clean})
        noisy = np.sqrt(signal[334]) * clean + np.sqrt(1 - signal[334]) * NOISE
        close(made, by_hand(folder, 3.0, noisy=noisy, steps=((334, 1), (1, 0))))
        assert made.iterations == 2
        last = model.run({**REQUEST, "latents": clean, "request.strength": np.array([0.3], np.float32)})
        noisy = np.sqrt(signal[1]) * clean + np.sqrt(1 - signal[1]) * NOISE
        close(last, by_hand(folder, 3.0, noisy=noisy, steps=((1, 0),)))
        told: list[tuple[int, int | None]] = []
        drawn = model.draw(
            [1, 2, 3],
            [7],
            inputs={"latents": clean[:1], "noise": NOISE[:1]},
            strength=1.0,
            on_step=lambda done, of: told.append((done, of)),
        )
        assert (drawn.result.iterations, told[-1]) == (3, (3, 3))
        with pytest.raises(genai_runtime.RequestError, match="missing-input"):
            model.run(REQUEST)
        for strength in (0.0, 1.5):
            with pytest.raises(genai_runtime.RequestError, match="bad-steps"):
                model.run({**REQUEST, "latents": clean, "request.strength": np.array([strength], np.float32)})
        with pytest.raises(genai_runtime.RequestError, match="symbol-conflict"):
            model.run({**REQUEST, "latents": clean[:, :, :2]})


def test_a_latent_space_that_the_document_does_not_scale_is_said_and_taken_as_it_is(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", {"pipeline": {"models": {"painter": {"scaling_factor": ...}}}})
    (problem,) = told(folder)["unscaled-latents"]
    assert (problem.severity, problem.path) == ("warning", "pipeline.models.painter")
    with opened(folder, tmp_path / "out") as model:
        close(model.run(REQUEST), by_hand(folder, 3.0, divided=1.0))


def test_listed_timesteps_are_the_ones_visited(tmp_path: Path) -> None:
    folder = package(
        tmp_path / "p", strategy(timesteps=[667, 334, 1], scheduler_config={"timestep_spacing": "linspace"})
    )
    with opened(folder, tmp_path / "out") as model:
        close(model.run(REQUEST), by_hand(folder, 3.0))
        with pytest.raises(genai_runtime.RequestError, match="bad-steps"):
            model.run({**REQUEST, "request.max_iterations": [4]})


@pytest.mark.parametrize("without", [(), ("fuse_islands",)])
def test_a_solver_of_two_steps_equals_one_over_the_sessions(without: tuple[str, ...], tmp_path: Path) -> None:
    """The fixture: DPM-Solver++ (Lu et al. 2022, algorithm 2) at 999, 749, 500, 250; the last step of first order."""
    folder = FIXTURES / "tiny-denoiser"
    compile_package(folder, out=tmp_path / "out", options=Options(without=without))
    ids, negative = [6, 7, 8], [9]
    noise = np.random.default_rng(4).normal(size=(1, 4, 3, 2)).astype(np.float32)
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        made = model.draw(ids, negative, inputs={"noise": noise}).result
    run = {each: onnxruntime.InferenceSession(folder / f"{each}.onnx") for each in ("text_encoder", "denoiser", "vae")}
    texts = [run["text_encoder"].run(None, {"input_ids": np.array([each])})[0] for each in (negative, ids)]
    products = np.cumprod(1 - np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2)
    alphas, sigmas = np.sqrt(products), np.sqrt(1 - products)
    x, before, last = noise.astype(np.float64), None, 0.0
    visited: list[int | None] = [999, 749, 500, 250, None]
    for now, then in pairwise(visited):
        assert now is not None
        fed = {"sample": x.astype(np.float32), "timestep": np.array([now])}
        without_text, towards = (run["denoiser"].run(None, {**fed, "encoder_hidden_states": each})[0] for each in texts)
        clean = (x - sigmas[now] * (without_text + 5 * (towards - without_text))) / alphas[now]
        if then is None:
            x = clean  # without noise nothing else is left
            break
        h = np.log(alphas[then] / sigmas[then]) - np.log(alphas[now] / sigmas[now])
        data = clean if before is None else clean + h / (2 * last) * (clean - before)
        x = sigmas[then] / sigmas[now] * x - alphas[then] * np.expm1(-h) * data
        before, last = clean, h
    picture = run["vae"].run(None, {"latents": (x / 0.5).astype(np.float32)})[0]
    close(made, {"latents": x, "image": picture})


def fixed(model: ModelProto, sizes: dict[str, int]) -> ModelProto:
    """The graph with numbers in the place of symbols."""
    for each in (*model.graph.input, *model.graph.output):
        for dim in each.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    return model


def test_graphs_of_one_size_need_no_size_and_pad_the_prompt(tmp_path: Path) -> None:
    """One row, three tokens, latents of 4 by 2: all numbers in the graphs. The padding token is the tokenizer's."""
    sizes = {"b": 1, "rows": 1, "n": 3, "m": 3, "h": 4, "w": 2, "2*h": 8, "w * 3": 6}
    graphs = {"words": words(), "denoiser": Denoiser().made(), "painter": painter()}
    folder = package(tmp_path / "p", **{name: fixed(each, sizes) for name, each in graphs.items()})
    with opened(folder, tmp_path / "bare") as model:
        assert model.draw([1, 2, 3], [4, 5, 6], seed=1).pictures[0].shape == (8, 6, 3)
        for ids in ([1], [1, 2, 3, 4]):
            with pytest.raises(genai_runtime.RequestError, match="prompt-length"):
                model.draw(ids, [4, 5, 6], seed=1)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((FIXTURES / "tiny-denoiser" / name).read_bytes())
    with opened(folder, tmp_path / "out") as model:
        made = model.draw([1, 2], [4], seed=1)
        wanted = model.draw([1, 2, 0], [4, 0, 0], seed=1)
        assert (made.result["latents"] == wanted.result["latents"]).all()
        other = model.draw([1, 2, 0], [4, 0, 0], seed=2)
        assert (made.result["latents"] != other.result["latents"]).any()


# ---- a document that people have edited ------------------------------------------------------------------------------


def test_a_parameter_that_the_adapter_refuses_is_told_before_anything_is_written(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    text = convert_package(folder).text
    assert "docs/diffusion.md" in text
    (folder / "inference_metadata.yaml").write_text(text.replace("solver: ddim", "solver: ddpm"))
    (problem,) = told(folder)["adapter-parameters"]
    assert "'solver' is 'ddpm'" in problem.what
    assert problem.path == "pipeline.workflow.components.diffusion_schedule.contract.parameters"
    (folder / "inference_metadata.yaml").write_text(text)
    with opened(folder, tmp_path / "out") as model:
        close(model.run(REQUEST), by_hand(folder, 3.0))
