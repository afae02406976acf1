"""The table of costs as typed data, and what it answers. Every number is in microseconds, of one row and one thread.

A curve is a list of [extent, microseconds]: straight between its points, level before the first one, and beyond the
last one in proportion to the extent.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, TypeAdapter

from genai_compiler.read.fields import Closed

Microseconds = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]
Point = tuple[Annotated[int, Field(ge=1, le=2**31)], Microseconds]
Place = Literal["graph", "host"]

WAYS = ("top_k", "top_k+top_p", "top_p", "min_p", "temperature")
"""Ways of drawing a token, by the first cut that a request asks for; `top_k+top_p` costs the host more than `top_k`."""
SHIPPED = Path(__file__).with_name("shipped.json")


def _rising(points: tuple[Point, ...]) -> tuple[Point, ...]:
    if any(one[0] >= other[0] for one, other in pairwise(points)):
        raise ValueError("extents must rise from point to point")
    return points


Curve = Annotated[tuple[Point, ...], Field(min_length=1, max_length=64), AfterValidator(_rising)]


class Machine(Closed):
    """Where a table was measured: facts for a reader, none is compared."""

    processor: str
    system: str
    python: str
    numpy: str
    onnxruntime: str


class SessionCosts(Closed):
    """One session run without its operators: the call, and each input and output."""

    call: Microseconds
    input: Microseconds
    output: Microseconds


class HostCosts(Closed):
    """One invoke that numpy does, without its searches: the call, each input, each output, each other operator."""

    call: Microseconds
    input: Microseconds
    output: Microseconds
    operator: Microseconds


class Alternatives(Closed):
    """The same work inside a graph and on the host, by the extent of the axis that it goes along."""

    graph: Curve
    host: Curve


class Searches(Closed):
    """The operators that numpy does too, and faster."""

    ArgMax: Alternatives
    ArgMin: Alternatives


def _all_ways(draws: Mapping[str, Alternatives]) -> Mapping[str, Alternatives]:
    missing = [each for each in WAYS if each not in draws]
    unknown = [each for each in draws if each not in WAYS]
    if missing or unknown:
        faults = [f"there is no entry for {each}" for each in missing] + [f"{each} is no way" for each in unknown]
        raise ValueError("; ".join(faults))
    return draws


class Costs(Closed):
    """The whole table.

    node: a small operator inside a graph. draws: a token of a row of scores by the runtime's own sampler, by way and
    vocabulary; whole, with the search for NaN and, in the graph, its session call.
    """

    version: Literal[1]
    measured: str
    machine: Machine
    session: SessionCosts
    node: Microseconds
    host: HostCosts
    searches: Searches
    draws: Annotated[Mapping[str, Alternatives], AfterValidator(_all_ways)]

    def run(self, taken: int, given: int) -> float:
        """One session run of so many inputs and outputs, without its operators."""
        return self.session.call + taken * self.session.input + max(given, 1) * self.session.output

    def saved(self, apart: Iterable[tuple[int, int]], taken: int, given: int) -> float:
        """What one run of so many inputs and outputs takes less than several, each (inputs, outputs)."""
        return sum(self.run(*each) for each in apart) - self.run(taken, given)

    def search(self, operator: str, place: Place, extent: int) -> float:
        """One search (ArgMax, ArgMin) along an axis of that extent."""
        found = self.searches.ArgMin if operator == "ArgMin" else self.searches.ArgMax
        return at(found.graph if place == "graph" else found.host, extent)

    def draw(self, way: str, place: Place, vocabulary: int) -> float:
        """One draw of so many scores. way: one of WAYS; KeyError for another."""
        found = self.draws[way]
        return at(found.graph if place == "graph" else found.host, vocabulary)


def at(curve: tuple[Point, ...], extent: int) -> float:
    """What a curve says of an extent."""
    before = curve[0]
    for point in curve:
        if extent <= point[0]:
            share = (extent - before[0]) / (point[0] - before[0]) if point[0] > before[0] else 0.0
            return point[1] if extent <= curve[0][0] else before[1] + share * (point[1] - before[1])
        before = point
    return before[1] * extent / before[0]


@cache
def shipped_costs() -> Costs:
    """The table that comes with the compiler."""
    return TypeAdapter(Costs).validate_json(SHIPPED.read_bytes())
