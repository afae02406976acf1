"""Runs in a loop whose results have the same extents each time: two sets of result tensors, bound once, take turns.

What an iteration gave is read until the end of the next one (compiler, pass keep_results), so the one after that may
write over it. A result, once made, is the same Python object every other time; on the CPU, inputs are bound anew only
where they are other objects than two runs before. Where all runs of a loop are so, nothing is bound anew after some
iterations, and the executor has a shorter way for one row (settled.py).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from genai_runtime import binding
from genai_runtime.problem import ExecutionError, GenaiError
from genai_runtime.values import Value, to_bits

Promise = Callable[..., object]
"""Asks results whether they are as was promised. Raises what is wrong with them."""


class RunSet(Protocol):
    """One of a run's two sets.

    bound: what the run is given; given: the inputs by place, None for what has to be bound before every run; made: the
    results, none before a run.
    """

    bound: Any
    given: tuple[Value, ...]
    made: Sequence[Value]

    def always(self, port: str, value: Value) -> None: ...
    def give(self, values: tuple[Value, ...]) -> None: ...
    def keep(self) -> Sequence[Value]: ...


class Bank:
    """One io-binding and what is bound to it, as RunSet."""

    def __init__(self, session: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.bound = binding.new_bindings(session)
        self._inputs, self._outputs, self._stays = inputs, outputs, binding.reads_bound(session)
        self.given: tuple[Value, ...] = (None,) * len(inputs)  # type: ignore[assignment]
        self.made: Sequence[Value] = ()
        for port in outputs:
            self.bound.bind_output(port, binding.CPU)

    def always(self, port: str, value: Value) -> None:
        """From now on this input is this tensor, into which each iteration's number is written."""
        self.bound.bind_ortvalue_input(port, value)
        pairs = zip(self._inputs, self.given, strict=True)
        self.given = tuple(value if each == port else known for each, known in pairs)

    def taken(self, port: str) -> Value:
        """What is bound to an input."""
        return self.given[self._inputs.index(port)]

    def give(self, values: tuple[Value, ...]) -> None:
        """Bind these inputs, where they are not bound yet."""
        for port, value, known in zip(self._inputs, values, self.given, strict=True):
            if value is not known:
                self.bound.bind_ortvalue_input(port, value)
        if self._stays:  # else a result that is written over would be read as it was when it was bound
            self.given = values

    def keep(self) -> Sequence[Value]:
        """After the first run: its results, which later runs write over."""
        self.made = self._results()
        for port, value in zip(self._outputs, self.made, strict=True):
            self.bound.bind_ortvalue_output(port, value)
        return self.made

    def hand_over(self) -> Sequence[Value]:
        """After a run: its results; the next one makes others."""
        made = self._results()
        for port in self._outputs:
            self.bound.bind_output(port, binding.CPU)
        return made

    def made_anew(self, run: Callable[[binding.Bindings, None], None]) -> Sequence[Value]:
        """Run with results of their own, whatever extents they have; what was kept is kept no longer."""
        for port in self._outputs:
            self.bound.bind_output(port, binding.CPU)
        self.made = ()
        run(self.bound, None)
        return self.hand_over()

    def _results(self) -> Sequence[Value]:
        made = self.bound.get_outputs()
        return tuple(made[at] for at in range(len(self._outputs)))


WORTH_BINDING = 8
"""Iterations that a loop must be allowed to bind at all: two sets of bindings cost what they save in about six."""


class Steady:
    """Stands for a runner in one loop.

    make: a new set. run: runs on what a set has bound; raises one of RUN_FAILURES. otherwise: the runner, for a loop
    that is too short, and for a run whose results turn out to have other extents after all. most: how many iterations
    the loop is allowed. sound: whether a run reads what is written into a bound input later.
    """

    def __init__(
        self,
        make: Callable[[], RunSet],
        run: Callable[[Any, None], None],
        otherwise: Callable[..., Sequence[Value]],
        most: int,
        origin: str,
        sound: bool = True,
    ) -> None:
        self.run, self._make, self._otherwise = run, make, otherwise
        self._binds, self._origin, self._sound = most >= WORTH_BINDING, origin, sound
        self._next: RunSet | None = None
        self._last: RunSet | None = None

    def __call__(self, *values: Value) -> Sequence[Value]:
        """One run; raises what the runner raises. A failed run is repeated by it: no input has been touched."""
        bank, self._next = self._next, self._last
        if bank is None:
            if not self._binds:
                return self._otherwise(*values)
            bank = self._make()
        self._last = bank
        if bank.given != values:
            bank.give(values)
        try:
            self.run(bank.bound, None)
        except binding.RUN_FAILURES:
            self._sound = False
            return self._otherwise(*values)
        return bank.made or bank.keep()

    def sets(self) -> tuple[RunSet, ...]:
        """The set of the next run and that of the last; none where a run may need something else than these."""
        banks = (self._next, self._last)
        return tuple(each for each in banks if each is not None and each.made and self._sound)

    def failed(self, bank: RunSet, failure: Exception, promised: Promise | None = None) -> Exception:
        """What a run on a set comes to that has failed: the runner, given the same, says it in its own words.

        Should it give results, their extents are others than they were: `promised` says that they must not be.
        """
        try:
            made = self._otherwise(*bank.given)
            if promised is not None:
                promised(*made)
        except GenaiError as said:
            return said
        return ExecutionError("step-failed", str(failure), origin=self._origin)

    def late(
        self,
        bank: RunSet,
        failure: Exception,
        law: Promise,
        promised: Promise | None = None,
        read: Sequence[int] = (),
    ) -> Exception:
        """The same, where something more speaks of extents once the iteration ends: what it says, to be raised then.

        Raises what is wrong now. What has its extents still is put where the iteration looks for it. read: as put_off.
        """
        asked, again = (law, promised), partial(self._otherwise, *bank.given)
        return put_off(bank.made, again, asked, failure, self._origin, read)


def steady_session(
    session: Any,
    ports: tuple[Sequence[str], Sequence[str]],
    otherwise: Callable[..., Sequence[Value]],
    most: int,
    origin: str,
) -> Steady:
    """Steady runs of a session. ports: its inputs and outputs, in the order in which values go in and come out."""
    run = binding.run_bound(session, origin)
    return Steady(partial(Bank, session, *ports), run, otherwise, most, origin, binding.reads_bound(session))


def put_off(
    kept: Sequence[Value],
    again: Callable[[], Sequence[Value]],
    asked: tuple[Promise, Promise | None],
    failure: Exception,
    origin: str,
    read: Sequence[int] = (),
) -> Exception:
    """`late`. again: the run with results of its own. read: those that the iteration still reads; where one of them has
    other extents, its place keeps an earlier value, so the failure is raised at once.
    """
    (law, promised), made = asked, again()
    if promised is not None:
        promised(*made)
    try:
        law(*made)
    except GenaiError as said:
        if any(kept[at].shape() != made[at].shape() for at in read):
            raise
        for into, value in zip(kept, made, strict=True):
            if into.shape() == value.shape():
                to_bits(into)[...] = to_bits(value)
        return said
    raise ExecutionError("step-failed", str(failure), origin=origin) from failure
