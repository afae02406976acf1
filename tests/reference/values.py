"""Values, contracts and symbols of the reference interpreter (metadata standard 2.1, 3.2), with nothing clever."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

Document: TypeAlias = dict[str, Any]
Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class ReferenceError(Exception):
    """A request or a document that the semantics refuse. `kind` is a label of the conformance suite."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind, self.message = kind, message
        super().__init__(f"{kind}: {message}")


@dataclass(frozen=True)
class Rows:
    """A row-wise output: one value `[1, ...]` a batch row, None for a row that published nothing."""

    items: tuple[Array | None, ...]


@dataclass(frozen=True)
class Events:
    """An output published as events, in order of emission. latest: what it held at the end, an event or not."""

    items: tuple[Array, ...]
    latest: Array | None = None


@dataclass(frozen=True)
class RowEvents:
    """A row-wise output published as events: the events of each row, in order, and what each row held at the end."""

    items: tuple[tuple[Array, ...], ...]
    latest: tuple[Array | None, ...] = ()


Published: TypeAlias = Array | Rows | Events | RowEvents

NUMPY_DTYPES: dict[str, np.dtype[Any]] = {
    **{
        name: np.dtype(name)
        for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    },
    **{name: np.dtype(name) for name in ("float16", "float32", "float64")},
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
ALIASES = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8_e4m3fn": "float8_e4m3fn",
    "float8_e4m3": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The storage type of a contract's dtype (standard 1.4, aliases included)."""
    return NUMPY_DTYPES[ALIASES.get(name, name)]


def row_axis(contract: Mapping[str, Any]) -> int | None:
    """The request axis of a contract, None when every request shares the value."""
    layout = contract.get("batch_layout", {})
    return layout["axis"] if layout.get("kind") in ("request_aligned", "request_expanded") else None


def row_factor(contract: Mapping[str, Any]) -> int:
    """Consecutive entries a request takes on the request axis."""
    layout = contract.get("batch_layout", {})
    return int(layout["factor"]) if layout.get("kind") == "request_expanded" else 1


@dataclass
class Scope:
    """Extents bound to symbols so far. `free` symbols (those of growing and bounded axes) are never bound."""

    free: frozenset[str] = frozenset()
    bound: dict[str, int] = field(default_factory=dict[str, int])

    def copy(self) -> "Scope":
        """A scope whose later bindings don't reach this one."""
        return Scope(self.free, dict(self.bound))

    def check(self, name: str, value: Array, contract: Mapping[str, Any], *, skip: int | None = None) -> None:
        """Hold `value` against `contract` and bind its symbols; axis `skip` takes the extent it has.

        Raises ReferenceError of kind dtype, rank, shape or symbol.
        """
        if value.dtype != numpy_dtype(contract["dtype"]):
            raise ReferenceError("dtype", f"value {name!r} has dtype {value.dtype}, expected {contract['dtype']}")
        if value.ndim != contract["rank"]:
            raise ReferenceError("rank", f"value {name!r} has rank {value.ndim}, expected {contract['rank']}")
        for axis, dim in enumerate(contract.get("shape") or []):
            if axis != skip:
                factor = row_factor(contract) if axis == row_axis(contract) else 1
                self._check_axis(name, axis, value.shape[axis], dim, factor)

    def _check_axis(self, name: str, axis: int, extent: int, dim: int | str, factor: int) -> None:
        if isinstance(dim, int):
            if extent != dim:
                raise ReferenceError("shape", f"value {name!r} axis {axis} is {extent}, expected {dim}")
            return
        if dim in self.free:
            return
        if extent % factor:
            raise ReferenceError("shape", f"value {name!r} axis {axis} is {extent}, not a multiple of {factor}")
        known = self.bound.setdefault(dim, extent // factor)
        if known != extent // factor:
            raise ReferenceError(
                "symbol",
                f"value {name!r} axis {axis} binds {dim!r} to {extent // factor}, already {known}",
            )


def literal_shape(contract: Mapping[str, Any], elements: int | None, scope: Scope) -> tuple[int, ...]:
    """The shape a literal takes: bound symbols as they are, unbound ones 1 (or what an element list implies)."""
    shape = contract.get("shape")
    if shape is None:
        if contract["rank"]:
            raise ReferenceError("literal", "a literal of rank above 0 needs a shape")
        shape = []
    known: list[int | None] = []
    for axis, dim in enumerate(shape):
        factor = row_factor(contract) if axis == row_axis(contract) else 1
        if isinstance(dim, int):
            known.append(dim)
        else:
            bound = None if dim in scope.free else scope.bound.get(dim)
            known.append(None if bound is None else bound * factor)
    if elements is not None and known.count(None) == 1:
        rest = int(np.prod([extent for extent in known if extent is not None], dtype=np.int64))
        if rest and elements % rest == 0:
            known[known.index(None)] = elements // rest
    return tuple(
        (row_factor(contract) if axis == row_axis(contract) else 1) if extent is None else extent
        for axis, extent in enumerate(known)
    )


def _encoding(element: object) -> str:
    if isinstance(element, bool):
        return "bool"
    return {int: "int", float: "float"}.get(type(element), "other")


def literal(name: str, default: object, contract: Mapping[str, Any], scope: Scope) -> Array:
    """The tensor of a literal default (standard 3.2). Raises ReferenceError of kind literal."""
    elements: list[Any] = default if isinstance(default, list) else [default]
    encodings = {_encoding(element) for element in elements}
    dtype = numpy_dtype(contract["dtype"])
    wanted = {"b": "bool", "i": "int", "u": "int"}.get(dtype.kind, "float")
    if encodings != {wanted}:
        raise ReferenceError("literal", f"literal {name!r} is no {contract['dtype']}")
    if wanted == "int":
        limits = np.iinfo(dtype)
        if any(not limits.min <= element <= limits.max for element in elements):
            raise ReferenceError("literal", f"literal {name!r} is out of range for {contract['dtype']}")
    shape = literal_shape(contract, len(elements) if isinstance(default, list) else None, scope)
    if not isinstance(default, list):
        return np.full(shape, default, dtype)
    if len(elements) != int(np.prod(shape, dtype=np.int64)):
        raise ReferenceError("literal", f"literal {name!r} has {len(elements)} elements for shape {shape}")
    return np.array(elements, dtype).reshape(shape)


def request_scalar(name: str, value: float, contract: Mapping[str, Any], scope: Scope) -> Array:
    """A scalar that a request has without anybody giving it: `[]` or `[1]` by rank, no higher one (standard 3.1).

    It fills a vector of a bound symbol, which the standard calls a harmless extension. Raises kind rank or literal.
    """
    dtype, rank = numpy_dtype(contract["dtype"]), contract["rank"]
    if rank > 1:
        raise ReferenceError("rank", f"a scalar can't be {name!r} of rank {rank}")
    if dtype.kind == "b" or (dtype.kind in "iu" and value != int(value)):
        raise ReferenceError("literal", f"{value} for {name!r} is no {contract['dtype']}")
    symbolic = rank == 1 and contract.get("shape") and isinstance(contract["shape"][0], str)
    return np.full(literal_shape(contract, None, scope) if symbolic else (1,) * rank, value, dtype)


def whole_number(name: str, value: Array) -> int:
    """A scalar control as a non-negative integer; exactly one element. Raises kind control."""
    if value.dtype.kind not in "iu" or value.size != 1:
        raise ReferenceError("control", f"integer control {name!r} must have exactly one element")
    number = int(value.reshape(()))
    if number < 0:
        raise ReferenceError("control", f"integer control {name!r} must be non-negative")
    return number


def whole_numbers(name: str, value: Array) -> list[int]:
    """A control of one entry, or one entry a row, as non-negative integers. Raises kind control."""
    if value.dtype.kind not in "iu" or value.ndim > 1:
        raise ReferenceError("control", f"integer control {name!r} must be a scalar or a vector")
    numbers = [int(number) for number in value.reshape(-1)]
    if any(number < 0 for number in numbers):
        raise ReferenceError("control", f"integer control {name!r} must be non-negative")
    return numbers
