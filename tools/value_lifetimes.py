"""What values between runs take, and what shared buffers would save: `python -m tools.value_lifetimes FOLDER...`.

`apart` is every value of the plan in a buffer of its own. `alive` is what is there at the fullest point when each goes
behind its last read, as pass mark_last_reads has it; results that a steady run keeps count twice. `coloured` is what
is left when values that are never alive together share a buffer: their interference graph coloured greedily, largest
first. Values that the runtime's own decoding holds (caches, logits, ids) are in none of them.
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import networkx as nx
from genai_compiler.driver import load_package, plan_package
from genai_compiler.emit.graph_files import graph_files
from genai_compiler.memory import MemoryAsk, lengths_of
from genai_compiler.plan.dtypes import SIZE
from genai_compiler.plan.ir import Branch, Fused, Hold, Invoke, Loop, Op, Plan, Release
from genai_compiler.plan.memory_runs import runs_of
from genai_compiler.plan.uses import defines, walk
from onnx import ModelProto


@dataclass
class Lifetimes:
    """Bytes by value; pairs of values that are alive together; bytes at the fullest point."""

    sizes: Mapping[str, int]
    steady: frozenset[str]
    graph: "nx.Graph[str]" = field(default_factory=nx.Graph)
    fullest: int = 0

    def note(self, alive: set[str]) -> None:
        """These are alive at one time."""
        self.fullest = max(self.fullest, sum(self.bytes(each) for each in alive))
        self.graph.add_nodes_from(alive)
        self.graph.add_edges_from((one, other) for one in alive for other in alive if one < other)

    def bytes(self, value: str) -> int:
        """What a value holds: two sets of results take turns in steady runs."""
        return self.sizes[value] * (2 if value in self.steady else 1)

    def coloured(self) -> int:
        """Bytes of the buffers when values that never meet share one."""
        order = sorted(self.graph, key=lambda each: (-self.bytes(each), each))
        colour: dict[str, int] = {}
        for each in order:
            taken = {colour[other] for other in self.graph[each] if other in colour}
            colour[each] = next(number for number in range(len(order)) if number not in taken)
        largest: dict[int, int] = {}
        for each, number in colour.items():
            largest[number] = max(largest.get(number, 0), self.bytes(each))
        return sum(largest.values())


def lifetimes(plan: Plan, sizes: Mapping[str, int]) -> Lifetimes:
    """Of the values whose bytes are known, over the plan's ops in order; a case of a branch begins where it begins."""
    found = Lifetimes(sizes, frozenset(_steady(plan.body)))
    _visit(plan.body, set(), found)
    return found


def _visit(ops: tuple[Op, ...], alive: set[str], found: Lifetimes) -> set[str]:
    for op in ops:
        for region in _regions(op):
            begun = alive | (
                {carry.cell for carry in op.carried} & found.sizes.keys() if isinstance(op, Loop) else set()
            )
            found.note(begun)
            _visit(region, set(begun), found)
        alive |= set(defines(op)) & found.sizes.keys()
        found.note(alive)
        if isinstance(op, Release):
            alive -= set(op.values)
        if isinstance(op, Loop):
            alive -= set(op.released_on_entry)
    return alive


def _regions(op: Op) -> Iterator[tuple[Op, ...]]:
    if isinstance(op, Loop):
        yield op.body
    if isinstance(op, Branch):
        yield from (ops for _, ops in op.cases)
        yield op.default or ()


def _steady(ops: tuple[Op, ...]) -> Iterator[str]:
    for op in ops:
        run = op.run if isinstance(op, Fused) else op
        if isinstance(run, Invoke) and run.steady:
            yield from defines(run)
        for region in _regions(op):
            yield from _steady(region)


def _held(plan: Plan) -> Iterator[str]:
    """Values of state that is written in place: it has one buffer, which is not of this question."""
    for op in (each for each in walk(plan.body) if isinstance(each, Hold)):
        yield from (name for pair in op.cells for name in pair)
        presents = {present for _, present in op.pairs}
        yield from (value for port, value in op.run.outputs if port in presents)


def measured(folder: Path, ask: MemoryAsk) -> tuple[int, int, int, int]:
    """(values, bytes apart, bytes alive at the fullest point, bytes coloured) of a package."""
    package = load_package(folder)
    plan, _ = plan_package(package, "mark_last_reads", lambda stage, text: None)
    models = {
        name: package.graphs[name].model if each.content is None else ModelProto.FromString(each.content)
        for name, each in graph_files(plan, package, bundle=False).items()
    }
    _, extents = runs_of(plan, models, lengths_of(package, ask))
    held = set(_held(plan))
    sizes = {
        name: SIZE[plan.types[name].dtype] * prod(extents[name])
        for name in plan.types
        if name in extents and name not in held and plan.types[name].dtype in SIZE
    }
    found = lifetimes(plan, sizes)
    return len(sizes), sum(map(found.bytes, found.graph)), found.fullest, found.coloured()


def main() -> None:
    """Print a line a package."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", type=Path)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--context", type=int)
    asked = parser.parse_args()
    print(f"{'':32}{'values':>8}{'apart':>12}{'alive':>12}{'coloured':>12}")
    for folder in asked.packages:
        found = measured(folder, MemoryAsk(asked.batch, None, asked.context))
        print(f"{folder.name:32}{found[0]:>8}" + "".join(f"{each:>12,}" for each in found[1:]))


if __name__ == "__main__":
    main()
