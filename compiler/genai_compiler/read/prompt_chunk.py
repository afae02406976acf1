"""How many tokens of a prompt a package wants one run of its decoder to take, and where it says so."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from genai_compiler.problem import Place
from genai_compiler.read.places import DocPath, Places, format_path
from genai_compiler.read.wording import value_at

FIELD: DocPath = ("model", "runtime_configurable", "chunked_prefill", "chunk_size")
"""The standard's word for it (1.5): what a runtime may do."""


@dataclass(frozen=True)
class PromptChunk:
    """size: tokens, 1 at least. setting: the format has it as a setting, missed where it has no effect."""

    size: int
    where: Place
    path: str
    setting: bool = False


def stated_chunk(data: object, places: Places) -> PromptChunk | None:
    """What a document of the standard's form says; None where it says nothing. data: checked, or to be checked."""
    size = value_at(data, FIELD)
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        return None
    return PromptChunk(size, places.find(FIELD), format_path(FIELD))


def with_chunk(document: Mapping[str, Any], chunk: PromptChunk | None) -> dict[str, Any]:
    """The document of a lowered package with the standard's word for what its own format has said."""
    if chunk is None:
        return dict(document)
    configurable = {"chunked_prefill": {"chunk_size": chunk.size}}
    return {**document, "model": {**document.get("model", {}), "runtime_configurable": configurable}}
