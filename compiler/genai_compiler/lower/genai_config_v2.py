"""A `genai_config.json` of version 2, the pipeline as configuration -> the one Workflow.

Presets, the flow and the wires say what is joined; the graphs decide names, dtypes and which ports are state. No name
of a model or a type decides anything.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from genai_compiler.lower.bare_decoder import DecoderSource
from genai_compiler.lower.composite import OUTPUT_START
from genai_compiler.lower.dataflow import Edge
from genai_compiler.lower.decoder_facts import PROMPT, DecoderFacts, told_cache
from genai_compiler.lower.decoder_workflow import decoder_document
from genai_compiler.lower.genai_config_v1 import UNKNOWN_LENGTH
from genai_compiler.lower.lowered import Lowered, LoweredGraph
from genai_compiler.lower.merge_paged import unused_batching
from genai_compiler.lower.native_code import refuse_native_code
from genai_compiler.lower.pipeline_cut import find_cut
from genai_compiler.lower.pipeline_devices import session_options
from genai_compiler.lower.pipeline_drafting import check_drafter, drafted
from genai_compiler.lower.pipeline_edges import (
    SessionGraphs,
    check_names,
    cross_edges,
    read_graphs,
    stated_edges,
    taken_by_name,
    with_equal_names,
)
from genai_compiler.lower.pipeline_final import Finals, find_finals, split_finals, with_finals
from genai_compiler.lower.pipeline_media import beside, media_notes
from genai_compiler.lower.pipeline_outputs import check_processors
from genai_compiler.lower.pipeline_pass import is_single_pass, lower_pass
from genai_compiler.lower.pipeline_ports import DecoderPorts, decoder_ports, retold
from genai_compiler.lower.pipeline_request import context_length, merged_config, output_start, spots_of_search
from genai_compiler.lower.pipeline_staged import lower_staged
from genai_compiler.lower.pipeline_stages import Around, around, decoder_session, source_mask
from genai_compiler.lower.pipeline_staging import check_wires
from genai_compiler.lower.pipeline_windows import check_layers, stated_window
from genai_compiler.lower.search_defaults import defaults_of, prompt_chunk
from genai_compiler.lower.source_end import told_end
from genai_compiler.lower.stated import Stated
from genai_compiler.problem import CompileError, Problem, errors, ordered
from genai_compiler.read.bare import BareDocument
from genai_compiler.read.cache_sizes import cache_sizes
from genai_compiler.read.genai_config import GenaiConfig
from genai_compiler.read.hint_sources import Hint
from genai_compiler.read.pipeline_form import SESSIONS, PipelineForm, Resolving, expand
from genai_compiler.read.pipeline_logits import bias_default, bias_faults
from genai_compiler.read.pipeline_rules import STATE, check_form
from genai_compiler.read.pipeline_text import PipelineText, read_pipeline
from genai_compiler.read.places import DocPath, format_path
from genai_compiler.read.session_options import SessionOptions
from genai_compiler.read.signature import Port, Signature
from genai_compiler.read.text_facts import TextFacts, read_text_facts


@dataclass(frozen=True)
class _Joined:
    """The sessions up to the end of the loop, the wires that the file states between them, which session decodes, those
    behind the loop, and options and hints of all.
    """

    form: PipelineForm
    graphs: SessionGraphs
    edges: tuple[Edge, ...]
    decoder: str
    finals: Finals
    options: tuple[SessionOptions, tuple[Hint, ...]]


@dataclass(frozen=True)
class _Reading:
    """The form with its graphs, and what is known of its decoder. kept: sessions that are read behind the loop."""

    form: PipelineForm
    graphs: SessionGraphs
    config: GenaiConfig
    decoder: str
    ports: DecoderPorts
    edges: tuple[Edge, ...]
    kept: frozenset[str]
    options: SessionOptions
    hints: tuple[Hint, ...]
    zeros: tuple[Port, ...] = ()

    @property
    def signature(self) -> Signature:
        """The decoder's."""
        return self.graphs.signatures[self.decoder]


def lower_pipeline_config(root: Path) -> LoweredGraph:
    """Lower the version 2 package in the folder `root`. Raises CompileError with every problem, warnings included."""
    return lower_pipeline_text(read_pipeline(root))


def lower_pipeline_text(text: PipelineText, zeros: tuple[Port, ...] = ()) -> LoweredGraph:
    """The same of a text that was read, or made. zeros: inputs of the decoder that are fed a constant 0."""
    resolving = Resolving(text)
    form = expand(resolving)
    check_form(form, resolving)
    config = merged_config(resolving)
    refuse_native_code(form, resolving)
    check_drafter(form, resolving)
    try:
        if is_single_pass(form, resolving):
            return lower_pass(form, config, media_notes(form), resolving)
        joined = _joined(form, config, resolving)
        lowered = _loop(joined, config, zeros, resolving)
        if joined.finals.steps:
            return with_finals(lowered, joined.form, joined.graphs, joined.decoder, joined.finals)
        return lowered
    except CompileError as error:
        raise CompileError([*text.problems, *resolving.problems, *error.problems]) from error


def _joined(form: PipelineForm, config: GenaiConfig, resolving: Resolving) -> _Joined:
    """The sessions and their wires; stops when the text or a wire is wrong, with all of it reported."""
    graphs = read_graphs(form, resolving)
    edges = stated_edges(form, graphs, resolving)
    check_names(graphs, resolving)
    before, behind = split_finals(form, resolving)
    decoder = decoder_session(before, resolving) if form.flow else None
    options = session_options(form, decoder, resolving)
    if decoder is None or errors(resolving.problems):
        raise CompileError(_defaults(form, config, UNKNOWN_LENGTH, None)[1])
    _check_sources(form, graphs, resolving)
    finals = find_finals(before, graphs, edges, behind)
    names = {each.session for each in behind}
    edges = tuple(each for each in edges if not {each.source, each.target} & names)
    return _Joined(before, graphs, edges, decoder, finals, options)


def _loop(joined: _Joined, config: GenaiConfig, zeros: tuple[Port, ...], resolving: Resolving) -> Lowered:
    """The package up to the end of its loop."""
    form, kept = joined.form, joined.finals.fed_by
    cut = find_cut(form, joined.graphs, joined.edges, joined.decoder, config, kept, resolving)
    check_wires(form, cut, resolving)
    if cut is not None:
        made = lower_staged(form, joined.graphs, joined.edges, joined.decoder, cut, joined.options, kept, resolving)
    else:
        made = _lowered(replace(_read(config, joined, resolving), zeros=zeros), resolving)
    return _extended(made, joined, cut is not None, config, resolving)


def _extended(lowered: Lowered, joined: _Joined, cut: bool, config: GenaiConfig, resolving: Resolving) -> Lowered:
    """The package with what holds however its decoder is made up: the bias that requests start from, how much of a
    prompt a run takes, and the session that drafts. cut: the decoder is several sessions, or takes windows.
    """
    form, said = joined.form, len(resolving.problems)
    against = "the decoder is several sessions, or takes prompts by windows" if cut else ""
    if joined.decoder in joined.finals.fed_by:  # a run that verifies drafts gives more positions than the last token's
        against = "what the decoder's last run gave is read behind the loop"
    document = drafted(form, config, lowered.document, lowered.decoder, against, resolving)
    generation = document["generation"]
    return replace(
        lowered,
        document={
            **document,
            "generation": {**generation, "defaults": generation["defaults"] | bias_default(form.text)},
        },
        problems=ordered((*lowered.problems, *resolving.problems[said:])),
        chunk=prompt_chunk(config.search, spots_of_search(form, config)),
    )


def _read(config: GenaiConfig, joined: _Joined, resolving: Resolving) -> _Reading:
    """What is known of a decoder of one session, up to its ports; stops where one is wrong."""
    form, graphs, edges, decoder = joined.form, joined.graphs, joined.edges, joined.decoder
    signature = graphs.signatures[decoder]
    fed = frozenset(each.input.name for each in edges if each.target == decoder)
    ports = decoder_ports(form, signature, fed | taken_by_name(form, graphs, decoder), resolving)
    own = {name: frozenset[str]() for name in form.running} | {decoder: ports.own}
    edges = with_equal_names(form, graphs, edges, own, resolving)
    edges = cross_edges(form, graphs, edges, decoder, ports.own, resolving)
    check_processors(form, graphs, edges, resolving)
    check_layers(form, {*ports.layers, *(each.layer for each in ports.combined)}, resolving)
    if errors(resolving.problems):
        raise CompileError(_defaults(form, config, UNKNOWN_LENGTH, None)[1])
    return _Reading(form, graphs, config, decoder, ports, edges, joined.finals.fed_by, *joined.options)


def _lowered(reading: _Reading, resolving: Resolving) -> Lowered:
    form, decoder, config = reading.form, reading.decoder, reading.config
    found_around = around(form, reading.graphs, reading.edges, decoder, _logits(reading), kept=reading.kept)
    facts, text, doubts = _facts(reading, found_around, resolving)
    defaults, found = _defaults(form, config, facts.max_sequence_length, facts.sampled_ids)
    found = (*found, *bias_faults(form.text, facts.sampled_ids, text.ids.count))
    found = (*found, *unused_batching(form.text.base, facts.paged is not None))
    if errors((*form.text.problems, *resolving.problems, *doubts, *found)):
        raise CompileError((*doubts, *found))
    plain = decoder_document(facts, text.eos, defaults)
    document, of_media = beside(form, plain, found_around, decoder, facts, text, config)
    if errors(of_media):
        raise CompileError((*doubts, *found, *of_media))
    problems = (*form.text.problems, *resolving.problems, *doubts, *found, *of_media)
    return Lowered(
        document=document,
        problems=ordered(problems),
        notes=_notes(reading, found_around, facts, text),
        text=text,
        providers=reading.options.providers,
        session_options=reading.options,
        signature=facts.signature,
        decoder=facts,
        hints=reading.hints,
    )


def _defaults(
    form: PipelineForm, config: GenaiConfig, limit: int, vocabulary: int | None
) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    """`generation.defaults`, and problems where the file states them. See `defaults_of`."""
    return defaults_of(config.search, spots_of_search(form, config), limit, vocabulary)


def _facts(
    reading: _Reading, beside: Around, resolving: Resolving
) -> tuple[DecoderFacts, TextFacts, tuple[Problem, ...]]:
    """The decoder's facts; problems in the words of version 2."""
    form, decoder, front = reading.form, reading.decoder, beside.front
    path: DocPath = (*SESSIONS, decoder)
    streams = {taken.name for _, taken in front.facts.streams} if front is not None else set[str]()
    fed = {each.input.name: each.value for each in reading.edges if each.target == decoder}
    fed = {port: value for port, value in fed.items() if port not in streams}
    fed |= source_mask(reading.form, beside.stages, reading.signature, reading.ports.own | {*fed})
    io = reading.ports.io if front is None else reading.ports.io.model_copy(update={"inputs_embeds_input": None})
    source = DecoderSource(
        form.text.root,
        reading.graphs.artifacts[decoder],
        BareDocument(),
        io,
        path,
        form.text.places,
        stated=_stated(reading, resolving),
        texts=lambda width: read_text_facts(form.text.root, reading.config, width),
        layers=reading.ports.layers,
        zeros=reading.zeros,
        combined=reading.ports.combined,
        start_key="tokens.decoder_start",
    )
    to_encoder = any(each.tokens for stage in beside.stages for each in stage.inputs)
    taken = (front.facts, front.tokens) if front is not None else (None, None)
    try:
        facts, text, doubts = source.facts(fed, OUTPUT_START if to_encoder else PROMPT, *taken)
    except CompileError as error:
        raise CompileError(retold(each, decoder, format_path(path)) for each in error.problems) from error
    start = output_start(form, front is not None, bool(beside.stages), to_encoder, text, resolving)
    facts = replace(facts, start=start)
    if facts.flat and to_encoder and form.text.document.tokens.decoder_start is None and text.bos is not None:
        facts = replace(facts, start=text.bos)  # as version 1 has it for such decoders (reference, 2.11)
        doubts = tuple(each for each in doubts if each.code != "no-start-token")
    return facts, text, tuple(retold(each, decoder, format_path(path)) for each in doubts)


def _cache_size(reading: _Reading, resolving: Resolving) -> tuple[int | None, int | None]:
    """(heads, head size) where ports leave them open: the attention operators', else a version 1 block's."""
    decoder = reading.config.decoder
    told = set(cache_sizes(reading.graphs.models[reading.decoder]).values())
    if len(told) != 1:
        return decoder.num_key_value_heads, decoder.head_size
    size = told.pop()
    for key, own, graph in (
        ("num_key_value_heads", decoder.num_key_value_heads, size.heads),
        ("head_size", decoder.head_size, size.head_size),
    ):
        if own not in (None, graph):
            what = f"{key} is {own} here, but the graph's attention has {graph}; the graph is taken"
            resolving.report("config-contradicts-graph", ("model", "decoder", key), what, "correct it", True)
    return size.heads, size.head_size


def _stated(reading: _Reading, resolving: Resolving) -> Stated:
    """Numbers that only the blocks of version 1 can state; version 2 leaves them to the graph."""
    config, decoder = reading.config, reading.config.decoder
    length, length_path = context_length(config)
    heads, head_size = _cache_size(reading, resolving)
    of_decoder: DocPath = ("model", "decoder")
    cache: DocPath = (*STATE, "kv_cache")
    own_window = reading.form.state.kv_cache.sliding_window is not None
    return Stated(
        kv_heads=heads,
        head_size=head_size,
        layers=decoder.num_hidden_layers,
        vocab_size=config.vocab_size,
        context_length=length,
        share_buffer=bool(config.search.get("past_present_share_buffer")),
        window=stated_window(reading.form, resolving),
        paths={
            "kv_heads": (*of_decoder, "num_key_value_heads"),
            "head_size": (*of_decoder, "head_size"),
            "layers": (*of_decoder, "num_hidden_layers"),
            "vocab_size": ("model", "vocab_size"),
            "context_length": length_path,
            "share_buffer": ("search", "past_present_share_buffer"),
            "window": (*cache, "sliding_window") if own_window else (*of_decoder, "sliding_window"),
            "key": (*cache, "past_key_pattern"),
            "combined": (*cache, "past_key_pattern"),
            "value": (*cache, "past_value_pattern"),
            "state": STATE,
        },
        place=reading.form.text.places.find,
    )


def _logits(reading: _Reading) -> Port | None:
    """The decoder's logits, to tell which of its inputs has one entry a token."""
    name = reading.ports.io.logits_output
    states = {*(reading.ports.io.kv_outputs or ()), *(each.present.name for each in reading.ports.combined)}
    states |= {name for op in reading.signature.cache_ops for name in (op.present_key, op.present_value)}
    found = [each for each in reading.signature.outputs if each.name == name]
    found += [each for each in reading.signature.outputs if each.name not in states and "float" in each.dtype]
    return found[0] if found else None


def _check_sources(form: PipelineForm, graphs: SessionGraphs, resolving: Resolving) -> None:
    """`grid_source` names an input of a session: what a processor makes."""
    source, path = form.state.position_ids.grid_source, (*STATE, "position_ids", "grid_source")
    session, _, port = (source or "").partition(".")
    if source is not None and session not in form.sessions:
        what = f'grid_source references session "{session}" but no such session is declared in pipeline.sessions'
        resolving.report("unknown-component", path, what, 'write "session.input"')
    elif session in graphs.signatures and port not in {each.name for each in graphs.signatures[session].inputs}:
        names = ", ".join(each.name for each in graphs.signatures[session].inputs)
        what = f"grid_source names {port!r}, but {session!r} takes no such tensor; positions beside media are the "
        resolving.report("config-contradicts-graph", path, what + "caller's", f"its inputs are {names}", True)


def _notes(reading: _Reading, beside: Around, facts: DecoderFacts, text: TextFacts) -> tuple[str, ...]:
    form = reading.form
    ends = "; ".join(f"{each.id} ({', '.join(each.said_by)})" for each in text.end_ids)
    return (
        f"preset {form.preset or 'none'}: the flow and the graphs decide what runs, no model type does",
        *form.defaulted,
        *beside.notes,
        f"end tokens: {ends or 'none'}",
        told_cache(facts),
        *told_end(facts, text.eos),
    )
