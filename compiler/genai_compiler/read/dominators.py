"""A graph of names, edge by edge: what is reached from a name, and which names every way to another goes through."""

from collections.abc import Iterable, Mapping, Set


class Flow:
    """Edges from each value to those that are made from it; a name is in it when an edge begins or ends there."""

    def __init__(self, edges: Iterable[tuple[str, str]] = ()) -> None:
        self.after: dict[str, dict[str, None]] = {}
        self.before: dict[str, dict[str, None]] = {}
        self.add(edges)

    def __contains__(self, name: str) -> bool:
        return name in self.after

    def add(self, edges: Iterable[tuple[str, str]]) -> None:
        """Take edges (from, to); one that is there already changes nothing."""
        for source, target in edges:
            for name in (source, target):
                self.after.setdefault(name, {})
                self.before.setdefault(name, {})
            self.after[source][target] = self.before[target][source] = None

    def descendants(self, name: str) -> set[str]:
        """What is reached from `name` along edges, without itself."""
        return _reached(name, self.after)

    def between(self, name: str, other: str) -> set[str]:
        """What is reached from `name` and leads to `other`, without these two."""
        inside = self.descendants(name) | {name}
        return _reached(other, self.before, inside) - {name} if other in inside else set()


def _reached(name: str, steps: Mapping[str, Iterable[str]], inside: Set[str] | None = None) -> set[str]:
    """What steps lead to; inside: names that may be gone through, all where it is None."""
    found, pending = {name}, [name]
    while pending:
        more = [each for each in steps[pending.pop()] if each not in found and (inside is None or each in inside)]
        found.update(more)
        pending.extend(more)
    return found - {name}


def immediate_dominators(flow: Flow, start: str) -> dict[str, str]:
    """Of every name that is reached from `start`: the last one before it that all ways from there go through.

    Lengauer, Tarjan, "A Fast Algorithm for Finding Dominators in a Flowgraph" (1979), with compressed paths: names of
    a graph may hang on a long chain by the thousand. `start` itself has none.
    """
    order, parent = _preorder(flow, start)
    number = {name: at for at, name in enumerate(order)}
    forest = _Forest(len(order))
    best, above = forest.best, [0] * len(order)
    waiting: list[list[int]] = [[] for _ in order]
    for at in range(len(order) - 1, 0, -1):
        for name in flow.before[order[at]]:
            if name in number:
                best[at] = min(best[at], best[forest.lowest(number[name])])
        waiting[best[at]].append(at)
        forest.link(parent[at], at)
        for each in waiting[parent[at]]:
            low = forest.lowest(each)
            above[each] = low if best[low] < best[each] else parent[at]
        waiting[parent[at]].clear()
    for at in range(1, len(order)):
        if above[at] != best[at]:
            above[at] = above[above[at]]
    return {order[at]: order[above[at]] for at in range(1, len(order))}


class _Forest:
    """Trees of names by number, in which paths are compressed. best: the lowest name from which one is reached by a
    way through higher ones alone (its semidominator), as far as it is known.
    """

    def __init__(self, count: int) -> None:
        self.best = list(range(count))
        self._up = [-1] * count
        self._low = list(range(count))

    def link(self, parent: int, child: int) -> None:
        self._up[child] = parent

    def lowest(self, at: int) -> int:
        """Of those from `at` up to its root, without that: the one with the lowest `best`; a root itself."""
        up, low, path = self._up, self._low, list[int]()
        if up[at] < 0:
            return at
        top = at
        while up[up[top]] >= 0:
            path.append(top)
            top = up[top]
        for each in reversed(path):
            if self.best[low[up[each]]] < self.best[low[each]]:
                low[each] = low[up[each]]
            up[each] = up[top]
        return low[at]


def _preorder(flow: Flow, start: str) -> tuple[list[str], list[int]]:
    """The names reached from `start` in the order of a walk in depth, and the place of the one that led to each."""
    order, parent, seen = [start], [-1], {start}
    pending = [(0, iter(flow.after[start]))]
    while pending:
        at, rest = pending[-1]
        following = next((each for each in rest if each not in seen), None)
        if following is None:
            pending.pop()
        else:
            seen.add(following)
            pending.append((len(order), iter(flow.after[following])))
            order.append(following)
            parent.append(at)
    return order, parent
