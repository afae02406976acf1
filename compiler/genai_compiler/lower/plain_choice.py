"""Three and more graphs of a folder that declares nothing: which of them make one decoder, told by their ports.

A decoder merged of two networks stands for the files that hold each of them alone. Graphs with the same ports are
variants of one network: which of those is meant nobody can tell.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

from genai_compiler.lower.dataflow import Edge
from genai_compiler.lower.matching import listed, rank_of
from genai_compiler.lower.media_notes import AUDIO, IMAGE
from genai_compiler.lower.pipeline_places import as_wide
from genai_compiler.lower.plain_front import per_token
from genai_compiler.lower.plain_ports import PlainPorts
from genai_compiler.lower.sound_roles import BANDS
from genai_compiler.problem import CompileError, Place, Problem
from genai_compiler.read.signature import Port, Signature

MOST = 32
"""Graphs that are looked into."""
_SHOWN = 12
_INTEGERS = ("int64", "int32")
DECODER, FIRST, EMBEDDING, OTHER = "decoder", "decoder of a prompt alone", "embedding of tokens", "graph without state"

_TWO_FILES = (
    "take the decoder that is merged of both in place of the two: one of prompts and one of later tokens in files of "
    "their own are not compiled"
)
_TWO_NETWORKS = (
    "is merged of two networks behind a flag, and takes embeddings, which is not compiled yet: export one network that "
    "takes caches of any length, also empty ones"
)
_ONE_BY_ONE = (
    "choose one with --graph FILE, an encoder and its decoder with --graph twice, or declare the stages in an "
    "inference_metadata.yaml beside the graph"
)


def graph_option(name: str) -> str:
    """The option that names a graph, as a shell takes it."""
    return f"--graph {quote(f'./{name}' if name.startswith('-') else name)}"


@dataclass(frozen=True)
class Candidate:
    """A graph of the folder, and the ports of a decoder as far as it has them."""

    artifact: str
    signature: Signature
    ports: PlainPorts

    @property
    def form(self) -> tuple[frozenset[tuple[str, int | None]], frozenset[tuple[str, int | None]]]:
        """Names and ranks of its ports: types differ from one variant to another."""
        inputs, outputs = self.signature.inputs, self.signature.outputs
        return frozenset((x.name, rank_of(x)) for x in inputs), frozenset((x.name, rank_of(x)) for x in outputs)

    @property
    def merged(self) -> bool:
        """Whether it holds two networks behind a flag."""
        return self.ports.keeps and any(x.dtype == "bool" and x.shape in ((), (1,)) for x in self.signature.inputs)

    def is_network_of(self, other: "Candidate") -> bool:
        """Whether the other one has all its ports: it is one of the two networks there."""
        (mine, made), (inputs, outputs) = self.form, other.form
        decodes = self.ports.keeps or "logits_output" in self.ports.io
        return other.merged and not self.merged and decodes and mine < inputs and made <= outputs


def chosen_of(
    folder: str, candidates: Sequence[Candidate], config: Mapping[str, Any] | None = None
) -> tuple[list[str], tuple[str, ...]]:
    """(the one graph, or the encoder and the decoder, that the folder is; notes on those that are left aside).

    config: what the model's `config.json` states. Raises CompileError `several-graphs`, which says what each graph is.
    """
    aside = [each for each in candidates if any(each.is_network_of(other) for other in candidates)]
    groups: dict[object, list[Candidate]] = {}
    for each in candidates:
        if each not in aside:
            groups.setdefault(each.form, []).append(each)
    alone = [group[0] for group in groups.values() if len(group) == 1]
    if len(alone) == len(groups) and len(alone) < 3 and any(each.ports.keeps for each in alone):
        named = listed(each.artifact for each in aside)
        return [each.artifact for each in alone], (f"left aside: {named}, which the merged decoder holds",)
    raise CompileError([_refused(folder, candidates, aside, list(groups.values()), config or {})])


def _refused(
    folder: str,
    candidates: Sequence[Candidate],
    aside: Sequence[Candidate],
    groups: list[list[Candidate]],
    config: Mapping[str, Any],
) -> Problem:
    roles = [(_role(group[0], candidates), group) for group in groups]
    told = [f"{role}: {_files(group)}" for role, group in roles]
    told += [f"in the merged decoder, too: {_files(aside)}"] if aside else []
    what = f"the folder holds {len(candidates)} graphs and declares none of them; {'; '.join(told)}"
    return Problem("several-graphs", Place(folder), "", what, _way_out(roles, config))


def _files(group: Sequence[Candidate]) -> str:
    names = ", ".join(each.artifact for each in group[:_SHOWN])
    return f"{len(group)} variants, {names}" if len(group) > 1 else names


def _role(graph: Candidate, all_graphs: Sequence[Candidate]) -> str:
    keeping = [each for each in all_graphs if each.ports.keeps]
    if graph.ports.keeps:
        return DECODER
    made = {each.name for each in graph.signature.outputs}
    states = [set(each.ports.io.get("kv_outputs", ())) for each in keeping]
    if any(each and each <= made for each in states):
        return FIRST
    return EMBEDDING if any(_embeds(graph, each) for each in keeping) else OTHER


def _embeds(graph: Candidate, decoder: Candidate) -> bool:
    """Whether it makes, of token ids, what a decoder takes in the place of these, or beside these for each."""
    if not _tokens(graph.signature):
        return False
    taken = [each for each in decoder.signature.inputs if "float" in each.dtype and rank_of(each) == 3]
    taken = list(per_token(decoder.ports, decoder.signature)) if "token_input" in decoder.ports.io else taken
    return any(_alike(made, port) for made in graph.signature.outputs for port in taken)


def _tokens(signature: Signature) -> list[Port]:
    return [each for each in signature.inputs if each.dtype in _INTEGERS and rank_of(each) == 2]


def _alike(made: Port, port: Port) -> bool:
    one, other = (made.shape or (None,))[-1], (port.shape or (None,))[-1]
    return made.dtype == port.dtype and rank_of(made) == rank_of(port) and one == other


def _way_out(roles: Sequence[tuple[str, list[Candidate]]], config: Mapping[str, Any]) -> str:
    kinds = [role for role, _ in roles]
    first = {role: group[0] for role, group in reversed(roles)}
    if EMBEDDING in kinds and DECODER in kinds and first[DECODER].merged:
        return f"{first[DECODER].artifact} {_TWO_NETWORKS}"
    if EMBEDDING in kinds and DECODER in kinds:
        return _of_embeddings(first[EMBEDDING], first[DECODER], [g[0] for role, g in roles if role == OTHER], config)
    if FIRST in kinds:
        return _TWO_FILES
    if len(roles) < 3 and DECODER in kinds:
        files = " ".join(graph_option(group[0].artifact) for _, group in roles)
        each = "one" if len(roles) == 1 else "one of each"
        return f"choose {each}, for example {files}"
    return _ONE_BY_ONE


def _of_embeddings(
    embedding: Candidate, decoder: Candidate, others: Sequence[Candidate], config: Mapping[str, Any]
) -> str:
    """What a decoder behind an embedding needs to be declared.

    An embedding of token ids alone leaves one graph's features to go over its rows, where a token stands for an entry.
    """
    sessions = {"embedding": embedding, "decoder": decoder}
    wires = list(_wires("embedding", embedding, "decoder", decoder))
    tokens: dict[str, int] = {}
    alone = len(embedding.signature.inputs) == 1
    for at, other in enumerate(others):
        joined = list(_wires(f"media{at or ''}", other, "embedding", embedding))
        token = _entry_token(other, others, config)
        placed = alone and len(others) == 1 and _over_rows(other, embedding)
        if not joined and not (placed and token):
            return _not_joined(other, alone, placed)
        tokens |= token
        sessions = {f"media{at or ''}": other, **sessions}
        wires = [*joined, *wires]
    pipeline = {
        "sessions": {name: {"file": each.artifact} for name, each in sessions.items()},
        "flow": [{"run": name, "when": "step" if each is decoder else "init"} for name, each in sessions.items()],
        "dataflow": [{"from": one, "to": other} for one, other in wires],
    }
    document = {"version": 2, "pipeline": pipeline, **({"tokens": tokens} if tokens else {})}
    return f"declare them in a genai_config.json: {json.dumps(document)}"


def _not_joined(other: Candidate, alone: bool, placed: bool) -> str:
    """The way out where nothing tells where a graph's results go."""
    names = listed(each.name for each in other.signature.outputs)
    gives = f"{other.artifact} gives {names}, and no graph puts that among the embeddings"
    way = "join it by hand" if not alone else "export an embedding that takes it beside the token ids"
    if placed:
        way = "name the token that stands for an entry of it as image_token_id (or audio_token_id) in config.json, or "
        way += "export an embedding that takes it beside the token ids"
    return f"{gives}: {way}, and declare the stages (pipeline.workflow, or genai_config.json version 2)"


def _over_rows(other: Candidate, embedding: Candidate) -> bool:
    """Whether one of its results is as wide as the rows that an embedding makes, and nothing else of it is."""
    rows = [each for each in embedding.signature.outputs if "float" in each.dtype and rank_of(each) == 3]
    return len(rows) == 1 and sum(as_wide(each, rows[0]) is not None for each in other.signature.outputs) == 1


def _entry_token(other: Candidate, others: Sequence[Candidate], config: Mapping[str, Any]) -> dict[str, int]:
    """The id that stands for an entry of what a graph makes, as version 2 states it; {} where nobody says it.

    A graph whose ports tell no medium has the token that is left, where that is one.
    """
    kind, sure = _medium(other), {_medium(each) for each in others}
    said = {each: _stated_token(each, config) for each in (IMAGE, AUDIO)}
    fits = {each: token for each, token in said.items() if each == kind or (not kind and each not in sure)}
    found = {f"{each}_token": token for each, token in fits.items() if token is not None}
    return found if len(found) == 1 else {}


def _medium(graph: Candidate) -> str:
    """Whole pictures have four axes or five, and a grid places patches; sound has bands; "" where neither tells it."""
    floats = [each.shape or () for each in graph.signature.inputs if "float" in each.dtype]
    grids = [each for each in graph.signature.inputs if each.dtype in _INTEGERS and (each.shape or ())[1:] == (3,)]
    if grids or any(len(each) in (4, 5) for each in floats):
        return IMAGE
    return AUDIO if any(len(each) == 3 and not {*BANDS}.isdisjoint(each[1:]) for each in floats) else ""


def _stated_token(kind: str, config: Mapping[str, Any]) -> int | None:
    found = [config.get(f"{kind}_token_{word}") for word in ("id", "index")]
    return next((each for each in found if type(each) is int and each >= 0), None)


def _wires(source: str, one: Candidate, target: str, other: Candidate) -> Iterator[tuple[str, str]]:
    """What one gives that goes into exactly one float input of the other, as it is or with two axes as one."""
    for port in (each for each in other.signature.inputs if "float" in each.dtype and rank_of(each) in (2, 3)):
        edges = [Edge(source, each, target, port) for each in one.signature.outputs]
        made = [each.output for each in edges if _alike(each.output, port) or each.merges]
        made = [each for each in made if len(made) == 1 or each.name == port.name]
        if len(made) == 1:
            yield f"{source}.{made[0].name}", f"{target}.{port.name}"
