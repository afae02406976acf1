"""Denoising loops that are not compiled: what is missing, contradicts itself or is not offered is told by its own name,
at its place.
"""

from pathlib import Path
from typing import Any

import pytest
from genai_compiler import CompileError, check_package, compile_package
from genai_compiler.problem import errors
from onnx import helper

from tests.lower.iterative_packages import (
    DOCUMENT,
    FLOAT,
    INT,
    Denoiser,
    package,
    painter,
    scheduler,
    strategy,
    told,
    words,
)

FACTS = ("kind", "num_train_timesteps", "beta_start", "beta_end", "beta_schedule", "prediction_type")


@pytest.mark.parametrize("fact", FACTS)
def test_the_one_fact_that_is_missing_is_named(fact: str, tmp_path: Path) -> None:
    (problem,) = errors(check_package(package(tmp_path / "p", scheduler(**{fact: ...}))))
    assert problem.code == "missing-field"
    assert problem.what.startswith(f"'{fact}' is missing")
    assert problem.path == "pipeline.strategy.scheduler_config"
    assert problem.where.line > 0


FLOWS = DOCUMENT["pipeline"]["dataflow"]


@pytest.mark.parametrize(
    ("over", "code", "path", "words"),
    [
        (strategy(scheduler_config=...), "missing-field", "pipeline.strategy", "'scheduler_config' is missing"),
        (strategy(denoiser=...), "missing-field", "pipeline.strategy", "'denoiser' is missing"),
        (strategy(denoiser="denoise"), "unknown-component", "pipeline.strategy.denoiser", "'denoise'"),
        (strategy(timestep_input="then"), "missing-input", "pipeline.strategy.timestep_input", "'then'"),
        (strategy(timestep_input="text"), "wrong-port", "pipeline.strategy.timestep_input", "one number"),
        (strategy(cfg_conditioning_input=...), "missing-field", "pipeline.strategy", "'cfg_conditioning_input'"),
        (strategy(guidance_scale=...), "missing-field", "pipeline.strategy", "'guidance_scale'"),
        (strategy(guidance_scale=float("inf")), "out-of-range", "pipeline.strategy.guidance_scale", "inf"),
        (strategy(cfg_conditioning_input="noisy"), "missing-input", "pipeline.strategy.cfg_conditioning_input",
         "'noisy'"),
        (strategy(start_step=3), "out-of-range", "pipeline.strategy.start_step", "none is left"),
        (strategy(start_step=1, num_steps=...), "missing-field", "pipeline.strategy", "'num_steps' is missing"),
        (strategy(start_step=1, timesteps=[9, 5, 1]), "out-of-range", "pipeline.strategy.start_step", "listed"),
        (strategy(num_steps=1001), "out-of-range", "pipeline.strategy.num_steps", "1001"),
        (strategy(num_steps=0), "below-minimum", "pipeline.strategy.num_steps", ""),
        (strategy(timesteps=[5, 6, 7]), "out-of-range", "pipeline.strategy.timesteps", "go down"),
        (strategy(timesteps=[5]), "out-of-range", "pipeline.strategy.timesteps", "3 steps"),
        (scheduler(kind="heun"), "unsupported-scheduler", "pipeline.strategy.scheduler_config.kind", "'heun'"),
        (scheduler(kind="euler_ancestral"), "unsupported-scheduler", "pipeline.strategy.scheduler_config.kind",
         "noise at every step"),
        (scheduler(clip_sample=True), "unsupported-scheduler", "pipeline.strategy.scheduler_config.clip_sample",
         "clips"),
        (scheduler(beta_schedule="cosine"), "not-in-list", "pipeline.strategy.scheduler_config.beta_schedule",
         "'cosine'"),
        (scheduler(prediction_type="straight"), "not-in-list",
         "pipeline.strategy.scheduler_config.prediction_type", "'straight'"),
        (scheduler(beta_start=0.5), "out-of-range", "pipeline.strategy.scheduler_config.beta_start", "0.5"),
        (scheduler(beta_start=float("nan")), "out-of-range", "pipeline.strategy.scheduler_config.beta_start", "nan"),
        (scheduler(num_train_timesteps=10**12), "out-of-range",
         "pipeline.strategy.scheduler_config.num_train_timesteps", "timesteps"),
        (scheduler(use_karras_sigmas=True), "out-of-range", "pipeline.strategy.scheduler_config", "ddim"),
        (scheduler(eta=0.5), "unknown-field", "pipeline.strategy.scheduler_config.eta", "eta"),
        ({"pipeline": {"dataflow": FLOWS[1:]}}, "missing-field", "pipeline.dataflow", "no edges"),
        ({"pipeline": {"dataflow": [FLOWS[0], *FLOWS]}}, "wrong-port", "pipeline.dataflow", "2 edges"),
        ({"pipeline": {"dataflow": [{"from": "denoiser.gues", "to": "denoiser.noisy"}, *FLOWS[1:]]}},
         "missing-output", "pipeline.dataflow[0].from", "'gues'"),
        ({"pipeline": {"dataflow": [*FLOWS[:2], {"from": "denoiser.when", "to": "painter.latents"}]}},
         "missing-output", "pipeline.dataflow[2].from", "carries"),
        ({"pipeline": {"dataflow": FLOWS[:2]}}, "unsupported-package-class", "pipeline.models.painter", "nothing"),
        ({"pipeline": {"dataflow": [*FLOWS, {"from": "painter.picture", "to": "denoiser.text"}]}}, "wrong-port",
         "pipeline.dataflow[3]", "picture"),
        ({"pipeline": {"models": {"painter": {"scaling_factor": 0.0}}}}, "out-of-range",
         "pipeline.models.painter.scaling_factor", "0.0"),
        ({"pipeline": {"models": {"words": {"io": {"token_input": "tokens"}}}}}, "missing-input",
         "pipeline.models.words.io.token_input", "'tokens'"),
        ({"pipeline": {"models": {"words": {"filename": "../words.onnx"}}}}, "outside-package",
         "pipeline.models.words.filename", ""),
    ],
)  # fmt: skip
def test_what_can_not_be_meant_is_refused_at_its_place(
    over: dict[str, Any], code: str, path: str, words: str, tmp_path: Path
) -> None:
    folder = package(tmp_path / "p", over)
    found = told(folder)
    assert code in found
    assert any(each.path == path and words in each.what and each.where.line > 0 for each in found[code])
    with pytest.raises(CompileError):
        compile_package(folder, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_graphs_that_can_not_be_run_are_refused_for_what_they_are_all_at_once(tmp_path: Path) -> None:
    """An estimate without type or shape, an input declared wider than its weights, a decoder of other latents."""
    found = told(package(tmp_path / "p", denoiser=Denoiser(guess=None, width=7).made(), painter=painter(channels=16)))
    assert "'guess' neither type nor shape" in found["untyped-port"][0].what
    assert "'text' 7 wide" in found["config-contradicts-graph"][0].what
    assert "'weight', which takes 5" in found["config-contradicts-graph"][0].what
    assert any("16" in each.what and "[b, 4, h, w]" in each.what for each in found["wrong-port"])


def test_an_estimate_of_other_channels_is_refused(tmp_path: Path) -> None:
    """Eight channels for latents of four: an estimate and its variance, of which nothing tells which is which."""
    found = told(package(tmp_path / "p", denoiser=Denoiser(channels=8).made()))
    assert "learned variance" in found["wrong-port"][0].help


def test_two_inputs_that_could_take_the_prompt_are_told(tmp_path: Path) -> None:
    text = words()
    text.graph.input.append(helper.make_tensor_value_info("mask", INT, ["rows", "n"]))
    assert "io.token_input" in told(package(tmp_path / "p", words=text))["ambiguous-port"][0].help
    over = {"pipeline": {"models": {"words": {"io": {"token_input": "ids"}}}}}
    assert "ambiguous-port" not in told(package(tmp_path / "q", over, words=text))


def test_whole_timesteps_for_a_scheduler_of_fractions_are_said(tmp_path: Path) -> None:
    over = scheduler(kind="euler")
    (problem,) = told(package(tmp_path / "p", over))["rounded-timesteps"]
    assert problem.severity == "warning"
    floats = Denoiser(time=FLOAT).made()
    assert "rounded-timesteps" not in told(package(tmp_path / "q", over, denoiser=floats))


MATCHING: list[tuple[dict[str, Any], str]] = [
    ({"shift": 3.0}, "shift"),
    ({"shift": 1.0, "use_dynamic_shifting": False, "base_shift": 0.5, "max_shift": 1.15, "base_image_seq_len": 256,
      "max_image_seq_len": 4096, "invert_sigmas": False, "shift_terminal": None}, "shift"),
    ({"use_dynamic_shifting": True, "beta_start": ..., "beta_end": ..., "beta_schedule": ...}, "use_dynamic_shifting"),
    ({"max_shift": 1.15}, "max_shift"),
    ({"kind": "flow_match_euler"}, "kind"),
    ({"kind": "dpmpp_2m", "prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0},
     "prediction_type"),
    ({"kind": "dpmpp_2m", "use_flow_sigmas": True}, "use_flow_sigmas"),
]  # fmt: skip
"""Fields of scheduler files that match flows (diffusers, FlowMatchEulerDiscreteScheduler and DPMSolverMultistep)."""


@pytest.mark.parametrize(("over", "key"), MATCHING, ids=[each[1] for each in MATCHING])
def test_a_scheduler_that_matches_flows_is_seen_by_its_own_fields(
    over: dict[str, Any], key: str, tmp_path: Path
) -> None:
    """Also under the kind `euler` with betas, as exporters write it: one reason, and none that leads elsewhere."""
    over = {name: value for name, value in over.items() if value is not None}
    (problem,) = errors(check_package(package(tmp_path / "p", scheduler(**over))))
    assert (problem.code, problem.path) == ("unsupported-scheduler", f"pipeline.strategy.scheduler_config.{key}")
    assert "matches flows" in problem.what
    assert "pipeline.workflow" in problem.help


def test_what_matches_flows_in_name_only_counts_for_nothing(tmp_path: Path) -> None:
    """Files of other schedulers hold these fields, too, switched off."""
    off = {"use_flow_sigmas": False, "flow_shift": 1.0, "use_dynamic_shifting": False, "use_beta_sigmas": False}
    off |= {"time_shift_type": "exponential", "shift_terminal": None}  # as scheduling_dpmsolver_multistep.py has them
    assert not errors(check_package(package(tmp_path / "p", scheduler(**off))))
    (problem,) = errors(check_package(package(tmp_path / "q", scheduler(use_beta_sigmas=True))))
    assert "beta distribution" in problem.what
