"""The building blocks of the document's models: closed, open and tagged structs, and the checked scalar types.

Strict everywhere: a bool is no integer, "1" is no 1, 4.0 is no 4; an integer where a number is asked is fine (section
1.1 of the metadata standard). Lists become tuples, maps stay dicts in document order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, Strict, WithJsonSchema
from pydantic_core import PydanticCustomError

T = TypeVar("T")

U16, U32, U64 = 2**16 - 1, 2**32 - 1, 2**64 - 1
I32, I64 = 2**31, 2**63


@dataclass(frozen=True)
class Words:
    """Marks a text of a fixed vocabulary that a later rule holds it against."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class AnIdOrIds:
    """Marks a list of token ids of which one alone may stand without brackets."""


class Closed(BaseModel):
    """A struct whose unknown keys are faults (section 1.3)."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", protected_namespaces=())


class Open(BaseModel):
    """A struct whose unknown keys are ignored (section 1.3)."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", protected_namespaces=())


def _require_kind(schema: dict[str, Any]) -> None:
    schema["required"] = sorted({"kind", *schema.get("required", ())})


class Tagged(Closed):
    """A closed struct chosen by its `kind`; a document must write it, Python code may leave it to the default."""

    model_config = ConfigDict(json_schema_extra=_require_kind)


def _unique(items: tuple[str, ...]) -> tuple[str, ...]:
    first = {item: i for i, item in reversed(list(enumerate(items)))}
    repeated = [i for i, item in enumerate(items) if first[item] != i]
    if repeated:
        raise PydanticCustomError("duplicate_item", "repeated", {"positions": repeated})
    return items


def _dimension(value: object) -> int | str:
    """One entry of a shape: a fixed extent >= 0 or a non-empty symbol (sections 2.1, V009, V010)."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < I64:
        return value
    if value == "":
        raise PydanticCustomError("empty_symbol", "empty")
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise PydanticCustomError("bad_extent", "extent")
    raise PydanticCustomError("dimension_type", "type")


def _scalar(value: object) -> bool | int | float | str:
    if isinstance(value, bool | float | str):
        return value
    if isinstance(value, int):
        if -I64 <= value <= U64:
            return value
        raise PydanticCustomError("scalar_range", "range")
    raise PydanticCustomError("scalar_type", "type")


def _literal(value: object) -> bool | int | float | str | tuple[bool | int | float | str, ...]:
    """A literal default: one scalar, or a row-major list of them (section 2.2)."""
    if not isinstance(value, list | tuple):
        return _scalar(value)
    items = cast("Sequence[object]", value)
    wrong = [i for i, item in enumerate(items) if not isinstance(item, bool | int | float | str)]
    if wrong:
        raise PydanticCustomError("literal_items", "type", {"positions": wrong})
    return tuple(_scalar(item) for item in items)


_SCALAR_SCHEMA: dict[str, Any] = {"type": ["boolean", "integer", "number", "string"]}

Count = Annotated[int, Field(ge=0, le=U64)]
Positive = Annotated[int, Field(ge=1, le=U64)]
Count32 = Annotated[int, Field(ge=0, le=U32)]
Positive32 = Annotated[int, Field(ge=1, le=U32)]
Count16 = Annotated[int, Field(ge=0, le=U16)]
Int32 = Annotated[int, Field(ge=-I32, le=I32 - 1)]
Amount = Annotated[float, Field(ge=0)]
Name = Annotated[str, Field(min_length=1)]

Items = Annotated[tuple[T, ...], Strict(False)]
SomeItems = Annotated[tuple[T, ...], Strict(False), Field(min_length=1)]
UniqueNames = Annotated[
    tuple[str, ...], Strict(False), AfterValidator(_unique), Field(json_schema_extra={"uniqueItems": True})
]

Dimension = Annotated[
    int | str,
    PlainValidator(_dimension),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "minLength": 1}]}),
]
Scalar = Annotated[bool | int | float | str, PlainValidator(_scalar), WithJsonSchema(_SCALAR_SCHEMA)]
LiteralValue = Annotated[
    bool | int | float | str | tuple[bool | int | float | str, ...],
    PlainValidator(_literal),
    WithJsonSchema({"anyOf": [_SCALAR_SCHEMA, {"type": "array", "items": _SCALAR_SCHEMA}]}),
]
