"""The wires of a version 2 pipeline held against the graphs: what is joined, by the file's word and by equal names."""

from collections.abc import Mapping
from dataclasses import dataclass

from onnx import ModelProto

from genai_compiler.lower.dataflow import Edge, contradict
from genai_compiler.lower.decoder_facts import component_of
from genai_compiler.lower.matching import rank_of, spell_port
from genai_compiler.problem import CompileError
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.pipeline_form import EXTENDS, FLOW, MAX_STAGES, SESSIONS, PipelineForm, Resolving, Wire
from genai_compiler.read.places import format_path
from genai_compiler.read.signature import Port, Signature, load_graph, signature_of
from genai_compiler.read.suggest import closest


@dataclass(frozen=True)
class SessionGraphs:
    """Graph files, graphs (without bulk weights) and signatures of the sessions that can be read."""

    artifacts: Mapping[str, str]
    models: Mapping[str, ModelProto]
    signatures: Mapping[str, Signature]


def read_graphs(form: PipelineForm, resolving: Resolving) -> SessionGraphs:
    """The graphs of the sessions that run; every file that can't be used is reported."""
    artifacts: dict[str, str] = {}
    models: dict[str, ModelProto] = {}
    signatures: dict[str, Signature] = {}
    root, places = form.text.root, form.text.places
    for name in (form.running or tuple(form.sessions))[:MAX_STAGES]:  # a longer flow is refused unread
        file, path = form.sessions[name].file, (*SESSIONS, name, "file")
        if file is None:
            continue
        try:
            artifacts[name] = find_artifact(root, file).name
            models[name] = load_graph(root / artifacts[name], root)
            signatures[name] = signature_of(models[name], artifacts[name], root)
        except ArtifactFault as fault:
            resolving.problems.append(fault.problem(places.find(path), format_path(path)))
        except CompileError as error:
            resolving.problems.extend(error.problems)
    return SessionGraphs(artifacts, models, signatures)


def check_names(graphs: SessionGraphs, resolving: Resolving) -> None:
    """Each session has a component's name of its own, else value-defined-twice."""
    if len({component_of(each) for each in graphs.signatures}) < len(graphs.signatures):
        what = "two sessions would share a name in the workflow"
        resolving.report("value-defined-twice", SESSIONS, what, "call them by different words")


def stated_edges(form: PipelineForm, graphs: SessionGraphs, resolving: Resolving) -> tuple[Edge, ...]:
    """The wires whose both ends are ports. Reports missing-output, missing-input and wrong-port."""
    found: list[Edge] = []
    for wire in form.wires:
        if wire.source not in graphs.signatures or wire.target not in graphs.signatures:
            continue  # a graph that can't be read is reported, one that never runs needs nothing
        outputs = {each.name: each for each in graphs.signatures[wire.source].outputs}
        inputs = {each.name: each for each in graphs.signatures[wire.target].inputs}
        if wire.output not in outputs:
            _missing(wire, "output", wire.output, wire.source, outputs, resolving)
        if wire.input not in inputs:
            _missing(wire, "input", wire.input, wire.target, inputs, resolving)
        if wire.output not in outputs or wire.input not in inputs:
            continue
        edge = Edge(wire.source, outputs[wire.output], wire.target, inputs[wire.input])
        if contradict(edge.output, edge.input) and not edge.merges:
            what = f"'{wire.source}.{wire.output}' is {spell_port(edge.output)}, "
            what += f"'{wire.target}.{wire.input}' takes {spell_port(edge.input)}"
            resolving.report("wrong-port", wire.path, what, "join ports of one dtype and rank")
        else:
            found.append(edge)
    return tuple(found)


def _missing(wire: Wire, side: str, name: str, session: str, ports: Mapping[str, Port], resolving: Resolving) -> None:
    key = (wire.from_key if side == "output" else wire.to_key) if wire.path != EXTENDS else ""
    key = {"from_session": "from_output", "to_session": "to_input"}.get(key, key)
    what = (
        f'Dataflow wire references {side} "{name}" but session "{session}" has no such {side} '
        f"(available {side}s: {', '.join(ports)})"
    )
    near = closest(name, ports)
    help = f"did you mean {near}?" if near else ""
    if wire.path == EXTENDS:
        help = "the preset joins them so: state pipeline.dataflow with the graphs' own names"
    resolving.report(f"missing-{side}", wire.end(key), what, help)


def with_equal_names(
    form: PipelineForm,
    graphs: SessionGraphs,
    edges: tuple[Edge, ...],
    own: Mapping[str, frozenset[str]],
    resolving: Resolving,
) -> tuple[Edge, ...]:
    """The edges, and those between an output and an input of one name in a later session.

    own: inputs, by session, that are never joined so: caches, positions, what the request itself gives.
    """
    found = list(edges)
    order = sorted(form.running, key=lambda name: form.step(name).phase)  # init before step, else as listed
    for at, target in enumerate(order):
        fed = {each.input.name for each in edges if each.target == target}
        for port in graphs.signatures[target].inputs:
            if port.name in fed or port.name in own.get(target, ()):
                continue
            makers = [
                (source, made)
                for source in order[:at]
                for made in graphs.signatures[source].outputs
                if made.name == port.name and not contradict(made, port)
            ]
            if len(makers) > 1:
                names = " and ".join(source for source, _ in makers)
                what = f"{names} both give '{port.name}', which {target} takes; the last of them is taken"
                resolving.report("config-read-as", FLOW, what, "join them in pipeline.dataflow", True)
            if makers:
                found.append(Edge(makers[-1][0], makers[-1][1], target, port))
    return tuple(found)


def cross_edges(
    form: PipelineForm,
    graphs: SessionGraphs,
    edges: tuple[Edge, ...],
    decoder: str,
    own: frozenset[str],
    resolving: Resolving,
) -> tuple[Edge, ...]:
    """The edges, and the one that attention across sessions needs where names do not tell it.

    An input of the decoder that nothing feeds is fed with the only output of the source that fits it.
    """
    source = form.step(decoder).cross or (form.state.cross_cache.source or "" if form.state.cross_cache else "")
    if source not in graphs.signatures or any(each.source == source and each.target == decoder for each in edges):
        return edges
    fed = {each.input.name for each in edges if each.target == decoder} | own
    free = [each for each in graphs.signatures[decoder].inputs if each.name not in fed and "float" in each.dtype]
    pairs = [
        (made, port)
        for port in free
        for made in graphs.signatures[source].outputs
        if rank_of(made) is not None and not contradict(made, port)
    ]
    if len(pairs) != 1:
        return edges
    (made, port), path = pairs[0], form.step(decoder).path
    what = f"'{port.name}' of {decoder} is fed with '{made.name}' of {source}, its only output that fits"
    resolving.report("config-read-as", path, what, "join them in pipeline.dataflow", True)
    return (*edges, Edge(source, made, decoder, port))


def taken_by_name(form: PipelineForm, graphs: SessionGraphs, session: str) -> frozenset[str]:
    """Names that other sessions give and that a session's inputs could be joined to by name."""
    return frozenset(
        made.name
        for name in form.running
        if name != session and name in graphs.signatures
        for made in graphs.signatures[name].outputs
    )
