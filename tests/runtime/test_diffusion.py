"""The diffusion adapter against the papers: each solver written out as its paper has it, timesteps as literal numbers,
and one equation whose solution is known.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from genai_runtime import ExecutionError, RequestError
from genai_runtime.adapters.diffusion import diffusion
from genai_runtime.adapters.diffusion.gaussian import gaussian

Floats = npt.NDArray[np.float64]
Estimate = Callable[[Floats, float, int], Floats]
"""(what the model takes, the timestep, the step) -> its estimate."""

USUAL: dict[str, Any] = {
    "action": "schedule",
    "train_steps": 1000,
    "beta_schedule": "scaled_linear",
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "prediction": "epsilon",
    "spacing": "linspace",
    "offset": 0,
    "end": "zero",
    "sigmas": "training",
    "timesteps": "",
    "whole": False,
}


def schedule(steps: int, **over: Any) -> dict[str, npt.NDArray[Any]]:
    return dict(diffusion({**USUAL, **over})({"steps": np.array([steps])}))


def signals(kind: str = "scaled_linear", start: float = 0.00085, end: float = 0.012, count: int = 1000) -> list[float]:
    """The product of (1 - beta) up to each training timestep, one by one."""
    found, product = list[float](), 1.0
    for at in range(count):
        part = at / (count - 1)
        if kind == "linear":
            beta = start + (end - start) * part
        elif kind == "scaled_linear":
            beta = (start**0.5 + (end**0.5 - start**0.5) * part) ** 2
        else:
            level = [math.cos((each / count + 0.008) / 1.008 * math.pi / 2) ** 2 for each in (at, at + 1)]
            beta = min(1 - level[1] / level[0], 0.999)
        product *= 1 - beta
        found.append(product)
    return found


def through_the_adapter(x: Floats, estimate: Estimate, steps: int, **over: Any) -> Floats:
    """The loop of a lowered package, with a function for its graph."""
    made = schedule(steps, **over)
    take = diffusion({"action": "input", "dtype": "float32", "timestep": "float32", "timestep_form": "rows"})
    step = diffusion({"action": "step"})
    tables = {"table": made["table"], "timesteps": made["timesteps"]}
    latents = diffusion({"action": "start"})({"noise": x.astype(np.float32), "scale": made["scale"]})["latents"]
    history = latents
    for at in range(steps):
        given = {**tables, "latents": latents, "step": np.array([at])}
        taken = take(given)
        guess = estimate(taken["sample"].astype(np.float64), float(taken["timestep"][0]), at)
        moved = step({**given, "estimate": guess.astype(np.float32), "history": history})
        latents, history = moved["next"], moved["next_history"]
    return latents.astype(np.float64)


# ---- timesteps -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("over", "steps", "wanted"),
    [
        ({"solver": "euler"}, 4, [999, 666, 333, 0]),
        ({"solver": "euler"}, 3, [999, 499.5, 0]),
        ({"solver": "euler", "whole": True}, 3, [999, 500, 0]),
        ({"solver": "euler", "spacing": "leading", "offset": 1}, 4, [751, 501, 251, 1]),
        ({"solver": "euler", "spacing": "trailing"}, 4, [999, 749, 499, 249]),
        ({"solver": "ddim", "spacing": "leading", "offset": 1}, 4, [751, 501, 251, 1]),
        ({"solver": "ddim", "spacing": "leading"}, 3, [666, 333, 0]),
        ({"solver": "ddim", "spacing": "trailing"}, 3, [999, 666, 332]),
        ({"solver": "dpmpp_2m"}, 4, [999, 749, 500, 250]),
        ({"solver": "dpmpp_2m", "spacing": "leading", "offset": 1}, 4, [801, 601, 401, 201]),
        ({"solver": "euler", "timesteps": "900,500.5,20"}, 3, [900, 500.5, 20]),
        ({"solver": "euler"}, 1, [999]),
    ],
)
def test_timesteps_that_a_run_visits(over: dict[str, Any], steps: int, wanted: list[float]) -> None:
    assert schedule(steps, **over)["timesteps"].tolist() == wanted


def test_noise_begins_as_strong_as_the_first_timestep_has_it() -> None:
    """14.6146 for 1000 steps up to 0.012: what the reference data says too."""
    sigma = math.sqrt(1 / signals()[-1] - 1)
    assert schedule(4, solver="euler")["scale"][0] == pytest.approx(sigma, rel=1e-6)
    assert sigma == pytest.approx(14.6146, rel=1e-4)
    leading = math.sqrt(1 / signals()[751] - 1)
    made = schedule(4, solver="euler", spacing="leading", offset=1)
    assert made["scale"][0] == pytest.approx(math.hypot(leading, 1), rel=1e-6)
    assert [schedule(4, solver=each)["scale"][0] for each in ("ddim", "dpmpp_2m")] == [1, 1]


# ---- solvers, as their papers have them ------------------------------------------------------------------------------


def told(prediction: str, estimate: Floats, x: Floats, signal: float) -> tuple[Floats, Floats]:
    """(clean data, noise) that an estimate of x = sqrt(signal) x0 + sqrt(1 - signal) noise tells."""
    a, s = math.sqrt(signal), math.sqrt(1 - signal)
    if prediction == "epsilon":
        return (x - s * estimate) / a, estimate
    if prediction == "v_prediction":
        return a * x - s * estimate, s * x + a * estimate
    return estimate, (x - a * estimate) / s


def ddim(x: Floats, guesses: list[Floats], levels: list[float], prediction: str) -> Floats:
    """Song, Meng, Ermon 2021, equation 12 with sigma 0. levels: the products of signal, one more than the guesses."""
    for guess, now, then in zip(guesses, levels, levels[1:], strict=False):
        clean, noise = told(prediction, guess, x, now)
        x = math.sqrt(then) * clean + math.sqrt(1 - then) * noise
    return x


def euler(x: Floats, guesses: list[Floats], levels: list[float], prediction: str) -> Floats:
    """Karras et al. 2022, algorithm 1 without added noise; x = x0 + sigma noise."""
    sigmas = [math.sqrt(1 / each - 1) for each in levels]
    x = x * sigmas[0]
    for guess, level, now, then in zip(guesses, levels, sigmas, sigmas[1:], strict=False):
        clean, _ = told(prediction, guess, x * math.sqrt(level), level)
        x = x + (then - now) * (x - clean) / now
    return x


def two_steps(x: Floats, guesses: list[Floats], levels: list[float], prediction: str, first_at_end: bool) -> Floats:
    """Lu et al. 2022 (DPM-Solver++), algorithm 2: data prediction, multistep of second order."""
    alphas = [math.sqrt(each) for each in levels]
    sigmas = [math.sqrt(1 - each) for each in levels]
    lambdas = [math.log(a / s) if s else math.inf for a, s in zip(alphas, sigmas, strict=True)]
    before: Floats | None = None
    for at, guess in enumerate(guesses):
        clean, _ = told(prediction, guess, x, levels[at])
        h = lambdas[at + 1] - lambdas[at]
        data = clean
        if before is not None and not (first_at_end and at == len(guesses) - 1):
            r = (lambdas[at] - lambdas[at - 1]) / h
            data = (1 + 1 / (2 * r)) * clean - 1 / (2 * r) * before
        shrink = math.exp(-h) if h < math.inf else 0.0
        ratio = sigmas[at + 1] / sigmas[at]
        x, before = ratio * x - alphas[at + 1] * (shrink - 1) * data, clean
    return x


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
@pytest.mark.parametrize("kind", ["linear", "scaled_linear", "squaredcos_cap_v2"])
@pytest.mark.parametrize("steps", [1, 2, 6, 20])
def test_steps_are_those_of_the_papers(steps: int, kind: str, prediction: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2, 3, 4))
    guesses = [rng.normal(size=x.shape) for _ in range(steps)]
    signal = signals(kind)
    common = {"beta_schedule": kind, "prediction": prediction}

    def given(_taken: Floats, _time: float, at: int) -> Floats:
        return guesses[at]

    spaced = {"spacing": "leading", "offset": 1}
    visited = [1 + at * (1000 // steps) for at in reversed(range(steps))]
    visited = [min(each, 999) for each in visited]
    levels = [*(signal[each] for each in visited), signal[0]]
    made = through_the_adapter(x, given, steps, solver="ddim", end="first", **spaced, **common)
    close(made, ddim(x, guesses, levels, prediction))

    visited = [round(999 * (1 - at / (steps - 1))) if steps > 1 else 999 for at in range(steps)]
    levels = [*(signal[each] for each in visited), 1.0]
    made = through_the_adapter(x, given, steps, solver="euler", timesteps=listed(visited), **common)
    close(made, euler(x, guesses, levels, prediction))

    made = through_the_adapter(x, given, steps, solver="dpmpp_2m", timesteps=listed(visited), **common)
    close(made, two_steps(x, guesses, levels, prediction, True))
    levels[-1] = signal[0]
    if visited[-1] > 0:
        made = through_the_adapter(x, given, steps, solver="dpmpp_2m", end="first", timesteps=listed(visited), **common)
        close(made, two_steps(x, guesses, levels, prediction, steps < 15))


def listed(visited: list[int]) -> str:
    return ",".join(map(str, visited))


def close(made: Floats, wanted: Floats) -> None:
    """Equal but for float32 arithmetic."""
    assert np.abs(made - wanted).max() <= 2e-5 * max(1.0, np.abs(wanted).max())


# ---- an equation whose solution is known -----------------------------------------------------------------------------


@pytest.mark.parametrize(("solver", "order"), [("euler", 1), ("ddim", 1), ("dpmpp_2m", 2)])
def test_more_steps_come_nearer_to_the_solution_at_the_rate_of_the_order(solver: str, order: int) -> None:
    """For normal data the flow scales x0 + sigma noise by the ratio of spreads: an error falls as steps^-order.

    The best estimate is E[noise | x] then. Noise levels lie evenly in their logarithm, where the solver chooses them.
    """
    spread, products = 0.5, signals()
    sigmas = [math.sqrt(1 / each - 1) for each in products]
    first, last = sigmas[999], sigmas[0]
    errors = list[float]()
    for steps in (20, 80):

        def estimate(x: Floats, time: float, at: int, steps: int = steps) -> Floats:
            sigma = first * (last / first) ** (at / (steps - 1))
            level = 1 / (1 + sigma**2) if solver != "ddim" else products[round(time)]
            result: Floats = math.sqrt(1 - level) * x / (level * spread**2 + 1 - level)
            return result

        over: dict[str, Any] = {"sigmas": "exponential"} if solver != "ddim" else {"spacing": "trailing"}
        made = through_the_adapter(np.ones((1, 2)), estimate, steps, solver=solver, end="first", **over)
        start = first if solver == "euler" else math.hypot(first, 1)  # of x0 + sigma noise
        wanted = start * math.hypot(spread, last) / math.hypot(spread, first)
        errors.append(abs(made[0, 0] - wanted * (1 if solver == "euler" else math.sqrt(products[0]))))
    assert math.log(errors[0] / errors[1]) / math.log(4) > order - 0.35
    assert errors[1] < {1: 0.1, 2: 0.005}[order]


def test_noise_levels_of_their_own_lie_between_the_same_ends() -> None:
    """Karras et al., equation 5 with rho 7; and evenly in the logarithm. The first and last timesteps stay."""
    sigmas = [math.sqrt(1 / each - 1) for each in signals()]
    for how, forward, back in (
        ("karras", lambda s: s ** (1 / 7), lambda s: s**7),
        ("exponential", math.log, math.exp),
    ):
        made = schedule(5, solver="euler", sigmas=how)
        ends = [forward(each) for each in (sigmas[-1], sigmas[0])]
        wanted = [back(ends[0] + (ends[1] - ends[0]) * at / 4) for at in range(5)]
        scale = 1 / np.sqrt(np.array(wanted) ** 2 + 1)  # what the model's input is multiplied with
        np.testing.assert_allclose(made["table"][:, 0], scale, rtol=1e-5)
        assert made["timesteps"][[0, -1]].tolist() == pytest.approx([999, 0], abs=1e-3)
        at = float(made["timesteps"][2])
        assert np.interp(at, range(1000), np.log(sigmas)) == pytest.approx(math.log(wanted[2]), rel=1e-4)


@pytest.mark.parametrize("solver", ["euler", "ddim", "dpmpp_2m"])
def test_a_run_from_clean_latents_takes_the_last_steps_under_their_noise(solver: str) -> None:
    """Half of eight: x = signal x0 + noise as strong as the fifth timestep has it, then the last four steps."""
    made = diffusion({**USUAL, "solver": solver})({"steps": np.array([8]), "strength": np.array([0.5], np.float32)})
    whole = schedule(8, solver=solver)
    assert (made["count"].tolist(), made["timesteps"].tolist()) == ([4], whole["timesteps"][4:].tolist())
    product = signals()[round(float(made["timesteps"][0]))]
    exact = solver == "euler"  # x0 + sigma noise; the others carry sqrt(product) times that
    assert made["signal"][0] == pytest.approx(1 if exact else math.sqrt(product), rel=2e-3)
    assert made["scale"][0] == pytest.approx(math.sqrt(1 / product - 1 if exact else 1 - product), rel=2e-3)
    np.testing.assert_allclose(made["table"][1:], whole["table"][5:], rtol=1e-6)
    assert made["table"][0, 3] == 0, "nothing lies before the first step"
    given = {"clean": np.full((1, 2), 2, np.float16), "signal": np.array([0.5], np.float32)}
    blended = diffusion({"action": "blend"})({**given, "latents": np.ones((1, 2), np.float32)})["latents"]
    assert (blended.tolist(), blended.dtype) == ([[2, 2]], np.float32)


# ---- noise -----------------------------------------------------------------------------------------------------------


def philox(key: int, counter: int) -> list[int]:
    """Four 64-bit words: Salmon et al. 2011, Philox 4x64 with ten rounds."""
    mask = 2**64 - 1
    words, keys = [counter, 0, 0, 0], [key, 0]
    for _ in range(10):
        high = [(words[at] * factor) >> 64 for at, factor in ((0, 0xD2E7470EE14C6C93), (2, 0xCA5A826395121157))]
        low = [(words[at] * factor) & mask for at, factor in ((0, 0xD2E7470EE14C6C93), (2, 0xCA5A826395121157))]
        words = [high[1] ^ words[1] ^ keys[0], low[1], high[0] ^ words[3] ^ keys[1], low[0]]
        keys = [(keys[0] + 0x9E3779B97F4A7C15) & mask, (keys[1] + 0xBB67AE8584CAA73B) & mask]
    return words


def test_noise_is_the_counters_stream_in_pairs() -> None:
    bits = [*philox(7, 1), *philox(7, 2)]
    uniform = [((each >> 11) + 0.5) / 2**53 for each in bits]
    wanted = list[float]()
    for at in range(4):
        radius, angle = math.sqrt(-2 * math.log(uniform[at])), 2 * math.pi * uniform[at + 4]
        wanted += [radius * math.cos(angle), radius * math.sin(angle)]
    np.testing.assert_allclose(gaussian(7, 8), wanted, rtol=1e-6)
    np.testing.assert_allclose(gaussian(7, 7), wanted[:7], rtol=1e-6)


def test_noise_is_normal_and_each_rows_own() -> None:
    many = gaussian(1, 200_000)
    assert many.dtype == np.float32
    assert abs(float(many.mean())) < 0.01
    assert abs(float(many.std()) - 1) < 0.01
    assert abs(float((np.abs(many) < 1).mean()) - 0.6827) < 0.005
    draw = diffusion({"action": "draw", "channels": 4, "pixels_down": 8, "pixels_across": 8})
    size = {"width": np.array([16]), "height": np.array([24]), "scale": np.array([2], np.float32)}
    rows = draw({"seed": np.array([5, -1, 5]), **size})["latents"]
    assert rows.shape == (3, 4, 3, 2)
    assert (rows[0] == rows[2]).all()
    assert (rows[0] != rows[1]).any()
    assert (draw({"seed": np.array([-1]), **size})["latents"][0] == rows[1]).all()
    np.testing.assert_allclose(rows[0].reshape(-1), 2 * gaussian(5, 24))


# ---- guidance, types, refusals ---------------------------------------------------------------------------------------


def test_guidance_goes_beyond_the_conditional_estimate_by_row() -> None:
    without, towards = np.array([[1.0], [1.0]], np.float16), np.array([[2.0], [3.0]], np.float16)
    given = {"unconditional": without, "conditional": towards, "scale": np.array([7.5, 1.0], np.float32)}
    assert diffusion({"action": "guide"})(given)["estimate"].tolist() == [[8.5], [3.0]]


def test_inputs_have_the_types_and_forms_that_the_graph_takes() -> None:
    made = schedule(2, solver="ddim")
    given = {**made, "latents": np.ones((3, 2), np.float32), "step": np.array([1])}
    forms: dict[str, tuple[int, ...]] = {"rows": (3,), "one": (1,), "scalar": ()}
    for form, shape in forms.items():
        take = diffusion({"action": "input", "dtype": "float16", "timestep": "int64", "timestep_form": form})(given)
        assert (take["sample"].dtype, take["timestep"].dtype, take["timestep"].shape) == (np.float16, np.int64, shape)
    finished = diffusion({"action": "finish", "scaling_factor": 0.5, "dtype": "float16"})({"latents": given["latents"]})
    assert (finished["latents"].dtype, finished["latents"].max()) == (np.float16, 2)


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"solver": "heun"}, "'solver' is 'heun'"),
        ({"solver": None}, "'solver' is not given"),
        ({"beta_start": 0.5}, "'beta_start' is 0.5"),
        ({"train_steps": 10**9}, "'train_steps'"),
        ({"train_steps": True}, "'train_steps' is True"),
        ({"offset": 1000}, "'offset'"),
        ({"timesteps": "5,6"}, "go down"),
        ({"timesteps": "x"}, "x"),
        ({"timesteps": "2000"}, "0..999"),
        ({"solver": "ddim", "sigmas": "karras"}, "ddim"),
        ({"timesteps": "5", "sigmas": "karras"}, "only one"),
        ({"action": "paint"}, "action is 'paint'"),
    ],
)
def test_parameters_that_can_not_be_meant(over: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("..", r"\.\.")):
        diffusion({**USUAL, "solver": "euler", **over})


@pytest.mark.parametrize(
    "parameters",
    [
        {"action": "draw", "channels": 0, "pixels_down": 8, "pixels_across": 8},
        {"action": "draw", "channels": 4, "pixels_down": "8", "pixels_across": 8},
        {"action": "input", "dtype": "int8", "timestep": "int64", "timestep_form": "rows"},
        {"action": "input", "dtype": "float32", "timestep": "int64", "timestep_form": "columns"},
        {"action": "finish", "scaling_factor": 0.0, "dtype": "float32"},
        {"action": "finish", "scaling_factor": 1.0, "dtype": "int32"},
    ],
)
def test_parameters_of_other_actions(parameters: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"unknown|above 0"):
        diffusion(parameters)


def test_what_a_request_may_not_ask_for() -> None:
    for steps in (0, -1, 1001):
        with pytest.raises(RequestError, match="bad-steps"):
            schedule(steps, solver="euler")
    with pytest.raises(RequestError, match="bad-steps"):
        schedule(3, solver="euler", timesteps="900,100")
    draw = diffusion({"action": "draw", "channels": 4, "pixels_down": 8, "pixels_across": 8})
    for width, height in ((0, 8), (8, -8), (12, 8), (8 << 20, 8 << 20)):
        size = {"width": np.array([width]), "height": np.array([height])}
        with pytest.raises(RequestError, match="bad-picture-size"):
            draw({"seed": np.array([1]), "scale": np.array([1], np.float32), **size})


def test_a_solver_of_two_steps_is_not_run_without_the_step_before() -> None:
    made = schedule(4, solver="dpmpp_2m")
    given = {"latents": np.ones((1, 2), np.float32), "estimate": np.ones((1, 2), np.float32), "table": made["table"]}
    step = diffusion({"action": "step"})
    assert set(step({**given, "step": np.array([0])})) == {"next"}
    with pytest.raises(ExecutionError, match="solver-history"):
        step({**given, "step": np.array([1])})
    with pytest.raises(ExecutionError, match="estimate-shape"):
        step({**given, "estimate": np.ones((1, 3), np.float32), "step": np.array([0])})
