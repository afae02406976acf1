"""One invoke done by numpy instead of a session: what the compiler found to be less work there, and bit-equal.

Only searches for the largest or smallest element and exact work on integers and truth values are done here, each as
ONNX defines it. What could differ goes to the component's own session, which is opened then: a NaN (where ONNX leaves
the answer to who computes it), another type, rank or fixed extent than the graph asks for, shapes that do not fit each
other. So errors too are the session's.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from genai_runtime import binding
from genai_runtime.host_program import HostInput, HostProgram, HostStep
from genai_runtime.steady import Steady
from genai_runtime.values import NUMPY, Array, Value

if TYPE_CHECKING:
    from genai_runtime.sessions import Runner

Step = Callable[..., Array]
Timed = Callable[[Callable[..., Any]], Callable[..., Any]]


class HostRunner:
    """One invoke of the workflow, done on the host. Called like the runner that it stands for.

    runner: a lazy runner of the component's session. timed: puts a span around the work, for profiles.
    """

    def __init__(
        self,
        runner: "Runner",
        program: HostProgram,
        ports: tuple[tuple[str, ...], tuple[str, ...]],
        origin: str,
        timed: Timed | None = None,
    ) -> None:
        names = [*(each.name for each in program.constants), *ports[0], *(each.gives for each in program.steps)]
        at = {name: index for index, name in enumerate(names)}
        self.otherwise, self.inputs, self._origin = runner, ports[0], origin
        self._constants = [np.array(each.values, NUMPY[each.dtype]).reshape(each.shape) for each in program.constants]
        declared = {each.port: each for each in program.inputs}
        self._asked = [_asked(declared[port]) for port in ports[0]]
        self._steps = [(_function(each), [at[name] for name in each.takes]) for each in program.steps]
        self._gives = [at[port] for port in ports[1]]
        self._timed: Timed = timed or (lambda call: call)
        self._run = self._timed(self._computed)

    def __call__(self, *values: Value, adapted: Mapping[str, Value] | None = None) -> Sequence[Value]:
        """Values in the order of the input ports in, values in the order of the output ports out."""
        try:
            made: Sequence[Value] = self._run(values)
        except NotHere:
            made = self.otherwise(*values, adapted=adapted)
        return made

    def steady(self, most: int) -> Steady:
        """As Runner.steady: what numpy computes is written into one of two sets of tensors."""
        return Steady(partial(HostBank, self), self._timed(_fill), self, most, self._origin)

    def chosen(self, overrides: Mapping[str, str]) -> "HostRunner | Runner":
        """This one, or the runner that a request puts in its place. Raises RequestError `bad-override`."""
        found = self.otherwise.chosen(overrides)
        return self if found is self.otherwise else found

    def _computed(self, values: Sequence[Value]) -> list[Value]:
        return list(map(_value, self.computed(self.viewed(values))))

    def viewed(self, values: Sequence[Value]) -> list[Array]:
        """What the steps begin with: constants, and views of the inputs. Raises NotHere."""
        slots: list[Array] = list(self._constants)
        for value, (dtype, rank, fixed) in zip(values, self._asked, strict=True):
            try:
                array = value.numpy()
            except RuntimeError as failure:  # a type that numpy lacks
                raise NotHere from failure
            if array.dtype != dtype or array.ndim != rank:
                raise NotHere
            for axis, size in fixed:
                if array.shape[axis] != size:
                    raise NotHere
            slots.append(array)
        return slots

    def computed(self, begun: Sequence[Array]) -> list[Array]:
        """The results, which may be views of inputs. Raises NotHere."""
        slots = list(begun)
        try:
            for function, takes in self._steps:
                slots.append(function(*[slots[each] for each in takes]))
        except ValueError as failure:  # shapes that do not fit
            raise NotHere from failure
        return [slots[each] for each in self._gives]


class HostBank:
    """As steady.Bank: views of the inputs that are made once, and results that later runs write over."""

    def __init__(self, runner: HostRunner) -> None:
        self.bound = self
        self.given: tuple[Value, ...] = (None,) * len(runner.inputs)  # type: ignore[assignment]
        self.made: Sequence[Value] = ()
        self._runner = runner
        self._begun: list[Array] | None = None
        self._found: Sequence[Array] = ()
        self._into: list[Array] = []

    def always(self, port: str, value: Value) -> None:
        """From now on this input is this tensor."""
        pairs = zip(self._runner.inputs, self.given, strict=True)
        self.give(tuple(value if each == port else known for each, known in pairs))

    def give(self, values: tuple[Value, ...]) -> None:
        """Take these inputs; where one is none of this graph's, the session is asked every time."""
        self.given = values
        try:
            self._begun = self._runner.viewed(values)
        except NotHere:
            self._begun = None

    def fill(self) -> None:
        """Compute the results, over what is kept. Raises RuntimeError where they have other extents."""
        found = self._computed()
        if not self.made:
            self._found = found
            return
        for into, array in zip(self._into, found, strict=True):
            if into.shape != array.shape:
                raise RuntimeError(f"a result has the shape {array.shape}, it had {into.shape} before")
            into[...] = array

    def keep(self) -> Sequence[Value]:
        """After the first run: its results, as tensors of their own."""
        self.made = [_value(each) for each in self._found]
        self._into, self._found = [each.numpy() for each in self.made], ()
        return self.made

    def _computed(self) -> Sequence[Array]:
        if self._begun is not None:
            try:
                return self._runner.computed(self._begun)
            except NotHere:
                pass
        return [each.numpy().copy() for each in self._runner.otherwise(*self.given)]


def _fill(bank: HostBank, options: None) -> None:
    """Called as a session's run call is."""
    bank.fill()


class NotHere(Exception):
    """This is a case for the session."""


def _asked(declared: HostInput) -> tuple[np.dtype[Any], int, list[tuple[int, int]]]:
    fixed = [(axis, size) for axis, size in enumerate(declared.shape) if size >= 0]
    return np.dtype(NUMPY[declared.dtype]), len(declared.shape), fixed


def _value(array: Array) -> Value:
    """A tensor that owns a copy."""
    array = np.asarray(array)  # numpy makes a scalar of what has rank 0
    made = binding.allocate_like(array)
    binding.write(made, array if array.flags.c_contiguous else np.ascontiguousarray(array))
    return made


def _function(step: HostStep) -> Step:
    match step.operator:
        case "ArgMax" | "ArgMin":
            search = np.ndarray.argmax if step.operator == "ArgMax" else np.ndarray.argmin
            return partial(_found, search, keep=bool(step.numbers[0]))
        case "Cast":
            return partial(_cast, dtype=np.dtype(NUMPY[step.dtype]))
        case "Squeeze":
            return partial(_squeezed, axes=step.numbers)
        case "Unsqueeze":
            return partial(_unsqueezed, axes=step.numbers)
        case _:
            return _FUNCTIONS[step.operator]


def _found(search: Callable[..., Any], array: Array, keep: bool) -> Array:
    """The place along the last axis of the largest (smallest) element, the first of equal ones."""
    if not array.size:
        raise NotHere
    places: Array = search(array, -1, keepdims=keep)
    # numpy points at a NaN where there is one
    if array.size == array.shape[-1]:
        picked = array.item(places.item())
        if picked != picked:
            raise NotHere
    elif np.isnan(np.take_along_axis(array, places if keep else places[..., None], -1)).any():
        raise NotHere
    return places


def _cast(array: Array, dtype: np.dtype[Any]) -> Array:
    return np.asarray(array).astype(dtype)


def _squeezed(array: Array, axes: tuple[int, ...]) -> Array:
    return np.squeeze(np.asarray(array), axes)


def _unsqueezed(array: Array, axes: tuple[int, ...]) -> Array:
    return np.expand_dims(np.asarray(array), axes)


def _same(array: Array) -> Array:
    return array


_FUNCTIONS: Mapping[str, Step] = {
    "Add": np.add,
    "And": np.logical_and,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Identity": _same,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Sub": np.subtract,
    "Where": np.where,
}
"""Exact on integers and truth values. Add and Sub wrap, as they do in ONNX Runtime."""
