"""Boundaries between ONNX runs: which runs a value goes between, and in what words regions part them.

Before:  %h = invoke a(x=%x); loop { carry %c from %h, then %n; %n = invoke b(x=%c) }
After:   boundary a | b: a loop begins between them
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from genai_compiler.plan.boundary import Boundary
from genai_compiler.plan.ir import Branch, Copy, Decode, Fused, Hold, Invoke, Loop, Op, Plan, SpeculativeBlock
from genai_compiler.plan.uses import defines

Run = Invoke | Decode
Path = tuple[tuple[str, str], ...]
"""The regions that an op stands in, outermost first: (kind, which one)."""
_TOLD = 2
"""Runs of a component that a value may come of and that are kept: one of them is not the run that reads it."""
BEGINS, ITERATES, ENDS, JOINS = (
    "a loop begins between them",
    "an iteration ends between them",
    "a loop ends between them",
    "a branch ends between them",
)


def boundaries(plan: Plan, graphs: Collection[str], why: Callable[[Invoke, Invoke], str]) -> tuple[Boundary, ...]:
    """A boundary for every two runs of graphs that a value goes between and that are not one run.

    graphs: components that have one. why: what keeps two invokes of one region apart, "" where they are one run.
    """
    flow = _Flow(frozenset(graphs))
    flow.region(plan.body, ())
    flow.spread()
    front = plan.decoder.front.component if plan.decoder is not None and plan.decoder.front is not None else ""
    found = dict.fromkeys(_drafts(plan))
    for run, path in flow.runs:
        if isinstance(run, Decode) and front:
            found[Boundary(front, run.component, _driven(run), run.origin)] = None
        for value, reader in flow.taken(run, front):
            for maker, crossed in flow.makers(value, path):
                reason = "" if maker is run else _reason(maker, run, crossed or flow.between(maker, path), why)
                if reason:
                    found[Boundary(maker.component, reader, reason, run.origin)] = None
    return tuple(each for each in found if {each.first, each.second} <= flow.graphs)


def _drafts(plan: Plan) -> Iterator[Boundary]:
    drafts = plan.speculation
    if drafts is not None and drafts.drafting is not None:
        why = f"the runtime runs both: what '{drafts.proposer}' drafts, a run of '{drafts.target}' verifies"
        yield Boundary(drafts.target, drafts.proposer, why, "")


def _reason(maker: Run, run: Run, crossed: str, why: Callable[[Invoke, Invoke], str]) -> str:
    driven = next((each for each in (run, maker) if isinstance(each, Decode)), None)
    if driven is not None:
        return _driven(driven)
    return crossed or (why(maker, run) if isinstance(maker, Invoke) and isinstance(run, Invoke) else "")


def _driven(run: Decode) -> str:
    return f"the runtime runs '{run.component}' itself and binds its state, mask and lengths"


@dataclass
class _Flow:
    """Where values come from. made: value -> its run; whence: value -> (value it comes of, what lies between them).

    held: group -> what its cells start as. reached: value -> the runs that it may come of, by component, _TOLD of each.
    """

    graphs: frozenset[str]
    runs: list[tuple[Run, Path]] = field(default_factory=list)
    made: dict[str, Run] = field(default_factory=dict)
    whence: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    paths: dict[int, Path] = field(default_factory=dict)
    loops: dict[str, Path] = field(default_factory=dict)
    held: dict[str, tuple[str, ...]] = field(default_factory=lambda: {"": ()})
    reached: dict[str, dict[str, list[Run]]] = field(default_factory=dict)

    def region(self, ops: tuple[Op, ...], path: Path) -> None:
        """Take note of all ops of a region."""
        for at, op in enumerate(ops):
            match op:
                case Invoke() if op.component not in self.graphs:
                    between = f"'{op.component}' runs between them, which is no graph"
                    self._comes_of(defines(op), (value for _, value in op.inputs), between)
                case Invoke() | Decode():
                    self._run(op, path)
                case Fused():
                    self._run(op.run, path)
                case SpeculativeBlock():
                    self._run(op.decode, path)
                case Hold():
                    self.held[op.group] = tuple(value for _, value in op.cells)
                case Copy():
                    for source, target in op.pairs:
                        self._comes_of((target,), (source,), "")
                case Loop():
                    self._loop(op, (*path, ("loop", str(at))))
                case Branch():
                    self._branch(op, path, str(at))
                case _:
                    pass

    def _loop(self, op: Loop, inside: Path) -> None:
        for carry in op.carried:
            self._comes_of((carry.cell,), (carry.initial,), BEGINS)
            self._comes_of((carry.cell,), (carry.next,), ITERATES)
            self.loops[carry.cell] = inside
        self.region((*op.body, *op.advance), inside)

    def _branch(self, op: Branch, path: Path, at: str) -> None:
        for join in op.joins:
            self._comes_of((join.name,), (value for _, value in (*join.cases, ("", join.default)) if value), JOINS)
        for key, inner in (*op.cases, ("", op.default or ())):
            self.region(inner, (*path, ("branch", f"{at} {key}")))

    def _comes_of(self, made: Iterable[str], sources: Iterable[str], between: str) -> None:
        whence = [(source, between) for source in sources]
        for value in made:
            self.whence.setdefault(value, []).extend(whence)

    def _run(self, run: Run, path: Path) -> None:
        self.runs.append((run, path))
        self.paths[id(run)] = path
        self.made.update((value, run) for value in defines(run))

    def taken(self, run: Run, front: str) -> Iterator[tuple[str, str]]:
        """(value, the component that takes it), cells that are held for a run among them."""
        if isinstance(run, Invoke):
            yield from ((value, run.component) for value in (*(value for _, value in run.inputs), *self.held[run.held]))
            return
        yield from ((value, front or run.component) for value in (run.tokens, *(value for _, value in run.media)))
        yield from ((value, run.component) for value in (run.positions, *(value for _, value in run.extras)) if value)

    def spread(self) -> None:
        """Hand every run on to all that may come of what it makes: a long chain of cells is gone through once."""
        heirs = dict[str, list[str]]()
        for value, sources in self.whence.items():
            for source, _ in sources:
                heirs.setdefault(source, []).append(value)
        pending = deque(self.made.items())
        while pending:
            value, run = pending.popleft()
            known = self.reached.setdefault(value, {}).setdefault(run.component, [])
            if len(known) < _TOLD and not any(each is run for each in known):
                known.append(run)
                pending.extend((heir, run) for heir in heirs.get(value, ()))

    def makers(self, value: str, path: Path) -> Iterator[tuple[Run, str]]:
        """(run that makes a value read at a place, what a value goes through last on the way, "" for nothing)."""
        pending, seen = [value], {value}
        while pending:  # through copies, which are nothing to go through
            name = pending.pop()
            if name in self.made:
                yield self.made[name], ""
            inside = self.loops.get(name, ())
            for source, hop in reversed(self.whence.get(name, ())):
                hop = hop if inside == path[: len(inside)] else ENDS
                if hop and source != name:
                    yield from ((run, hop) for runs in self.reached.get(source, {}).values() for run in runs)
                elif source not in seen:
                    seen.add(source)
                    pending.append(source)

    def between(self, maker: Run, path: Path) -> str:
        """The region that begins between a run and a place that reads its result directly, "" for none."""
        own = self.paths[id(maker)]
        return f"a {path[len(own)][0]} begins between them" if len(path) > len(own) else ""
