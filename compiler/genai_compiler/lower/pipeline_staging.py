"""A version 2 decoder of several sessions as the stages of version 1: the order of the flow, its phases, its wires.

Version 2 has no word for "later tokens, but not the prompt". A session of every token leaves the prompt to one of the
prompt that gives the same: the same state, a tensor of the same name, or what feeds the same input.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from genai_compiler.lower.dataflow import Edge
from genai_compiler.lower.decoder_facts import component_of
from genai_compiler.lower.pipeline_cut import Cut, named_ports, own_state
from genai_compiler.lower.pipeline_edges import SessionGraphs
from genai_compiler.lower.stage_chain import StageGraph, is_result, stage_component
from genai_compiler.problem import CompileError, Problem
from genai_compiler.read.config_pipeline import StageConfig
from genai_compiler.read.genai_config import GenaiConfig
from genai_compiler.read.linkable import unlinkable
from genai_compiler.read.pipeline_form import FLOW, PipelineForm, Resolving
from genai_compiler.read.pipeline_rules import fed_twice, second_wires
from genai_compiler.read.places import format_path
from genai_compiler.read.signature import Port
from genai_compiler.read.value_flow import Edges


@dataclass(frozen=True)
class Phases:
    """Sessions that run with the prompt alone, and those of later tokens alone. notes: for the summary."""

    prompt: frozenset[str]
    later: frozenset[str]
    notes: tuple[str, ...]


def staged_sessions(
    form: PipelineForm, graphs: SessionGraphs, cut: Cut, decoder: str, resolving: Resolving
) -> tuple[tuple[StageGraph, ...], GenaiConfig, tuple[str, ...]]:
    """(the stages with their graphs, the configuration with the name of their logits, notes for the summary).

    Raises CompileError unreadable-graph. Reports config-read-as where earlier stages give one name twice.
    """
    inside = tuple(each for each in cut.links if each.source in cut.sessions and each.target in cut.sessions)
    state = {name: _state(graphs, cut, name) for name in cut.sessions}
    config = _with_logits(graphs, cut, inside, decoder, state[decoder])
    phases = _phases(form, graphs, inside, replace(cut, config=config), state)
    faults, stages = list[Problem](), list[StageGraph]()
    for name in cut.sessions:
        stage = _config(form, graphs, replace(cut, config=config), inside, state[name], phases, name)
        if why := unlinkable(graphs.models[name]):
            what = f"the graph of session {name!r} can't be linked with the others: {why}"
            where = form.text.places.find(stage.path), format_path(stage.path)
            faults.append(Problem("unreadable-graph", *where, what, "export it again"))
        component = stage_component(name, {component_of(each) for each in form.running if each not in cut.sessions})
        artifact, model, signature = graphs.artifacts[name], graphs.models[name], graphs.signatures[name]
        stages.append(StageGraph(stage, component, artifact, model, signature))
    if faults:
        raise CompileError(faults)
    _say_doubled(form, cut, inside, phases, resolving)
    return tuple(stages), config, phases.notes


def _state(graphs: SessionGraphs, cut: Cut, name: str) -> dict[str, str]:
    return own_state(graphs, name, {each.input.name for each in cut.links if each.target == name})


def _with_logits(
    graphs: SessionGraphs, cut: Cut, inside: tuple[Edge, ...], decoder: str, state: dict[str, str]
) -> GenaiConfig:
    """The configuration with the name of the logits: the form's own, else that of the last session's only output left
    that is as wide as the table of embeddings has rows.
    """
    taken = {each.output.name for each in inside if each.source == decoder} | {*state.values()}
    outputs = [each for each in graphs.signatures[decoder].outputs if each.name not in taken]
    name = cut.config.decoder.outputs["logits"]
    if any(each.name == name for each in outputs):
        return cut.config
    rows = frozenset[int]().union(*(_table_rows(graphs, cut, each) for each in cut.sessions))
    left = [each.name for each in outputs if "float" in each.dtype and each.shape and each.shape[-1] in rows]
    return named_ports(cut.config, logits=left[0]) if len(left) == 1 else cut.config


def _table_rows(graphs: SessionGraphs, cut: Cut, name: str) -> frozenset[int]:
    return Edges(graphs.models[name].graph).table_rows(cut.config.decoder.inputs["input_ids"])


# ---- phases ----------------------------------------------------------------------------------------------------------


def _phases(
    form: PipelineForm, graphs: SessionGraphs, inside: tuple[Edge, ...], cut: Cut, state: dict[str, dict[str, str]]
) -> Phases:
    """Which session runs when: as the flow says, where each token has all that it needs."""
    steps = {each.session for each in form.flow if each.phase == "step"}
    given = {name: set(_given(graphs, inside, cut, state, name)) for name in cut.sessions}
    prompt, later, notes = set[str](), set[str](), list[str]()
    for first in (each for each in cut.sessions if each not in steps):
        for other in (each for each in cut.sessions if each in steps and given[each] & given[first]):
            if not any({each.source, each.target} == {first, other} for each in inside):
                prompt.add(first)
                later.add(other)
                notes.append(f"{first} runs with the prompt, {other} in its place with later tokens")
    for name in reversed(cut.sessions):
        takers = {each.target for each in inside if each.source == name}
        ends = any(is_result(cut.config, each.name) for each in graphs.signatures[name].outputs) or state[name]
        if name in prompt | later or ends or not takers:
            only = None
        else:
            only = prompt if takers <= prompt else later if takers <= later else None
        if only is not None:
            only.add(name)
        elif name not in steps and name not in prompt:
            notes.append(
                f"{name} is said to run before the first token; every token needs it, so it runs at every step"
            )
    return Phases(frozenset(prompt), frozenset(later), tuple(notes))


def _given(
    graphs: SessionGraphs, inside: tuple[Edge, ...], cut: Cut, state: dict[str, dict[str, str]], name: str
) -> Iterator[tuple[str, ...]]:
    """What a session gives the others, or the loop: tensors by name, inputs by their ends."""
    for each in graphs.signatures[name].outputs:
        if is_result(cut.config, each.name) or each.name in state[name].values():
            yield ("", each.name)
    for edge in inside:
        if edge.source == name:
            yield (edge.target, edge.input.name)


# ---- one stage -------------------------------------------------------------------------------------------------------


def _config(
    form: PipelineForm,
    graphs: SessionGraphs,
    cut: Cut,
    inside: tuple[Edge, ...],
    state: dict[str, str],
    phases: Phases,
    name: str,
) -> StageConfig:
    """A session as a stage: all its inputs, and the outputs that somebody takes."""
    signature = graphs.signatures[name]
    wires = _stated(form)
    wired: dict[str, tuple[tuple[str, str], ...]] = {}
    for each in inside:
        if each.target == name and (each.source, each.output.name, name, each.input.name) in wires:
            wired[each.input.name] = (*wired.get(each.input.name, ()), (each.source, each.output.name))
    taken = {each.output.name for each in inside if each.source == name} | {*state.values()}
    outputs = [each.name for each in signature.outputs if each.name in taken or is_result(cut.config, each.name)]
    return StageConfig(
        name=name,
        path=form.step(name).path,
        filename=graphs.artifacts[name],
        inputs=tuple(each.name for each in signature.inputs),
        outputs=tuple(outputs),
        renames={},
        on_prompt=name not in phases.later,
        on_step=name not in phases.prompt,
        wired=wired,
        own=frozenset({*state, *state.values(), *_from_beside(form, cut, name)}),
    )


def _from_beside(form: PipelineForm, cut: Cut, name: str) -> Iterator[str]:
    """Inputs that something beside the decoder feeds; an encoder's mask, which it takes itself, is of no wire."""
    yield from (each.input.name for each in outside(form, cut, name))
    if any(each not in cut.sessions for each in form.running):
        yield cut.config.decoder.inputs["encoder_attention_mask"]


def _stated(form: PipelineForm) -> set[tuple[str, str, str, str]]:
    return {(each.source, each.output, each.target, each.input) for each in form.wires}


def outside(form: PipelineForm, cut: Cut, name: str) -> list[Edge]:
    """What feeds a session from beyond the decoder: wires, and names that no earlier session of it gives; the last."""
    wires = _stated(form)
    found: dict[str, Edge] = {}
    links = [each for each in cut.links if each.target == name]
    for each in links:
        inside = [other for other in links if other.input == each.input and other.source in cut.sessions]
        stated = (each.source, each.output.name, name, each.input.name) in wires
        if each.source not in cut.sessions and (stated or not inside):
            found[each.input.name] = each
    return list(found.values())


def _say_doubled(form: PipelineForm, cut: Cut, inside: tuple[Edge, ...], phases: Phases, resolving: Resolving) -> None:
    """Two earlier sessions of one phase that give what a later one takes by name: the last of them counts."""
    wires, order = _stated(form), {name: at for at, name in enumerate(cut.sessions)}
    by_name: dict[tuple[str, Port], list[str]] = {}
    for each in inside:
        if (each.source, each.output.name, each.target, each.input.name) not in wires:
            by_name.setdefault((each.target, each.input), []).append(each.source)
    for (target, port), makers in by_name.items():
        for others in (phases.later, phases.prompt):
            here = sorted((each for each in makers if each not in others), key=order.__getitem__)
            if len(here) > 1:
                what = f"{' and '.join(here)} both give '{port.name}', which {target} takes; the last of them is taken"
                resolving.report("config-read-as", FLOW, what, "join them in pipeline.dataflow", True)
                break


def check_wires(form: PipelineForm, cut: Cut | None, resolving: Resolving) -> None:
    """Two wires to one input are for sessions of a decoder that run in different phases, else wrong-port."""
    sessions = cut.sessions if cut is not None else ()
    for wire in second_wires(form):
        ends = {wire.target, *(each.source for each in form.wires if (each.target, each.input) == wire.to)}
        if not ends <= {*sessions}:
            resolving.report("wrong-port", wire.end(wire.to_key), fed_twice(wire), "keep one wire")
