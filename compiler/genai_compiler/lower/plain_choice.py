"""Several graphs of a folder that declares nothing: which of them make one decoder, told by their ports.

A decoder merged of two networks stands for the files that hold each of them alone. Graphs with the same ports are
variants of one network: which of those is meant nobody can tell.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

from genai_compiler.lower.matching import listed, rank_of
from genai_compiler.lower.plain_candidate import Candidate, alike, flat_integers
from genai_compiler.lower.plain_front import per_token
from genai_compiler.lower.plain_pair import Alone, Pair, is_prompts_alone, pair_of
from genai_compiler.lower.plain_pipeline import Reading, reading_of
from genai_compiler.problem import CompileError, Place, Problem

MOST = 32
"""Graphs that are looked into."""
_SHOWN = 12
DECODER, FIRST, EMBEDDING, OTHER = "decoder", "decoder of a prompt alone", "embedding of tokens", "graph without state"

_TWO_NETWORKS = (
    "is merged of two networks behind a flag, and takes embeddings, which is not compiled yet: export one network that "
    "takes caches of any length, also empty ones"
)
_TWO_FILES = (
    "take the decoder that is merged of both in the place of the two, or export one that takes caches of any length, "
    "also empty ones"
)
_ONE_BY_ONE = (
    "choose one with --graph FILE, graphs that belong together with --graph for each, or declare the stages in an "
    "inference_metadata.yaml beside the graph"
)


@dataclass(frozen=True)
class Choice:
    """What the folder is: one decoder, or an encoder and the decoder, by file; or what the other fields say.

    notes: on graphs that are left aside. document: how graphs around a decoder of embeddings are joined, as version 2
    of genai_config.json would state it. pair: the graph of prompts and the one of later tokens.
    """

    graphs: tuple[str, ...]
    notes: tuple[str, ...] = ()
    document: Mapping[str, Any] = field(default_factory=dict[str, Any])
    pair: Pair | None = None


def graph_option(name: str) -> str:
    """The option that names a graph, as a shell takes it."""
    return f"--graph {quote(f'./{name}' if name.startswith('-') else name)}"


def chosen_of(folder: str, candidates: Sequence[Candidate], config: Mapping[str, Any], named: bool = False) -> Choice:
    """What several graphs are. config: what the model's `config.json` states. named: the caller chose them.

    Raises CompileError `several-graphs`, which says what each graph is.
    """
    sorting = _Sorting.of(candidates, config)
    if (joined := sorting.joined()) is not None:
        return joined
    if sorting.reading is None and len(sorting.alone) < 3 and any(each.ports.keeps for each in sorting.alone):
        return Choice(tuple(each.artifact for each in sorting.alone), sorting.notes)
    raise CompileError([sorting.refused(folder, named)])


def joined_of(
    folder: str, candidates: Sequence[Candidate], config: Mapping[str, Any], named: bool = False
) -> Choice | None:
    """Two graphs of which neither decodes by itself; None for an encoder and its decoder, and for other two.

    Raises CompileError `several-graphs` where one makes what the other takes of tokens, and more than that is open; and
    where both are graphs of prompts and of later tokens, and not of one decoder.
    """
    sorting = _Sorting.of(candidates, config)
    joined = sorting.joined()
    if joined is None and (sorting.reading is not None or isinstance(sorting.paired, str)):
        raise CompileError([sorting.refused(folder, named)])
    return joined


@dataclass(frozen=True)
class _Sorting:
    """Graphs by their parts. roles: the graphs of one form with the part they play; aside: networks of a merged one.

    paired: a decoder in two files, or why it is none; reading: how graphs around a decoder of embeddings are joined.
    """

    candidates: Sequence[Candidate]
    roles: Sequence[tuple[str, list[Candidate]]]
    aside: Sequence[Candidate]
    alone: tuple[Candidate, ...]
    paired: Pair | Alone | str | None
    reading: Reading | None

    @classmethod
    def of(cls, candidates: Sequence[Candidate], config: Mapping[str, Any]) -> "_Sorting":
        aside = [each for each in candidates if any(each.is_network_of(other) for other in candidates)]
        groups: dict[object, list[Candidate]] = {}
        for each in candidates:
            if each not in aside:
                groups.setdefault(each.form, []).append(each)
        roles = [(_role(group[0], candidates), group) for group in groups.values()]
        single = tuple(group[0] for _, group in roles if len(group) == 1)
        alone = single if len(single) == len(roles) else ()
        return cls(candidates, roles, aside, alone, pair_of(alone), _reading(roles, config))

    @property
    def notes(self) -> tuple[str, ...]:
        """What is said of graphs that are left aside."""
        names = listed(each.artifact for each in self.aside)
        return (f"left aside: {names}, which the merged decoder holds",) if self.aside else ()

    def joined(self) -> Choice | None:
        """A decoder in two files, or graphs around a decoder of embeddings, where that is the only reading."""
        if isinstance(self.paired, Alone | Pair):
            graphs = tuple(each.artifact for each in self.paired.graphs)
            pair = self.paired if isinstance(self.paired, Pair) else None
            return Choice(graphs, (*self.notes, *self.paired.notes), pair=pair)
        if self.alone and self.reading is not None and self.reading.document and not self.reading.doubt:
            return Choice(tuple(each.artifact for each in self.alone), self.notes, self.reading.document)
        return None

    def refused(self, folder: str, named: bool) -> Problem:
        """What each graph is, and the way out. named: the caller chose them."""
        told = [f"{role}: {_files(group)}" for role, group in self.roles]
        told += [f"in the merged decoder, too: {_files(self.aside)}"] if self.aside else []
        told += [self.reading.doubt] if self.alone and self.reading is not None and self.reading.doubt else []
        told += [self.paired] if isinstance(self.paired, str) else []
        count = len(self.candidates)
        what = f"the folder holds {count} graphs and declares none of them"
        what = f"{count} graphs are named, and are not told to be one decoder" if named else what
        what += f"; {'; '.join(told)}"
        return Problem("several-graphs", Place(folder), "", what, _way_out(self.roles, self.reading, self.paired))


def _reading(roles: Sequence[tuple[str, list[Candidate]]], config: Mapping[str, Any]) -> Reading | None:
    """How the graphs go together where one makes what the only decoder takes of tokens; None for other graphs."""
    kinds = [role for role, _ in roles]
    first = {role: group[0] for role, group in reversed(roles)}
    if EMBEDDING not in kinds or DECODER not in kinds or first[DECODER].merged:
        return None
    if len(roles) == 2 and "token_input" in first[DECODER].ports.io:
        return None  # it takes tokens as well: the two are joined one by one
    others = [group[0] for role, group in roles if role == OTHER]
    reading = reading_of(first[EMBEDDING], first[DECODER], others, config)
    if len(kinds) > 2 + len(others):
        return Reading(reading.document, "several graphs have one part", reading.help)
    return reading


def _files(group: Sequence[Candidate]) -> str:
    names = ", ".join(each.artifact for each in group[:_SHOWN])
    return f"{len(group)} variants, {names}" if len(group) > 1 else names


def _role(graph: Candidate, all_graphs: Sequence[Candidate]) -> str:
    keeping = [each for each in all_graphs if each.ports.keeps]
    if graph.ports.keeps:
        return DECODER
    if keeping and is_prompts_alone(graph):
        return FIRST
    return EMBEDDING if any(_embeds(graph, each) for each in keeping) else OTHER


def _embeds(graph: Candidate, decoder: Candidate) -> bool:
    """Whether it makes, of token ids, what a decoder takes in the place of these, or beside these for each."""
    if not flat_integers(graph.signature):
        return False
    taken = [each for each in decoder.signature.inputs if "float" in each.dtype and rank_of(each) == 3]
    taken = list(per_token(decoder.ports, decoder.signature)) if "token_input" in decoder.ports.io else taken
    return any(alike(made, port) for made in graph.signature.outputs for port in taken)


def _way_out(
    roles: Sequence[tuple[str, list[Candidate]]], reading: Reading | None, paired: Pair | Alone | str | None
) -> str:
    kinds = [role for role, _ in roles]
    first = {role: group[0] for role, group in reversed(roles)}
    whole = {EMBEDDING, DECODER} <= {*kinds} or FIRST in kinds or (len(roles) < 3 and DECODER in kinds)
    if EMBEDDING in kinds and DECODER in kinds and first[DECODER].merged:
        return f"{first[DECODER].artifact} {_TWO_NETWORKS}"
    if whole and any(len(group) > 1 for _, group in roles):
        files = " ".join(graph_option(group[0].artifact) for _, group in roles)
        return f"choose {'one' if len(roles) == 1 else 'one of each'}, for example {files}"
    if isinstance(paired, str):
        return _TWO_FILES
    return _ONE_BY_ONE if reading is None else reading.help
