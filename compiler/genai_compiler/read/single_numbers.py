"""A graph whose tensors are single numbers, as the few steps that Python needs for them (pass use_numbers).

Exact work on whole numbers and truth values only, as ONNX defines it. One row of many numbers may be there besides: it
may become another one that differs in one place, as a mask does. Lists that stay as they are may be looked into
(number_lists). Of such a graph's other inputs each has one element, so that each of its values has: extents never
matter, and only what values decide can go wrong, which is a number that its type can't hold, or a place that a row has
not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from genai_compiler.read.nodes import elements_of, input_at, integer, is_onnx, output_at
from genai_compiler.read.number_lists import MOST as MOST_LISTED
from genai_compiler.read.number_lists import Hits, ListReading, ListStep, NumberList, Operand, list_of, looked_up

DTYPES: Mapping[int, str] = {TensorProto.INT64: "int64", TensorProto.INT32: "int32", TensorProto.BOOL: "bool"}
WHOLE = ("int64", "int32")
SAME = ("Identity", "Squeeze", "Unsqueeze", "Reshape", "Flatten", "ReduceMax", "ReduceMin")
"""Give the one element of their first input, whatever constant axes or extents the second one states."""
ROUNDED = ("ReduceSum", "ReduceProd")
"""The same, but by way of float64 (ONNX Runtime 1.32): an int64 of more than 53 bits becomes another one."""
CALCULATED = ("Add", "Sub", "Mul", "Neg", "Abs", "Min", "Max", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot")
COMPARED = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
LOGICAL = ("And", "Or", "Xor", "Not")
WIDEST = 4096
"""Bits that a number may come to before it is seen whether its type holds it: each product may double them."""


class NotNumbers(Exception):
    """Why a graph is more than that, in words that follow a colon."""


@dataclass(frozen=True)
class NumberStep:
    """One operator on single numbers; dtype: of what it gives. among: the list that it looks into, or its name."""

    operator: str
    takes: tuple[Operand, ...]
    gives: str
    dtype: str
    among: tuple[int, ...] | str = ()


@dataclass(frozen=True)
class NumberPut:
    """`gives` is `row` with `number` at `place`."""

    row: str
    place: Operand
    number: Operand
    gives: str


@dataclass(frozen=True)
class NumberProgram:
    """Steps in order, then what they were for. outputs: (value, the number that it is); puts: rows."""

    steps: tuple[NumberStep, ...]
    outputs: tuple[tuple[str, Operand], ...]
    puts: tuple[NumberPut, ...]

    def reads(self) -> frozenset[str]:
        """Names that no step gives."""
        found = {each for step in self.steps for each in step.takes} | {each for _, each in self.outputs}
        found |= {each for put in self.puts for each in (put.place, put.number)}
        return frozenset(each for each in found if isinstance(each, str)) - {step.gives for step in self.steps}

    def lists(self) -> frozenset[str]:
        """Names of the lists that steps look into."""
        return frozenset(step.among for step in self.steps if isinstance(step.among, str))


@dataclass(frozen=True)
class GraphOfNumbers:
    """One graph and the names around it: port -> name. prefix: what names of its own begin with."""

    model: ModelProto
    prefix: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True)
class _Number:
    """bits: of the widest number that it can come to, which Python computes whole."""

    operand: Operand
    dtype: str
    bits: int = 64


@dataclass(frozen=True)
class _Row:
    name: str
    dtype: str


class _Extents:
    """The shape of a single number: ones, or nothing."""


_Known = _Number | _Row | _Extents | NumberList | Hits


def number_program(
    graphs: Sequence[GraphOfNumbers],
    numbers: Mapping[str, str],
    rows: Mapping[str, str],
    wanted: Sequence[str],
    lists: Mapping[str, str] | None = None,
) -> NumberProgram:
    """What the graphs, one after the other, make of these. wanted: results that count.

    numbers, rows, lists: name -> dtype; a list has one axis and stays as it is. Raises NotNumbers.
    """
    known: dict[str, _Known] = {name: _Number(name, dtype) for name, dtype in numbers.items()}
    known |= {name: _Row(name, dtype) for name, dtype in rows.items()}
    known |= {name: NumberList(name, dtype, 1, 0) for name, dtype in (lists or {}).items()}
    reading = _Reading(known)
    for each in graphs:
        reading.graph(each)
    results = {name: known.get(name) for name in wanted}
    outputs = tuple((name, each.operand) for name, each in results.items() if isinstance(each, _Number))
    written = {put.gives for put in reading.puts}
    odd = next((name for name, each in results.items() if not isinstance(each, _Number) and name not in written), "")
    if odd:
        raise NotNumbers(f"%{odd} is no single number")
    return NumberProgram(tuple(_needed(reading.steps, outputs, reading.puts)), outputs, tuple(reading.puts))


def _needed(
    steps: list[NumberStep], outputs: tuple[tuple[str, Operand], ...], puts: list[NumberPut]
) -> list[NumberStep]:
    """The steps that something depends on. A place counts always: a row, or a table, may not have it."""
    asked = {operand for _, operand in outputs} | {each for put in puts for each in (put.place, put.number)}
    kept = list[NumberStep]()
    for step in reversed(steps):
        if step.gives in asked or step.operator == "Lookup":
            kept.append(step)
            asked.update(step.takes)
    return kept[::-1]


@dataclass
class _Reading:
    """What is known so far, by name around the graphs."""

    around: dict[str, _Known]
    steps: list[NumberStep] = field(default_factory=list[NumberStep])
    puts: list[NumberPut] = field(default_factory=list[NumberPut])

    def graph(self, given: GraphOfNumbers) -> None:
        if given.model.functions or given.model.graph.sparse_initializer:
            raise NotNumbers("it has functions or sparse weights of its own")
        graph = given.model.graph
        inner: dict[str, _Known] = {}
        fixed = _constants(graph, inner) - given.inputs.keys()
        lists = ListReading(given.model, fixed)
        for port, name in given.inputs.items():
            inner.pop(port, None)
            if name in self.around:
                inner[port] = self.around[name]
        for node in graph.node:
            made = _one_result(node)
            if node.op_type == "Constant" and is_onnx(node):
                tensor = next((each.t for each in node.attribute if each.name == "value"), None)
                _constant(made, tensor, inner, fixed)
            elif node.op_type == "ScatterElements" and is_onnx(node):
                name = next((name for port, name in given.outputs.items() if port == made), "")
                self._put(node, inner, name)
            else:
                taken = [inner.get(each) for each in node.input]
                found = self._in_lists(node, taken, lists, given.prefix + made) if is_onnx(node) else None
                inner[made] = found or self._made(node, taken, fixed, given.prefix + made)
        for port, name in given.outputs.items():
            if port in inner:
                self.around[name] = inner[port]

    def _put(self, node: NodeProto, inner: Mapping[str, _Known], name: str) -> None:
        row, place, number = (inner.get(input_at(node, at)) for at in range(3))
        plain = integer(node, "axis", 0) in (1, -1) and not any(each.name == "reduction" for each in node.attribute)
        if not (isinstance(row, _Row) and isinstance(place, _Number) and isinstance(number, _Number) and plain):
            raise NotNumbers("ScatterElements writes more than one number into a row")
        if not name or number.dtype != row.dtype:
            raise NotNumbers("what ScatterElements gives goes on inside the graph")
        self.puts.append(NumberPut(row.name, place.operand, number.operand, name))

    def _in_lists(
        self, node: NodeProto, taken: list[_Known | None], lists: ListReading, gives: str
    ) -> NumberList | Hits | _Number | None:
        """What a node makes of a list, or of what was found there; None where it deals with none."""
        op, first, second = node.op_type, *(*taken, None, None)[:2]
        if op == "Equal" and isinstance(first, NumberList):
            first, second = second, first
        step: ListStep | None = None
        if op == "Equal" and isinstance(first, _Number) and isinstance(second, NumberList):
            short = isinstance(second.values, str) or len(second.values) <= MOST_LISTED
            return Hits(first.operand, second) if short and first.dtype == second.dtype else None
        if op == "Gather" and isinstance(first, NumberList) and isinstance(second, _Number):
            step = looked_up(node, first, second.operand)
        elif op == "Cast" and isinstance(first, Hits):
            dtype = DTYPES.get(integer(node, "to", 0), "")
            return replace(first, dtype=dtype) if dtype else None
        elif isinstance(first, NumberList | Hits):
            step, kept = lists.step(node, taken), lists.changed(node, first)
            if kept is not None:
                return kept
        if step is None:
            return None
        self.steps.append(NumberStep(step.operator, (step.number,), gives, step.dtype, step.among))
        return _Number(gives, step.dtype)

    def _made(self, node: NodeProto, taken: list[_Known | None], fixed: set[str], gives: str) -> _Known:
        op, first = node.op_type, taken[0] if taken else None
        if not is_onnx(node) or any(each.g.node or each.graphs for each in node.attribute):
            raise NotNumbers(f"its operator {op}")
        if op in (*SAME, *ROUNDED) and isinstance(first, _Number):
            if all(name in fixed or not name for name in node.input[1:]) or (op == "Reshape" and _ones(taken[1:])):
                return self._rounded(op, first, gives) if op in ROUNDED else first
        elif op == "Shape" and isinstance(first, _Number):
            return _Extents()
        elif op == "Expand" and isinstance(first, _Number) and _ones(taken[1:]):
            return first
        elif op == "ConstantOfShape" and isinstance(first, _Extents):
            return _filling(node)
        else:
            numbers = [each for each in taken if isinstance(each, _Number)]
            if numbers and len(numbers) == len(taken):
                return self._step(node, numbers, gives)
        raise NotNumbers(f"its operator {op}")

    def _rounded(self, op: str, number: _Number, gives: str) -> _Number:
        if number.dtype != "int64":
            return number
        self.steps.append(NumberStep(op, (number.operand,), gives, number.dtype))
        return _Number(gives, number.dtype, number.bits)

    def _step(self, node: NodeProto, numbers: list[_Number], gives: str) -> _Number:
        op, dtypes = str(node.op_type), {each.dtype for each in numbers}
        if op == "Cast":
            dtype = DTYPES.get(integer(node, "to", 0), "")
        elif op == "Where":
            dtype = numbers[1].dtype if numbers[0].dtype == "bool" and numbers[1].dtype == numbers[2].dtype else ""
        elif op in LOGICAL:
            dtype = "bool" if dtypes == {"bool"} else ""
        elif op in COMPARED and len(dtypes) == 1:
            dtype = "bool" if op == "Equal" or "bool" not in dtypes else ""
        else:
            dtype = min(dtypes) if op in CALCULATED and len(dtypes) == 1 and "bool" not in dtypes else ""
        if not dtype:
            raise NotNumbers(f"its operator {op}")
        bits = _bits(op, numbers)
        if bits > WIDEST:
            raise NotNumbers(f"its products may come to more than {WIDEST} bits")
        self.steps.append(NumberStep(op, tuple(each.operand for each in numbers), gives, dtype))
        return _Number(gives, dtype, bits)


def _bits(op: str, numbers: list[_Number]) -> int:
    """Bits of a result before it is held against its type."""
    widths = [each.bits for each in numbers]
    return sum(widths) if op == "Mul" else max(widths) + 1


def _ones(taken: Sequence[_Known | None]) -> bool:
    return len(taken) == 1 and isinstance(taken[0], _Extents)


def _one_result(node: NodeProto) -> str:
    if len(node.output) != 1 or not output_at(node, 0):
        raise NotNumbers(f"its operator {node.op_type}")
    return output_at(node, 0)


def _constants(graph: GraphProto, inner: dict[str, _Known]) -> set[str]:
    """The names of all constants; those that are single numbers are known by them."""
    fixed = set[str]()
    for each in graph.initializer:
        _constant(each.name, each, inner, fixed)
    return fixed


def _constant(name: str, tensor: TensorProto | None, inner: dict[str, _Known], fixed: set[str]) -> None:
    fixed.add(name)
    known = (_single(tensor) or _list(tensor)) if tensor is not None else None
    if known is not None:
        inner[name] = known


def _list(tensor: TensorProto) -> NumberList | None:
    dtype = DTYPES.get(tensor.data_type, "")
    return list_of(tensor, dtype) if dtype and tensor.data_location != TensorProto.EXTERNAL else None


def _single(tensor: TensorProto) -> _Number | None:
    dtype = DTYPES.get(tensor.data_type, "")
    array = elements_of(tensor) if dtype and tensor.data_location != TensorProto.EXTERNAL else None
    return _Number(array.item(), dtype) if array is not None and array.size == 1 else None


def _filling(node: NodeProto) -> _Number:
    tensor = next((each.t for each in node.attribute if each.name == "value"), None)
    number = _single(tensor) if tensor is not None else None
    if number is None:
        raise NotNumbers("its operator ConstantOfShape")
    return number
