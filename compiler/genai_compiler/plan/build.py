"""Package -> Plan: names become values, ports meet their graphs, and every fault is reported at its place.

The graph is authoritative: types of ports come from it, declared contracts are held against it (artifact resolution).
"""

from collections.abc import Iterator
from dataclasses import replace

from genai_compiler.check.walk import invokes, walk
from genai_compiler.plan.audio_program import AudioProgram, audio_program
from genai_compiler.plan.build_speculation import build_speculation, draft_seeds
from genai_compiler.plan.build_steps import StepBuilder
from genai_compiler.plan.graph_program import GraphProgram
from genai_compiler.plan.image_program import ImageProgram, image_program
from genai_compiler.plan.ir import Adapter, Cell, Component, Input, Op, Output, Plan, Type
from genai_compiler.plan.limits import limited
from genai_compiler.plan.literals import literal
from genai_compiler.plan.lora import adaptation
from genai_compiler.plan.processor_files import PROCESSORS, file_program
from genai_compiler.plan.prompt_chunks import with_prompt_chunks
from genai_compiler.plan.replacements import with_replacements
from genai_compiler.plan.report import WORKFLOW, Report
from genai_compiler.plan.scope import Scope, Values
from genai_compiler.plan.session_reads import session_inputs
from genai_compiler.plan.token_entries import with_entries
from genai_compiler.plan.types import graph_type, type_of
from genai_compiler.plan.uses import all_reads
from genai_compiler.problem import Problem
from genai_compiler.read.document import (
    AdapterImplementation,
    ApplicationSource,
    Bounded,
    EmitStep,
    Growing,
    OnnxImplementation,
    RuntimeRole,
    StateCell,
    WorkflowInput,
    WorkflowOutput,
)
from genai_compiler.read.document import Component as DeclaredComponent
from genai_compiler.read.negotiate import graphs_of
from genai_compiler.read.package import Graph, Package
from genai_compiler.read.places import format_path

PRESENCE = Type("bool", 0, ())
"""The type of a `present_as` value."""


def build(package: Package) -> tuple[Plan, tuple[Problem, ...]]:
    """The plan of a package, and every problem found on the way (the plan is only sound when none is an error)."""
    report, workflow = Report(package.places), package.workflow
    scope = Scope(Values())
    dynamic = _dynamic_symbols(workflow.state)
    held = session_inputs(workflow, report)
    inputs = tuple(
        replace(_input(name, each, scope, dynamic, report), held=held.get(name, ""))
        for name, each in workflow.inputs.items()
    )
    emits = [step for _, step in walk(workflow.steps) if isinstance(step, EmitStep)]
    ragged = {each.output for each in emits if each.when or each.valid_length}
    outputs = tuple(_output(name, each, name in ragged, dynamic) for name, each in workflow.outputs.items())
    components = with_replacements(tuple(_components(package)), package.workflow.components)
    cells = tuple(_cell(name, each, dynamic) for name, each in workflow.state.items())
    adapted = adaptation(package, scope)
    steps = StepBuilder(package, report, {each.name: each for each in components}, outputs, adapted)
    body = (*adapted.ops, *steps.ops(workflow.steps, (*WORKFLOW, "steps"), scope), *steps.unchanged_cells(scope))
    unread = _unread(steps.superseded | draft_seeds(package), body)
    taken = [each for each in inputs if each.name not in unread]
    plan = Plan(
        name=package.title or package.root.name,
        dialect=package.dialect,
        inputs=with_entries(limited(taken, body, package), body, components, package, steps.decoder),
        outputs=outputs,
        components=components,
        cells=cells,
        groups=steps.groups,
        decoder=steps.decoder,
        body=body,
        types=scope.values.types,
        speculation=build_speculation(package, steps.decoder),
        capabilities=tuple(sorted({*workflow.manifest.capabilities, *package.metadata.required_capabilities})),
        decisions=package.assumptions,
    )
    plan, doubts = with_prompt_chunks(plan, package.chunk)
    return plan, (*report.problems, *doubts)


def _unread(superseded: set[str], body: tuple[Op, ...]) -> set[str]:
    """Inputs that only the runtime's own decoding would have read: it forms their values itself."""
    return superseded - {value for op in body for value in all_reads(op)}


def _dynamic_symbols(state: dict[str, StateCell]) -> frozenset[str]:
    """Symbols on the varying axis of a growing or bounded cell: never bound, never checked (standard, 3.2)."""
    found: set[str] = set()
    for cell in state.values():
        rule, shape = cell.recurrence, cell.contract.shape
        if isinstance(rule, Growing | Bounded) and shape and rule.axis < len(shape):
            found.update([dim] if isinstance(dim := shape[rule.axis], str) else [])
    return frozenset(found)


def _input(name: str, declared: WorkflowInput, scope: Scope, dynamic: frozenset[str], report: Report) -> Input:
    type = type_of(declared.contract).without(dynamic)
    scope.define(name, type)
    if declared.present_as:
        scope.define(declared.present_as, PRESENCE)
    default, fault = literal(declared.default, type, declared.contract.shape is not None)
    if fault:
        what = f"the default of input '{name}' is no tensor of its contract: {fault} (V326)"
        report.error("bad-literal", (*WORKFLOW, "inputs", name, "default"), what)
    return Input(
        name=name,
        type=type,
        role=declared.role.role if isinstance(declared.role, RuntimeRole) else "",
        source=declared.source.kind,
        application_name=declared.source.name if isinstance(declared.source, ApplicationSource) else "",
        required=declared.required,
        default=default,
        present_as=declared.present_as or "",
        origin=format_path((*WORKFLOW, "inputs", name)),
    )


def _output(name: str, declared: WorkflowOutput, ragged: bool, dynamic: frozenset[str]) -> Output:
    """ragged: some emit into it has a guard or a length."""
    type = type_of(declared.contract).without(dynamic)
    origin = format_path((*WORKFLOW, "outputs", name))
    rowwise = ragged and type.row_axis is not None
    return Output(name, type, declared.role, rowwise, origin, declared.value_range or "")


def _cell(name: str, declared: StateCell, dynamic: frozenset[str]) -> Cell:
    rule = declared.recurrence
    varying = rule if isinstance(rule, Growing | Bounded) else None
    return Cell(
        name=name,
        type=type_of(declared.contract).without(dynamic),
        scope=declared.scope,
        initializer=declared.initializer,
        recurrence=rule.kind,
        axis=varying.axis if varying else -1,
        increment=rule.increment if isinstance(rule, Growing) else "",
        maximum=varying.max if varying else "",
        group=declared.service_group or "",
        origin=format_path((*WORKFLOW, "state", name)),
    )


def _components(package: Package) -> Iterator[Component]:
    for name, declared in package.workflow.components.items():
        path = (*WORKFLOW, "components", name)
        if isinstance(declared.implementation, OnnxImplementation):
            graph = package.graphs.get(name)
            if graph is not None:
                yield _onnx_component(name, declared, graph, _bound_inputs(name, package), format_path(path))
        else:
            inputs = tuple((port, type_of(each)) for port, each in declared.ports.inputs.items())
            outputs = tuple((port, type_of(each)) for port, each in declared.ports.outputs.items())
            made = Component(name, "", inputs, outputs, not declared.effects, False, format_path(path))
            yield replace(made, adapter=_adapter(name, declared, package))


def _program_of(
    name: str, declared: DeclaredComponent, abi: str, package: Package
) -> AudioProgram | GraphProgram | ImageProgram | None:
    """What native code runs: graphs that it is given, what a processor file says, or the document's own program."""
    graphs = graphs_of(declared)
    if graphs:
        return GraphProgram(graphs)
    return file_program(name, declared, package) if abi in PROCESSORS else _program(name, abi, package)


def _adapter(name: str, declared: DeclaredComponent, package: Package) -> Adapter | None:
    implementation, contract = declared.implementation, declared.contract
    if not isinstance(implementation, AdapterImplementation):
        return None
    parameters = tuple(sorted(contract.parameters.items())) if contract is not None else ()
    abi = f"{implementation.abi}@{implementation.version}"
    program = _program_of(name, declared, abi, package)
    own = isinstance(program, AudioProgram | ImageProgram)
    roles = tuple(contract.bindings.items()) if contract is not None and not own else ()
    return Adapter(abi, parameters, roles, program)


def _program(name: str, abi: str, package: Package) -> AudioProgram | ImageProgram | None:
    """What a preprocessing adapter runs: its only invoke says which port each of the program's outputs comes from."""
    programs = package.metadata.preprocessing
    if programs is None or abi not in ("onnx-genai.audio-preprocess@1", "onnx-genai.image-preprocess@1"):
        return None
    step = next(step for _, step in invokes(package.workflow) if step.component == name)
    ports = {value: port for port, value in step.outputs.items()}
    if abi.startswith("onnx-genai.audio"):
        return audio_program(programs.audio, ports) if programs.audio is not None else None
    return image_program(programs.image, ports) if programs.image is not None else None


def _bound_inputs(name: str, package: Package) -> frozenset[str]:
    """Input ports that some step binds on this component."""
    bound = (each.inputs for _, each in invokes(package.workflow) if each.component == name)
    return frozenset(port for inputs in bound for port in inputs)


def _onnx_component(
    name: str, declared: DeclaredComponent, graph: Graph, bound: frozenset[str], origin: str
) -> Component:
    """A component with the ports of its graph; an input that has a default there counts when some step binds it."""
    ports, signature = declared.ports, graph.signature
    taken = (*signature.inputs, *(each for each in signature.defaulted if each.name in bound))
    inputs = tuple((each.name, graph_type(each, ports.inputs.get(each.name))) for each in taken)
    outputs = tuple((each.name, graph_type(each, ports.outputs.get(each.name))) for each in signature.outputs)
    artifact = graph.artifact if graph.linked is None else ""
    made = Component(name, artifact, inputs, outputs, not declared.effects, declared.application_overridable, origin)
    return made if graph.linked is None else replace(made, edit=graph.linked)
