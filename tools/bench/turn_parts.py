"""The parts of a run in which contestants take turns: who, on which package, with which requests."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from tools.bench.contestants import AGAIN, LOOP
from tools.bench.place import VERSIONS, Place
from tools.bench.rounds import Scenario, opened_apart, prompt_ids, run_scenario


@dataclass(frozen=True)
class Turns:
    """Contestants on one package. rounds of a scenario: at most so many; 0: as many as asked."""

    package: str
    scenarios: tuple[Scenario, ...]
    threads: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """Everyone, in the order of opening."""
        return tuple(dict.fromkeys(name for each in self.scenarios for name in each.names))


CONTEXTS = (128, 1024, 2048, 4096, 8000)
TURNS = {
    "decode-int4": Turns(
        "int4", (Scenario(64, 128, (LOOP, "tokens", "text", "genai", "optimum", "llama", AGAIN), 0),)
    ),
    "decode-int8": Turns("int8", (Scenario(64, 128, (LOOP, "tokens", "genai", "optimum", AGAIN), 0),)),
    "decode-fp32": Turns("fp32", (Scenario(64, 128, (LOOP, "tokens", "genai", "optimum", AGAIN), 0),)),
    "threads": Turns("int4", (Scenario(64, 128, (LOOP, "tokens", "genai", AGAIN), 7),), threads=2),
    "threads-int8": Turns("int8", (Scenario(64, 64, (LOOP, "tokens", "genai", AGAIN), 7),), threads=2),
    "threads-fp32": Turns("fp32", (Scenario(64, 32, (LOOP, "tokens", "genai", AGAIN), 7),), threads=2),
    "context": Turns(
        "int4",
        (
            Scenario(256, 16, (LOOP, "tokens", "genai"), 5),
            Scenario(512, 4, (LOOP, "tokens", "genai", AGAIN), 9),
            Scenario(1024, 32, (LOOP, "tokens", "genai", "optimum", "numpy", AGAIN), 7),
            Scenario(2048, 16, (LOOP, "tokens", "genai"), 3, renew=1),
        ),
    ),
    "context-int8": Turns("int8", (Scenario(1024, 32, (LOOP, "tokens", "optimum", "numpy", AGAIN), 5),)),
    "context-fp32": Turns("fp32", (Scenario(1024, 32, (LOOP, "tokens", "optimum", "numpy", AGAIN), 5),)),
    "batch": Turns(
        "int4", tuple(Scenario(64, 32, (LOOP, "tokens", "genai"), 5, rows=rows) for rows in (1, 2, 4, 8))
    ),
    "size-tiny": Turns("tiny", (Scenario(64, 64, (LOOP, "tokens", "genai"), 9, renew=3),)),
    "size-small": Turns("small", (Scenario(64, 64, (LOOP, "tokens", "genai"), 7),)),
    "size-medium": Turns("medium", (Scenario(64, 64, (LOOP, "tokens", "genai"), 7),)),
    "tiny": Turns("tiny", (Scenario(16, 512, (LOOP, "run-only", "tokens", "genai", AGAIN), 0, renew=3),)),
    "host": Turns("tiny", tuple(Scenario(length, 128, (LOOP, "tokens", AGAIN), 9, renew=3) for length in CONTEXTS)),
    "host-long": Turns("int4", tuple(Scenario(length, 48, (LOOP, "tokens", AGAIN), 3) for length in (128, 8000))),
    "workflow": Turns(
        "workflow", (Scenario(64, 64, ("one-graph", "workflow", "unhoisted", "one-graph-again"), 0),)
    ),
    "tiny-workflow": Turns(
        "tiny-workflow",
        (
            Scenario(
                16, 256, ("one-graph", "workflow", "policies-bound", "policies-run", "one-graph-again"), 0, renew=3
            ),
        ),
    ),
}  # fmt: skip


def present(place: Place, scenario: Scenario) -> Scenario:
    """The scenario without the peers that are absent."""
    names = tuple(name for name in scenario.names if name not in PEERS or place.has(name))
    return Scenario(**{**asdict(scenario), "names": names})


PEERS = ("genai", "optimum", "llama")


def absent(place: Place, scenarios: Iterable[Scenario]) -> list[str]:
    """Peers of these scenarios that are not installed."""
    return sorted({name for each in scenarios for name in each.names if name in PEERS and not place.has(name)})


def take_turns(place: Place, turns: Turns, rounds: int) -> dict[str, Any]:
    """The round robin."""
    scenarios = [
        present(place, Scenario(**{**asdict(each), "rounds": min(each.rounds or rounds, rounds)}))
        for each in turns.scenarios
    ]
    names = Turns(turns.package, tuple(scenarios)).names
    contestants = {name: place.contestant(name, turns.package) for name in names}
    opening = partial(opened_apart, contestants, turns.threads, place.environment)
    tokenizer = place.package(turns.package) / "tokenizer.json"
    found = [run_scenario(opening, each, prompt_ids(tokenizer, each.prompt, each.rows)) for each in scenarios]
    versions = {name: place.versions(name) for name in names if name in VERSIONS}
    missing = absent(place, turns.scenarios)
    return {
        "threads": turns.threads, "scenarios": found, "package": turns.package, "absent": missing, "versions": versions
    }  # fmt: skip
