"""Writes what a run computes of single numbers (pass use_numbers) as Python's own arithmetic."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from genai_compiler.emit.names import Names, literal
from genai_compiler.read.number_lists import MOST, Operand, exceptions
from genai_compiler.read.single_numbers import ROUNDED, NumberProgram, NumberPut, NumberStep

EXPRESSIONS: Mapping[str, str] = {
    "Add": "{} + {}", "Sub": "{} - {}", "Mul": "{} * {}", "Neg": "-{}", "Abs": "abs({})",
    "BitwiseAnd": "{} & {}", "BitwiseOr": "{} | {}", "BitwiseXor": "{} ^ {}", "BitwiseNot": "~{}",
    "Equal": "{} == {}", "Less": "{} < {}", "LessOrEqual": "{} <= {}", "Greater": "{} > {}",
    "GreaterOrEqual": "{} >= {}",
    **dict.fromkeys(ROUNDED, "{}"),
    "And": "{} and {}", "Or": "{} or {}", "Xor": "{} != {}", "Not": "not {}", "Where": "{1} if {0} else {2}",
    "In": "{} in {}", "NotIn": "{} not in {}", "Count": "{1}.count({0})",
}  # fmt: skip
"""Operator -> the same of Python's numbers. A whole number may leave its type where OVERFLOWS says so."""
OVERFLOWS = ("Add", "Sub", "Mul", "Neg", "Abs", "Cast", *ROUNDED)
BITS: Mapping[str, int] = {"int64": 64, "int32": 32, **dict.fromkeys(ROUNDED, 54)}
"""Numbers of fewer bits, the sign not counted, are certain to be of the type, or to be what the operator gives."""


@dataclass
class NumberViews:
    """The lines of one run. given: port -> the expression that reads its number. rows: port, or result -> its entries.

    counter: the expression among these that is the iteration's number, which one may always be added to. lists: port ->
    the name of what is listed there. lengths: port -> how many entries its row has, which no iteration changes.
    """

    program: NumberProgram
    given: Mapping[str, str]
    rows: Mapping[str, str]
    counter: str
    names: Names
    lists: Mapping[str, str] = field(default_factory=dict[str, str])
    lengths: Mapping[str, str] = field(default_factory=dict[str, str])
    texts: dict[str, str] = field(default_factory=dict[str, str])
    sound: list[str] = field(default_factory=list[str])

    def lasting(self) -> Iterator[str]:
        """For once, before all else: whether no list is empty or long, which no iteration changes."""
        for port in sorted(self.program.lists()):
            self.sound.append(self.names.fresh(f"{port}_sound"))
            yield f"{self.sound[-1]} = 0 < len({self.lists[port]}) <= {MOST}"

    def computing(self) -> Iterator[str]:
        """From numbers that are read to those that will be written; nothing is written yet."""
        uses = Counter(each for step in self.program.steps for each in step.takes)
        uses.update(each for step in self._lookups() for each in (*step.takes, *step.takes))
        uses.update(each for put in self.program.puts for each in (put.place, put.place, put.number))
        for port in sorted(self.program.reads()):
            self.texts[port] = self.given[port]
            if uses[port] > 1 and not self.given[port].isidentifier():
                self.texts[port] = self.names.fresh(port)
                yield f"{self.texts[port]} = {self.given[port]}"
        for step in self.program.steps:
            name = self.names.fresh(step.gives.rpartition("/")[2])
            yield f"{name} = {self._expression(step)}"
            self.texts[step.gives] = name

    def fitting(self) -> tuple[str, ...]:
        """What must hold: each place is in its row or table, each number in its type, and no list is empty or long."""
        places = dict.fromkeys(f"0 <= {self._text(put.place)} < {self.lengths[put.row]}" for put in self.program.puts)
        sums = [step for step in self.program.steps if step.operator in OVERFLOWS and not self._counts_on(step)]
        bits = ((each, BITS.get(each.operator, BITS.get(each.dtype))) for each in sums)
        types = (f"{self._text(each.gives)}.bit_length() < {most}" for each, most in bits if most is not None)
        tables = dict.fromkeys(f"0 <= {self._text(each.takes[0])} < {len(each.among)}" for each in self._lookups())
        return (*self.sound, *places, *tables, *types)

    def writing(self, results: Mapping[str, str]) -> Iterator[str]:
        """The results. results: port -> the view that takes its number."""
        for put in self.program.puts:
            yield from self._put(put)
        for port, operand in self.program.outputs:
            yield f"{results[port]}[0] = {self._text(operand)}"

    def gained(self, row: str) -> str:
        """By how much more a row adds up to than the one it was."""
        put = next(each for each in self.program.puts if each.gives == row)
        return f"{self._text(put.number)} - {self.rows[put.row]}[{self._text(put.place)}]"

    def _put(self, put: NumberPut) -> Iterator[str]:
        if put.gives not in self.rows:  # nobody outside has it; a place that is not there is wrong all the same
            return
        yield f"{self.rows[put.gives]}[:] = {self.rows[put.row]}"
        yield f"{self.rows[put.gives]}[{self._text(put.place)}] = {self._text(put.number)}"

    def _expression(self, step: NumberStep) -> str:
        taken = [self._text(each) for each in step.takes]
        if step.operator == "Cast":
            return f"{taken[0]} != 0" if step.dtype == "bool" else f"int({taken[0]})"
        if step.operator == "Lookup":
            return _looked_up(taken[0], step.among)
        if step.among:
            found = EXPRESSIONS[step.operator].format(taken[0], self._among(step.among))
            return found if step.dtype == "bool" or step.operator == "Count" else f"int({found})"
        if step.operator in ("Min", "Max"):
            return f"{step.operator.lower()}({', '.join(taken)})" if len(taken) > 1 else taken[0]
        return EXPRESSIONS[step.operator].format(*taken)

    def _lookups(self) -> list[NumberStep]:
        return [step for step in self.program.steps if step.operator == "Lookup"]

    def _among(self, among: tuple[int, ...] | str) -> str:
        return self.lists[among] if isinstance(among, str) else literal(among)

    def _counts_on(self, step: NumberStep) -> bool:
        """Whether it is the iteration's number and one more, which its bound limits."""
        taken = {self._text(each) for each in step.takes}
        return step.operator == "Add" and taken in ({self.counter, "1"}, {self.counter, "0"})

    def _text(self, operand: Operand) -> str:
        return self.texts[operand] if isinstance(operand, str) else literal(operand)


def _looked_up(place: str, table: tuple[int, ...] | str) -> str:
    """The entry of a table; any number where it has no such place: that is asked before anything is written."""
    assert not isinstance(table, str)
    found = exceptions(table)
    if found is None:
        return f"{literal(table)}[{place}] if 0 <= {place} < {len(table)} else {literal(table[0])}"
    usual, other, places = found
    if (usual, other) == (False, True) and isinstance(other, bool):
        return f"{place} in {literal(places)}"
    return f"{literal(other)} if {place} in {literal(places)} else {literal(usual)}"
