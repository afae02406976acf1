"""Plain data to the typed document: every fault of one value, and two of values that exclude or need each other.

Rules V001-V024 of the metadata standard (section 12.1); `rules.RULES` lists the codes.
"""

from collections.abc import Iterator
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from genai_compiler.problem import CompileError, Problem
from genai_compiler.read.bare import BareDocument
from genai_compiler.read.composite import CompositeDocument
from genai_compiler.read.document import Metadata
from genai_compiler.read.explain import explain
from genai_compiler.read.hints import ExecutionHints
from genai_compiler.read.model import GROUPED_ROUTER_FIELDS
from genai_compiler.read.places import DocPath, Places, format_path
from genai_compiler.read.tree import Limits, too_many
from genai_compiler.read.wording import value_at

Document = TypeVar("Document", bound=BaseModel)
_MOST = Limits().problems


def parse_metadata(data: object, places: Places) -> Metadata:
    """The document in plain data (see `files.read_document`). Raises CompileError with a Problem for each fault."""
    return _parse(Metadata, data, places, (*_grouped_router(data, places), *_two_forms(data, places)))


def parse_bare(data: object, places: Places) -> BareDocument:
    """A document without a workflow, from plain data. Raises CompileError with a Problem for each fault."""
    return _parse(BareDocument, data, places, tuple(_grouped_router(data, places)))


def parse_composite(data: object, places: Places) -> CompositeDocument:
    """A document of several models joined by dataflow, from plain data. Raises CompileError as the others."""
    return _parse(CompositeDocument, data, places, tuple(_grouped_router(data, places)))


def parse_hints(data: object, places: Places) -> ExecutionHints:
    """The content of `execution_hints.json` (section 9). Raises CompileError with a Problem for each fault."""
    return _parse(ExecutionHints, data, places, ())


def parse_part(root: type[Document], data: object, places: Places) -> Document:
    """A file of its own that a document names. Raises CompileError with a Problem for each fault."""
    return _parse(root, data, places, ())


def _parse(root: type[Document], data: object, places: Places, found: tuple[Problem, ...]) -> Document:
    problems = list(found)
    try:
        document = root.model_validate(data)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        for each in faults[:_MOST]:
            problems.extend(explain(root, data, each, places))
        if len(faults) > _MOST:
            problems.append(too_many(places.file, f"{len(faults) - _MOST} more faults are not listed"))
    else:
        if not problems:
            return document
    raise CompileError(problems)


def _grouped_router(data: object, places: Places) -> Iterator[Problem]:
    path: DocPath = ("model", "mixture_of_experts", "router")
    if value_at(data, (*path, "selection_method")) != "grouped_top_k":
        return
    for name in GROUPED_ROUTER_FIELDS:
        if value_at(data, (*path, name)) is None:
            what = f"router lacks {name}, which grouped_top_k needs (V020)"
            yield Problem("missing-field", places.find(path), format_path(path), what)


def _two_forms(data: object, places: Places) -> Iterator[Problem]:
    path: DocPath = ("model", "io")
    if value_at(data, ("pipeline",)) is not None and value_at(data, path) is not None:
        what = "decoder ports stand beside a workflow, which already declares them (V024)"
        where, help = places.find(path), "remove model.io: the workflow's components declare their ports"
        yield Problem("ports-beside-workflow", where, format_path(path), what, help)
