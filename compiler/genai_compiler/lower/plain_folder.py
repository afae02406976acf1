"""A folder in which nothing is declared -> the one Workflow: graphs, a model's `config.json`, a tokenizer.

Which port plays which part is read from the graph; numbers that it leaves open come from `config.json`. Two graphs may
be an encoder and its decoder; more are several readings: the caller names one, or one of each.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onnx import ModelProto

from genai_compiler.lower.bare_decoder import DecoderSource
from genai_compiler.lower.composite import OUTPUT_START, with_rows
from genai_compiler.lower.decoder_facts import PROMPT
from genai_compiler.lower.decoder_workflow import decoder_document
from genai_compiler.lower.lowered import Lowered
from genai_compiler.lower.matching import spell_port
from genai_compiler.lower.plain_defaults import FILE as GENERATION
from genai_compiler.lower.plain_defaults import plain_defaults
from genai_compiler.lower.plain_encoder import DECODER, PlainEncoder, plain_encoder
from genai_compiler.lower.plain_ports import PlainPorts, plain_ports
from genai_compiler.lower.stages import with_stages
from genai_compiler.lower.stated import Fact, Stated
from genai_compiler.problem import CompileError, Place, Problem, errors, ordered
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.bare import BareDocument
from genai_compiler.read.files import read_document
from genai_compiler.read.places import DocPath, Places
from genai_compiler.read.signature import Signature, load_graph, signature_of

CONFIG = "config.json"
DECLARE = "an inference_metadata.yaml beside the graph"
_IO: DocPath = ("model", "io")
_SUFFIXES = (".onnx", ".onnx.textproto")
_TEXT_PART = "text_config"
_KEYS: Mapping[Fact, tuple[str, ...]] = {
    "kv_heads": ("num_key_value_heads",),
    "head_size": ("head_dim",),
    "layers": ("num_hidden_layers", "n_layer", "n_layers"),
    "vocab_size": ("vocab_size",),
    "context_length": ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "max_seq_len"),
}
_HEADS, _WIDTH = ("num_attention_heads", "n_head", "n_heads"), ("hidden_size", "n_embd", "d_model")


def is_plain_folder(root: Path) -> bool:
    """Whether the folder holds graphs and a model's configuration (nothing else having been declared)."""
    return (root / CONFIG).is_file() and bool(plain_graphs(root))


def plain_graphs(root: Path) -> tuple[str, ...]:
    """The graphs of a folder, in it and one level below, package-relative."""
    files = [*root.iterdir(), *(inner for each in root.iterdir() if each.is_dir() for inner in each.iterdir())]
    found = [each for each in files if each.name.endswith(_SUFFIXES) and each.is_file()]
    return tuple(sorted(each.relative_to(root).as_posix() for each in found))


def lower_plain(root: Path, graphs: Sequence[str] = ()) -> Lowered:
    """Lower the folder `root`. graphs: the files the caller chose, package-relative, () for all there are.

    Raises CompileError with every problem, warnings included.
    """
    config, places = _side_file(root, CONFIG)
    stated = _StatedNumbers.of(config)
    parts = [_part(root, each, stated) for each in chosen_graphs(root, graphs)]
    decoder, encoder = parts[0] if len(parts) == 1 else _decoder_of(root, parts, graphs), None
    ports = decoder.ports
    if len(parts) > 1 and not ports.faults:
        other = next(each for each in parts if each is not decoder)
        encoder = plain_encoder(other.artifact, other.model.graph, other.signature, ports)
        ports.faults += encoder.faults
    elif not ports.faults:
        ports.faults += _unfed(ports)
    if ports.faults:
        raise CompileError(_told(ports, decoder.artifact))
    block = BareDocument(), ports.block(), _IO, places
    source = PlainSource(root, decoder.artifact, *block, zeros=ports.zeros, numbers=stated)
    try:
        fed, to_encoder = (encoder.fed, encoder.takes_tokens) if encoder is not None else ({}, False)
        facts, text, problems = source.facts(fed, OUTPUT_START if to_encoder else PROMPT)
    except CompileError as refused:
        raise CompileError([_at_the_graph(each, decoder.artifact) for each in refused.problems]) from refused
    generation, spots = _side_file(root, GENERATION)
    defaults, found = plain_defaults(generation, spots, facts.max_sequence_length, facts.sampled_ids)
    problems = ordered((*(_at_the_graph(each, decoder.artifact) for each in problems), *found))
    if errors(problems):
        raise CompileError(problems)
    facts = replace(facts, start=text.decoder_start) if encoder is not None else facts
    document = decoder_document(facts, text.eos, defaults)
    if encoder is not None:
        document = with_stages(document, with_rows((encoder.stage,), encoder.edges, DECODER, facts))
    lowered = source.lowered(facts, document, text, problems)
    notes = (*_notes(decoder, encoder), *lowered.notes[1:])
    return replace(lowered, notes=notes)


@dataclass(frozen=True)
class _Part:
    """One graph of the folder, with the ports of a decoder as far as it has them."""

    artifact: str
    model: ModelProto
    signature: Signature
    ports: PlainPorts


def _part(root: Path, artifact: str, stated: "_StatedNumbers") -> _Part:
    model = load_graph(root / artifact, root)
    signature = signature_of(model, artifact, root)
    return _Part(artifact, model, signature, plain_ports(model.graph, signature, stated.numbers.get("vocab_size")))


def _decoder_of(root: Path, parts: Sequence[_Part], named: Sequence[str]) -> _Part:
    """Of two graphs the one that keeps state. Raises CompileError `several-graphs`."""
    keeping = [each for each in parts if each.ports.keeps]
    if len(keeping) == 1 and len(parts) == 2:
        return keeping[0]
    if not named:
        raise _several(root, plain_graphs(root))
    names = ", ".join(each.artifact for each in parts)
    what = f"of {names} {len(keeping)} keep caches from run to run: an encoder keeps none, and its decoder does"
    help = f"name one of each with --graph, or declare the stages in {DECLARE}"
    raise CompileError([Problem("several-graphs", Place(root.resolve().name), "", what, help)])


def _unfed(ports: PlainPorts) -> list[tuple[str, str, str, str]]:
    """A decoder that stands alone: nothing but its own outputs could feed these."""
    help = "export without it, or declare what gives it"
    words = "nothing feeds the graph's input {!r} ({}): no output is its next value"
    return [
        ("unclaimed-input", "", words.format(port.name, spell_port(port)), help)
        for port in (*ports.loose, *ports.over_source)
    ]


# ---- which graph -----------------------------------------------------------------------------------------------------


def chosen_graphs(root: Path, graphs: Sequence[str]) -> list[str]:
    """The graphs that the caller named, or the folder's only one, or its only two.

    Raises CompileError: several-graphs, and what is wrong with a name.
    """
    found = plain_graphs(root)
    named: list[str] = []
    for graph in graphs:
        try:
            named.append(find_artifact(root, graph).name)
        except ArtifactFault as fault:
            help = f"the folder's graphs are {', '.join(found[:12])}"
            raise CompileError([replace(fault.problem(Place(root.resolve().name), ""), help=help)]) from fault
    if named and len(set(named)) < 3:
        return sorted(set(named))
    if not named and len(found) < 3:
        return list(found)
    raise _several(root, found)


def _several(root: Path, found: Sequence[str]) -> CompileError:
    what = f"the folder holds {len(found)} graphs and declares none: {', '.join(found[:12])}"
    what += f" and {len(found) - 12} more" if len(found) > 12 else ""
    help = f"choose one with --graph FILE (for example --graph {found[0]}), an encoder and its decoder with --graph"
    help += f" twice, or declare the stages in {DECLARE}"
    return CompileError([Problem("several-graphs", Place(root.resolve().name), "", what, help)])


# ---- what config.json states -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _StatedNumbers:
    """numbers: by fact; keys: where each stands, or would. derived: what the file only implies."""

    numbers: Mapping[Fact, int]
    keys: Mapping[Fact, DocPath]
    derived: Mapping[Fact, int]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "_StatedNumbers":
        part = config.get(_TEXT_PART)
        inside = isinstance(part, dict) and "vocab_size" in part
        holder: Mapping[str, Any] = part if inside and isinstance(part, dict) else config
        start: DocPath = (_TEXT_PART,) if inside else ()
        numbers: dict[Fact, int] = {}
        keys: dict[Fact, DocPath] = {}
        for fact, names in _KEYS.items():
            name = next((each for each in names if _number(holder, each) is not None), None)
            keys[fact] = (*start, name or names[0])
            if name is not None:
                numbers[fact] = _number(holder, name) or 0
        heads, width = _first(holder, _HEADS), _first(holder, _WIDTH)
        derived: dict[Fact, int] = {} if heads is None else {"kv_heads": heads}
        if heads is not None and width is not None and width % heads == 0:
            derived["head_size"] = width // heads
        return cls(numbers, keys, derived)


def _number(holder: Mapping[str, Any], name: str) -> int | None:
    value = holder.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else None


def _first(holder: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((found for each in names if (found := _number(holder, each)) is not None), None)


@dataclass(frozen=True)
class PlainSource(DecoderSource):
    """The graph, with the numbers of `config.json` in the place of a document's."""

    numbers: _StatedNumbers = field(default_factory=lambda: _StatedNumbers({}, {}, {}))

    def _stated(self) -> Stated:
        """As of a document; what `config.json` only implies fills extents that the graph leaves open."""
        said, keys = self.numbers.numbers, self.numbers.keys
        open_axes = _open_axes(self)
        implied = {fact: n for fact, n in self.numbers.derived.items() if fact in open_axes and fact not in said}
        every = {**implied, **said}
        nowhere: DocPath = ()
        others: dict[Fact, DocPath] = dict.fromkeys(("window", "share_buffer", "key", "value", "state"), nowhere)
        return Stated(
            kv_heads=every.get("kv_heads"),
            head_size=every.get("head_size"),
            layers=said.get("layers"),
            vocab_size=said.get("vocab_size"),
            context_length=said.get("context_length"),
            share_buffer=False,
            window=None,
            paths={**others, **keys},
            place=self.places.find,
        )


def _open_axes(source: DecoderSource) -> set[Fact]:
    """Which numbers of its caches a graph leaves to others."""
    model = load_graph(source.root / source.artifact, source.root)
    signature = signature_of(model, source.artifact, source.root)
    named = set(source.io.kv_inputs or ())
    shapes = [each.shape for each in signature.inputs if each.name in named and each.shape and len(each.shape) == 4]
    axes: tuple[tuple[Fact, int], ...] = (("kv_heads", 1), ("head_size", 3))
    return {fact for fact, axis in axes if any(not isinstance(shape[axis], int) for shape in shapes)}


def _side_file(root: Path, name: str) -> tuple[Mapping[str, Any], Places]:
    """The object in a JSON file of the folder, {} where there is none; a file that only Python reads has no places."""
    try:
        find_artifact(root, name)
    except ArtifactFault as fault:
        if fault.code == "missing-file":
            return {}, Places(name)
        raise CompileError([fault.problem(Place(name), "")]) from fault
    try:
        data, places = read_document(root / name, root)
    except CompileError:
        try:
            data, places = json.loads((root / name).read_bytes().decode("utf-8-sig")), Places(name)
        except (ValueError, RecursionError):
            data = None
        if data is None:
            raise
    return (data, places) if isinstance(data, dict) else ({}, places)


# ---- words -----------------------------------------------------------------------------------------------------------


def _told(ports: PlainPorts, artifact: str) -> list[Problem]:
    return [
        Problem(code, Place(artifact), "", _what(what, key), help or f"name it in {_field(key)} of {DECLARE}")
        for code, key, what, help in ports.faults
    ]


def _what(what: str, key: str) -> str:
    return f"{key.removesuffix('_input').removesuffix('_output')}: {what}" if what.endswith("be it") else what


def _field(key: str) -> str:
    return f"model.io.{key}" if key else "model.io"


def _at_the_graph(problem: Problem, artifact: str) -> Problem:
    """A problem of the block that a document would hold, placed at the graph that it was read from."""
    if not problem.path.startswith("model.io"):
        return problem
    help = problem.help + ("; or " if problem.help else "") + f"declare the ports in {problem.path} of {DECLARE}"
    return replace(problem, where=Place(artifact), path="", help=help)


def _notes(decoder: _Part, encoder: PlainEncoder | None) -> list[str]:
    io = decoder.ports.io
    parts = {
        "token ids": io.get("token_input"),
        "mask": io.get("attention_mask_input"),
        "positions": io.get("position_ids_input"),
        "logits": io.get("logits_output"),
    }
    named = ", ".join(f"{part} {name!r}" for part, name in parts.items() if name)
    notes = [f"provenance: nothing is declared; read from the graph {decoder.artifact}: {named}"]
    if encoder is not None:
        joined = ", ".join(f"{each.output.name!r} goes to {each.input.name!r}" for each in encoder.edges)
        notes.append(f"encoder: {encoder.stage.artifact} runs once; {joined}")
    return notes
