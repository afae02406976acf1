"""Sessions of a version 2 pipeline that run once behind the loop (`when: final`), on what the loop left.

They take what sessions before the loop gave, what the decoder's last run gave, and what such sessions before them gave;
inputs that none feeds are the request's. What no other takes of their results are outputs of the package:

    loop { ...; carry left.hidden -> the decoder's hidden }; invoke judge(left.hidden); emit score
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from genai_compiler.lower.dataflow import Edge, contradict
from genai_compiler.lower.decoder_components import Data, row_wise
from genai_compiler.lower.decoder_facts import DecoderFacts
from genai_compiler.lower.decoder_state import state_cells
from genai_compiler.lower.lowered import Lowered
from genai_compiler.lower.matching import listed
from genai_compiler.lower.pipeline_edges import SessionGraphs
from genai_compiler.lower.single_pass import common_rows
from genai_compiler.lower.stages import Stage, StageInput, invoke_stage
from genai_compiler.problem import CompileError, Problem
from genai_compiler.read.pipeline_form import FINAL, FlowStep, PipelineForm, Resolving
from genai_compiler.read.places import format_path
from genai_compiler.read.signature import Port

_DECODER = "decoder"
"""The decoder's component, where it is one session."""
_FORMED = ("input_ids", "attention_mask", "position_ids")


@dataclass(frozen=True)
class Finals:
    """The sessions behind the loop, in the flow's order, and what feeds them."""

    steps: tuple[FlowStep, ...]
    edges: tuple[Edge, ...]

    @property
    def fed_by(self) -> frozenset[str]:
        """Sessions that one of these takes something of."""
        return frozenset(each.source for each in self.edges)


def split_finals(form: PipelineForm, resolving: Resolving) -> tuple[PipelineForm, tuple[FlowStep, ...]]:
    """(the pipeline up to the end of its loop, the steps behind it). Reports what runs at both."""
    behind = tuple(each for each in form.flow if each.phase == FINAL)
    before = {each.session for each in form.flow if each.phase != FINAL}
    for each in behind:
        if each.session in before:
            what = f"the session {each.session!r} runs before the end of the loop and behind it"
            help = "declare it twice, by two names, where both are meant"
            resolving.report("unsupported-package-class", (*each.path, "when"), what, help)
    return replace(form, flow=tuple(each for each in form.flow if each.phase != FINAL)), behind


def find_finals(
    form: PipelineForm,
    graphs: SessionGraphs,
    edges: tuple[Edge, ...],
    steps: tuple[FlowStep, ...],
) -> Finals:
    """What feeds the sessions behind the loop: wires, else equal names. form: the pipeline without them."""
    names = [each.session for each in steps]
    found = [each for each in edges if each.target in names]
    for at, target in enumerate(names):
        fed = {each.input.name for each in found if each.target == target}
        earlier = [*form.running, *names[:at]]
        for port in graphs.signatures[target].inputs if target in graphs.signatures else ():
            made = [
                Edge(source, each, target, port)
                for source in earlier
                for each in graphs.signatures[source].outputs
                if each.name == port.name and not contradict(each, port)
            ]
            found += made[-1:] if port.name not in fed else []
    return Finals(steps, tuple(found))


def with_finals(lowered: Lowered, form: PipelineForm, graphs: SessionGraphs, decoder: str, finals: Finals) -> Lowered:
    """The package with the steps behind its loop. Raises CompileError with every wire that can't be."""
    document, problems = lowered.document, list[Problem]()
    workflow, made = document["pipeline"]["workflow"], dict[str, Stage]()
    results: list[tuple[Stage, Port]] = []
    for step in finals.steps:
        signature, inputs = graphs.signatures[step.session], list[StageInput]()
        edges = [each for each in finals.edges if each.target == step.session]
        for port in signature.inputs:
            edge = next((each for each in edges if each.input == port), None)
            value, why = _value(edge, port, lowered.decoder, workflow, form, decoder, made)
            if why:
                problems.append(_refused(form, step, why))
            inputs.append(StageInput(port, value, asked=edge is None))
        rows = _rows(edges, decoder, workflow, made) if edges else common_rows(signature)
        stage = Stage(step.session, graphs.artifacts[step.session], signature, tuple(inputs), rows)
        made[step.session] = stage
        taken = {(each.source, each.output.name) for each in finals.edges}
        given = [port for port in signature.outputs if (step.session, port.name) not in taken]
        shared = [each.name for each in given if not rows or _first(each) != rows]
        if shared and not problems:
            what = f"nothing tells that the first axis of what it gives, {listed(shared)}, is the request's rows"
            problems.append(_refused(form, step, what))
        results += [(stage, port) for port in given]
    if problems:
        raise CompileError([*lowered.problems, *problems])
    workflow["steps"] += [invoke_stage(each, workflow) for each in made.values()]
    for stage, port in results:
        name = port.name if port.name not in workflow["outputs"] else f"{stage.name}.{port.name}"
        workflow["outputs"][name] = {"contract": stage.result(port), "role": "tensor", "stage": "pre_adapter"}
        value = f"{stage.component}.{port.name}"
        workflow["steps"].append({"kind": "emit", "value": value, "output": name, "mode": "replace"})
    return replace(lowered, notes=(*lowered.notes, *_notes(finals)))


def _rows(edges: list[Edge], decoder: str, workflow: Data, made: dict[str, Stage]) -> str:
    """The symbol of the request's rows: that of an input whose source has them on its first axis, "" without one."""
    contracts = {
        f"{name}.{port}": contract
        for name, component in workflow["components"].items()
        for port, contract in component["ports"]["outputs"].items()
    }
    for each in edges:
        stage = made.get(each.source)
        told = (
            _first(each.output) == stage.rows if stage is not None else "batch_layout" in contracts.get(each.value, {})
        )
        if _first(each.input) and (each.source == decoder or told):
            return _first(each.input)
    return ""


def _refused(form: PipelineForm, step: FlowStep, why: str) -> Problem:
    place = form.text.places.find(step.path), format_path(step.path)
    what = f"the session {step.session!r} runs behind the loop, and {why}"
    return Problem("unsupported-package-class", *place, what, _HELP)


_HELP = "take what a session before the loop gives, or what the decoder gives beside logits and caches"


def _value(
    edge: Edge | None,
    port: Port,
    facts: DecoderFacts,
    workflow: Data,
    form: PipelineForm,
    decoder: str,
    made: dict[str, Stage],
) -> tuple[str, str]:
    """(the workflow value that an input takes, what is in its way)."""
    if edge is None:
        if port.name in (form.text.base.decoder.inputs[key] for key in _FORMED):
            return "", f"what the loop forms as {port.name!r} is not kept"
        name = f"application.{port.name}"
        return (name if name not in workflow["inputs"] else f"application.behind.{port.name}"), ""
    if edge.source in made:
        return f"{made[edge.source].component}.{edge.output.name}", ""
    if edge.source == decoder:
        why = _unkept(edge.output, facts, workflow)
        return ("", why) if why else (_left(edge.output, workflow), "")
    steps = [each for each in workflow["steps"] if each["kind"] == "invoke"]
    if any(edge.value in each["outputs"].values() for each in steps):
        return edge.value, ""
    return "", f"{edge.value!r} is made at every token or where media are given, and not kept"


def _unkept(port: Port, facts: DecoderFacts, workflow: Data) -> str:
    """Why what the decoder's last run gave at a port is not there behind the loop, "" where it is."""
    spoken = f"takes {port.name!r} of the decoder"
    if _DECODER not in workflow["components"] or facts.window is not None or facts.paged is not None:
        return f"{spoken}, which is several sessions, takes windows or keeps pages: its last run is not kept"
    if facts.fixed_capacity is not None:
        return f"{spoken}, whose graph fixes how long its caches are: a run writes in place, nothing else is kept"
    if port.name == facts.logits.name or port.name in {each.output for each in state_cells(facts).values()}:
        return f"{spoken}, which the loop itself reads: it is not kept"
    opened = [axis for axis, extent in enumerate(port.shape or ()) if axis and not isinstance(extent, int)]
    if not port.shape or isinstance(port.shape[0], int) or len(opened) > 1:
        return f"{spoken}, of which more axes are open than rows and tokens, or of no known rank: it is not kept"
    return ""


def _left(port: Port, workflow: Data) -> str:
    """The cell that holds what the decoder's last run gave at a port; declared once."""
    cell, seed = f"left.{port.name}", f"package.left.{port.name}"
    if cell in workflow["state"]:
        return cell
    loop = next(each for each in workflow["steps"] if each["kind"] == "loop")
    decode = next(each for each in loop["steps"] if each.get("component") == _DECODER)
    contract = row_wise(port)
    workflow["components"][_DECODER]["ports"]["outputs"].setdefault(port.name, contract)
    value = decode["outputs"].setdefault(port.name, f"step.left.{port.name}")
    axis = next((axis for axis, extent in enumerate(port.shape or ()) if axis and not isinstance(extent, int)), None)
    law: Data = {"kind": "invariant"}
    shape, first = [*contract["shape"]], [*contract["shape"]]
    if axis is not None:
        law = {"kind": "bounded", "axis": axis, "max": "package.sequence_capacity"}
        shape[axis], first[axis] = f"{cell}.{axis}", 0
    zero = 0.0 if "float" in port.dtype else False if port.dtype == "bool" else 0
    literal: Data = {"role": {"kind": "opaque"}, "source": {"kind": "literal"}, "default": zero}
    workflow["inputs"][seed] = {"contract": {**contract, "shape": first}, **literal}
    plain: Data = {"scope": "invocation", "recurrence": law, "management": "workflow"}
    workflow["state"][cell] = {"contract": {**contract, "shape": shape}, "initializer": seed, **plain}
    loop["carried"].append({"cell": cell, "next": value})
    return cell


def _first(port: Port) -> str:
    extent = port.shape[0] if port.shape else None
    return extent if isinstance(extent, str) else ""


def _notes(finals: Finals) -> Iterator[str]:
    names = ", ".join(each.session for each in finals.steps)
    yield f"behind the loop, once: {names}; it takes one row a run where it reads what the last run left"
