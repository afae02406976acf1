"""A graph of names, edge by edge: what is reached from a name, and which names every way to another goes through."""

from collections.abc import Iterable, Mapping


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

    def ancestors(self, name: str) -> set[str]:
        """What `name` is reached from, without itself."""
        return _reached(name, self.before)


def _reached(name: str, steps: Mapping[str, Iterable[str]]) -> set[str]:
    found, pending = {name}, [name]
    while pending:
        more = [each for each in steps[pending.pop()] if each not in found]
        found.update(more)
        pending.extend(more)
    return found - {name}


def immediate_dominators(flow: Flow, start: str) -> dict[str, str]:
    """Of every name that is reached from `start`: the last one before it that all ways from there go through.

    Cooper, Harvey, Kennedy, "A Simple, Fast Dominance Algorithm" (2001). `start` itself has none.
    """
    order = _reverse_postorder(flow, start)
    place = {name: at for at, name in enumerate(order)}
    above = {start: start}
    changed = True
    while changed:
        changed = False
        for name in order[1:]:
            known = [each for each in flow.before[name] if each in above]
            best = known[0]
            for each in known[1:]:
                best = _common(best, each, above, place)
            changed |= above.get(name) != best
            above[name] = best
    del above[start]
    return above


def _common(one: str, other: str, above: Mapping[str, str], place: Mapping[str, int]) -> str:
    """The nearest name that dominates both, or is one of them and dominates the other."""
    while one != other:
        if place[one] > place[other]:
            one = above[one]
        else:
            other = above[other]
    return one


def _reverse_postorder(flow: Flow, start: str) -> list[str]:
    """The names reached from `start`, each before what is reached from it alone."""
    seen, order = {start}, list[str]()
    pending = [(start, iter(flow.after[start]))]
    while pending:
        rest = pending[-1][1]
        following = next((each for each in rest if each not in seen), None)
        if following is None:
            order.append(pending.pop()[0])
        else:
            seen.add(following)
            pending.append((following, iter(flow.after[following])))
    return order[::-1]
