"""Which loops have a shorter way for one row, and where the values of such a loop lie (genai_runtime.settled).

It is written where every value of the loop lies in tensors that take turns: cells are invariant, each run is steady, a
token is published at a time, and nothing behind the loop asks what its cells have become. What the loop compares of
extents needs no second look then, and of the values only the predicate, the tokens and the guards are read.
"""

from collections import Counter
from dataclasses import dataclass, field

from genai_compiler.plan.ir import CapacityCheck, CheckHeld, Emit, Fused, Hold, Invoke, Loop, Op, Plan, Release
from genai_compiler.plan.uses import all_reads, defines, walk

TOKENS = ("int64", "int32")


class Surroundings:
    """What a plan has around its loops; found once, however many loops there are.

    places: a loop of the outermost region -> its place there; emits: an output -> how many ops emit to it; holds: by
    group; last: a value -> the last place of the outermost region that reads it.
    """

    def __init__(self, plan: Plan) -> None:
        every = list(walk(plan.body))
        self.plan = plan
        self.places = {id(op): at for at, op in enumerate(plan.body) if isinstance(op, Loop)}
        self.emits = Counter(op.output for op in every if isinstance(op, Emit))
        self.holds = dict[str, list[Hold]]()
        for op in every:
            if isinstance(op, Hold):
                self.holds.setdefault(op.group, []).append(op)
        self.last = {value: at for at, op in enumerate(plan.body) for value in all_reads(op)}


def has_shorter_way(loop: Loop, around: Surroundings) -> bool:
    """Whether a loop is such a one."""
    plan = around.plan
    if loop.advance or id(loop) not in around.places or not any(map(run_of, loop.body)):
        return False
    source = Sources(loop)
    made = {value for op in loop.body for value in defines(op)}
    runs = all(_turns(op, made, source, around) for op in loop.body) and source.take_turns()
    cells = all(plan.cell(each.declared).recurrence == "invariant" for each in loop.carried if each.declared)
    declared = all(each.declared for each in loop.carried)
    emits = [op for op in loop.body if isinstance(op, Emit)]
    return (
        runs and cells and declared and _is_flag(loop.continue_when, plan) and source.turns(loop.continue_when)
        and all(_is_token(op, plan) and all(map(source.turns, _numbers(op))) for op in emits)
        and all(around.emits[op.output] == 1 for op in emits)
        and _is_counted(loop, plan) and not _read_behind(loop, around)
    )  # fmt: skip


def run_of(op: Op) -> Invoke | None:
    """The run that an op is when no request replaces a component."""
    run = op.run if isinstance(op, Fused) else op
    return run if isinstance(run, Invoke) else None


def _turns(op: Op, made: set[str], source: "Sources", around: Surroundings) -> bool:
    run = run_of(op)
    if run is not None:
        checked = any(isinstance(each, CapacityCheck) for each in run.before)
        return run.steady and not checked and all(map(source.followed, _counted(run, around)))
    return isinstance(op, Emit | Release) or (
        isinstance(op, CheckHeld) and op.maximum not in made and source.stays(op.maximum)
    )


def _counted(run: Invoke, around: Surroundings) -> list[str]:
    """What the entries of a run's cells in place are counted in, every time."""
    given = dict(run.inputs)
    return [given[port] for hold in around.holds.get(run.held, []) for kind, port in hold.lengths if kind == "valid"]


def _is_flag(value: str, plan: Plan) -> bool:
    type = plan.types[value]
    return type.dtype == "bool" and type.ranked and type.rank <= 1


def _is_token(op: Emit, plan: Plan) -> bool:
    """Whether an emit appends one whole number a row, or none."""
    type, length = plan.types[op.value], plan.types.get(op.valid_length)
    whole = type.dtype in TOKENS and type.ranked and type.rank == 2 and type.dims[1] == 1 and type.row_factor == 1
    counted = length is None or (length.dtype in TOKENS and length.ranked and length.rank <= 1)
    guarded = not op.when or _is_flag(op.when, plan)
    return op.rowwise and op.mode == "append" and op.axis == 1 and whole and counted and guarded


def _numbers(op: Emit) -> tuple[str, ...]:
    """Values of an emit that are read as numbers."""
    return tuple(each for each in (op.value, op.when, op.valid_length) if each)


def _is_counted(loop: Loop, plan: Plan) -> bool:
    """Whether the iteration's number, if it has a name, is one entry that only runs read."""
    if not loop.iteration:
        return True
    type = plan.types[loop.iteration]
    others = [op for op in walk(loop.body) if not isinstance(op, Invoke | Fused)]
    kept = {each.next for each in loop.carried} | {value for op in others for value in all_reads(op)}
    return loop.iteration not in kept and (type.rank == 0 or (type.rank == 1 and type.dims[0] == 1))


def _read_behind(loop: Loop, around: Surroundings) -> bool:
    """Whether anything reads a cell when the loop has ended."""
    at = around.places[id(loop)]
    return any(around.last.get(carry.cell, -1) > at for carry in loop.carried)


@dataclass
class Sources:
    """Where a value of a loop lies: which result of which run it is, and of which iteration.

    runs: those of a settled iteration; made: value -> (place among them, place of the result); becomes: a cell -> its
    next value.
    """

    loop: Loop
    runs: list[Invoke] = field(default_factory=list[Invoke])
    made: dict[str, tuple[int, int]] = field(default_factory=dict)
    becomes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.runs = [run for run in map(run_of, self.loop.body) if run is not None]
        self.made = {value: (at, place) for at, run in enumerate(self.runs) for place, value in enumerate(defines(run))}
        self.becomes = {carry.cell: carry.next for carry in self.loop.carried}

    def take_turns(self) -> bool:
        """Whether what a cell is made of is, behind some iterations, what it was two before.

        Cells that become each other in threes would need three sets.
        """
        return all(self._after(2, cell) == self._after(4, cell) for cell in self.becomes)

    def stays(self, value: str) -> bool:
        """Whether a value is the same tensor in every iteration behind some."""
        settled = self._after(2, value)
        return settled == self._after(3, value) and settled != self.loop.iteration and settled not in self.made

    def followed(self, value: str) -> bool:
        """Whether one view a set, or one for all, shows what a value has become."""
        return self.turns(value) or self.stays(value)

    def _after(self, iterations: int, value: str) -> str:
        for _ in range(iterations):
            value = self.becomes.get(value, value)
        return value

    def turns(self, value: str) -> bool:
        """Whether it is a result, or a cell that becomes one."""
        return self._result(value)[0] in self.made

    def place(self, value: str) -> tuple[int, int, int]:
        """(run, result, how many iterations before this one it was made)."""
        result, age = self._result(value)
        return (*self.made[result], age)

    def _result(self, value: str) -> tuple[str, int]:
        age = int(value in self.becomes)
        return self.becomes.get(value, value), age
