"""Writes what one row that has settled does where a run makes the next iteration's values too (pass turn_loop)."""

from collections.abc import Iterator

from genai_compiler.emit.names import literal, tuple_of
from genai_compiler.emit.op_view import Writing
from genai_compiler.plan.ahead import Ahead
from genai_compiler.plan.ir import Invoke, Loop
from genai_compiler.plan.settled_loops import Sources, run_of
from genai_compiler.plan.uses import defines


class AheadViews:
    """The lines of one loop. held: the object of the run that looks ahead; runner: that of the light one."""

    def __init__(
        self, writing: Writing, loop: Loop, ahead: Ahead, held: str, runner: str, idle: str, step: str
    ) -> None:
        """idle: the name of what is given to a run that looks nothing ahead."""
        self._plan, self._names, self._call = writing.plan, writing.names, writing.call
        self._loop, self._ahead, self._held, self._runner = loop, ahead, held, runner
        self._idle, self._step, self._sources = idle, step, Sources(loop)
        self._ports, self._lost = self._names.fresh("ahead_ports"), self._names.fresh("lost")
        self._number = self._names.fresh("next_number") if loop.iteration in dict(ahead.inputs).values() else ""

    def condition(self) -> str:
        """Whether the light run could be made a first time, with the next iteration's values."""
        light = self._light()
        values = tuple_of(self._following(value) for _, value in light.inputs)
        places = literal(tuple(self._place(value) for value in defines(light)))
        kept = {carry.next for carry in self._loop.carried}
        before = (f"({self._place(each)}, {self._names.of(each)})" for each in defines(light) if each in kept)
        return self._call("primed", self._held, self._runner, values, places, tuple_of(before))

    def entering(self) -> Iterator[str]:
        """What is made and bound once."""
        results = dict(self._ahead.results)
        ports = [(port, value) for port, value in self._ahead.inputs if value != self._loop.iteration]
        own = next(run.inputs for run in self._sources.runs if run.idle)
        made = [f"({literal(port)}, {self._place(value)})" for port, value in (*own, *ports) if value in results]
        same = [f"({literal(port)}, {self._names.of(value)})" for port, value in ports if value not in results]
        yield self._call("chain_sets", self._held, tuple_of(made), tuple_of(same))
        if self._number:
            rank = str(self._plan.types[self._loop.iteration].rank)
            taken = [
                f"({self._held}, {literal(p)})" for p, value in self._ahead.inputs if value == self._loop.iteration
            ]
            yield f"{self._number} = {self._call('counter', rank, *taken)}"
        yield f"{self._ports} = {literal(tuple(port for port, _ in self._ahead.inputs))}"
        yield f"{self._lost} = ()"

    def counting(self) -> Iterator[str]:
        """What an iteration writes."""
        if self._number:
            yield f"{self._number}[0] = {self._step} + 1"

    def light(self, op: Invoke) -> Iterator[str]:
        """In the place of the light run."""
        yield f"if {self._lost}:"
        yield f"    raise {self._call('refused', self._runner, self._lost, literal(op.origin))}"

    def before(self, bound: str, limit: str) -> Iterator[str]:
        """Before the run that looks ahead: the last iteration has none behind it."""
        yield f"if {self._step} == {limit} - 1:"
        yield f"    {self._call('look_no_further', bound, self._ports, self._idle)}"

    def failed(self, bound: str, failure: str) -> str:
        """What becomes of a run that fails."""
        sources = tuple(port or self._sources.made[value][1] for port, value in self._ahead.sources)
        args = (self._held, bound, failure, self._ports, self._idle, literal(sources))
        return f"{self._lost} = {self._call('run_again', *args)}"

    def _light(self) -> Invoke:
        runs = (run for run in map(run_of, self._loop.body) if run is not None)
        return next(run for run in runs if defines(run) == self._ahead.light)

    def _place(self, value: str) -> int:
        return self._sources.made[dict(self._ahead.results)[value]][1]

    def _following(self, value: str) -> str:
        if value != self._loop.iteration:
            return self._names.of(value)
        return self._call("iteration_value", f"{self._step} + 1", str(self._plan.types[value].rank))
