"""A decoder that a document cuts into stages, as one: the graphs of each phase are linked and run as one session.

Before:  loop { invoke embeddings; branch prompt_phase { true: invoke context; false: invoke iterator }; invoke head }
After:   loop { invoke decoder }    decoder = embeddings + iterator + head, decoder_prompt = embeddings + context + head

Every stage is an ONNX component of contract autoregressive-decode. Another model may stand before them, which makes
embeddings of tokens for them. A branch chooses by a cell that starts as true and
becomes false: what runs with the prompt, and what runs with later tokens.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from genai_compiler.plan.edits import Linked, free_name
from genai_compiler.plan.report import WORKFLOW
from genai_compiler.problem import CompileError, Problem
from genai_compiler.read.attention import cache_ops
from genai_compiler.read.document import (
    BranchStep,
    Component,
    InvokeStep,
    LiteralSource,
    LoopStep,
    Scalar,
    StatePortAlias,
    Step,
    TensorContract,
    Workflow,
)
from genai_compiler.read.link_graphs import Member, linked_model
from genai_compiler.read.linkable import unlinkable
from genai_compiler.read.opsets import NO_OPSETS, opsets_of
from genai_compiler.read.package import Graph, Package
from genai_compiler.read.places import format_path
from genai_compiler.read.signature import Port, Signature

DECODE = "onnx-genai.autoregressive-decode"
PROMPT_COMPONENT = "prompt_component"
"""Parameter of the contract: the component that runs with the prompt, where it is another one."""


@dataclass
class _Phase:
    """The stages of one phase. members: by (port, value); source: value -> (component, port) that gives it.

    alias: what a branch hands on -> the value of this phase's case.
    """

    steps: list[InvokeStep] = field(default_factory=list[InvokeStep])
    source: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    alias: dict[str, str] = field(default_factory=dict[str, str])

    def value(self, name: str) -> str:
        """A name of the document as what it stands for in this phase."""
        return self.alias.get(name, name)

    def taken(self) -> dict[str, str]:
        """Value from outside -> the first port that takes it."""
        found: dict[str, str] = {}
        for step in self.steps:
            for port, name in step.inputs.items():
                value = self.value(name)
                if value not in self.source:
                    found.setdefault(value, port)
        return found


def link_stages(package: Package) -> Package:
    """The package with such a decoder as one component; the package itself where it has none, or names ports that its
    graphs have not.

    Raises CompileError `unreadable-graph` for a stage that can't be linked.
    """
    workflow = package.workflow
    for at, loop in enumerate(workflow.steps):
        if isinstance(loop, LoopStep) and (found := _stages(workflow, loop)) is not None:
            flag, phases, place = found
            if all(_has_ports(package, step) for phase in phases for step in phase.steps):
                _check_linkable(package, phases)
                return _linked(package, at, loop, (flag, *place), phases)
    return package


def _has_ports(package: Package, step: InvokeStep) -> bool:
    graph = package.graphs.get(step.component)
    if graph is None:
        return False
    inputs, outputs = graph.signature.inputs, graph.signature.outputs
    return step.inputs.keys() <= {each.name for each in inputs} and step.outputs.keys() <= {e.name for e in outputs}


def _check_linkable(package: Package, phases: tuple[_Phase, _Phase]) -> None:
    found: list[Problem] = []
    together = NO_OPSETS
    for name in dict.fromkeys(step.component for phase in phases for step in phase.steps):
        model = package.graphs[name].model
        joined = together.joined(opsets_of(model))
        why = unlinkable(model) or joined.conflict()
        together = together if why else joined
        if why:
            path = (*WORKFLOW, "components", name)
            what = f"the graph of stage '{name}' can't be linked with the others: {why}"
            found.append(Problem("unreadable-graph", package.places.find(path), format_path(path), what))
    if found:
        raise CompileError(found)


def _stages(workflow: Workflow, loop: LoopStep) -> tuple[str, tuple[_Phase, _Phase], tuple[int, int]] | None:
    """Of a staged loop (the cell that tells the phases apart, "" for one phase; prompt and later; the steps' first and
    the one behind their last).
    """
    flags, phases, flag = _flags(workflow, loop), (_Phase(), _Phase()), ""
    first = count = 1 if loop.steps and _is_front(workflow, loop.steps[0]) else 0
    for step in loop.steps[first:]:
        if isinstance(step, InvokeStep) and _is_stage(workflow, step):
            for phase in phases:
                _add(phase, step)
        elif isinstance(step, BranchStep) and step.predicate in flags and set(step.cases) == {"true", "false"}:
            cases = [_invokes(step.cases[key]) for key in ("true", "false")]
            if step.default is not None or not all(_is_stage(workflow, each) for case in cases for each in case):
                return None
            flag = step.predicate
            for phase, key, case in zip(phases, ("true", "false"), cases, strict=True):
                for each in case:
                    _add(phase, each)
                phase.alias |= {name: phase.value(output.cases[key]) for name, output in step.outputs.items()}
        else:
            break
        count += 1
    whole = all(phase.steps for phase in phases) and (flag or len(phases[0].steps) > 1)
    return (flag, phases, (first, count)) if whole else None


def _is_front(workflow: Workflow, step: Step) -> bool:
    """Whether a step runs a graph that is no stage."""
    component = workflow.components.get(step.component) if isinstance(step, InvokeStep) else None
    return component is not None and component.implementation.kind == "onnx" and _contract(component.contract) != DECODE


def _flags(workflow: Workflow, loop: LoopStep) -> set[str]:
    """Cells of the loop that are true in its first iteration and false later."""

    def is_literal(name: str, value: bool) -> bool:
        given = workflow.inputs.get(name)
        return given is not None and isinstance(given.source, LiteralSource) and given.default is value

    cells = ((each, workflow.state.get(each.cell)) for each in loop.carried)
    return {
        each.cell
        for each, cell in cells
        if cell is not None and is_literal(each.initial or cell.initializer, True) and is_literal(each.next, False)
    }


def _is_stage(workflow: Workflow, step: InvokeStep) -> bool:
    component = workflow.components.get(step.component)
    contract = component.contract if component is not None else None
    return component is not None and component.implementation.kind == "onnx" and _contract(contract) == DECODE


def _contract(contract: object) -> str:
    return str(getattr(contract, "id", ""))


def _invokes(step: Step) -> list[InvokeStep]:
    if isinstance(step, InvokeStep):
        return [step]
    inner = getattr(step, "steps", ()) if step.kind == "sequence" else ()
    return [each for one in inner for each in _invokes(one)]


def _add(phase: _Phase, step: InvokeStep) -> None:
    phase.steps.append(step)
    phase.source |= {value: (step.component, port) for port, value in step.outputs.items()}


# ---- one component ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ports:
    """The linked component's own ports: value of the document -> port, for what it takes and gives."""

    taken: Mapping[str, str]
    given: Mapping[str, str]

    def inside(self, phase: _Phase) -> dict[str, str]:
        """Value of a phase's stages -> port, for what it gives."""
        return {phase.value(name): port for name, port in self.given.items() if phase.value(name) in phase.source}


def _linked(
    package: Package, at: int, loop: LoopStep, marked: tuple[str, int, int], phases: tuple[_Phase, _Phase]
) -> Package:
    flag, first, count = marked
    workflow, (prompt, later) = package.workflow, phases
    read = [each.next for each in loop.carried]
    read += [name for step in loop.steps[count:] for name in getattr(step, "inputs", {}).values()]
    ports = _Ports(_named({**later.taken(), **prompt.taken()}), _results(dict.fromkeys(read), later, prompt))
    names = [free_name("decoder", workflow.components)]
    graphs = {names[0]: _graph(package, later, ports)}
    two = [each.component for each in prompt.steps] != [each.component for each in later.steps]
    if two:
        names.append(free_name("decoder_prompt", workflow.components))
        graphs[names[1]] = _graph(package, prompt, ports)
    made = {
        name: _component(workflow, phase, graphs[name].artifact, ports, names[1] if two and at == 0 else "")
        for at, (name, phase) in enumerate(zip(names, (later, prompt), strict=False))
    }
    invoke = InvokeStep(
        component=names[0],
        inputs={port: value for value, port in ports.taken.items()},
        outputs={port: name for name, port in ports.given.items()},
    )
    carried = tuple(each for each in loop.carried if each.cell != flag)
    steps = (*loop.steps[:first], invoke, *loop.steps[count:])
    new = loop.model_copy(update={"steps": steps, "carried": carried})
    update = {
        "components": {**workflow.components, **made},
        "steps": (*workflow.steps[:at], new, *workflow.steps[at + 1 :]),
        "state": {name: each for name, each in workflow.state.items() if name != flag},
        "inputs": _without(workflow, loop, flag),
        **_serving(workflow, names[0], ports, later, {each.cell: each.next for each in loop.carried}),
    }
    return with_workflow(package, workflow.model_copy(update=update), {**package.graphs, **graphs})


def _named(taken: Mapping[str, str]) -> dict[str, str]:
    """A port of its own for every value."""
    found: dict[str, str] = {}
    for value, port in taken.items():
        found[value] = free_name(port, set(found.values()))
    return found


def _results(names: Iterable[str], later: _Phase, prompt: _Phase) -> dict[str, str]:
    """Value of the document -> port of its own, for what leaves the stages: of later tokens, or of the prompt alone."""
    found: dict[str, str] = {}
    for phase in (later, prompt):
        for name in names:
            if name not in found and phase.value(name) in phase.source:
                found[name] = free_name(phase.source[phase.value(name)][1], set(found.values()))
    return found


def _without(workflow: Workflow, loop: LoopStep, flag: str) -> dict[str, object]:
    """The inputs but for the literals of the flag."""
    cell = workflow.state.get(flag)
    gone = {each for carry in loop.carried if carry.cell == flag for each in (carry.initial, carry.next)}
    gone |= {cell.initializer} if cell is not None else set()
    return {name: each for name, each in workflow.inputs.items() if name not in gone}


def _serving(
    workflow: Workflow, name: str, ports: _Ports, phase: _Phase, nexts: Mapping[str, str]
) -> dict[str, object]:
    """The groups of state with the linked component's ports in the place of its stages'.

    nexts: cell -> what it becomes; one that the prompt's stages alone write is written by the whole.
    """
    if workflow.serving is None:
        return {}
    members = {step.component for step in phase.steps}
    groups = {}
    for group, each in workflow.serving.state_service.groups.items():
        mine = {
            cell: alias.model_copy(update=_linked_alias(cell, alias, ports, nexts))
            for component, cells in each.ports.items()
            if component in members
            for cell, alias in cells.items()
        }
        others = {component: cells for component, cells in each.ports.items() if component not in members}
        groups[group] = each.model_copy(update={"ports": {**others, name: mine} if mine else others})
    service = workflow.serving.state_service.model_copy(update={"groups": groups})
    return {"serving": workflow.serving.model_copy(update={"state_service": service})}


def _linked_alias(cell: str, alias: StatePortAlias, ports: _Ports, nexts: Mapping[str, str]) -> dict[str, object]:
    update: dict[str, object] = {"input": ports.taken.get(cell, alias.input)}
    made = ports.given.get(nexts.get(cell, ""))
    return update if made is None else {**update, "output": made, "access": "read_write"}


def _component(workflow: Workflow, phase: _Phase, artifact: str, ports: _Ports, prompt: str) -> Component:
    """The stages' declarations as one: ports by their new names, roles and contract of all."""
    inputs, outputs = dict[str, TensorContract](), dict[str, TensorContract]()
    roles, bindings, parameters = dict[str, str](), dict[str, str](), dict[str, Scalar]()
    inside = ports.inside(phase)
    for step in phase.steps:
        declared = workflow.components[step.component]
        contract = declared.contract
        assert contract is not None
        parameters |= contract.parameters
        for port, name in step.inputs.items():
            new = ports.taken.get(phase.value(name))
            if new is not None:
                inputs |= {new: declared.ports.inputs[port]} if port in declared.ports.inputs else {}
                roles |= {new: declared.ports.roles[port]} if port in declared.ports.roles else {}
                bindings |= {role: new for role, at in contract.bindings.items() if at == port}
        for port, name in step.outputs.items():
            if (new := inside.get(name)) is not None:
                outputs |= {new: declared.ports.outputs[port]} if port in declared.ports.outputs else {}
                roles |= {new: declared.ports.roles[port]} if port in declared.ports.roles else {}
    first = workflow.components[phase.steps[0].component]
    assert first.contract is not None
    parameters |= {PROMPT_COMPONENT: prompt} if prompt else {}
    contract = first.contract.model_copy(update={"bindings": bindings, "parameters": parameters})
    both = first.ports.model_copy(update={"inputs": inputs, "outputs": outputs, "roles": roles})
    implementation = first.implementation.model_copy(update={"artifact": artifact})
    return first.model_copy(update={"implementation": implementation, "ports": both, "contract": contract})


def _graph(package: Package, phase: _Phase, ports: _Ports) -> Graph:
    """The linked graph, to be looked at; `linked` says how it is made for a session."""
    used = {step.component: package.graphs[step.component] for step in phase.steps}
    inside = ports.inside(phase)
    members = tuple(_members(phase, ports, inside))
    linked = Linked(members, tuple(inside.values()))
    model = linked_model(members, {name: each.model for name, each in used.items()}, linked.outputs)
    signature = Signature(
        inputs=tuple(_taken(phase, ports, used)),
        outputs=tuple(_given(phase, ports, used)),
        opsets=tuple(sorted({pair for each in used.values() for pair in each.signature.opsets})),
        metadata=(),
        external_data=(),
        cache_ops=cache_ops(model.graph),
    )
    artifact = " + ".join(dict.fromkeys(each.artifact for each in used.values()))
    return Graph(artifact, signature, model, False, linked=linked)


def _members(phase: _Phase, ports: _Ports, inside: Mapping[str, str]) -> Iterator[Member]:
    for step in phase.steps:
        inputs = [(port, phase.value(name)) for port, name in step.inputs.items()]
        outputs = [(port, inside.get(name, name)) for port, name in step.outputs.items()]
        named = [(port, ports.taken.get(value) or inside.get(value, value)) for port, value in inputs]
        yield Member(step.component, tuple(named), tuple(outputs))


def _taken(phase: _Phase, ports: _Ports, graphs: Mapping[str, Graph]) -> Iterator[Port]:
    done: set[str] = set()
    for step in phase.steps:
        own = {each.name: each for each in graphs[step.component].signature.inputs}
        for port, name in step.inputs.items():
            new = ports.taken.get(phase.value(name))
            if new is not None and new not in done and port in own:
                done.add(new)
                yield replace(own[port], name=new)


def _given(phase: _Phase, ports: _Ports, graphs: Mapping[str, Graph]) -> Iterator[Port]:
    for value, new in ports.inside(phase).items():
        component, port = phase.source[value]
        own = next((each for each in graphs[component].signature.outputs if each.name == port), None)
        if own is not None:
            yield replace(own, name=new)


def with_workflow(package: Package, workflow: Workflow, graphs: Mapping[str, Graph]) -> Package:
    """The package with another workflow and these graphs."""
    assert package.metadata.pipeline is not None
    pipeline = package.metadata.pipeline.model_copy(update={"workflow": workflow})
    return replace(package, metadata=package.metadata.model_copy(update={"pipeline": pipeline}), graphs=graphs)
