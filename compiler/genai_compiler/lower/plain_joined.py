"""Graphs around a decoder that takes embeddings, nothing declared -> the one Workflow.

The way is that of version 2 of genai_config.json: the file that would declare the graphs is made in memory, with what
config.json and generation_config.json state beside it. Problems stand where a user can mend them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from genai_compiler.lower.genai_config_v2 import lower_pipeline_text
from genai_compiler.lower.lowered import LoweredGraph
from genai_compiler.lower.plain_candidate import Candidate
from genai_compiler.lower.plain_defaults import placed, search_of, without_effect
from genai_compiler.lower.plain_numbers import StatedNumbers
from genai_compiler.lower.plain_pipeline import DECODER, EMBEDDING, KEYS
from genai_compiler.lower.stated import Fact
from genai_compiler.problem import CompileError, Place, Problem, errors, ordered
from genai_compiler.read.config_json import parse_config
from genai_compiler.read.genai_config import CONFIG_NAME
from genai_compiler.read.pipeline_text import pipeline_of
from genai_compiler.read.places import DocPath, Places, format_path

_OF_MODEL: Mapping[Fact, str] = {"vocab_size": "vocab_size", "context_length": "context_length"}
_OF_DECODER: Mapping[Fact, str] = {
    "kv_heads": "num_key_value_heads",
    "head_size": "head_size",
    "layers": "num_hidden_layers",
}
_SESSIONS = "pipeline.sessions."
_DECLARE = "or declare the graphs in a genai_config.json of version 2"


@dataclass(frozen=True)
class SideFiles:
    """`config.json` and `generation_config.json`: what they hold, and where their values stand."""

    config: Mapping[str, Any]
    config_places: Places
    generation: Mapping[str, Any]
    generation_places: Places


def lower_joined(
    root: Path, parts: Sequence[Candidate], document: Mapping[str, Any], numbers: StatedNumbers, side: SideFiles
) -> LoweredGraph:
    """Lower the graphs that `document` joins. numbers: of config.json. Raises CompileError with every problem."""
    graphs = {each.artifact: each for each in parts}
    sessions = {name: graphs[each["file"]] for name, each in document["pipeline"]["sessions"].items()}
    whole = {**document, "model": _model(sessions[DECODER], numbers), "search": _search(numbers, side)}
    telling = _Telling(root, {name: each.artifact for name, each in sessions.items()}, numbers, side)
    effects = without_effect(side.generation, side.generation_places)
    try:
        text = pipeline_of(root, parse_config(json.dumps(whole).encode(), CONFIG_NAME))
        lowered = lower_pipeline_text(text, sessions[DECODER].ports.zeros)
    except CompileError as refused:
        raise CompileError([*map(telling.told, refused.problems), *effects]) from refused
    problems = ordered((*map(telling.told, lowered.problems), *effects))
    if errors(problems):
        raise CompileError(problems)
    return replace(lowered, problems=problems, notes=(*_notes(document, sessions, side), *lowered.notes[1:]))


def _model(decoder: Candidate, numbers: StatedNumbers) -> dict[str, Any]:
    """The numbers of config.json as version 1 states them beside version 2."""
    caches = decoder.ports.io.get("kv_inputs", ())
    every = {**numbers.implied(decoder.signature, caches), **numbers.numbers}
    of_decoder = {key: every[fact] for fact, key in _OF_DECODER.items() if fact in every}
    return {key: every[fact] for fact, key in _OF_MODEL.items() if fact in every} | {"decoder": of_decoder}


def _search(numbers: StatedNumbers, side: SideFiles) -> dict[str, Any]:
    """Defaults of a request. Without a context length, a length of outputs must not be taken for one."""
    found = search_of(side.generation)
    if "context_length" not in numbers.numbers:
        found.pop("max_length", None)
    return found


@dataclass(frozen=True)
class _Telling:
    """Problems of a text that nobody wrote, in terms of the folder. files: session -> graph."""

    root: Path
    files: Mapping[str, str]
    numbers: StatedNumbers
    side: SideFiles

    def told(self, problem: Problem) -> Problem:
        """The problem at the file that says it, or lacks it."""
        if problem.where.file != CONFIG_NAME:
            return problem
        path = problem.path
        if path.startswith("search."):
            return placed(problem, self.side.generation_places)
        if problem.code == "no-end-token":
            return self._in_config(problem, ("eos_token_id",), "state eos_token_id in generation_config.json")
        if path.startswith("tokens"):
            key = next((each for each in KEYS if each in self.side.config), KEYS[0])
            return self._in_config(problem, (key,), problem.help)
        for fact, key in {**_OF_MODEL, **_OF_DECODER}.items():
            if path.startswith("model.") and path.endswith(f".{key}"):
                at = self.numbers.keys[fact]
                return self._in_config(problem, at, problem.help.replace(path, format_path(at)))
        session = path.removeprefix(_SESSIONS).partition(".")[0] if path.startswith(_SESSIONS) else ""
        where = Place(self.files.get(session, self.root.resolve().name))
        return replace(problem, where=where, path="", help="; ".join(filter(None, (problem.help, _DECLARE))))

    def _in_config(self, problem: Problem, at: DocPath, help: str) -> Problem:
        return replace(problem, where=self.side.config_places.find(at), path=format_path(at), help=help)


def _notes(document: Mapping[str, Any], sessions: Mapping[str, Candidate], side: SideFiles) -> Iterator[str]:
    """What was understood, graph by graph."""
    wires = [(each["from"].split(".", 1), each["to"].split(".", 1)) for each in document["pipeline"]["dataflow"]]
    decoder, embedding = sessions[DECODER], sessions[EMBEDDING]
    yield f"provenance: nothing is declared; read from the graph {decoder.artifact}, which takes embeddings"
    for name, each in sessions.items():
        if each is decoder:
            continue
        joined = ", ".join(f"{made!r} goes to {taken!r}" for (source, made), (_, taken) in wires if source == name)
        when = (
            "embedding: {} runs with every token" if each is embedding else "media: {} runs where its medium is given"
        )
        if joined:
            yield f"{when.format(each.artifact)}; {joined}"
            continue
        ((_, token),) = document["tokens"].items()
        key = next((each for each in KEYS if side.config.get(each) == token), KEYS[0])
        over = f"over the rows that {embedding.artifact} gives of the token {token} ({key} in config.json)"
        yield f"{when.format(each.artifact)}; it goes {over}"
