"""A version 2 pipeline that generates nothing -> a workflow of one call of each session.

`generation_loop: single_pass` says so; a lone graph that keeps nothing and gives no logits needs no word for it. Inputs
that no wire feeds are the request's, outputs that no wire takes are the package's.
"""

from collections.abc import Iterator
from dataclasses import replace

from genai_compiler.lower.dataflow import Edge, in_order
from genai_compiler.lower.decoder_facts import component_of
from genai_compiler.lower.lowered import LoweredGraph
from genai_compiler.lower.matching import listed
from genai_compiler.lower.media_notes import MediaNotes
from genai_compiler.lower.pipeline_devices import session_options
from genai_compiler.lower.pipeline_edges import (
    SessionGraphs,
    check_names,
    read_graphs,
    stated_edges,
    with_equal_names,
)
from genai_compiler.lower.pipeline_outputs import check_processors
from genai_compiler.lower.pipeline_request import spots_of_search
from genai_compiler.lower.plain_encoder import encoder_inputs
from genai_compiler.lower.plain_ports import plain_ports
from genai_compiler.lower.search_defaults import prompt_chunk
from genai_compiler.lower.single_front import with_files
from genai_compiler.lower.single_pass import OF_GENERATION, Given, common_rows, given_document, note, of_rows
from genai_compiler.lower.stages import Stage, StageInput
from genai_compiler.lower.unrunnable import check_graph
from genai_compiler.problem import CompileError, Problem, errors, ordered
from genai_compiler.read.genai_config import GenaiConfig
from genai_compiler.read.pipeline_form import FLOW, PIPELINE, PipelineForm, Resolving
from genai_compiler.read.places import DocPath, format_path
from genai_compiler.read.sentence_modules import read_sentence_modules
from genai_compiler.read.signature import Port
from genai_compiler.read.text_facts import read_text_facts

LOOP: DocPath = (*PIPELINE, "generation_loop")
SINGLE_PASS = "single_pass"
_LACKS = frozenset({"no-logits", "no-embedding-stage"})
_OF_A_LOOP = (("generation", "a request has no defaults"), ("tokens", "no token ends or starts an output"))


def is_single_pass(form: PipelineForm, resolving: Resolving) -> bool:
    """Whether nothing is generated: the file says so, or says nothing and its one graph can't."""
    said = form.text.document.pipeline.generation_loop
    if said is not None or len(form.running) != 1 or form.preset or errors(resolving.problems):
        return said == SINGLE_PASS
    session = form.running[0]
    if form.sessions[session].role == "decoder" or form.step(session).phase == "final":
        return False
    graphs = read_graphs(form, Resolving(form.text))  # what can't be read is reported by who needs it
    if session not in graphs.signatures:
        return False
    ports = plain_ports(graphs.models[session].graph, graphs.signatures[session], form.text.base.vocab_size)
    lacks = {code for code, *_ in ports.faults}
    return not ports.keeps and bool(lacks) and lacks <= _LACKS


def lower_pass(form: PipelineForm, config: GenaiConfig, notes: MediaNotes, resolving: Resolving) -> LoweredGraph:
    """The package as one call a session. Raises CompileError with every problem that `resolving` does not hold."""
    graphs = read_graphs(form, resolving)
    edges = stated_edges(form, graphs, resolving)
    check_names(graphs, resolving)
    if not form.flow or errors(resolving.problems):
        raise CompileError([])
    _refuse_state(form, graphs, config, resolving)
    edges = with_equal_names(form, graphs, edges, {}, resolving)
    check_processors(form, graphs, edges, resolving)
    _say_unused(form, resolving)
    last = in_order(form.running, edges)[-1]
    options, hints = session_options(form, last, resolving)
    pooling, found = read_sentence_modules(form.text.root)
    text, doubts = read_text_facts(form.text.root, config, None)
    problems = [*found, *(each for each in doubts if each.code not in OF_GENERATION)]
    stages = _stages(form, graphs, edges, config.vocab_size, problems)
    taken = {(each.source, each.output.name) for each in edges}
    given: list[Given] = [
        (each, port) for each in stages for port in each.signature.outputs if (each.name, port.name) not in taken
    ]
    document = given_document(given, pooling, problems)
    for stage in reversed(stages):  # each goes before the steps that are there
        document, told = with_files(document, stage, notes)
        problems += told
    if errors((*resolving.problems, *problems)):
        raise CompileError(problems)
    return LoweredGraph(
        document=document,
        problems=ordered((*form.text.problems, *resolving.problems, *problems)),
        notes=tuple(_notes(form, stages, given)),
        text=replace(text, end_ids=()),
        providers=options.providers,
        session_options=options,
        signature=graphs.signatures[last],
        chunk=prompt_chunk(config.search, spots_of_search(form, config)),
        hints=tuple(
            replace(each, component=component_of(last)) if each.component == "decoder" else each for each in hints
        ),
    )


def _refuse_state(form: PipelineForm, graphs: SessionGraphs, config: GenaiConfig, resolving: Resolving) -> None:
    """A graph with caches has steps to keep them for."""
    for name, model in graphs.models.items():
        signature = graphs.signatures[name]
        if signature.cache_ops or plain_ports(model.graph, signature, config.vocab_size).keeps:
            what = f"the session {name!r} keeps caches from step to step, and a single pass has one step"
            help = "leave generation_loop out to generate tokens, or export the graph without caches"
            resolving.report("unsupported-package-class", LOOP, what, help)


def _say_unused(form: PipelineForm, resolving: Resolving) -> None:
    """Blocks that speak of generation."""
    document = form.text.document
    state = document.pipeline.state
    for key, why in _OF_A_LOOP:
        if getattr(document, key).model_fields_set - {"image_token", "audio_token", "video_token"}:
            resolving.report("ignored-key", (key,), f"{key!r} has no effect: a single pass generates nothing, so "
                             f"{why}", "remove it", True)  # fmt: skip
    if document.pipeline.strategy is not None:
        what = "'strategy' has no effect: a single pass generates nothing, so nothing drafts"
        resolving.report("ignored-key", (*PIPELINE, "strategy"), what, "remove it", True)
    for key in sorted(state.model_fields_set):
        what = f"'state.{key}' has no effect: a single pass keeps nothing"
        resolving.report("ignored-key", (*PIPELINE, "state", key), what, "remove it", True)


def _stages(
    form: PipelineForm, graphs: SessionGraphs, edges: tuple[Edge, ...], vocabulary: int | None, problems: list[Problem]
) -> list[Stage]:
    """The sessions in the order of the wires. Adds what is wrong with their graphs to the problems."""
    stages: list[Stage] = []
    given: dict[str, Port] = {}
    for name in in_order(form.running, edges):
        artifact, model = graphs.artifacts[name], graphs.models[name]
        problems += check_graph(model, artifact, True)
        signature, warned = of_rows(artifact, model, graphs.signatures[name])
        problems += warned
        fed = {each.input.name: each for each in edges if each.target == name}
        for edge in (each for each in fed.values() if each.merges):
            what = f"{edge.value!r} has one axis more than {edge.input.name!r} of {name!r} takes"
            where = form.text.places.find(FLOW)
            problems.append(Problem("wrong-port", where, format_path(FLOW), what, "join ports of one rank"))
        told = encoder_inputs(model.graph, signature, vocabulary, alone=True)
        open_ended = not any(each.filled is None and each.port.name not in fed for each in told)
        inputs = [
            StageInput(each.port, fed[each.port.name].value)
            if each.port.name in fed
            else _asked(each, name, given, open_ended)
            for each in told
        ]
        whole = Stage(name, artifact, signature, tuple(inputs), "")
        stages.append(replace(whole, rows=_rows(whole, list(fed.values()), stages)))
    return stages


def _asked(asked: StageInput, session: str, given: dict[str, Port], open_ended: bool) -> StageInput:
    """An input of the request. Tokens, and what may be left out beside them, go to all who take them by one name.

    open_ended: nothing else of the request goes in here, so nothing tells the extents of what may be left out.
    """
    port, name = asked.port, asked.port.name
    if name not in given:
        given[name] = port
        return replace(asked, filled=None) if open_ended else asked
    alike = (port.dtype, len(port.shape or ())) == (given[name].dtype, len(given[name].shape or ()))
    if alike and (asked.tokens or asked.filled is not None):
        return StageInput(port, asked.value)
    return replace(asked, value=f"application.{session}.{name}")


def _rows(stage: Stage, fed: list[Edge], before: list[Stage]) -> str:
    """The symbol of the request's rows: what is fed has them where its maker has them on the first axis."""
    rows = {each.name: each.rows for each in before}
    kept = {_first(each.input) for each in fed if rows[each.source] and _first(each.output) == rows[each.source]}
    other = {_first(each.input) for each in fed} - kept
    if not fed:
        return common_rows(stage.signature)
    return next(iter(kept)) if len(kept) == 1 and not other & kept else ""


def _first(port: Port) -> str:
    extent = port.shape[0] if port.shape else None
    return extent if isinstance(extent, str) else ""


def _notes(form: PipelineForm, stages: list[Stage], given: list[Given]) -> Iterator[str]:
    yield f"preset {form.preset or 'none'}: the flow and the graphs decide what runs, no model type does"
    yield from form.defaulted
    if len(stages) == 1:
        yield note(stages[0].signature)
    else:
        names = ", ".join(each.name for each in stages)
        yield f"each session runs once, in the order of the wires: {names}; given: {listed(p.name for _, p in given)}"
