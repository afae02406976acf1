"""`strategy.scheduler_config` -> the parameters of the schedule, or the one fact that is missing.

What the format leaves unsaid each kind of scheduler has its own word for: a document says `euler` and means the spacing
that goes with it. Such a choice is a row of `KINDS`, and is said in the summary.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from genai_compiler.read.composite import Strategy
from genai_compiler.read.iterative import SchedulerEntry
from genai_compiler.read.suggest import did_you_mean

Report = Callable[..., None]
"""(code, keys below `pipeline.strategy`, what, help, warning=False)."""

_CONFIG = "scheduler_config"


@dataclass(frozen=True)
class _Kind:
    """What a kind means where the document says nothing else. end: as of the schedule's parameter."""

    spacing: str
    offset: int
    end: str


KINDS = {
    "euler": _Kind("linspace", 0, "zero"),
    "ddim": _Kind("leading", 1, "first"),
    "dpmpp_2m": _Kind("linspace", 0, "zero"),
}
_STOCHASTIC = frozenset({"euler_ancestral", "dpmpp_sde", "dpmpp_2m_sde", "ddpm"})
_BETAS = ("linear", "scaled_linear", "squaredcos_cap_v2")
_PREDICTIONS = ("epsilon", "v_prediction", "sample")
_SPACINGS = ("linspace", "leading", "trailing")
_ENDS = {"zero": "zero", "sigma_min": "first"}
_FACTS = ("num_train_timesteps", "beta_start", "beta_end", "beta_schedule", "prediction_type")
_NOT_DONE = {
    "clip_sample": "clips what the denoiser tells of the clean latents",
    "thresholding": "clips what the denoiser tells of the clean latents",
    "rescale_betas_zero_snr": "rescales the noise levels",
    "use_beta_sigmas": "spaces the noise levels by a beta distribution",
}
_OF_FLOWS = (
    "use_flow_sigmas",
    "use_dynamic_shifting",
    "shift",
    "shift_terminal",
    "base_shift",
    "max_shift",
    "base_image_seq_len",
    "max_image_seq_len",
    "invert_sigmas",
    "stochastic_sampling",
)
"""Fields of schedulers that match flows; `flow_shift` has an effect with `use_flow_sigmas` only, and `time_shift_type`,
which newer files of other schedulers state too, where a shift is stated (diffusers, DPMSolverMultistepScheduler)."""


def schedule_parameters(strategy: Strategy, whole: bool, report: Report) -> dict[str, Any]:
    """The parameters of action `schedule`, {} after a report. whole: the denoiser takes whole timesteps only.

    Reports missing-field, unsupported-scheduler, not-in-list, out-of-range; rounded-timesteps (a warning).
    """
    config = strategy.scheduler_config
    if config is None:
        what = "nothing says how noise is taken away: 'scheduler_config' is missing"
        report("missing-field", (), what, f"add it, with kind ({', '.join(KINDS)}) and the noise of the training")
        return {}
    if (
        _of_flows(config, report)
        or not _complete(config, report)
        or not _known(config, report)
        or not _fitting(strategy, config, report)
    ):
        return {}
    assert config.kind is not None
    kind, sigmas = KINDS[config.kind], _sigmas(config)
    spacing = config.timestep_spacing or kind.spacing
    offset = kind.offset if config.steps_offset is None else config.steps_offset
    if whole and config.kind == "euler" and strategy.timesteps is None:
        what = "the graph takes whole timesteps, and this scheduler's are fractions for most numbers of steps"
        help = "they are rounded, with the noise levels of the rounded ones; export with a float timestep to keep them"
        report("rounded-timesteps", ("timestep_input",), what, help, True)
    return {
        "action": "schedule",
        "solver": config.kind,
        "train_steps": config.num_train_timesteps,
        "beta_schedule": config.beta_schedule,
        "beta_start": float(config.beta_start or 0),
        "beta_end": float(config.beta_end or 0),
        "prediction": config.prediction_type,
        "spacing": spacing,
        "offset": offset if spacing == "leading" else 0,
        "end": _end(config, kind),
        "sigmas": sigmas,
        "timesteps": ",".join(map(repr, map(float, strategy.timesteps or ()))),
        "whole": whole,
    }


def spoken(parameters: Mapping[str, Any]) -> str:
    """The schedule in words, for the summary: much of it the document need not say."""
    left = "no noise" if parameters["end"] == "zero" else "the noise of the first training step"
    spaced = f"{parameters['spacing']} timesteps" if not parameters["timesteps"] else "the timesteps of the document"
    levels = "" if parameters["sigmas"] == "training" else f", {parameters['sigmas']} noise levels"
    offset = f" offset by {parameters['offset']}" if parameters["offset"] else ""
    return f"{parameters['solver']}: {spaced}{offset}{levels}; the last step leaves {left}"


def _of_flows(config: SchedulerEntry, report: Report) -> bool:
    """Whether it matches flows, by any of its fields, whatever its kind is called; that is reported."""
    words = [key for key in ("kind", "prediction_type") if "flow" in (getattr(config, key) or "").lower()]
    said = [key for key in _OF_FLOWS if getattr(config, key) not in (None, False)]
    if not words and not said:
        return False
    key = (*words, *said)[0]
    what = f"'{key}' is of a scheduler that matches flows: its noise levels lie on straight lines between noise and "
    what += "picture, which betas do not tell; it is not compiled"
    help = "as 'euler' with betas it would be another scheduler: write the loop as pipeline.workflow"
    report("unsupported-scheduler", (_CONFIG, key), what, help)
    return True


def _complete(config: SchedulerEntry, report: Report) -> bool:
    missing = [name for name in ("kind", *_FACTS) if getattr(config, name) is None]
    for name in missing:
        what = f"'{name}' is missing: without it the noise of a step is unknown"
        if name == "kind":
            what = "'kind' is missing: nothing says which scheduler takes noise away"
        known = {"kind": tuple(KINDS), "beta_schedule": _BETAS, "prediction_type": _PREDICTIONS}.get(name, ())
        help = f"one of {', '.join(known)}" if known else "copy it from the scheduler's configuration"
        report("missing-field", (_CONFIG,), what, help)
    return not missing


def _known(config: SchedulerEntry, report: Report) -> bool:
    known = True
    if config.kind not in KINDS:
        why = "; it draws noise at every step" if config.kind in _STOCHASTIC else ""
        what = f"the scheduler '{config.kind}' is not compiled{why}"
        near = did_you_mean(str(config.kind), KINDS)
        report("unsupported-scheduler", (_CONFIG, "kind"), what, near or f"known are {', '.join(KINDS)}")
        known = False
    words = {
        "beta_schedule": _BETAS,
        "prediction_type": _PREDICTIONS,
        "timestep_spacing": _SPACINGS,
        "final_sigmas_type": tuple(_ENDS),
    }
    for name, allowed in words.items():
        value = getattr(config, name)
        if value is not None and value not in allowed:
            what = f"'{name}' is '{value}', which is none of the known ones"
            report("not-in-list", (_CONFIG, name), what, f"known are {', '.join(allowed)}")
            known = False
    for name, effect in _NOT_DONE.items():
        if getattr(config, name):
            what = f"'{name}' is true: it {effect}, which is not compiled"
            report("unsupported-scheduler", (_CONFIG, name), what, "set it to false if the model does without")
            known = False
    return known


def _fitting(strategy: Strategy, config: SchedulerEntry, report: Report) -> bool:
    """Whether the numbers can be meant together."""
    start, end, steps = config.beta_start or 0, config.beta_end or 0, config.num_train_timesteps or 0
    found: list[tuple[tuple[str, ...], str, str]] = []
    if not 0 < start <= end < 1:
        found.append(((_CONFIG, "beta_start"), f"noise grows from {start} to {end}", "0 < beta_start <= beta_end < 1"))
    if not 2 <= steps <= 100_000:
        found.append(((_CONFIG, "num_train_timesteps"), f"there are {steps} timesteps", "1000 is usual"))
    if (config.steps_offset or 0) >= steps:
        found.append(((_CONFIG, "steps_offset"), "the offset leaves no timestep", "0 or 1 is usual"))
    if (strategy.num_steps or 1) > steps:
        found.append((("num_steps",), f"{strategy.num_steps} steps of {steps} timesteps", "take fewer"))
    if config.use_karras_sigmas and config.use_exponential_sigmas:
        found.append(((_CONFIG, "use_exponential_sigmas"), "two spacings of noise levels are on", "keep one"))
    own = _sigmas(config) != "training"
    if own and (config.kind == "ddim" or strategy.timesteps is not None):
        reason = "ddim steps through training timesteps" if config.kind == "ddim" else "the timesteps are listed"
        found.append(((_CONFIG,), f"noise levels of their own are asked for, and {reason}", "switch them off"))
    visited = strategy.timesteps or ()
    if visited and (len(visited) != (strategy.num_steps or len(visited)) or not _descending(visited, steps)):
        what = f"{len(visited)} timesteps are listed for {strategy.num_steps} steps, or they do not go down"
        found.append((("timesteps",), what, f"list num_steps of them, going down within 0..{steps - 1}"))
    for keys, what, help in found:
        report("out-of-range", keys, what, help)
    return not found


def _descending(visited: tuple[float, ...], steps: int) -> bool:
    return all(0 <= each < steps for each in visited) and all(later < earlier for earlier, later in pairwise(visited))


def _sigmas(config: SchedulerEntry) -> str:
    if config.use_karras_sigmas:
        return "karras"
    return "exponential" if config.use_exponential_sigmas else "training"


def _end(config: SchedulerEntry, kind: _Kind) -> str:
    if config.final_sigmas_type is not None:
        return _ENDS[config.final_sigmas_type]
    if config.set_alpha_to_one is not None:
        return "zero" if config.set_alpha_to_one else "first"
    return kind.end
