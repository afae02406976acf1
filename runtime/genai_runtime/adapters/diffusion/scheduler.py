"""The scheduler that a document declares: parameters of a component's contract -> typed facts, or what is wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

BETAS = ("linear", "scaled_linear", "squaredcos_cap_v2")
PREDICTIONS = ("epsilon", "v_prediction", "sample")
SPACINGS = ("linspace", "leading", "trailing")
SIGMAS = ("training", "karras", "exponential")
SOLVERS = ("euler", "ddim", "dpmpp_2m")
ENDS = ("zero", "first")
MOST_STEPS = 100_000
"""Timesteps that a training schedule may have: beyond any real one."""

_WORDS = {
    "solver": SOLVERS,
    "beta_schedule": BETAS,
    "prediction": PREDICTIONS,
    "spacing": SPACINGS,
    "sigmas": SIGMAS,
    "end": ENDS,
}


@dataclass(frozen=True)
class Scheduler:
    """solver: how a step is taken. beta_*: how much noise training added at each of its `train_steps` timesteps.

    prediction: what the graph estimates. spacing, offset: which timesteps a run visits. end: the noise that the last
    step leaves, none or that of the first training step. sigmas: noise levels of the visited timesteps, or levels of
    their own between the same ends. timesteps: those to visit, in words of one list; "" for spaced ones. whole: the
    graph takes whole timesteps only.
    """

    solver: str
    train_steps: int
    beta_schedule: str
    beta_start: float
    beta_end: float
    prediction: str
    spacing: str
    offset: int
    end: str
    sigmas: str
    timesteps: str
    whole: bool

    @property
    def listed(self) -> tuple[float, ...]:
        """The timesteps to visit, () where they are spaced."""
        return tuple(float(each) for each in self.timesteps.split(",")) if self.timesteps else ()

    @property
    def multistep(self) -> bool:
        """Whether a step needs what the one before it has predicted."""
        return self.solver == "dpmpp_2m"


def read_scheduler(parameters: Mapping[str, Any]) -> Scheduler:
    """The scheduler of an adapter's parameters. Raises ValueError, which names the parameter."""
    found: dict[str, Any] = {}
    for each in fields(Scheduler):
        value = parameters.get(each.name)
        wanted = each.type
        if value is None:
            raise ValueError(f"'{each.name}' is not given")
        if wanted is float and type(value) is int:
            value = float(value)
        if type(value) is not wanted:
            raise ValueError(f"'{each.name}' is {value!r}, which is no {getattr(wanted, '__name__', wanted)}")
        if each.name in _WORDS and value not in _WORDS[each.name]:
            raise ValueError(f"'{each.name}' is {value!r}; known are {', '.join(_WORDS[each.name])}")
        found[each.name] = value
    made = Scheduler(**found)
    _check(made)
    return made


def _check(made: Scheduler) -> None:
    if not 2 <= made.train_steps <= MOST_STEPS:
        raise ValueError(f"'train_steps' is {made.train_steps}; it is within 2..{MOST_STEPS}")
    if not 0 < made.beta_start <= made.beta_end < 1:
        what = f"'beta_start' is {made.beta_start} and 'beta_end' {made.beta_end}"
        raise ValueError(f"{what}; they lie between 0 and 1, the start not above the end")
    if not 0 <= made.offset < made.train_steps:
        raise ValueError(f"'offset' is {made.offset}; it is within 0..{made.train_steps - 1}")
    if made.solver == "ddim" and made.sigmas != "training":
        raise ValueError(f"'sigmas' is {made.sigmas!r}, and ddim steps through training timesteps")
    visited = made.listed
    if visited and made.sigmas != "training":
        raise ValueError(f"'timesteps' are listed and 'sigmas' is {made.sigmas!r}: only one can choose noise levels")
    if not all(0 <= each < made.train_steps for each in visited):
        raise ValueError(f"'timesteps' lie within 0..{made.train_steps - 1}")
    if any(later >= earlier for earlier, later in pairwise(visited)):
        raise ValueError("'timesteps' go down, each below the one before")
