"""Execution hints: advice that never changes results (section 9 of the metadata standard)."""

from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BeforeValidator, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from genai_compiler.read.fields import Closed, Count, Items, Open, Positive

T = TypeVar("T")
SELECTIONS = ("names", "pattern", "op_types", "layer_range")


def _present(value: object) -> object:
    """Unlike metadata, hints know no null."""
    if value is None:
        raise PydanticCustomError("null_value", "null")
    return value


Omissible = Annotated[T | None, BeforeValidator(_present)]


def _at_least_one(schema: dict[str, Any]) -> None:
    schema["anyOf"] = [{"required": [name]} for name in SELECTIONS]


class LayerRange(Open):
    """Layers `start` to `end`."""

    start: Count
    end: Count


class NodeSelector(Open):
    """Which nodes a hint speaks of; at least one property."""

    model_config = ConfigDict(json_schema_extra=_at_least_one)

    names: Omissible[Items[str]] = None
    pattern: Omissible[str] = None
    op_types: Omissible[Items[str]] = None
    layer_range: Omissible[LayerRange] = None

    @model_validator(mode="after")
    def _selects(self) -> Self:
        if all(getattr(self, name) is None for name in SELECTIONS):
            raise PydanticCustomError("empty_selector", "empty")
        return self


class DeviceTarget(Open):
    """A kind of device, and its number."""

    type: Literal["gpu", "cpu", "npu", "any"]
    index: Omissible[Count] = None


class PlacementHint(Closed):
    """Where nodes should (or must) run."""

    selector: NodeSelector
    device: DeviceTarget
    strength: Literal["prefer", "force"] = "prefer"
    reason: Omissible[str] = None


class MemoryHint(Closed):
    """What to do with memory; `bytes` for an arena."""

    action: Literal["pin", "low_priority", "allow_alias", "arena_size", "prefetch"]
    selector: Omissible[NodeSelector] = None
    device: Omissible[DeviceTarget] = None
    bytes: Omissible[Count] = None
    reason: Omissible[str] = None


class SchedulingHint(Closed):
    """How to schedule nodes; `chunk_size` in tokens."""

    action: Literal["overlap", "cuda_graph_region", "no_cuda_graph", "chunk_size"]
    selector: Omissible[NodeSelector] = None
    chunk_size: Omissible[Positive] = None
    reason: Omissible[str] = None


class ExecutionHints(Closed):
    """The file `execution_hints.json`."""

    placement: Items[PlacementHint] = ()
    memory: Items[MemoryHint] = ()
    scheduling: Items[SchedulingHint] = ()
