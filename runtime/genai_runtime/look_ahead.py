"""A run that makes what the next iteration begins with as well (compiler, pass turn_loop), for one row.

Wherever that is not asked for, its further inputs are zeros and what it makes of them is thrown away. In a loop that
has settled they are what the other set of its results holds; then the light run, which makes the same, is not needed.
"""

from collections.abc import Callable, Sequence

import numpy as np

from genai_runtime.binding import RUN_FAILURES
from genai_runtime.held import Held
from genai_runtime.problem import ExecutionError
from genai_runtime.steady import Bank
from genai_runtime.values import Value, bits_dtype, to_bits, to_value

Light = Callable[..., Sequence[Value]]


def blank(value: Value) -> Value:
    """Zeros of a tensor's type and extents."""
    return to_value(np.zeros_like(to_bits(value)), bits_dtype(value))


def primed(
    held: Held, light: Light, values: Sequence[Value], places: Sequence[int], before: Sequence[tuple[int, Value]]
) -> bool:
    """Whether both sets could be given what they would hold, had the last two runs looked ahead.

    values: what the light run takes in the next iteration; places: of its results among those of the held run; before:
    (place, what cells have become of this iteration's). Where it fails, the next iteration will say so, if it comes.
    """
    try:
        made = light(*values)
    except ExecutionError:
        return False
    first, second = held.sets()
    pairs = [(second.made[place], value) for place, value in zip(places, made, strict=True)]
    pairs += [(first.made[place], value) for place, value in before]
    if any(to_bits(into).shape != to_bits(value).shape for into, value in pairs):
        return False
    for into, value in pairs:
        to_bits(into)[...] = to_bits(value)
    return True


def chain_sets(held: Held, results: Sequence[tuple[str, int]], constant: Sequence[tuple[str, Value]]) -> None:
    """Let each set read what the other has made: (port, place of the result), and what is the same every time."""
    one, other = held.sets()
    for bank, last in ((one, other), (other, one)):
        for port, place in results:
            bank.always(port, last.made[place])
        for port, value in constant:
            bank.always(port, value)


def look_no_further(bank: Bank, ports: Sequence[str], idle: Sequence[Value]) -> None:
    """From now on a set looks nothing ahead."""
    for port, value in zip(ports, idle, strict=True):
        bank.always(port, value)


def run_again(
    held: Held, bank: Bank, failure: Exception, ports: Sequence[str], idle: Sequence[Value], light: Sequence[str | int]
) -> tuple[Value, ...]:
    """Repeat a run that has failed, with nothing to look ahead to; what was written in place is written once more.

    Returns what the light run takes in the next iteration: what ports had, and results. Raises what the held run does.
    What a port had is copied: that iteration writes a number over it before the light run says what is wrong.
    """
    values = [_copied(bank.taken(each)) if isinstance(each, str) else each for each in light]
    look_no_further(bank, ports, idle)
    try:
        held.run(bank.bound, None)
    except RUN_FAILURES as repeated:
        raise held.failed(bank, repeated) from failure
    return tuple(bank.made[each] if isinstance(each, int) else each for each in values)


def _copied(value: Value) -> Value:
    return to_value(to_bits(value), bits_dtype(value))


def refused(light: Light, values: Sequence[Value], origin: str) -> ExecutionError:
    """What the light run says of values with which it has failed an iteration before."""
    try:
        light(*values)
    except ExecutionError as said:
        return said
    return ExecutionError("step-failed", "it has failed in a run of several steps, and not alone", origin=origin)
