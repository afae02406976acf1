"""A version 2 pipeline whose decoder is several sessions, or takes prompts by windows -> the one Workflow.

The sessions become stages of version 1, and what version 2 says becomes what version 1 would say: one lowering makes
the decoder of both (`config_decoder`, `stage_phases`). What stands beside it is found as for a decoder of one session.
"""

from dataclasses import dataclass, replace

from genai_compiler.lower.composite import OUTPUT_START
from genai_compiler.lower.config_decoder import ConfigDecoder, Start, config_decoder
from genai_compiler.lower.dataflow import Edge, contradict
from genai_compiler.lower.decoder_facts import PROMPT, DecoderFacts, component_of, told_cache
from genai_compiler.lower.decoder_workflow import decoder_document
from genai_compiler.lower.lowered import Lowered
from genai_compiler.lower.matching import Joined, Surroundings, rank_of
from genai_compiler.lower.pipeline_cut import Cut
from genai_compiler.lower.pipeline_edges import SessionGraphs, with_equal_names
from genai_compiler.lower.pipeline_media import beside
from genai_compiler.lower.pipeline_outputs import check_processors
from genai_compiler.lower.pipeline_ports import cache_patterns
from genai_compiler.lower.pipeline_request import context_length, output_start
from genai_compiler.lower.pipeline_retold import as_version_2
from genai_compiler.lower.pipeline_stages import Around, around, source_mask
from genai_compiler.lower.pipeline_staging import outside, staged_sessions
from genai_compiler.lower.pipeline_windows import check_layers, stated_window, with_caches
from genai_compiler.lower.prompt_window import prompt_window
from genai_compiler.lower.stage_chain import Chain, StageGraph, is_formed, join_stages
from genai_compiler.lower.stage_phases import StagedDecoder, phase_faults
from genai_compiler.problem import CompileError, Problem, errors, ordered
from genai_compiler.read.cache_sizes import cache_sizes
from genai_compiler.read.genai_config import GenaiConfig
from genai_compiler.read.hint_sources import Hint
from genai_compiler.read.pipeline_form import FLOW, PipelineForm, Resolving
from genai_compiler.read.pipeline_logits import bias_faults
from genai_compiler.read.session_options import SessionOptions
from genai_compiler.read.text_facts import TextFacts


@dataclass(frozen=True)
class _Staged:
    """The pipeline with its decoder's sessions as one. form, graphs, edges: with that one in their place."""

    form: PipelineForm
    graphs: SessionGraphs
    edges: tuple[Edge, ...]
    decoder: str
    config: GenaiConfig
    stages: StagedDecoder
    around: Around


def lower_staged(
    form: PipelineForm,
    graphs: SessionGraphs,
    edges: tuple[Edge, ...],
    decoder: str,
    cut: Cut,
    options: tuple[SessionOptions, tuple[Hint, ...]],
    kept: frozenset[str],
    resolving: Resolving,
) -> Lowered:
    """Lower the package. edges: the stated ones. kept: sessions that are read behind the loop.

    Raises CompileError with every problem beside those of `resolving`.
    """
    window = stated_window(form, resolving)
    cache_patterns(form, {}, {}, resolving)  # says what is wrong with those that are stated
    edges = (*edges, *_cross_edges(form, graphs, cut, resolving))
    cut = replace(cut, links=(*cut.links, *(each for each in edges if each not in cut.links)))
    stages, config, notes = staged_sessions(form, graphs, cut, decoder, resolving)
    if errors(resolving.problems):
        raise CompileError([])
    config = _as_version_1(form, graphs, cut, replace(config, decoder=replace(config.decoder, sliding_window=window)))
    prompt, step, config = _joined(form, config, stages)
    staged = _staged(form, graphs, edges, decoder, cut, config, prompt, step, stages, kept, resolving)
    return _lowered(staged, notes, options, resolving)


def _joined(
    form: PipelineForm, config: GenaiConfig, stages: tuple[StageGraph, ...]
) -> tuple[Chain, Chain, GenaiConfig]:
    """The stages of the prompt and those of later tokens, each as one graph; and with how the caches go."""
    (prompt, first), (step, later) = (join_stages(config, stages, phase) for phase in (True, False))
    faults = list(dict.fromkeys((*first, *later)))
    if not faults and (prompt is None or step is None):
        what = f"no session of the decoder runs with {'later tokens' if step is None else 'the prompt'}"
        faults = [Problem("no-logits", form.text.places.find(FLOW), "pipeline.flow", what, 'give one "when": "step"')]
    if prompt is None or step is None:
        raise CompileError(as_version_2(faults, form))
    window = config.decoder.sliding_window
    if window is not None:
        window = with_caches(window, form, step, config)
    return prompt, step, replace(config, decoder=replace(config.decoder, sliding_window=window))


def _as_version_1(form: PipelineForm, graphs: SessionGraphs, cut: Cut, config: GenaiConfig) -> GenaiConfig:
    """What version 2 leaves to the graph, or says elsewhere, as version 1 states it."""
    decoder, positions = config.decoder, form.state.position_ids.input_name
    told = {size for name in cut.sessions for size in cache_sizes(graphs.models[name]).values()}
    size = next(iter(told)) if len(told) == 1 else None
    inputs = {**decoder.inputs.names} | ({"position_ids": positions} if positions is not None else {})
    decoder = replace(
        decoder,
        inputs=replace(decoder.inputs, names=inputs),
        num_key_value_heads=size.heads if size is not None else decoder.num_key_value_heads,
        head_size=size.head_size if size is not None else decoder.head_size,
    )
    length, _ = context_length(config)
    return replace(config, decoder=decoder, context_length=length)


def _cross_edges(form: PipelineForm, graphs: SessionGraphs, cut: Cut, resolving: Resolving) -> list[Edge]:
    """What attention across sessions needs where names do not tell it: the source's only output that fits."""
    state = form.state.cross_cache
    said = [form.step(name).cross for name in cut.sessions] + [state.source or "" if state is not None else ""]
    source = next((each for each in said if each in graphs.signatures and each not in cut.sessions), None)
    if source is None or any(each.source == source and each.target in cut.sessions for each in cut.links):
        return []
    fed = {(each.target, each.input.name) for each in cut.links}
    found = [
        Edge(source, made, name, port)
        for name in cut.sessions
        for port in graphs.signatures[name].inputs
        if (name, port.name) not in fed and "float" in port.dtype and not is_formed(cut.config, port.name)
        for made in graphs.signatures[source].outputs
        if rank_of(made) is not None and not contradict(made, port)
    ]
    if len({(each.output.name, each.input.name) for each in found}) != 1:
        return []
    made, taken = found[0].output.name, found[0].input.name
    what = f"'{taken}' of {found[0].target} is fed with '{made}' of {source}, its only output that fits"
    resolving.report("config-read-as", form.step(found[0].target).path, what, "join them in pipeline.dataflow", True)
    return found


# ---- what stands beside ----------------------------------------------------------------------------------------------


def _staged(
    form: PipelineForm,
    graphs: SessionGraphs,
    edges: tuple[Edge, ...],
    decoder: str,
    cut: Cut,
    config: GenaiConfig,
    prompt: Chain,
    step: Chain,
    stages: tuple[StageGraph, ...],
    kept: frozenset[str],
    resolving: Resolving,
) -> _Staged:
    """The decoder's sessions as one, and the others around it."""
    own = {name: frozenset(each.name for each in graphs.signatures[name].inputs) for name in cut.sessions}
    own = {name: frozenset[str]() for name in form.running} | own
    others = tuple(each for each in edges if each.target not in cut.sessions)
    others = with_equal_names(form, graphs, others, own, resolving)
    into = _into(form, graphs, cut, decoder, resolving)
    whole = tuple(each for each in form.flow if each.session not in cut.sessions or each.session == decoder)
    form = replace(form, flow=whole)
    one = replace(
        graphs,
        artifacts={**graphs.artifacts, decoder: ""},
        models={**graphs.models, decoder: step.model},
        signatures={**graphs.signatures, decoder: step.signature},
    )
    own_prompt = None if prompt.members == step.members else prompt
    window, shifts, faults = prompt_window(config)
    resolving.problems += as_version_2(faults, form)
    check_processors(form, one, (*others, *into), resolving)
    if errors(resolving.problems):
        raise CompileError([])
    logits = next((each for each in step.signature.outputs if each.name == config.decoder.outputs["logits"]), None)
    found = around(form, one, (*others, *into), decoder, logits, cut.front, kept)
    with_prompt = (own_prompt.model, own_prompt.signature) if own_prompt is not None else None
    joined = Joined(step.model, step.signature, with_prompt, window, shifts)
    whole_decoder = StagedDecoder(stages, own_prompt, step, joined)
    return _Staged(form, one, found.edges, decoder, config, whole_decoder, found)


def _into(form: PipelineForm, graphs: SessionGraphs, cut: Cut, decoder: str, resolving: Resolving) -> tuple[Edge, ...]:
    """What other sessions give the decoder's, as one: a name stands for one value in all of them."""
    found: dict[str, Edge] = {}
    for name in cut.sessions:
        for each in outside(form, cut, name):
            known = found.setdefault(each.input.name, replace(each, target=decoder))
            if (known.source, known.output) != (each.source, each.output):
                what = f"'{each.input.name}' is '{known.value}' for one session of the decoder and '{each.value}' for "
                help = "export the sessions with different names for the two inputs"
                resolving.report("wrong-port", form.step(name).path, what + repr(name), help)
    return tuple(found.values())


# ---- the whole -------------------------------------------------------------------------------------------------------


def _lowered(
    staged: _Staged, notes: tuple[str, ...], options: tuple[SessionOptions, tuple[Hint, ...]], resolving: Resolving
) -> Lowered:
    form, found = staged.form, staged.around
    decoder, surroundings, to_encoder = _decoder(staged)
    caches = {each.layer for each in decoder.facts.states} | {each.layer for each in decoder.facts.windows}
    check_layers(form, caches, resolving)
    problems = [*decoder.problems]
    problems += phase_faults(staged.config, staged.stages, decoder.facts, surroundings)
    problems = [*as_version_2(problems, form)]
    problems += bias_faults(form.text, decoder.facts.sampled_ids, decoder.text.ids.count)
    if errors((*resolving.problems, *problems)):
        raise CompileError(problems)
    start = output_start(form, found.front is not None, bool(found.stages), to_encoder, decoder.text, resolving)
    facts = replace(decoder.facts, start=start)
    plain = staged.stages.document(decoder_document(facts, decoder.text.eos, decoder.defaults), facts)
    document, of_media = beside(form, plain, found, staged.decoder, facts, decoder.text, staged.config)
    if errors(of_media):
        raise CompileError([*problems, *of_media])
    mine = component_of(staged.decoder)
    return Lowered(
        document=document,
        problems=ordered((*form.text.problems, *resolving.problems, *problems, *of_media)),
        notes=(*_notes(staged, facts, decoder.text), *notes, *found.notes),
        text=decoder.text,
        providers=options[0].providers,
        session_options=options[0],
        signature=facts.signature,
        decoder=facts,
        hints=tuple(replace(each, component=mine) if each.component == "decoder" else each for each in options[1]),
    )


def _decoder(staged: _Staged) -> tuple[ConfigDecoder, Surroundings, bool]:
    """(the decoder, what feeds it, whether the request's tokens go to an encoder)."""
    form, front, signature = staged.form, staged.around.front, staged.graphs.signatures[staged.decoder]
    streams = frozenset(taken.name for _, taken in front.facts.streams) if front is not None else frozenset[str]()
    fed = {each.input.name: each.value for each in staged.edges if each.target == staged.decoder}
    fed = {port: value for port, value in fed.items() if port not in streams}
    fed |= source_mask(form, staged.around.stages, signature, frozenset(fed))
    surroundings = Surroundings(front.tokens if front is not None else None, streams, fed, joined=staged.stages.joined)
    to_encoder = any(each.tokens for stage in staged.around.stages for each in stage.inputs)
    start = Start(OUTPUT_START if to_encoder else PROMPT, front.facts if front is not None else None)
    try:
        return config_decoder(form.text.root, staged.config, "", surroundings, start), surroundings, to_encoder
    except CompileError as error:
        raise CompileError(as_version_2(error.problems, form)) from error


def _notes(staged: _Staged, facts: DecoderFacts, text: TextFacts) -> tuple[str, ...]:
    form = staged.form
    names = ", ".join(each.config.name for each in staged.stages.stages)
    ends = "; ".join(f"{each.id} ({', '.join(each.said_by)})" for each in text.end_ids)
    cut = f"prompts go in by windows of {facts.window.size}" if facts.window is not None else ""
    return (
        f"preset {form.preset or 'none'}: the flow and the graphs decide what runs, no model type does",
        *form.defaulted,
        f"the decoder is {'the session' if len(staged.stages.stages) == 1 else 'the sessions'} {names}",
        *filter(None, (cut,)),
        f"end tokens: {ends or 'none'}",
        told_cache(facts),
    )
