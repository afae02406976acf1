"""A `genai_config.json` v1 package -> the one Workflow, with what the standard has no place for beside it.

Names come from the configuration, facts from the graph. `model.type` decides nothing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genai_compiler.lower.decoder_facts import DecoderFacts
from genai_compiler.lower.decoder_workflow import decoder_document
from genai_compiler.lower.false_statements import absent_ports, short_tables
from genai_compiler.lower.match_ports import match_ports
from genai_compiler.lower.merge_facts import Merge, choose_aliasing, merge_length, merge_states, merge_vocabulary
from genai_compiler.lower.merge_fixed import merge_fixed_states
from genai_compiler.lower.search_defaults import search_defaults
from genai_compiler.lower.stated import stated_by_config
from genai_compiler.lower.unrunnable import check_graph, missing_files
from genai_compiler.problem import CompileError, Place, Problem, errors, ordered
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.genai_config import CONFIG_NAME, GenaiConfig, named, read_genai_config
from genai_compiler.read.graph_facts import last_token_only, length_switches, mask_use
from genai_compiler.read.hint_sources import Hint
from genai_compiler.read.one_token import takes_one_token
from genai_compiler.read.places import DocPath
from genai_compiler.read.session_options import ProviderPreference, SessionOptions
from genai_compiler.read.signature import Signature, load_graph, signature_of
from genai_compiler.read.text_facts import TextFacts, read_text_facts

UNKNOWN_LENGTH = 1 << 31
"""Stands for a context length that nobody states, where only the text of a configuration is judged."""


@dataclass(frozen=True)
class Lowered:
    """A package in the standard's form.

    document: plain data in the form of the metadata standard, section 10.3. problems: warnings only. notes: one-line
    facts for the summary. decoder: how the graph is driven. hints: where its sessions should run.
    """

    document: dict[str, Any]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    text: TextFacts
    providers: tuple[ProviderPreference, ...]
    session_options: SessionOptions
    signature: Signature
    decoder: DecoderFacts
    hints: tuple[Hint, ...] = ()


def lower_genai_config(root: Path) -> Lowered:
    """Lower the v1 package in the folder `root`. Raises CompileError with every problem, warnings included."""
    if not (root / CONFIG_NAME).is_file():
        raise CompileError(missing_files(root))
    config, problems = read_genai_config(root)
    found = [*problems, *_other_classes(config)]
    artifact, fault = _decoder_file(root, config)
    found += [fault] if fault is not None else []
    if fault is not None or any(each.code == "unsupported-package-class" for each in found):
        _, searched = search_defaults(config, config.context_length or UNKNOWN_LENGTH, config.vocab_size)
        raise CompileError([*found, *searched])
    try:
        return _lower(root, config, artifact, found)
    except CompileError as error:
        raise CompileError([*found, *error.problems]) from error


def _lower(root: Path, config: GenaiConfig, artifact: str, found: list[Problem]) -> Lowered:
    model = load_graph(root / artifact, root)
    signature = signature_of(model, artifact, root)
    ports, port_problems = match_ports(config, signature)
    found += port_problems
    merge = Merge(stated_by_config(config), signature)
    states = merge_states(ports, merge)
    one_token = ports.token_ids is not None and takes_one_token(model, ports.token_ids)
    fixed = merge_fixed_states(ports, one_token, merge)
    aliasing = choose_aliasing(states, ports, merge)
    width, sampled = merge_vocabulary(ports.logits, merge) if ports.logits is not None else (None, None)
    text, text_problems = read_text_facts(root, config, width)
    found += absent_ports(config, signature)
    length = merge_length((each.capacity for each in states), merge, text.context_length)
    defaults, search_problems = search_defaults(config, length, sampled)
    found += [*merge.problems, *text_problems, *search_problems]
    positions = ports.position_ids.name if ports.position_ids is not None else ""
    found += short_tables(model.graph, positions, length, *_length_stated(config))
    mask = ports.attention_mask.name if ports.attention_mask is not None else ""
    found += check_graph(model, artifact, bool(ports.keys or ports.values or ports.fixed), mask)
    if errors(found) or ports.token_ids is None or ports.logits is None:
        raise CompileError([])
    facts = DecoderFacts(
        artifact=artifact,
        signature=signature,
        token_ids=ports.token_ids,
        attention_mask=ports.attention_mask,
        position_ids=ports.position_ids,
        logits=ports.logits,
        hidden=ports.hidden,
        zero_inputs=ports.zero_inputs,
        states=states,
        fixed_states=fixed,
        aliasing=aliasing,
        max_sequence_length=length,
        vocab_size=width,
        sampled_ids=sampled,
        mask_use=mask_use(model, ports.attention_mask.name) if ports.attention_mask is not None else "lengths",
        last_token_only=last_token_only(model, ports.logits.name),
        one_token=one_token,
        length_switches=length_switches(model),
    )
    return Lowered(
        document=decoder_document(facts, text.eos, defaults),
        problems=ordered(found),
        notes=_notes(config, facts, text),
        text=text,
        providers=config.decoder.session.providers,
        session_options=config.decoder.session,
        signature=signature,
        decoder=facts,
    )


def _length_stated(config: GenaiConfig) -> tuple[Place, DocPath]:
    path: DocPath = ("model", "context_length")
    return config.place(path), path


def _decoder_file(root: Path, config: GenaiConfig) -> tuple[str, Problem | None]:
    path: DocPath = ("model", "decoder", "filename")
    if not config.decoder.filename:
        graphs = sorted(each.relative_to(root).as_posix() for each in root.rglob("*.onnx"))[:8]
        help = f"the package holds {', '.join(graphs)}" if graphs else "the package holds no .onnx file"
        return "", Problem("missing-key", *named(config, path), "model.decoder.filename is not stated", help)
    try:
        return find_artifact(root, config.decoder.filename).name, None
    except ArtifactFault as fault:
        return "", fault.problem(*named(config, path))


def _other_classes(config: GenaiConfig) -> list[Problem]:
    """Refuse sections that make the package more than one decoder graph."""
    return [
        Problem(
            "unsupported-package-class",
            *named(config, path),
            f"{path[-1]!r} makes this a package of several stages, which is not compiled yet: "
            "only model.decoder with one graph is",
            "a text-only export of the same model has one decoder graph",
        )
        for path in config.other_classes
    ]


def _notes(config: GenaiConfig, facts: DecoderFacts, text: TextFacts) -> tuple[str, ...]:
    kind = f"model.type {config.model_type!r}" if config.model_type else "model.type is not stated; it"
    ends = "; ".join(f"{each.id} ({', '.join(each.said_by)})" for each in text.end_ids)
    notes = [
        f"{kind} decides nothing: what runs is read from the graph",
        f"end tokens: {ends or 'none'}",
        f"cache: {facts.cache_bytes_per_token} bytes a token and row, up to {facts.max_sequence_length} positions",
    ]
    if facts.fixed_states:
        size = sum(each.bytes_per_row for each in facts.fixed_states)
        notes.append(f"state of one size: {size} bytes a row, replaced by each step")
    if facts.one_token:
        notes.append("the graph takes one token a call: a prompt is fed token by token")
    return tuple(notes)
