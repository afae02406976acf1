"""A scheduler and a number of steps -> the timesteps to visit and each step as numbers.

Every solver here is linear in what it has in hand, so a whole schedule is a table, and running it needs no solver:

    model input = scale * x
    next x = keep * x + move * estimate + recall * history
    next history = from_x * x + from_estimate * estimate

With sigma = sqrt((1 - a) / a), a the product of (1 - beta) so far, x' = x / sqrt(a) and h = x0 the clean data that an
estimate tells, all three are steps of one equation, dx' / dsigma = (x' - x0) / sigma:
- euler carries x' itself (Karras et al. 2022, algorithm 1 without noise);
- ddim carries x, with the same step (Song et al. 2021, equation 12 with eta 0);
- dpmpp_2m carries x and takes x0 from a line through its last two values over log sigma (Lu et al. 2022, algorithm 2).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from genai_runtime.adapters.diffusion.scheduler import Scheduler

Floats = npt.NDArray[np.float64]
SCALE, KEEP, MOVE, RECALL, FROM_X, FROM_ESTIMATE = range(6)
"""Columns of a table."""

_SHORT = 15
"""Runs with fewer steps end with one of first order, even where noise is left: the line would reach too far."""


@dataclass(frozen=True)
class Schedule:
    """timesteps float64 [N]; table float64 [N, 6]; start: what noise of unit variance is multiplied with at first.

    signal: what clean latents are multiplied with, where a run starts from some.
    """

    timesteps: Floats
    table: Floats
    start: float
    signal: float = 0.0


def training_sigmas(scheduler: Scheduler) -> Floats:
    """float64 [train_steps]: noise against signal at each training timestep, growing."""
    count, first, last = scheduler.train_steps, scheduler.beta_start, scheduler.beta_end
    betas: Floats
    if scheduler.beta_schedule == "linear":
        betas = np.linspace(first, last, count)
    elif scheduler.beta_schedule == "scaled_linear":
        betas = np.linspace(first**0.5, last**0.5, count) ** 2
    else:  # squaredcos_cap_v2 (Nichol and Dhariwal 2021, equation 17)
        left = np.cos((np.arange(count + 1) / count + 0.008) / 1.008 * np.pi / 2) ** 2
        betas = np.minimum(1 - left[1:] / left[:-1], 0.999)
    signal = np.cumprod(1 - betas)
    return np.sqrt((1 - signal) / signal)


def spaced_timesteps(scheduler: Scheduler, count: int) -> Floats:
    """float64 [count]: training timesteps, going down (Lin et al. 2024, table 2).

    A multistep solver counts the end of the run as a timestep of its own.
    """
    steps, places = scheduler.train_steps, count + scheduler.multistep
    if scheduler.listed:
        return np.array(scheduler.listed)
    if scheduler.spacing == "linspace":
        visited = np.linspace(0, steps - 1, places)[::-1][:count] if places > 1 else np.array([steps - 1.0])
        whole = scheduler.solver != "euler" or scheduler.whole
        return np.round(visited) if whole else visited.copy()
    if scheduler.spacing == "leading":
        return (np.arange(places) * (steps // places))[::-1][:count].astype(np.float64) + scheduler.offset
    return np.round(np.arange(steps, 0, -steps / count)[:count]) - 1


def make_schedule(scheduler: Scheduler, count: int, strength: float | None = None) -> Schedule:
    """The schedule of `count` steps, within 1..train_steps. strength: the part of them, from the end, that a run takes
    which starts from clean latents; None for one that starts from noise alone.
    """
    training = training_sigmas(scheduler)
    visited = np.clip(spaced_timesteps(scheduler, count), 0, scheduler.train_steps - 1)
    sigmas = np.interp(visited, np.arange(scheduler.train_steps), training)
    if scheduler.sigmas != "training":
        ends = (training[-1], training[0]) if scheduler.multistep else (sigmas[0], sigmas[-1])
        sigmas = _between(*ends, count, scheduler.sigmas)
        visited = np.interp(np.log(sigmas), np.log(training), np.arange(scheduler.train_steps))
        visited = np.round(visited) if scheduler.whole or scheduler.multistep else visited
    end = 0.0 if scheduler.end == "zero" else training[0]
    exploding = scheduler.solver == "euler"
    if strength is not None:
        first = count - taken_steps(count, strength)
        level, signal = float(sigmas[first]), 1.0 if exploding else float(1 / np.hypot(sigmas[first], 1))
        table = _table(scheduler, np.append(sigmas[first:], end), count < _SHORT)
        return Schedule(visited[first:], table, level * signal, signal)
    table = _table(scheduler, np.append(sigmas, end), count < _SHORT)
    start = sigmas[0] if scheduler.spacing != "leading" or scheduler.listed else np.hypot(sigmas[0], 1)
    return Schedule(visited, table, float(start) if exploding else 1.0)


def taken_steps(count: int, strength: float) -> int:
    """Steps that a run of that strength takes, one at least; halves count up."""
    return max(1, min(count, int(count * strength + 0.5)))


def _between(most: float, least: float, count: int, how: str) -> Floats:
    """Noise levels going down between two (Karras et al. 2022, equation 5 with rho 7; or evenly in their logarithm)."""
    if how == "karras":
        roots: Floats = np.linspace(most ** (1 / 7), least ** (1 / 7), count)
        return roots**7
    logarithms: Floats = np.linspace(np.log(most), np.log(least), count)
    return np.exp(logarithms)


def _table(scheduler: Scheduler, sigmas: Floats, short: bool) -> Floats:
    """float64 [N, 6] of noise levels [N + 1]. short: the last step is of first order."""
    now, then = sigmas[:-1], sigmas[1:]
    signal, next_signal = 1 / np.hypot(now, 1), 1 / np.hypot(then, 1)
    from_x, from_estimate = {
        "epsilon": (np.ones_like(now), -now),
        "v_prediction": (signal**2, -now * signal),
        "sample": (np.zeros_like(now), np.ones_like(now)),
    }[scheduler.prediction]
    ratio, reach = then / now, _reach(scheduler, sigmas, short)
    keep = ratio + (1 - ratio) * (1 + reach) * from_x
    move, recall = (1 - ratio) * (1 + reach) * from_estimate, -(1 - ratio) * reach
    if scheduler.solver == "euler":
        return np.stack([signal, keep, move, recall, from_x, from_estimate], axis=1)
    keep, move, recall = keep * next_signal / signal, move * next_signal, recall * next_signal
    return np.stack([np.ones_like(now), keep, move, recall, from_x / signal, from_estimate], axis=1)


def _reach(scheduler: Scheduler, sigmas: Floats, short: bool) -> Floats:
    """float64 [N]: how far a step leans on the change of x0 since the step before; 0 for one of first order."""
    count = len(sigmas) - 1
    reach = np.zeros(count)
    if not scheduler.multistep:
        return reach
    for step in range(1, count):
        if sigmas[step + 1] > 0 and (step < count - 1 or not short):
            ahead, behind = np.log(sigmas[step] / sigmas[step + 1]), np.log(sigmas[step - 1] / sigmas[step])
            reach[step] = ahead / (2 * behind)
    return reach
