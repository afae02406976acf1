"""Features of a prompt's media written over rows of embeddings: the two graphs linked into one.

Before:  loop { invoke embeddings(tokens); invoke place_entries(tokens, rows, a cell); ... }
After:   loop { invoke embedding(tokens, a cell); ... }

The nth token with the entry's id, over all rows of a batch, takes the nth entry. Where there are no more entries, as
with every token after the prompt, a row stays what it was.
"""

from dataclasses import replace

from onnx import ModelProto

from genai_compiler.lower.entry_check import ENTRY_TOKEN
from genai_compiler.lower.placed_features import PLACE, SINCE
from genai_compiler.plan.edits import Linked, free_name
from genai_compiler.plan.link_stages import with_workflow
from genai_compiler.plan.placing_graph import ENTRIES, PLACED, ROWS, TOKENS, can_place, placing_graph, version_of
from genai_compiler.read.document import Component, InvokeStep, LoopStep, Step, Workflow
from genai_compiler.read.link_graphs import Member, linked_model
from genai_compiler.read.linkable import unlinkable
from genai_compiler.read.package import Graph, Package
from genai_compiler.read.signature import Port, Signature, port_of


def place_entries(package: Package) -> Package:
    """The package with such a pair as one component; the package itself where it has none, or one of another form."""
    workflow = package.workflow
    for at, loop in enumerate(workflow.steps):
        if isinstance(loop, LoopStep) and (pair := _pair(workflow, loop)) is not None:
            made = _placed(package, at, loop, *pair)
            if made is not None:
                return made
    return package


def _pair(workflow: Workflow, loop: LoopStep) -> tuple[InvokeStep, InvokeStep] | None:
    """The first two steps, where the second puts entries into what the first makes of tokens."""
    first, second = (*loop.steps, None, None)[:2]
    if not isinstance(first, InvokeStep) or not isinstance(second, InvokeStep) or not _places(workflow, second):
        return None
    model = workflow.components.get(first.component)
    fits = set(second.inputs) == {TOKENS, ROWS, ENTRIES} and set(second.outputs) == {PLACED}
    if model is None or model.implementation.kind != "onnx" or not fits:
        return None
    taken = second.inputs[TOKENS] in first.inputs.values() and second.inputs[ROWS] in first.outputs.values()
    return (first, second) if taken and not _read_elsewhere(loop.steps[2:], second.inputs[ROWS]) else None


def _places(workflow: Workflow, step: InvokeStep) -> bool:
    component = workflow.components.get(step.component)
    contract = component.contract if component is not None else None
    return component is not None and component.implementation.kind == "binding" and getattr(contract, "id", "") == PLACE


def _read_elsewhere(steps: tuple[Step, ...], value: str) -> bool:
    return any(value in getattr(each, "inputs", {}).values() for each in steps)


def _placed(package: Package, at: int, loop: LoopStep, first: InvokeStep, second: InvokeStep) -> Package | None:
    workflow, graph = package.workflow, package.graphs.get(first.component)
    placing = workflow.components[second.component]
    token = placing.contract.parameters.get(ENTRY_TOKEN) if placing.contract is not None else None
    if graph is None or unlinkable(graph.model) or not isinstance(token, int) or version_of(graph.model) < SINCE:
        return None
    ports = {value: port for port, value in first.inputs.items()}
    tokens = ports[second.inputs[TOKENS]]
    rows = next(port for port, value in first.outputs.items() if value == second.inputs[ROWS])
    own = {each.name: each for each in (*graph.signature.inputs, *graph.signature.outputs)}
    shape = placing.ports.inputs[ENTRIES].shape
    width = shape[-1] if shape else None
    if tokens not in own or rows not in own or not isinstance(width, int) or not can_place(own[tokens], own[rows]):
        return None
    entries = free_name(ENTRIES, set(own))
    port = Port(entries, own[rows].dtype, (entries, width))
    name = free_name("embedding", workflow.components)
    model = placing_graph(own[tokens], own[rows], token, width, graph.model)
    own_name = free_name(second.component, package.graphs)
    made = _graph(package, (first, tokens, rows), own_name, model, port)
    component = _component(workflow.components[first.component], placing, made.artifact, entries)
    invoke = InvokeStep(
        component=name,
        inputs={**first.inputs, entries: second.inputs[ENTRIES]},
        outputs={**first.outputs, rows: second.outputs[PLACED]},
    )
    steps = (invoke, *loop.steps[2:])
    kept = {key: each for key, each in workflow.components.items() if key != second.component}
    update = {
        "components": {name: component, **kept},
        "steps": (*workflow.steps[:at], loop.model_copy(update={"steps": steps}), *workflow.steps[at + 1 :]),
    }
    graphs = {**package.graphs, own_name: Graph("", _signature(model), model, True), name: made}
    return with_workflow(package, workflow.model_copy(update=update), graphs)


def _signature(model: ModelProto) -> Signature:
    inputs, outputs = (tuple(port_of(each) for each in side) for side in (model.graph.input, model.graph.output))
    opsets = tuple((each.domain, int(each.version)) for each in model.opset_import)
    return Signature(inputs, outputs, opsets, (), (), ())


def _component(model: Component, placing: Component, artifact: str, entries: str) -> Component:
    inputs = {**model.ports.inputs, entries: placing.ports.inputs[ENTRIES]}
    implementation = model.implementation.model_copy(update={"artifact": artifact})
    return model.model_copy(
        update={"implementation": implementation, "ports": model.ports.model_copy(update={"inputs": inputs})}
    )


def _graph(package: Package, taken: tuple[InvokeStep, str, str], name: str, model: ModelProto, entries: Port) -> Graph:
    """The linked graph. name: of what puts entries in."""
    first, tokens, rows = taken
    graph = package.graphs[first.component]
    plain = f"{rows}.plain"
    own = Member(
        first.component,
        tuple((port, port) for port in first.inputs),
        tuple((port, plain if port == rows else port) for port in first.outputs),
    )
    placing = Member(name, ((TOKENS, tokens), (ROWS, plain), (ENTRIES, entries.name)), ((PLACED, rows),))
    content: bytes = model.SerializeToString(deterministic=True)
    linked = Linked((own, placing), tuple(first.outputs), own=((name, content),))
    whole = linked_model(linked.members, {first.component: graph.model, name: model}, linked.outputs)
    signature = replace(graph.signature, inputs=(*graph.signature.inputs, entries))
    return Graph(graph.artifact, signature, whole, False, linked=linked)
