"""What one run makes for the next iteration of its loop (pass turn_loop)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Idle:
    """A port that serves the next iteration, at a place that asks nothing of it: zeros like a value go in.

    like: the value, "" for an iteration's number, int64 of one entry and of this rank.
    """

    port: str
    like: str
    rank: int = 0


@dataclass(frozen=True)
class Ahead:
    """The look-ahead of a loop. light: what defines the values in an iteration that no run has looked ahead to.

    results: (such a value, the one that the held run makes for it an iteration before). inputs: (port of that run, what
    goes in), where the iteration's number stands for the next one's. sources: for each input of the light invoke, in
    order, the port that takes it, or the held run's result that it is ("" and the other).
    """

    light: tuple[str, ...]
    results: tuple[tuple[str, str], ...]
    inputs: tuple[tuple[str, str], ...]
    sources: tuple[tuple[str, str], ...]
