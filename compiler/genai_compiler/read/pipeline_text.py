"""The text of a version 2 `genai_config.json` -> typed data with places, and the blocks of version 1 beside it.

The text is read as version 1's is (bytes outside UTF-8, repeated keys and nulls forgiven). A number without fraction is
an integer, as the reference reads numbers.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from genai_compiler.problem import CompileError, Place, Problem
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.config_json import ConfigText, Json, parse_config
from genai_compiler.read.genai_config import CONFIG_NAME, GenaiConfig, genai_config_of
from genai_compiler.read.pipeline_config import PipelineDocument
from genai_compiler.read.pipeline_extensions import WishedDocument
from genai_compiler.read.places import DocPath, Places, Spot
from genai_compiler.read.validate import parse_part

VERSION = 2
UNHEEDED = ("runtime", "build_requires")
"""Blocks of one dialect's session options that no runtime heeds."""
_OF_VERSION_1 = ("model", "search", "engine", "speculative", "runtime_profiles")
Part = TypeVar("Part", bound=BaseModel)
_RULE = re.compile(r" \(V\d{3}\)$")


@dataclass(frozen=True)
class PipelineText:
    """The document, where its values stand, and what the blocks of version 1 beside it say (nothing without them).

    problems: of the text itself.
    """

    root: Path
    text: ConfigText
    document: PipelineDocument
    places: Places
    base: GenaiConfig
    problems: tuple[Problem, ...]


def speaks_pipeline(root: Path) -> bool:
    """Whether the package's configuration is of version 2: it holds `pipeline`, or says so and holds no `model`.

    A version beside a plain `model` block says nothing: exporters write it there, and no runtime reads it.
    """
    try:
        members = _read(root).root
    except CompileError:
        return False  # whoever reads it as version 1 says why
    if not isinstance(members, dict):
        return False
    version = members.get("version")
    stated = isinstance(version, int | float) and not isinstance(version, bool) and version >= VERSION
    return members.get("pipeline") is not None or (stated and members.get("model") is None)


def read_pipeline(root: Path) -> PipelineText:
    """The configuration of the package at `root`. Raises CompileError with every fault of the fields."""
    return pipeline_of(root, _read(root))


def pipeline_of(root: Path, text: ConfigText) -> PipelineText:
    """The configuration `text` of the package at `root`. Raises CompileError with every fault of the fields."""
    places = Places(CONFIG_NAME, _spot(text, text.root, ()))
    base, of_base = _base(text)
    plain, faults = _plain(text.root), list[Problem]()
    document = _parsed(PipelineDocument, plain, places, faults)
    _parsed(WishedDocument, _wishes(plain), places, faults)
    if document is None or faults:
        raise CompileError([*text.problems, *of_base, *faults])
    return PipelineText(root, text, document, places, base, (*text.problems, *of_base))


def _read(root: Path) -> ConfigText:
    try:
        file = find_artifact(root, CONFIG_NAME).file
    except ArtifactFault as fault:
        raise CompileError([fault.problem(Place(CONFIG_NAME), "")]) from fault
    return parse_config(file.read_bytes(), CONFIG_NAME)


def _base(text: ConfigText) -> tuple[GenaiConfig, tuple[Problem, ...]]:
    """The blocks of version 1, read as such."""
    members = text.root if isinstance(text.root, dict) else {}
    kept = {key: members[key] for key in _OF_VERSION_1 if members.get(key) is not None}
    return genai_config_of(replace(text, root={"model": {}, **kept}, problems=()))


def _parsed(part: type[Part], data: Json, places: Places, faults: list[Problem]) -> Part | None:
    """A part of the document; None, and its faults among the others, where it is none."""
    try:
        return parse_part(part, data, places)
    except CompileError as error:
        faults += map(_without_rule, error.problems)
        return None


def _wishes(plain: Json) -> Json:
    """The blocks of session options that no runtime heeds, and nothing else: they are held against their words."""
    inner = plain.get("pipeline") if isinstance(plain, dict) else None
    sessions = inner.get("sessions") if isinstance(inner, dict) else None
    found: dict[str, Json] = {}
    for name, session in sessions.items() if isinstance(sessions, dict) else ():
        options = session.get("session_options") if isinstance(session, dict) else None
        if isinstance(options, dict):
            found[name] = {"session_options": {key: options[key] for key in UNHEEDED if key in options}}
    return {"pipeline": {"sessions": found}}


def _without_rule(problem: Problem) -> Problem:
    """A fault without the rule of the metadata standard: this is another format."""
    return replace(problem, what=_RULE.sub("", problem.what))


def _plain(value: Json) -> Json:
    """Values as the typed document wants them: null members are absent, 4.0 is 4."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**31 else value


def _spot(text: ConfigText, value: Json, path: DocPath) -> Spot:
    line, column = text.spots.get(path, (0, 0))
    if isinstance(value, dict):
        return Spot(line, column, entries=dict(_entries(text, value, path)))
    if isinstance(value, list):
        return Spot(line, column, items=[_spot(text, each, (*path, at)) for at, each in enumerate(value)])
    return Spot(line, column)


def _entries(text: ConfigText, value: dict[str, Json], path: DocPath) -> Iterator[tuple[str, tuple[int, int, Spot]]]:
    for key, each in value.items():
        spot = _spot(text, each, (*path, key))
        yield key, (spot.line, spot.column, spot)
