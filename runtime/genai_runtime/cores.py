"""How many threads a session may use well: the cores that this process really has, and what says so.

A container limits a process in two ways: by the set of cores it may run on, and by a quota of time (Linux control
groups). With a quota of one core on a machine of many, a pool of many threads is stopped for most of every period.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple


class Cores(NamedTuple):
    """A number of cores, at least 1, and where it comes from, in words."""

    number: int
    reason: str


def allowed_cores(root: str = "/") -> Cores:
    """The fewest of: cores of the machine, cores that this process may run on, whole cores that its quotas pay for.

    root: where `proc` and `sys` are.
    """
    found = [Cores(os.cpu_count() or 1, "the machine's cores")]
    if hasattr(os, "sched_getaffinity"):
        found.append(Cores(len(os.sched_getaffinity(0)), "cores that this process may run on"))
    found += [Cores(max(1, int(each)), f"a quota of {each:.2f} cores (control group)") for each in _quotas(root)]
    return min(found, key=lambda each: each.number)


def _quotas(root: str) -> Iterator[float]:
    """Cores that each control group around this process may use, as far as one is limited."""
    try:
        groups = _text(f"{root}proc/self/cgroup").splitlines()
    except OSError:
        return
    for line in groups:
        _, controllers, path = line.split(":", 2)
        own = "cpu" in controllers.split(",")
        if own or not controllers:
            home = f"{root}sys/fs/cgroup/{controllers}" if own else f"{root}sys/fs/cgroup"
            for folder in _upwards(home, path):
                quota = _legacy(folder) if own else _unified(folder)
                if quota is not None:
                    yield quota


def _upwards(home: str, path: str) -> Iterator[str]:
    """The group's folder and those above it; inside a container the path may be the host's, and the top is its own."""
    parts = [each for each in path.split("/") if each not in ("", "..")]
    for count in range(len(parts), -1, -1):
        yield "/".join((home, *parts[:count]))


def _unified(folder: str) -> float | None:
    """Version 2: `cpu.max` is "quota period", or "max period"."""
    try:
        quota, period = _text(f"{folder}/cpu.max").split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _legacy(folder: str) -> float | None:
    """Version 1: a file each, in microseconds; a quota of -1 is none."""
    try:
        quota, period = (int(_text(f"{folder}/cpu.cfs_{name}_us")) for name in ("quota", "period"))
        return quota / period if quota > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _text(file: str) -> str:
    with open(file, encoding="utf-8", errors="surrogateescape") as stream:  # noqa: PTH123  (this is on the way to the first session)
        return stream.read()
