"""A folder in which nothing is declared -> the one Workflow: graphs, a model's `config.json`, a tokenizer.

Which port plays which part is read from the graph; numbers that it leaves open come from `config.json`. Several graphs
are compiled where they leave one reading; else the caller names one, or one of each.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from genai_compiler.lower.bare_decoder import bare_text_facts
from genai_compiler.lower.composite import OUTPUT_START, with_rows
from genai_compiler.lower.decoder_facts import PROMPT
from genai_compiler.lower.decoder_workflow import decoder_document
from genai_compiler.lower.front_model import FrontModel
from genai_compiler.lower.lowered import LoweredGraph
from genai_compiler.lower.matching import spell_port
from genai_compiler.lower.plain_candidate import Candidate
from genai_compiler.lower.plain_choice import MOST, Choice, chosen_of, graph_option, joined_of
from genai_compiler.lower.plain_defaults import FILE as GENERATION
from genai_compiler.lower.plain_defaults import plain_defaults
from genai_compiler.lower.plain_encoder import DECODER, PlainEncoder, plain_encoder
from genai_compiler.lower.plain_front import per_token, plain_front
from genai_compiler.lower.plain_joined import SideFiles, lower_joined
from genai_compiler.lower.plain_numbers import PlainSource, StatedNumbers
from genai_compiler.lower.plain_pair import Pair
from genai_compiler.lower.plain_ports import PlainPorts, plain_ports
from genai_compiler.lower.plain_two_files import told_pair, two_graphs
from genai_compiler.lower.single_front import only_files
from genai_compiler.lower.single_pass import OF_GENERATION, note, single_pass
from genai_compiler.lower.stages import with_stages
from genai_compiler.lower.unrunnable import check_graph
from genai_compiler.problem import CompileError, Place, Problem, errors, ordered
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.bare import BareDocument
from genai_compiler.read.files import read_document
from genai_compiler.read.places import DocPath, Places
from genai_compiler.read.sentence_modules import read_sentence_modules
from genai_compiler.read.session_options import SessionOptions
from genai_compiler.read.signature import load_graph, signature_of

CONFIG = "config.json"
DECLARE = "an inference_metadata.yaml beside the graph"
_IO: DocPath = ("model", "io")
_SUFFIXES = (".onnx", ".onnx.textproto")


def is_plain_folder(root: Path) -> bool:
    """Whether the folder holds graphs and a model's configuration (nothing else having been declared)."""
    return (root / CONFIG).is_file() and bool(plain_graphs(root))


def plain_graphs(root: Path) -> tuple[str, ...]:
    """The graphs of a folder, in it and one level below, package-relative."""
    files = [*root.iterdir(), *(inner for each in root.iterdir() if each.is_dir() for inner in each.iterdir())]
    found = [each for each in files if each.name.endswith(_SUFFIXES) and each.is_file()]
    return tuple(sorted(each.relative_to(root).as_posix() for each in found))


def lower_plain(root: Path, graphs: Sequence[str] = ()) -> LoweredGraph:
    """Lower the folder `root`. graphs: the files the caller chose, package-relative, () for all there are.

    Raises CompileError with every problem, warnings included.
    """
    config, places = _side_file(root, CONFIG)
    stated = StatedNumbers.of(config)
    doubts = stated.doubts(places)
    try:
        lowered = _lowered(root, graphs, config, places, stated)
    except CompileError as refused:
        raise CompileError((*refused.problems, *doubts)) from refused
    return replace(lowered, problems=ordered((*lowered.problems, *doubts)))


def _lowered(
    root: Path, graphs: Sequence[str], config: Mapping[str, Any], places: Places, stated: StatedNumbers
) -> LoweredGraph:
    parts, choice = _parts(root, graphs, stated, config)
    if choice.document:
        joined = lower_joined(root, parts, choice.document, stated, SideFiles(config, places, *_generation(root)))
        return replace(joined, notes=(*joined.notes, *choice.notes))
    if choice.pair is not None:
        return _lower_decoder(root, _two_files(choice.pair, stated), choice, stated, places)
    decoder = parts[0] if len(parts) == 1 else _decoder_of(root, parts, graphs)
    if len(parts) == 1 and _is_single_pass(decoder, config):
        return _lower_single(root, decoder, stated, places)
    return _lower_decoder(root, _beside(decoder, parts, stated), choice, stated, places)


@dataclass(frozen=True)
class _Decoder:
    """The decoder's graph, and what runs beside it. pair: the two graphs that it is, of which `graph` is the second."""

    graph: Candidate
    ports: PlainPorts
    encoder: PlainEncoder | None = None
    front: FrontModel | None = None
    pair: Pair | None = None


def _beside(decoder: Candidate, parts: Sequence[Candidate], stated: StatedNumbers) -> _Decoder:
    """A decoder of one graph with the one beside it; faults go to its ports."""
    ports, vocabulary = decoder.ports, stated.numbers.get("vocab_size")
    if len(parts) > 1 and not ports.faults:
        other = next(each for each in parts if each is not decoder)
        graph, embedded = (other.artifact, other.model.graph, other.signature), per_token(ports, decoder.signature)
        if embedded and len(embedded) == len(ports.loose) and not ports.over_source:
            front, faults = plain_front(*graph, embedded, vocabulary)
            ports.faults += faults
            return _Decoder(decoder, ports, front=front)
        encoder = plain_encoder(*graph, ports, vocabulary)
        ports.faults += encoder.faults
        if not encoder.edges and not ports.faults:
            what = f"{other.artifact} gives nothing that {decoder.artifact} takes"
            help = f"choose the decoder alone with {graph_option(decoder.artifact)}"
            ports.faults.append(("several-graphs", "", what, help))
        return _Decoder(decoder, ports, encoder)
    if not ports.faults:
        ports.faults += _unfed(ports)
    return _Decoder(decoder, ports)


def _two_files(pair: Pair, stated: StatedNumbers) -> _Decoder:
    """A decoder of two graphs, and the encoder beside them."""
    vocabulary = stated.numbers.get("vocab_size")
    ports, encoder = pair.ports(vocabulary), None
    if not ports.faults and pair.encoder is not None:
        other = pair.encoder
        encoder = plain_encoder(other.artifact, other.model.graph, other.signature, ports, vocabulary)
        ports.faults += encoder.faults
    elif not ports.faults:
        ports.faults += _unfed(ports)
    return _Decoder(pair.later, ports, encoder, pair=pair)


def _lower_decoder(
    root: Path, decoder: _Decoder, choice: Choice, stated: StatedNumbers, places: Places
) -> LoweredGraph:
    artifact, ports, encoder, front = decoder.graph.artifact, decoder.ports, decoder.encoder, decoder.front
    if ports.faults:
        raise CompileError(_told(ports, artifact))
    block = BareDocument(), ports.block(), _IO, places
    source = PlainSource(root, artifact, *block, zeros=ports.zeros, numbers=stated, pair=decoder.pair)
    try:
        fed, to_encoder = (encoder.fed, encoder.takes_tokens) if encoder is not None else ({}, False)
        taken = (front.facts, front.tokens) if front is not None else (None, None)
        facts, text, problems = source.facts(fed, OUTPUT_START if to_encoder else PROMPT, *taken)
    except CompileError as refused:
        raise CompileError([_at_the_graph(each, artifact) for each in refused.problems]) from refused
    defaults, found = plain_defaults(*_generation(root), facts.max_sequence_length, facts.sampled_ids)
    problems = ordered((*(_at_the_graph(each, artifact) for each in problems), *found))
    if errors(problems):
        raise CompileError(problems)
    facts = replace(facts, start=text.decoder_start) if encoder is not None else facts
    document = decoder_document(facts, text.eos, defaults)
    if encoder is not None:
        document = with_stages(document, with_rows((encoder.stage,), encoder.edges, DECODER, facts))
    document = document if decoder.pair is None else two_graphs(document, decoder.pair)
    lowered = source.lowered(facts, document, text, problems)
    return replace(lowered, notes=(*_notes(decoder), *choice.notes, *lowered.notes[1:]))


def _part(root: Path, artifact: str, stated: StatedNumbers) -> Candidate:
    model = load_graph(root / artifact, root)
    signature = signature_of(model, artifact, root)
    return Candidate(artifact, model, signature, plain_ports(model.graph, signature, stated.numbers.get("vocab_size")))


def _parts(
    root: Path, graphs: Sequence[str], stated: StatedNumbers, config: Mapping[str, Any]
) -> tuple[list[Candidate], Choice]:
    """The graphs that the folder is, and what they are together. Raises CompileError `several-graphs`."""
    found, folder = chosen_graphs(root, graphs), root.resolve().name
    if len(found) < 3:
        few = [_part(root, each, stated) for each in found]
        joined = joined_of(folder, few, config, bool(graphs)) if len(few) == 2 else None
        choice = joined or Choice(tuple(found))
        return [each for each in few if each.artifact in choice.graphs], choice
    parts, damaged = dict[str, Candidate](), list[str]()
    for each in found:
        try:
            parts[each] = _part(root, each, stated)
        except CompileError:
            damaged.append(each)
    if damaged:
        raise _several(root, found, damaged)
    choice = chosen_of(folder, list(parts.values()), config, bool(graphs))
    return [parts[each] for each in choice.graphs], choice


_LACKS = frozenset({"no-logits", "no-embedding-stage"})


def _is_single_pass(part: Candidate, config: Mapping[str, Any]) -> bool:
    """Whether a graph keeps nothing and gives no logits over its own ids, and nobody says that it is a decoder."""
    classes = config.get("architectures")
    of_text = any(str(each).endswith("ForCausalLM") for each in classes) if isinstance(classes, list) else False
    lacks = {code for code, *_ in part.ports.faults}
    return (
        not part.ports.keeps
        and bool(lacks)
        and lacks <= _LACKS
        and config.get("is_decoder") is not True
        and not of_text
    )


def _lower_single(root: Path, part: Candidate, stated: StatedNumbers, places: Places) -> LoweredGraph:
    """An encoder alone: one call. Raises CompileError for a graph that can't run."""
    text, doubts = bare_text_facts(root, None, places)
    pooling, unclear = read_sentence_modules(root)
    found = check_graph(part.model, part.artifact, True)
    if errors(found):
        raise CompileError(found)
    vocabulary = stated.numbers.get("vocab_size")
    named = part.artifact, part.model, part.signature
    document, warned = single_pass(*named, pooling, vocabulary, only_files(root))
    kept = (each for each in doubts if each.code not in OF_GENERATION)
    return LoweredGraph(
        document=document,
        problems=ordered((*found, *kept, *unclear, *warned)),
        notes=(f"provenance: nothing is declared; read from the graph {part.artifact}", note(part.signature)),
        text=replace(text, end_ids=()),
        providers=(),
        session_options=SessionOptions(),
        signature=part.signature,
    )


def _decoder_of(root: Path, parts: Sequence[Candidate], named: Sequence[str]) -> Candidate:
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
    """The graphs that the caller named, or all of the folder.

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
    chosen = sorted(set(named)) if named else list(found)
    if len(chosen) > MOST:
        raise _several(root, found)
    return chosen


def _several(root: Path, found: Sequence[str], damaged: Sequence[str] = ()) -> CompileError:
    """The refusal of so many graphs. damaged: those of them that can't be read, which are no advice."""
    what = f"the folder holds {len(found)} graphs and declares none: {_some(found)}"
    what += f"; {_some(damaged)} can't be read" if damaged else ""
    sound = next((each for each in found if each not in damaged), None)
    help = "export them again"
    if sound is not None:
        help = f"choose one with --graph FILE (for example {graph_option(sound)}), graphs that belong together with "
        help += f"--graph for each, or declare the stages in {DECLARE}"
    return CompileError([Problem("several-graphs", Place(root.resolve().name), "", what, help)])


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


# ---- files beside the graphs -----------------------------------------------------------------------------------------


def _generation(root: Path) -> tuple[Mapping[str, Any], Places]:
    return _side_file(root, GENERATION)


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
            data = json.loads((root / name).read_bytes().decode("utf-8-sig"))
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
            raise
        places = Places(name)
    return (data, places) if isinstance(data, dict) else ({}, places)  # what is no object text_facts reports


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


def _notes(decoder: _Decoder) -> list[str]:
    io, pair, encoder, front = decoder.ports.io, decoder.pair, decoder.encoder, decoder.front
    parts = {
        "token ids": io.get("token_input"),
        "mask": io.get("attention_mask_input"),
        "positions": io.get("position_ids_input"),
        "logits": io.get("logits_output"),
    }
    named = ", ".join(f"{part} {name!r}" for part, name in parts.items() if name)
    notes = [f"provenance: nothing is declared; read from the graph {decoder.graph.artifact}: {named}"]
    notes += [] if pair is None else [told_pair(pair)]
    if encoder is not None:
        joined = ", ".join(f"{each.output.name!r} goes to {each.input.name!r}" for each in encoder.edges)
        notes.append(f"encoder: {encoder.stage.artifact} runs once; {joined}")
    if front is not None:
        joined = ", ".join(f"{made.name!r} goes to {taken.name!r}" for made, taken in front.facts.streams)
        notes.append(f"embedding: {front.facts.artifact} runs with every token; {joined}")
    return notes
