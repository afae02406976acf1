"""Graphs around a decoder that takes embeddings, nothing declared: how they are joined, as version 2 would state it.

One graph makes rows of token ids, the decoder takes them; what further graphs give goes in beside the token ids, or
over rows where a token stands for an entry. Where ports, widths and that token leave one reading, the folder is
compiled as it; where they leave several, the file is what a user may confirm.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from genai_compiler.lower.dataflow import Edge
from genai_compiler.lower.matching import listed, rank_of, spell_port
from genai_compiler.lower.media_notes import AUDIO, IMAGE
from genai_compiler.lower.pipeline_places import as_wide
from genai_compiler.lower.plain_candidate import Candidate, alike, flat_integers
from genai_compiler.lower.sound_roles import BANDS
from genai_compiler.read.signature import Signature
from genai_compiler.read.value_flow import Edges

EMBEDDING, DECODER, MEDIA = "embedding", "decoder", "media"
KEYS = tuple(f"{kind}_token_{word}" for kind in ("image", "audio") for word in ("id", "index"))
"""Where `config.json` says which token stands for an entry."""
_DECLARE = "declare them in a genai_config.json"
_COLOURS = 3
_EXPECTED = frozenset({"no-embedding-stage", "no-logits"})
"""What is found wanting in a decoder of embeddings while it stands alone."""


@dataclass(frozen=True)
class Reading:
    """document: the file, {} where nothing tells how the graphs are joined; doubt: why it is a proposal only, "" where
    it is the only reading; help: the way out.
    """

    document: Mapping[str, Any]
    doubt: str
    help: str


def reading_of(
    embedding: Candidate, decoder: Candidate, others: Sequence[Candidate], config: Mapping[str, Any]
) -> Reading:
    """How a decoder, what makes its embeddings, and graphs of media belong together. config: of `config.json`."""
    sessions = {EMBEDDING: embedding, DECODER: decoder}
    wires = list(_wires(EMBEDDING, embedding, DECODER, decoder))
    tokens: dict[str, int] = {}
    doubts = [*_doubts_of_tokens(others, config)]
    alone = len(embedding.signature.inputs) == 1
    for at, other in enumerate(others):
        name = f"{MEDIA}{at or ''}"
        joined, token = list(_wires(name, other, EMBEDDING, embedding)), _entry_token(other, others, config)
        placed = alone and len(others) == 1 and _over_rows(other, embedding)
        if not joined and not (placed and token):
            return Reading({}, "nothing tells where its results go", _not_joined(other, alone, placed))
        if not joined:
            doubts += _past_the_table(embedding, token)
        tokens |= token
        sessions = {name: other, **sessions}
        wires = [*joined, *wires]
    doubts += _doubts(sessions, wires)
    pipeline = {
        "sessions": {name: {"file": each.artifact} for name, each in sessions.items()},
        "flow": [{"run": name, "when": "init" if name.startswith(MEDIA) else "step"} for name in sessions],
        "dataflow": [{"from": one, "to": other} for one, other in wires],
    }
    document = {"version": 2, "pipeline": pipeline, **({"tokens": tokens} if tokens else {})}
    return Reading(document, "; ".join(doubts), f"{_DECLARE}: {json.dumps(document)}")


# ---- what is joined to what ------------------------------------------------------------------------------------------


def _wires(source: str, one: Candidate, target: str, other: Candidate) -> Iterator[tuple[str, str]]:
    """What one gives that goes into exactly one float input of the other, as it is or with two axes as one."""
    for port in (each for each in other.signature.inputs if "float" in each.dtype and rank_of(each) in (2, 3)):
        edges = [Edge(source, each, target, port) for each in one.signature.outputs]
        made = [each.output for each in edges if alike(each.output, port) or each.merges]
        made = [each for each in made if len(made) == 1 or each.name == port.name]
        if len(made) == 1:
            yield f"{source}.{made[0].name}", f"{target}.{port.name}"


def _over_rows(other: Candidate, embedding: Candidate) -> bool:
    """Whether one of its results is as wide as the rows that an embedding makes, and nothing else of it is."""
    rows = [each for each in embedding.signature.outputs if "float" in each.dtype and rank_of(each) == 3]
    return len(rows) == 1 and sum(as_wide(each, rows[0]) is not None for each in other.signature.outputs) == 1


def _doubts(sessions: Mapping[str, Candidate], wires: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Inputs of the embedding and the decoder that nothing feeds, or more than one thing could."""
    for code, _, what, _ in sessions[DECODER].ports.faults:
        if code not in _EXPECTED:
            yield f"of {sessions[DECODER].artifact}: {what}"
    fed = Counter(target for _, target in wires)
    for target, count in fed.items():
        if count > 1:
            makers = listed(source for source, other in wires if other == target)
            yield f"{makers} could each be what {target!r} takes"
    ids = flat_integers(sessions[EMBEDDING].signature)
    if len(ids) != 1:
        names = listed(each.name for each in ids)
        yield f"{names} of {sessions[EMBEDDING].artifact} could each be its token ids"
    own = {f"{EMBEDDING}.{each.name}": each for each in sessions[EMBEDDING].signature.inputs if each not in ids}
    own |= {f"{DECODER}.{each.name}": each for each in sessions[DECODER].ports.loose}
    for target, port in own.items():
        if target not in fed:
            artifact = sessions[target.partition(".")[0]].artifact
            yield f"nothing tells what feeds {port.name!r} of {artifact} ({spell_port(port)})"


def _not_joined(other: Candidate, alone: bool, placed: bool) -> str:
    """The way out where nothing tells where a graph's results go."""
    names = listed(each.name for each in other.signature.outputs)
    gives = f"{other.artifact} gives {names}, and no graph puts that among the embeddings"
    way = "join it by hand" if not alone else "export an embedding that takes it beside the token ids"
    if placed:
        way = "name the token that stands for an entry of it as image_token_id (or audio_token_id) in config.json, or "
        way += "export an embedding that takes it beside the token ids"
    return f"{gives}: {way}, and declare the stages (pipeline.workflow, or genai_config.json version 2)"


# ---- the token that stands for an entry ------------------------------------------------------------------------------


def _stated(config: Mapping[str, Any], kind: str) -> list[int]:
    """The ids that `config.json` names for a medium, each once."""
    found = [config.get(f"{kind}_token_{word}") for word in ("id", "index")]
    return list(dict.fromkeys(each for each in found if type(each) is int and each >= 0))


def _entry_token(other: Candidate, others: Sequence[Candidate], config: Mapping[str, Any]) -> dict[str, int]:
    """The id that stands for an entry of what a graph makes, as version 2 states it; {} where nobody says it.

    A graph whose ports tell no medium has the token that is left; the first of two, which is a doubt of its own.
    """
    kind, told = _medium(other.signature).kind, {_medium(each.signature).kind for each in others}
    fits = [each for each in (AUDIO, IMAGE) if each == kind or (not kind and each not in told)]
    return next(({f"{each}_token": found[0]} for each in fits if (found := _stated(config, each))), {})


class _Medium(NamedTuple):
    """What a graph makes features of, "" where its ports do not tell it. sure: a picture beyond doubt."""

    kind: str
    sure: bool = False


def _medium(signature: Signature) -> _Medium:
    """Whole pictures have four axes or five, and a grid places patches; sound has bands.

    Four axes may be a sound's, too; two of pixels and one of three colours are not.
    """
    floats = [each.shape or () for each in signature.inputs if "float" in each.dtype]
    grids = ((each.shape or ())[1:] == (3,) for each in signature.inputs if each.dtype in ("int64", "int32"))
    pictures = [each for each in floats if len(each) in (4, 5)]
    if pictures or any(grids):
        return _Medium(IMAGE, any(_COLOURS in (each[-3], each[-1]) for each in pictures))
    heard = any(len(each) == 3 and not {*BANDS}.isdisjoint(each[1:]) for each in floats)
    return _Medium(AUDIO if heard else "")


def _doubts_of_tokens(others: Sequence[Candidate], config: Mapping[str, Any]) -> Iterator[str]:
    """Where `config.json` names more than one token that could stand for an entry of a graph's results."""
    for kind in ("image", "audio"):
        if others and len(found := _stated(config, kind)) > 1:
            yield f"config.json names {found[0]} and {found[1]} as the token that stands for an entry of {kind}"
    if not (_stated(config, "image") and _stated(config, "audio")):
        return
    unclear = [each for each in others if not _medium(each.signature).sure]
    seen = len(others) - len(unclear)
    if len(unclear) == 1 and seen == 1:
        return  # the other one takes the pictures
    for each in unclear:
        yield f"config.json names a token for pictures and one for sounds, and {each.artifact} could make either"


def _past_the_table(embedding: Candidate, token: Mapping[str, int]) -> Iterator[str]:
    """A token that the embedding has no row for: it looks every token up before anything is written over rows."""
    edges = Edges(embedding.model.graph)
    tables = (edges.table_rows(each.name) for each in flat_integers(embedding.signature))
    rows = max((each for found in tables for each in found), default=0)
    for id in token.values():
        if 0 < rows <= id:
            yield f"the token {id} stands for an entry, and {embedding.artifact} has rows for {rows} tokens"
