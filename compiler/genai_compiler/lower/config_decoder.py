"""The decoder of a v1 configuration: its names and numbers brought together with its graph."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnx import ModelProto

from genai_compiler.lower.decoder_facts import PROMPT, DecoderFacts, FrontFacts, told_cache
from genai_compiler.lower.false_statements import absent_ports
from genai_compiler.lower.lowered import Lowered
from genai_compiler.lower.match_ports import match_ports
from genai_compiler.lower.match_state import LayerPorts
from genai_compiler.lower.matching import Joined, Surroundings, rank_of
from genai_compiler.lower.merge_combined import merge_combined
from genai_compiler.lower.merge_facts import (
    Merge,
    choose_aliasing,
    merge_length,
    merge_states,
    merge_vocabulary,
)
from genai_compiler.lower.merge_fixed import merge_fixed_states
from genai_compiler.lower.merge_paged import check_groups, merge_paged, unused_batching, with_pages
from genai_compiler.lower.output_start import start_doubts, start_of_single
from genai_compiler.lower.plain_state import plain_state
from genai_compiler.lower.search_defaults import prompt_chunk, search_defaults
from genai_compiler.lower.shifted_caches import merge_shift, merge_shifted, told_columns
from genai_compiler.lower.source_end import told_end
from genai_compiler.lower.stated import stated_by_config
from genai_compiler.lower.unrunnable import check_graph
from genai_compiler.lower.window_caches import split_windows
from genai_compiler.problem import CompileError, Problem, errors, ordered
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.genai_config import GenaiConfig, named
from genai_compiler.read.graph_facts import last_token_only, length_switches, mask_use
from genai_compiler.read.one_token import takes_one_token
from genai_compiler.read.places import DocPath, format_path
from genai_compiler.read.position_tables import table_rows
from genai_compiler.read.signature import Port, load_graph, signature_of
from genai_compiler.read.text_facts import TextFacts, read_text_facts


@dataclass(frozen=True)
class Start:
    """What the decoder starts from. prompt: the workflow input; front: what its tokens go through first."""

    prompt: str = PROMPT
    front: FrontFacts | None = None


@dataclass(frozen=True)
class ConfigDecoder:
    """The decoder, the text files beside it, `generation.defaults`, warnings, and state that no name has found."""

    facts: DecoderFacts
    text: TextFacts
    defaults: dict[str, Any]
    problems: tuple[Problem, ...]
    unnamed: tuple[LayerPorts, ...] = ()

    def lowered(self, config: GenaiConfig, document: dict[str, Any], found: list[Problem]) -> Lowered:
        """The package in the standard's form. document: the one made of the facts, complete; found: other problems.

        Raises CompileError with its own warnings where the others hold an error.
        """
        if errors(found):
            raise CompileError(self.problems)
        return Lowered(
            document=document,
            problems=ordered([*found, *self.problems]),
            notes=(*_notes(config, self.facts, self.text), *_unnamed(self.unnamed)),
            text=self.text,
            providers=config.decoder.session.providers,
            session_options=config.decoder.session,
            signature=self.facts.signature,
            decoder=self.facts,
            chunk=prompt_chunk(config.search, lambda key: named(config, ("search", key))),
        )


def graph_file(root: Path, config: GenaiConfig, path: DocPath, filename: str) -> tuple[str, Problem | None]:
    """(the file of a component, what is wrong with its name). path: of `filename`."""
    if not filename:
        graphs = sorted(each.relative_to(root).as_posix() for each in root.rglob("*.onnx"))[:8]
        help = f"the package holds {', '.join(graphs)}" if graphs else "the package holds no .onnx file"
        return "", Problem("missing-key", *named(config, path), f"{'.'.join(map(str, path))} is not stated", help)
    try:
        return find_artifact(root, filename).name, None
    except ArtifactFault as fault:
        return "", fault.problem(*named(config, path))


def config_decoder(
    root: Path,
    config: GenaiConfig,
    artifact: str,
    around: Surroundings | None = None,
    start: Start | None = None,
) -> ConfigDecoder:
    """The decoder of the package in `root`. artifact: its graph; around: what feeds it beside the request.

    Raises CompileError with every problem, warnings included.
    """
    around, start = around or Surroundings(), start or Start()
    joined = around.joined
    model = joined.model if joined is not None else load_graph(root / artifact, root)
    signature = joined.signature if joined is not None else signature_of(model, artifact, root)
    ports, port_problems = match_ports(config, signature, around, lambda: plain_state(model.graph, signature))
    stated = stated_by_config(config)
    cut = joined is not None and joined.window is not None
    merge = Merge(replace(stated, window=None) if cut else stated, signature)
    paged = merge_paged(ports, config.block_size, merge)
    shifts = joined is not None and joined.shifts
    shifted = merge_shifted(ports, merge) if shifts else ()
    stated_window = config.decoder.sliding_window
    shift = merge_shift(ports, shifted, stated_window, 1, merge) if shifted and stated_window is not None else None
    dense = replace(ports, keys=(), values=()) if paged is not None or shifts else ports
    states, windows = split_windows(merge_states(dense, merge), merge)
    flat = paged is None and ports.token_ids is not None and rank_of(ports.token_ids) == 1
    one_token = flat or (ports.token_ids is not None and _takes_one_token(model, ports.token_ids, joined))
    fixed = merge_fixed_states(ports, one_token, merge)
    combined = merge_combined(ports, merge)
    check_groups(config.state_groups, paged, fixed, merge)
    aliasing = choose_aliasing(states, dense, merge)
    width, sampled = merge_vocabulary(ports.logits, merge) if ports.logits is not None else (None, None)
    text, text_problems = read_text_facts(root, config, width)
    positions = ports.position_ids.name if ports.position_ids is not None else ""
    mask = ports.attention_mask.name if ports.attention_mask is not None else ""
    table = table_rows(model, signature, positions, mask)
    held = [*(each.capacity for each in states), *([shift.columns] if shift is not None else [])]
    length = merge_length(held, table, merge, text.context_length)
    defaults, search_problems = search_defaults(config, length, sampled)
    own_start, unread = text.decoder_start, list[Problem]()
    if flat and start.prompt != PROMPT:
        own_start, unread = start_of_single(config)
    has_state = bool(ports.keys or ports.values or ports.fixed or ports.combined)
    problems = [*port_problems, *merge.problems, *text_problems, *search_problems, *unread]
    problems += [*unused_batching(config, paged is not None), *check_graph(model, artifact, has_state, mask)]
    problems += absent_ports(config, signature)
    spot = named(config, config.start_path)
    problems += start_doubts(start.prompt, own_start, spot, format_path(config.start_path))
    if errors(problems) or ports.token_ids is None or ports.logits is None:
        raise CompileError(problems)
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
        mask_use=mask_use(model, mask) if mask else "lengths",
        last_token_only=last_token_only(model, ports.logits.name),
        one_token=one_token,
        length_switches=length_switches(model),
        windows=windows,
        combined=combined,
        extras=ports.extras,
        front=start.front,
        prompt=start.prompt,
        start=own_start if start.prompt != PROMPT else None,
        paged=with_pages(paged, length),
        lengths=ports.lengths,
        window=joined.window if joined is not None else None,
        shifted=shifted,
        shift=shift,
        own_tokens=ports.own_tokens,
    )
    return ConfigDecoder(facts, text, defaults, tuple(problems), ports.unnamed)


def _takes_one_token(model: ModelProto, tokens: Port, joined: Joined | None) -> bool:
    """Whether a prompt goes in token by token: what matters is the graph that runs with it."""
    if joined is None or joined.prompt is None:
        return takes_one_token(model, tokens)
    first, signature = joined.prompt
    return takes_one_token(first, next((each for each in signature.inputs if each.name == tokens.name), tokens))


def _notes(config: GenaiConfig, facts: DecoderFacts, text: TextFacts) -> tuple[str, ...]:
    kind = f"model.type {config.model_type!r}" if config.model_type else "model.type is not stated; it"
    ends = "; ".join(f"{each.id} ({', '.join(each.said_by)})" for each in text.end_ids)
    notes = [
        f"{kind} decides nothing: what runs is read from the graph",
        f"end tokens: {ends or 'none'}",
        told_cache(facts),
    ]
    if facts.windows:
        size = sum(each.bytes_per_row for each in facts.windows)
        notes.append(f"caches of a window: {size} bytes a row, however long it gets")
    if facts.shift is not None:
        notes += told_columns(facts.shifted, facts.shift)
    if facts.fixed_states:
        size = sum(each.bytes_per_row for each in facts.fixed_states)
        notes.append(f"state of one size: {size} bytes a row, replaced by each step")
    if facts.paged is not None:
        blocks = sorted({each.block for each in facts.paged_states})
        notes.append(f"caches in pages of {' or '.join(map(str, blocks)) or 'no'} positions; rows are packed")
    if facts.one_token:
        notes.append("the graph takes one token a call: a prompt is fed token by token")
    return (*notes, *told_end(facts, text.eos))


def _unnamed(found: tuple[LayerPorts, ...]) -> tuple[str, ...]:
    pairs = [f"{each.past.name!r} -> {each.present.name!r}" for each in found]
    more = f" and {len(pairs) - 4} more" if len(pairs) > 4 else ""
    return (f"state that no name finds, told by the graph: {', '.join(pairs[:4])}{more}",) if pairs else ()
