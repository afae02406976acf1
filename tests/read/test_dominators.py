"""Reachability and dominators, against networkx: on graphs of chance, and on one worked by hand."""

from itertools import pairwise

import networkx
import numpy as np
import pytest
from genai_compiler.read.dominators import Flow, immediate_dominators

START = "0"


def chance(seed: int, nodes: int, back: float) -> list[tuple[str, str]]:
    """Edges between nodes, forwards but for a part `back` of them; some nodes can't be reached from the first."""
    random = np.random.default_rng(seed)
    edges = []
    for _ in range(int(random.integers(nodes, 3 * nodes))):
        one, other = sorted(random.choice(nodes, 2, replace=False).tolist())
        edges.append((str(other), str(one)) if random.random() < back else (str(one), str(other)))
    return [(START, "1"), *edges]


@pytest.mark.parametrize("back", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(40))
def test_graphs_of_chance(seed: int, back: float) -> None:
    edges = chance(seed, 4 + seed, back)
    flow, known = Flow(edges), networkx.DiGraph(edges)
    assert {name for name in map(str, range(60)) if name in flow} == set(known)
    for name in known:
        assert flow.descendants(name) == networkx.descendants(known, name)
        other = edges[seed][1]
        both = networkx.descendants(known, name) & networkx.ancestors(known, other)
        assert flow.between(name, other) == both - {name, other}
    above = dict(networkx.immediate_dominators(known, START))
    above.pop(START, None)  # releases differ in what they say of the start
    assert immediate_dominators(flow, START) == above


def test_what_all_ways_go_through() -> None:
    """Two ways from a to d, and a loop behind it."""
    flow = Flow([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e"), ("e", "d")])
    assert immediate_dominators(flow, "a") == {"b": "a", "c": "a", "d": "a", "e": "d"}
    assert flow.descendants("d") == {"e"}
    assert flow.between("a", "d") == {"b", "c", "e"}
    assert flow.between("d", "a") == set()
    assert "f" not in flow


def test_a_long_chain_needs_no_deep_stack() -> None:
    names = [str(each) for each in range(20_000)]
    flow = Flow(pairwise(names))
    assert immediate_dominators(flow, "0") == {other: one for one, other in pairwise(names)}
    assert len(flow.descendants("0")) == len(names) - 1


def test_many_names_behind_a_long_chain_take_few_steps() -> None:
    """Each has one way along the chain and one past it, so the start alone is before it."""
    chain = [str(each) for each in range(20_000)]
    behind = [f"y{each}" for each in range(20_000)]
    flow = Flow([*pairwise(chain), *((chain[-1], each) for each in behind), *((START, each) for each in behind)])
    above = immediate_dominators(flow, START)
    assert {above[each] for each in behind} == {START}
    assert all(above[other] == one for one, other in pairwise(chain))
