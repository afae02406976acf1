"""Graphs that are not there, stood in for by what the document declares: enough to plan with, never to run.

Only `--no-artifacts` asks for this. A stand-in has the ports of its component's contracts and no node, so nothing is
ever proved from it; a component that declares no ports gets those that steps bind, of unknown type.
"""

from collections.abc import Iterator
from dataclasses import replace

from onnx import ModelProto

from genai_compiler.problem import Problem, Severity
from genai_compiler.read.document import BranchStep, Component, InvokeStep, LoopStep, SequenceStep, Step, Workflow
from genai_compiler.read.package import Graph
from genai_compiler.read.signature import UNDEFINED, Port, Signature

FLAG_HELP = "--no-artifacts plans a document without its files"
NOT_RUNNABLE = "no_artifacts: planned from the document: there is no executor, and nothing can be run from this"


def stand_in(name: str, artifact: str, workflow: Workflow) -> Graph:
    """What takes the place of the graph of component `name`."""
    component = workflow.components[name]
    inputs, outputs = _declared(component) or _bound(name, workflow.steps)
    signature = Signature(inputs, outputs, opsets=(), metadata=(), external_data=(), cache_ops=())
    return Graph(artifact, signature, ModelProto(), textproto=False, absent=True)


def assumption(name: str, graph: Graph, workflow: Workflow) -> str:
    """What is taken for granted about an absent graph, for the decisions of the plan."""
    head = f"no_artifacts: {graph.artifact} of component '{name}' is absent"
    if _declared(workflow.components[name]):
        return f"{head}: ports and types are those that the component declares"
    return f"{head} and no ports are declared: assumed are those that steps bind, of unknown type"


def with_flag(problem: Problem) -> Problem:
    """The problem of a file that is absent, its help naming the way to do without."""
    if problem.code != "missing-file":
        return problem
    return replace(problem, help="; ".join(filter(None, (problem.help, FLAG_HELP))))


def tolerated(problem: Problem) -> Problem:
    """The problem of a file that may be absent: a warning."""
    return replace(problem, severity=Severity.WARNING) if problem.code == "missing-file" else problem


def _declared(component: Component) -> tuple[tuple[Port, ...], tuple[Port, ...]] | None:
    """The declared ports, their extents left to the contracts; None when the component declares none."""
    ports = component.ports
    if not ports.inputs and not ports.outputs:
        return None
    inputs, outputs = (
        tuple(Port(name, each.dtype, None) for name, each in side.items()) for side in (ports.inputs, ports.outputs)
    )
    return inputs, outputs


def _bound(name: str, steps: tuple[Step, ...]) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    uses = [step for step in _invokes(steps) if step.component == name]
    inputs, outputs = (
        tuple(Port(port, UNDEFINED, None) for port in dict.fromkeys(port for side in sides for port in side))
        for sides in ([each.inputs for each in uses], [each.outputs for each in uses])
    )
    return inputs, outputs


def _invokes(steps: tuple[Step, ...]) -> Iterator[InvokeStep]:
    for step in steps:
        match step:
            case InvokeStep():
                yield step
            case SequenceStep():
                yield from _invokes(step.steps)
            case LoopStep():
                yield from _invokes((*step.setup, *step.steps))
            case BranchStep():
                yield from _invokes((*step.cases.values(), *((step.default,) if step.default is not None else ())))
            case _:
                pass
