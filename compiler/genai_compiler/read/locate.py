"""From a validator's location to a document path and the struct it speaks of.

The validator puts the chosen variant of a union into its locations; a walk over the models takes those out again, so
that a map key which happens to read `invoke` is never mistaken for one.
"""

import functools
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, Tag
from pydantic.fields import FieldInfo

from genai_compiler.read.places import DocPath

Mark = TypeVar("Mark")


@dataclass(frozen=True, slots=True)
class Located:
    """`path` in the document, the struct that holds its last field (None inside lists and maps), the type expected."""

    path: DocPath
    owner: type[BaseModel] | None
    expected: object

    def marked(self, mark: type[Mark]) -> Mark | None:
        """What the last field's annotation is marked with, None without a mark of that class."""
        info = fields_of(self.owner).get(self.field) if self.owner is not None else None
        if info is None:
            return None
        whole = (each for each in info.metadata if isinstance(each, mark))
        return next(whole, None) or _mark(info.annotation, mark)

    @property
    def field(self) -> str:
        """The last key of the path, "" for a list entry or the root."""
        return self.path[-1] if self.path and isinstance(self.path[-1], str) else ""


def locate(root: type[BaseModel], location: Sequence[str | int]) -> Located:
    """Where `location`, as the validator of `root` reports it, lies in the document."""
    path: list[str | int] = []
    owner: type[BaseModel] | None = None
    expected: object = root
    for step in location:
        expected = bare(expected)
        if has_variants(expected):
            expected = variant(expected, str(step))
            continue
        path.append(step)
        owner = as_model(expected)
        expected = _inside(expected, step)
    return Located(tuple(path), owner, bare(expected))


def _inside(expected: object, step: str | int) -> object:
    model = as_model(expected)
    if model is not None:
        info = fields_of(model).get(str(step))
        return info.annotation if info else None
    arguments = get_args(expected)
    if get_origin(expected) is dict:
        return arguments[1]
    return arguments[0] if get_origin(expected) is tuple else None


@functools.cache
def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a struct by the names a document uses."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def bare(annotation: object) -> object:
    """A type without `Annotated` and without `None`."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (Union, types.UnionType):
            present = [each for each in get_args(annotation) if each is not types.NoneType]
            if len(present) == len(get_args(annotation)):
                return annotation
            annotation = present[0] if len(present) == 1 else Union[tuple(present)]  # noqa: UP007
        else:
            return annotation


def has_variants(annotation: object) -> bool:
    """A union that chooses between structs."""
    is_union = get_origin(annotation) in (Union, types.UnionType)
    return is_union and any(as_model(bare(each)) is not None for each in get_args(annotation))


def as_model(annotation: object) -> type[BaseModel] | None:
    """The annotation as a struct of the document; None when it is something else."""
    found = cast("type[object]", annotation) if isinstance(annotation, type) else object
    return found if issubclass(found, BaseModel) else None


def variants(annotation: object) -> dict[str, object]:
    """The members of a union by their `kind`, or by their tag where the form of the value chooses."""
    return {_tag_of(each): each for each in get_args(annotation)}


def variant(annotation: object, tag: str) -> object:
    """The member of a union with this tag; None when there is none."""
    return variants(annotation).get(tag)


def chosen_by_form(annotation: object) -> bool:
    """A union whose member follows from the value's form (a number or a mapping), not from a `kind`."""
    return any(isinstance(data, Tag) for each in get_args(annotation) for data in get_args(each)[1:])


def _tag_of(member: object) -> str:
    for data in get_args(member)[1:] if get_origin(member) is Annotated else ():
        if isinstance(data, Tag):
            return data.tag
    model = as_model(bare(member))
    if model is not None and "kind" in model.model_fields:
        return str(choices(model.model_fields["kind"].annotation)[0])
    return ""


def _mark(annotation: object, mark: type[Mark]) -> Mark | None:
    """The mark inside an annotation of unions and `Annotated`."""
    for each in get_args(annotation) if get_origin(annotation) is not tuple else ():
        found = each if isinstance(each, mark) else _mark(each, mark)
        if found is not None:
            return found
    return None


def choices(annotation: object) -> tuple[str, ...]:
    """The texts of a closed list; () for any other type."""
    core = bare(annotation)
    return tuple(str(each) for each in get_args(core)) if get_origin(core) is Literal else ()
