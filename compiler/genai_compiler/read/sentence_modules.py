"""`modules.json` beside an encoder of sentences: how one vector is made of a sentence's positions.

The file lists what runs after the graph; a pooling module has its own folder with `config.json`. Only what it lists is
believed, and nothing outside the package is looked at.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from genai_compiler.problem import CompileError, Place, Problem, Severity
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.json_file import json_of

FILE = "modules.json"
_MOST, _LARGEST = 16, 1 << 20
PoolingKind = Literal["mean", "max", "cls", "last_token"]
_MODES: Mapping[str, PoolingKind] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last_token",
}
_NAMED: Mapping[str, PoolingKind] = {"cls": "cls", "mean": "mean", "max": "max", "lasttoken": "last_token"}


@dataclass(frozen=True)
class SentencePooling:
    """kind: which positions count, as of a profile's pooling. normalize: to length 1."""

    kind: PoolingKind
    normalize: bool


def read_sentence_modules(root: Path) -> tuple[SentencePooling | None, tuple[Problem, ...]]:
    """The pooling that the package at `root` lists, None without one.

    Problems, warnings all: those of unreadable files; sentence-modules for what can't be computed here.
    """
    if not (root / FILE).exists():
        return None, ()
    try:
        listed = _read(root, FILE)
        modules = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        kinds = [str(each.get("type", "")).rpartition(".")[2] for each in modules[:_MOST]]
        folders = [str(each.get("path", "")) for each, kind in zip(modules, kinds, strict=False) if kind == "Pooling"]
        others = sorted(set(kinds) - {"Transformer", "Pooling", "Normalize"})
        if others or len(folders) != 1 or len(modules) > _MOST:
            named = ", ".join(map(repr, others[:4])) or f"{len(folders)} poolings"
            return None, (_doubt(FILE, f"what it lists is not offered: {named}", "pool the positions yourself"),)
        file = f"{folders[0]}/config.json"
        data = _read(root, file)
    except ArtifactFault as fault:
        return None, (replace(fault.problem(Place(FILE), ""), severity=Severity.WARNING),)
    except CompileError as fault:
        return None, fault.problems
    kind = _kind(data if isinstance(data, dict) else {})
    if kind is None:
        return None, (_doubt(file, "its pooling is not mean, max, first or last token alone", "pool yourself"),)
    return SentencePooling(kind, "Normalize" in kinds), ()


def _read(root: Path, name: str) -> Any:
    """The JSON in a file of the package. Raises ArtifactFault; CompileError malformed-json, a warning."""
    return json_of(find_artifact(root, name).file, name, _LARGEST, Severity.WARNING)


def _kind(stated: Mapping[str, Any]) -> PoolingKind | None:
    """The only mode that is switched on; the form with one word, too."""
    chosen = [key for key, value in stated.items() if key.startswith("pooling_mode_") and value is True]
    if "pooling_mode" in stated and not chosen:
        return _NAMED.get(str(stated["pooling_mode"]))
    return _MODES.get(chosen[0]) if len(chosen) == 1 else None


def _doubt(file: str, what: str, help: str) -> Problem:
    return Problem("sentence-modules", Place(file), "", what, help, Severity.WARNING)
