"""What the reference runtime opens for a `model.type`: each class of packages has graphs of its own.

It goes by the type alone: sections that its class does not read are parsed and passed over, and a graph that its class
needs and the file does not name is an error when it loads ("The model path is a directory").
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.config_json import Json
from genai_compiler.read.places import DocPath

Reason = tuple[DocPath, str, str]
"""(where, why it does not load, the way out)."""
_DECODER: DocPath = ("model", "decoder")


@cache
def reference_table() -> Mapping[str, Any]:
    """The release that is spoken of, its types by class, and what each class opens."""
    table: dict[str, Any] = json.loads(Path(__file__).with_name("reference_types.json").read_text("utf-8"))
    return table


def class_of(kind: str) -> str:
    """The class of a type, "" for a type that it does not know."""
    return next((name for name, each in reference_table()["classes"].items() if kind in each["types"]), "")


def is_one_graph(kind: str) -> bool:
    """Whether a type stands for a decoder of one graph."""
    return bool(reference_table()["classes"].get(class_of(kind), {}).get("one_graph"))


def is_transducer(kind: str) -> bool:
    """Whether a type stands for a transducer, whose generator is one of its own."""
    return class_of(kind).startswith("transducer")


def is_unknown_inside(kind: str) -> bool:
    """Whether it knows a type of which nothing is known here but its name."""
    return bool(reference_table()["classes"].get(class_of(kind), {}).get("unknown"))


def graph_reasons(root: Path, text: Json, kind: str) -> Iterator[Reason]:
    """Graphs that the class of a type opens and does not find. text: the whole configuration."""
    facts = reference_table()["classes"].get(class_of(kind))
    if facts is None:
        return
    model = _member(text, "model")
    staged = facts.get("stages") == "always" or (kind in facts.get("staged_types", ()) and _stages(model))
    if staged:
        yield from _stage_reasons(root, model, kind)
    for name in facts["graphs"]:
        if not (staged and name in ("decoder", "vision", "embedding")):  # its first stage makes the embeddings
            yield from _graph_reason(root, model, name, kind, facts.get("defaults", {}).get(name, ""))
    for name in facts.get("where_stated", ()):
        if _member(model, name).get("filename"):
            yield from _graph_reason(root, model, name, kind, "")
    if isinstance(model.get("draft"), dict):
        yield from _graph_reason(root, model, "draft", kind, "")
    yield from _number_reasons(model, facts)


def _graph_reason(root: Path, model: dict[str, Json], name: str, kind: str, default: str) -> Iterator[Reason]:
    stated = _member(model, name).get("filename")
    file = stated if isinstance(stated, str) and stated else default
    path: DocPath = ("model", name, "filename")
    if not file:
        beside = " (its stages under 'pipeline' are passed over)" if name == "decoder" and _stages(model) else ""
        why = f"for model.type {kind!r} it opens {name}.filename, and the file names none{beside}: the path is a folder"
        yield path, why, "'decoder' as model.type takes one graph, 'decoder-pipeline' takes stages"
        return
    try:
        find_artifact(root, file)
    except ArtifactFault as fault:
        yield path, f"for model.type {kind!r} it opens {name}.filename: {fault}", ""


def _stage_reasons(root: Path, model: dict[str, Json], kind: str) -> Iterator[Reason]:
    """A decoder of stages: each names a graph, and one runs at all."""
    listed = _stages(model)
    path: DocPath = (*_DECODER, "pipeline")
    if not listed:
        yield path, f"model.type {kind!r} takes stages, and decoder.pipeline has none", "list the stages"
    for name, stage in listed:
        file = stage.get("filename")
        if not isinstance(file, str) or not file:
            yield path, f"stage {name!r} names no graph: the path is a folder", "state its filename"
            continue
        try:
            find_artifact(root, file)
        except ArtifactFault as fault:
            yield path, f"it opens the graph of stage {name!r}: {fault}", ""


def _number_reasons(model: dict[str, Json], facts: Mapping[str, Any]) -> Iterator[Reason]:
    """Numbers that a class insists on."""
    decoder = _member(model, "decoder")
    kinds, count = decoder.get("layer_types"), decoder.get("num_hidden_layers")
    if facts.get("layer_types") and isinstance(kinds, list) and isinstance(count, int) and len(kinds) != count:
        why = f"layer_types has {len(kinds)} entries for num_hidden_layers {count}"
        yield (*_DECODER, "layer_types"), why, "list one a layer"
    if model.get("type") in facts.get("visual_tokens", ()) and not _member(model, "vision").get("num_visual_tokens"):
        path: DocPath = ("model", "vision", "num_visual_tokens")
        yield path, f"model.type {model.get('type')!r} wants num_visual_tokens above 0", "state it"
    if facts.get("blank_ends"):
        blank, ends = model.get("blank_id", 0), model.get("eos_token_id", [])
        if blank not in (ends if isinstance(ends, list) else [ends]):
            why = f"blank_id {blank} is not among the end tokens (eos_token_id), where this class looks for it"
            yield ("model", "eos_token_id"), why, "list it there"


def _stages(model: dict[str, Json]) -> list[tuple[str, dict[str, Json]]]:
    """The stages of `decoder.pipeline`: an object of them, or a list of such objects."""
    listed = _member(model, "decoder").get("pipeline")
    parts = listed if isinstance(listed, list) else [listed]
    named = [each for part in parts if isinstance(part, dict) for each in part.items()]
    return [(name, stage) for name, stage in named if isinstance(stage, dict)]


def _member(value: object, key: str) -> dict[str, Json]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}
