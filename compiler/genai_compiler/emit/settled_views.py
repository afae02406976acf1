"""Writes the shorter way of one row through a loop (settled_loops): what stands last in the loop's body."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from genai_compiler.emit.ahead_views import AheadViews
from genai_compiler.emit.names import comment, literal, tuple_of
from genai_compiler.emit.op_view import OpView, Writing
from genai_compiler.plan.ir import CheckHeld, Emit, Fused, Invoke, Loop, Op
from genai_compiler.plan.settled_loops import Sources, run_of

Lines = Iterator[str]
Steady = Mapping[tuple[tuple[str, str], ...], tuple[str, str]]
"""What a run of no group defines -> the object that runs it in the loop, and the runner behind that."""


class SettledViews:
    """The shorter way of one loop."""

    def __init__(
        self, writing: Writing, loop: Loop, around: tuple[Steady, Mapping[str, str]], counted: tuple[str, str]
    ) -> None:
        """around: names of what runs, and by group of what its run takes that looks nothing ahead. counted: the names
        of the loop's counter and of its bound.
        """
        steady, idles = around
        self._plan, self._names, self._uses, self._call = writing.plan, writing.names, writing.uses, writing.call
        self._loop, self._sources, (self._step, self._limit) = loop, Sources(loop), counted
        self._runs = self._sources.runs
        self._objects = [self._uses.held[each.held][0] if each.held else steady[each.outputs][0] for each in self._runs]
        fresh = self._names.fresh
        self._sets = [(fresh(f"{each.component}_set"), fresh(f"{each.component}_other")) for each in self._runs]
        self._audience, self._failure = fresh("audience"), fresh("failure")
        self._turn: dict[str, tuple[str, str, str]] = {}
        """What is another thing every other time: its name, and what it is with one set and with the other."""
        self._lists: list[str] = []
        self._number = ""
        self._ahead = None
        if loop.ahead is not None:
            at = next(at for at, each in enumerate(self._runs) if each.held)
            runner = next(names[1] for made, names in steady.items() if loop.ahead.light == tuple(v for _, v in made))
            names = self._objects[at], runner, idles[self._runs[at].held], self._step
            self._ahead = AheadViews(writing, loop, loop.ahead, *names)

    def view(self) -> OpView:
        """The view of all of it."""
        self._uses.imports.update(("RUN_FAILURES", "SETTLED"))
        going = self._read("number", self._loop.continue_when)
        body = tuple(line for op in self._loop.body for line in self._op(op))
        counter = tuple(self._counter())
        turns, turn = self._names.fresh("turns"), list(self._turn.values())
        heeds = "request.stop_on_eos and " if self._loop.termination == "generation_eos" else ""
        fields: dict[str, str | tuple[str, ...]] = {
            "head": f"if {self._condition()}:",
            "sets": tuple(
                f"{', '.join(pair)} = {each}.sets()" for pair, each in zip(self._sets, self._objects, strict=True)
            ),
            "lists": (
                *counter,
                *(self._ahead.entering() if self._ahead is not None else ()),
                f"{self._audience} = request.audience",
                *self._lists,
            ),
            "turns": f"{turns} = ({tuple_of(each[1] for each in turn)}, {tuple_of(each[2] for each in turn)})",
            "loop": f"for {self._step} in range(SETTLED + 1, {self._limit}):",
            "turn": f"{tuple_of(each[0] for each in turn)[1:-1]} = {turns}[{self._step} & 1]",
            "stop": f"if {heeds}not {going}[0]:",
            "count": (
                *((f"{self._number}[0] = {self._step}",) if counter else ()),
                *(self._ahead.counting() if self._ahead is not None else ()),
            ),
            "body": body,
            "ends": tuple(f"out.row_ended({literal(op.output)})" for op in self._loop.body if isinstance(op, Emit)),
        }
        shorter = OpView("_settled_row.py.j2", fields)
        if self._ahead is None:
            return shorter
        looks = self._names.fresh("looks_ahead")
        primed = replace(shorter, fields={**fields, "head": f"{looks} = {self._ahead.condition()}\nif {looks}:"})
        return OpView("_arm.py.j2", {"head": fields["head"], "joins": ()}, {"body": (primed,)})

    def _condition(self) -> str:
        """When it is taken: each value that is read as a number must be one."""
        read = [self._loop.continue_when]
        for op in self._loop.body:
            read += [each for each in (op.value, op.when, op.valid_length) if each] if isinstance(op, Emit) else []
        places = {self._sources.place(value)[:2] for value in read}
        asked = (
            f"({each}, {literal(tuple(sorted(place for run, place in places if run == at)))})"
            for at, each in enumerate(self._objects)
        )
        replaced = "not request.overrides and " if any(isinstance(op, Fused) for op in self._loop.body) else ""
        turned = "" if self._ahead is None else f" < {self._limit} - 1"
        return f"{self._step} == SETTLED{turned} and {replaced}{self._call('settled', *asked)}"

    def _counter(self) -> Lines:
        """The tensor of the iteration's number, bound where runs take it."""
        taken = [
            f"({name}, {literal(port)})"
            for name, run in zip(self._objects, self._runs, strict=True)
            for port, value in run.inputs
            if self._loop.iteration and value == self._loop.iteration
        ]
        if taken:
            self._number = self._names.fresh(f"{self._loop.iteration}_number")
            rank = str(self._plan.types[self._loop.iteration].rank)
            yield f"{self._number} = {self._call('counter', rank, *taken)}"

    def _op(self, op: Op) -> Lines:
        run = run_of(op)
        if run is not None:
            yield from self._run(run, op.origin if isinstance(op, Fused) else run.origin)
        elif isinstance(op, Emit):
            yield from self._emit(op)
        elif isinstance(op, CheckHeld) and any(kind == "sum" for kind, _ in self._uses.held[op.group][2].lengths):
            name = self._uses.held[op.group][0]
            yield f"{name}.bounded({self._names.of(op.maximum)}, {literal(op.origin)})"

    def _run(self, run: Invoke, origin: str) -> Lines:
        at = next((at for at, each in enumerate(self._runs) if each is run), -1)
        if at < 0 and self._ahead is not None:
            yield f"# {comment(origin)}: {comment(run.component)} has run with the last token's"
            yield from self._ahead.light(run)
            return
        (one, other), name = self._sets[at], self._objects[at]
        bound = self._both(f"{run.component}_bound", one, other)
        call = self._names.fresh(f"run_{run.component}")
        self._lists.append(f"{call} = {name}.run")
        yield f"# {comment(origin)}: invoke {comment(run.component)}"
        if run.held:
            hold = self._uses.held[run.held][2]
            port = next(port for kind, port in hold.lengths if kind == "valid")
            yield f"{name}.follow({self._read('entries', dict(run.inputs)[port])})"
        if run.idle and self._ahead is not None:
            yield from self._ahead.before(bound, self._limit)
        yield "try:"
        yield f"    {call}({bound}.bound, None)"
        yield f"except RUN_FAILURES as {self._failure}:"
        if run.idle and self._ahead is not None:
            yield f"    {self._ahead.failed(bound, self._failure)}"
            return
        yield f"    raise {name}.failed({bound}, {self._failure}) from {self._failure}"

    def _emit(self, op: Emit) -> Lines:
        token, output = self._read("number", op.value), literal(op.output)
        note = self._names.fresh(f"note_{op.output}")
        dtype = literal(self._plan.types[op.value].dtype)
        self._lists.append(f"{note} = out.row_so_far({output}, {dtype}, request.audience).append")
        yield f"# {comment(op.origin)}: emit"
        margin = ""
        if op.when:
            yield f"if {self._read('number', op.when)}[0]:"
            margin += "    "
        length = self._read("number", op.valid_length) if op.valid_length else ""
        if length:
            yield f"{margin}if {length}[0] != 1:"
            yield f"{margin}    yield out.no_token({output}, {length}[0], {self._step}, {literal(op.origin)})"
            yield f"{margin}else:"
        inner = f"{margin}    " if length else margin
        yield f"{inner}{note}({token}[0])"
        yield f"{inner}if {self._audience}.listens or {self._audience}.cancelled:"
        yield f"{inner}    yield out.only_token({output}, {token}[0], {self._step})"

    def _read(self, how: str, value: str) -> str:
        """The name, in a turn, of a view of a value: `number` or `entries`."""
        if not self._sources.turns(value):
            view = self._call(how, self._names.of(value))
            return self._twice(f"{how} {value}", value, view, view)
        run, place, age = self._sources.place(value)
        views = [self._call(how, f"{each}.made[{place}]") for each in self._sets[run]]
        return self._twice(f"{how} {value}", value, *(reversed(views) if age % 2 else views))

    def _both(self, hint: str, one: str, other: str) -> str:
        return self._twice(hint, hint, one, other)

    def _twice(self, key: str, hint: str, one: str, other: str) -> str:
        if key not in self._turn:
            self._turn[key] = (self._names.fresh(f"{hint}_now"), one, other)
        return self._turn[key][0]
