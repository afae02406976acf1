"""A folder in which nothing is declared -> the one Workflow: graphs, a model's `config.json`, a tokenizer.

Which port plays which part is read from the graph; numbers that it leaves open come from `config.json`. Several graphs
are several readings: the caller names one.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from genai_compiler.lower.bare_decoder import DecoderSource
from genai_compiler.lower.decoder_workflow import decoder_document
from genai_compiler.lower.lowered import Lowered
from genai_compiler.lower.plain_defaults import FILE as GENERATION
from genai_compiler.lower.plain_defaults import plain_defaults
from genai_compiler.lower.plain_ports import PlainPorts, plain_ports
from genai_compiler.lower.stated import Fact, Stated
from genai_compiler.problem import CompileError, Place, Problem, errors, ordered
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.bare import BareDocument
from genai_compiler.read.files import read_document
from genai_compiler.read.places import DocPath, Places
from genai_compiler.read.signature import load_graph, signature_of

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


def lower_plain(root: Path, graph: str | None) -> Lowered:
    """Lower the folder `root`. graph: the file the caller chose, package-relative, None for the only one.

    Raises CompileError with every problem, warnings included.
    """
    artifact = _chosen(root, graph)
    config, places = _side_file(root, CONFIG)
    stated = _StatedNumbers.of(config)
    model = load_graph(root / artifact, root)
    signature = signature_of(model, artifact, root)
    ports = plain_ports(model.graph, signature, stated.numbers.get("vocab_size"))
    if ports.faults:
        raise CompileError(_told(ports, artifact))
    source = PlainSource(root, artifact, BareDocument(), ports.block(), _IO, places, zeros=ports.zeros, numbers=stated)
    try:
        facts, text, problems = source.facts({})
    except CompileError as refused:
        raise CompileError([_at_the_graph(each, artifact) for each in refused.problems]) from refused
    generation, spots = _side_file(root, GENERATION)
    defaults, found = plain_defaults(generation, spots, facts.max_sequence_length, facts.sampled_ids)
    problems = ordered((*(_at_the_graph(each, artifact) for each in problems), *found))
    if errors(problems):
        raise CompileError(problems)
    lowered = source.lowered(facts, decoder_document(facts, text.eos, defaults), text, problems)
    notes = (_note(artifact, ports), *lowered.notes[1:])
    return replace(lowered, notes=notes)


# ---- which graph -----------------------------------------------------------------------------------------------------


def _chosen(root: Path, graph: str | None) -> str:
    found = plain_graphs(root)
    if graph is not None:
        try:
            return find_artifact(root, graph).name
        except ArtifactFault as fault:
            help = f"the folder's graphs are {', '.join(found[:12])}"
            raise CompileError([replace(fault.problem(Place(root.resolve().name), ""), help=help)]) from fault
    if len(found) == 1:
        return found[0]
    what = f"the folder holds {len(found)} graphs and declares none: {', '.join(found[:12])}"
    what += f" and {len(found) - 12} more" if len(found) > 12 else ""
    help = f"choose one with --graph FILE (for example --graph {found[0]}), or declare the stages in {DECLARE}"
    raise CompileError([Problem("several-graphs", Place(root.resolve().name), "", what, help)])


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


def _note(artifact: str, ports: PlainPorts) -> str:
    parts = {
        "token ids": ports.io.get("token_input"),
        "mask": ports.io.get("attention_mask_input"),
        "positions": ports.io.get("position_ids_input"),
        "logits": ports.io.get("logits_output"),
    }
    named = ", ".join(f"{part} {name!r}" for part, name in parts.items() if name)
    return f"provenance: nothing is declared; read from the graph {artifact}: {named}"
