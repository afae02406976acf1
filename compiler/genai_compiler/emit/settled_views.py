"""Writes the shorter way of one row through a loop (settled_loops): what stands last in the loop's body."""

from collections.abc import Iterator, Mapping

from genai_compiler.emit.names import comment, literal, tuple_of
from genai_compiler.emit.number_views import NumberViews
from genai_compiler.emit.op_view import OpView, Writing
from genai_compiler.plan.ir import CheckHeld, Emit, Fused, Invoke, Loop, Op
from genai_compiler.plan.settled_loops import Sources, run_of
from genai_compiler.plan.uses import all_reads
from genai_compiler.read.single_numbers import NumberProgram, NumberPut

Lines = Iterator[str]
Pairs = tuple[tuple[str, str], ...]
Steady = Mapping[Pairs, tuple[str, str]]
"""What a run of no group defines -> the object that runs it in the loop, and the runner behind that."""
Promises = tuple[tuple[str, ...], tuple[str, ...]]
"""Calls that hold results against what was promised of their extents: when the run has ended, and the iteration."""


class SettledViews:
    """The shorter way of one loop."""

    def __init__(
        self,
        writing: Writing,
        loop: Loop,
        steady: Steady,
        counted: tuple[str, str],
        promises: Mapping[Pairs, Promises],
    ) -> None:
        """steady: names of what runs. counted: the names of the loop's counter and of its bound. promises: by what a
        run defines.
        """
        self._promises, self._late = promises, ""
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
        self._sums: dict[str, str] = {}
        """A row of entries -> the name of its sum, once a run has been written that keeps it."""
        self._number = ""

    def view(self) -> OpView:
        """The view of all of it."""
        self._uses.imports.update(("RUN_FAILURES", "SETTLED"))
        going = self._read("number", self._loop.continue_when)
        body = tuple(line for op in self._loop.body for line in self._op(op))
        late = (f"if {self._late} is not None:", f"    raise {self._late}") if self._late else ()
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
                f"{self._audience} = request.audience",
                *((f"{self._late} = None",) if late else ()),
                *self._lists,
            ),
            "turns": f"{turns} = ({tuple_of(each[1] for each in turn)}, {tuple_of(each[2] for each in turn)})",
            "loop": f"for {self._step} in range(SETTLED + 1, {self._limit}):",
            "turn": f"{tuple_of(each[0] for each in turn)[1:-1]} = {turns}[{self._step} & 1]",
            "stop": f"if {heeds}not {going}[0]:",
            "count": (f"{self._number}[0] = {self._step}",) if counter else (),
            "body": (*body, *late),
            "ends": tuple(f"out.row_ended({literal(op.output)})" for op in self._loop.body if isinstance(op, Emit)),
        }
        return OpView("_settled_row.py.j2", fields)

    def _condition(self) -> str:
        """When it is taken: each value that is read as a number must be one."""
        read = [self._loop.continue_when]
        for op in self._loop.body:
            read += [each for each in (op.value, op.when, op.valid_length) if each] if isinstance(op, Emit) else []
        places = {self._sources.place(value)[:2] for value in read}
        asked = list[str]()
        for at, (run, name) in enumerate(zip(self._runs, self._objects, strict=True)):
            results, inputs = {place for found, place in places if found == at}, list[int]()
            if run.numbers is not None:
                results |= {_place(port, run.outputs) for port, _ in run.numbers.outputs}
                inputs = [_place(port, run.inputs) for port in run.numbers.reads()]
            parts = [name, literal(tuple(sorted(results))), *([literal(tuple(sorted(inputs)))] if inputs else [])]
            asked.append(tuple_of(parts))
        replaced = "not request.overrides and " if any(isinstance(op, Fused) for op in self._loop.body) else ""
        return f"{self._step} == SETTLED and {replaced}{self._call('settled', *asked)}"

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
        at = next(at for at, each in enumerate(self._runs) if each is run)
        (one, other), name = self._sets[at], self._objects[at]
        if run.numbers is not None:
            yield f"# {comment(origin)}: {comment(run.component)}, in numbers"
            yield from self._numbers(run, run.numbers, at)
            return
        yield f"# {comment(origin)}: invoke {comment(run.component)}"
        if run.held:
            port = self._valid(run)[0]
            counted = dict(run.inputs)[port]
            valid = self._sums.get(counted) or self._call("summed", self._read("entries", counted))
            yield f"{name}.follow({valid})"
        yield from self._session(run, name, (one, other))

    def _session(self, run: Invoke, name: str, sets: tuple[str, str]) -> Lines:
        bound = self._twice(f"bound {name}", f"{run.component}_bound", *sets)
        call = self._names.fresh(f"run_{run.component}")
        self._lists.append(f"{call} = {name}.run")
        yield "try:"
        yield f"    {call}({bound}.bound, None)"
        yield f"except RUN_FAILURES as {self._failure}:"
        yield f"    {self._diagnosis(run, name, bound)}"

    def _diagnosis(self, run: Invoke, name: str, bound: str) -> str:
        """What becomes of a failed run. Should it give results of other extents, what was promised of them is asked."""
        checks, laws = self._promises.get(run.outputs, ((), ()))
        targets = ", ".join(self._names.of(value) for _, value in run.outputs)
        promised = f", lambda {targets}: {tuple_of(checks)}" if checks else ""
        if not laws:
            return f"raise {name}.failed({bound}, {self._failure}{promised}) from {self._failure}"
        self._late = self._late or self._names.fresh("late")
        asked = f"lambda {targets}: {tuple_of(laws)}{promised}"
        again = self._read_again(run)
        read = f", read={literal(again)}" if again else ""
        return f"{self._late} = {name}.late({bound}, {self._failure}, {asked}{read})"

    def _read_again(self, run: Invoke) -> tuple[int, ...]:
        """Which results of a run other ops of the iteration read: those can't be told of once it ends."""
        read = {value for op in self._loop.body for value in all_reads(op)}
        return tuple(at for at, (_, value) in enumerate(run.outputs) if value in read)

    def _numbers(self, run: Invoke, program: NumberProgram, at: int) -> Lines:
        """What a session would compute; where a number leaves its type, or a place its row, the session does."""
        kept = {each for put in program.puts for each in (put.row, put.gives)}
        given = {port: self._given(port, value, run, at) for port, value in run.inputs if port in program.reads()}
        rows = {port: self._view(port, run.inputs, "given", at) for port, _ in run.inputs if port in kept}
        rows |= {port: self._view(port, run.outputs, "made", at) for port, _ in run.outputs if port in kept}
        written = {port: self._view(port, run.outputs, "made", at) for port, _ in program.outputs}
        lists = {port: self._listed(port, value, run, at) for port, value in run.inputs if port in program.lists()}
        lengths = {port: self._length(port, run, at) for port in dict.fromkeys(put.row for put in program.puts)}
        views = NumberViews(program, given, rows, self._step, self._names, lists, lengths)
        self._lists.extend(views.lasting())
        yield from views.computing()
        fits = views.fitting()
        if not fits:
            yield from views.writing(written)
            return
        sums = {put.gives: self._sum(put, run, at) for put in program.puts if self._is_counted(put, run)}
        if len(fits) < 3:
            yield f"if {' and '.join(fits)}:"
        else:
            sound = self._names.fresh("fits")
            yield f"{sound} = {fits[0]}"
            yield from (f"{sound} = {sound} and {each}" for each in fits[1:])
            yield f"if {sound}:"
        yield from (f"    {line}" for line in views.writing(written))
        yield from (f"    {sum} += {views.gained(gives)}" for gives, sum in sums.items())
        yield "else:"
        yield from (f"    {line}" for line in self._session(run, self._objects[at], self._sets[at]))
        yield from (f"    {sum} = {self._call('summed', rows[gives])}" for gives, sum in sums.items())

    def _is_counted(self, put: NumberPut, run: Invoke) -> bool:
        """Whether cells in place count their entries in a row, which is what it was but for one number."""
        inputs, outputs = dict(run.inputs), dict(run.outputs)
        made = outputs.get(put.gives)
        asked = {dict(each.inputs)[port] for each in self._runs if each.held for port in self._valid(each)}
        return made in asked and self._sources.becomes.get(inputs[put.row]) == made

    def _valid(self, run: Invoke) -> tuple[str, ...]:
        return tuple(port for kind, port in self._uses.held[run.held][2].lengths if kind == "valid")

    def _sum(self, put: NumberPut, run: Invoke, at: int) -> str:
        """The name of a row's sum, which goes on from one iteration to the next."""
        made = dict(run.outputs)[put.gives]
        name = self._sums[made] = self._names.fresh(f"{made}_sum")
        row = self._call("entries", f"{self._sets[at][0]}.given[{_place(put.row, run.inputs)}]")
        self._lists.append(f"{name} = {self._call('summed', row)}")
        return name

    def _given(self, port: str, value: str, run: Invoke, at: int) -> str:
        """The expression that reads an input's number; one that is the same every time is read once."""
        if value == self._loop.iteration:
            return self._step
        if value in self._sources.made or value in self._sources.becomes:
            return f"{self._view(port, run.inputs, 'given', at)}[0]"
        name = self._names.fresh(f"{value}_number")
        self._lists.append(
            f"{name} = {self._call('number', f'{self._sets[at][0]}.given[{_place(port, run.inputs)}]')}[0]"
        )
        return name

    def _listed(self, port: str, value: str, run: Invoke, at: int) -> str:
        """The name of what an input lists, which is the same every time."""
        name = self._names.fresh(f"{value}_listed")
        given = self._call("entries", f"{self._sets[at][0]}.given[{_place(port, run.inputs)}]")
        self._lists.append(f"{name} = tuple({given}.tolist())")
        return name

    def _length(self, port: str, run: Invoke, at: int) -> str:
        """The name of how many entries a row has: as many in either set, every time."""
        name = self._names.fresh(f"{port}_length")
        row = self._call("number", f"{self._sets[at][0]}.given[{_place(port, run.inputs)}]")
        self._lists.append(f"{name} = len({row})")
        return name

    def _view(self, port: str, pairs: Pairs, side: str, at: int) -> str:
        """The name, in a turn, of the entries of what a run's set is given, or makes."""
        place = _place(port, pairs)
        views = (self._call("number", f"{each}.{side}[{place}]") for each in self._sets[at])
        return self._twice(f"{side} {at} {port}", dict(pairs)[port] if side == "made" else f"{port}_given", *views)

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

    def _twice(self, key: str, hint: str, one: str, other: str) -> str:
        if key not in self._turn:
            self._turn[key] = (self._names.fresh(f"{hint}_now"), one, other)
        return self._turn[key][0]


def _place(port: str, pairs: Pairs) -> int:
    """Where a port stands among a run's inputs or outputs."""
    return next(at for at, (each, _) in enumerate(pairs) if each == port)
