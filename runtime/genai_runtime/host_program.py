"""A component's graph as the few array operations that the runtime does itself, as generated code states it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class HostInput:
    """What a port takes: dtype, and one extent an axis, -1 where any will do. Anything else goes to the session."""

    port: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class HostConstant:
    """A constant of the graph: int64, int32 or bool, its elements in row order."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    values: tuple[int, ...]


@dataclass(frozen=True)
class HostStep:
    """One operator. numbers: keepdims of a search, axes of a change of shape. dtype: what a Cast makes."""

    operator: str
    takes: tuple[str, ...]
    gives: str
    numbers: tuple[int, ...] = ()
    dtype: str = ""


@dataclass(frozen=True)
class HostProgram:
    """The whole graph: steps in order, each taking inputs, constants or what an earlier one gives."""

    inputs: tuple[HostInput, ...]
    steps: tuple[HostStep, ...]
    constants: tuple[HostConstant, ...] = ()
