"""Session cells: what carries them from turn to turn, and conversations that continue a prompt (standard, 12.9)."""

from genai_compiler.check.fault import STATE, Fault, Faults, Path, Rule, Rules
from genai_compiler.check.state_cells import groups_of
from genai_compiler.check.walk import invokes, walk
from genai_compiler.plan.dtypes import canonical
from genai_compiler.read.document import (
    Bounded,
    Growing,
    LoopStep,
    PromptPrefix,
    RuntimeRole,
    StateCell,
    StatePortAlias,
    TensorContract,
    Workflow,
)
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V216": Rule("continuation-scope", "A continuation stands on a session-scoped cell."),
    "V217": Rule("continuation-class", "A continuation stands on a semantic cell."),
    "V218": Rule("continuation-owner", "A continuation's cell is the runtime's until the session ends."),
    "V219": Rule("continuation-axis", "A continuation's cell varies on its last axis."),
    "V220": Rule("continuation-bound", "A continuation's bound is an input that always has a value."),
    "V221": Rule("continuation-prompt", "A continuation's `prompt_input` is an input with role `prompt_tokens`."),
    "V222": Rule("continuation-tokens", "A continuation's `tokens_output` is an output with role `tokens`."),
    "V223": Rule("continuation-type", "A continuation's cell, prompt and tokens have one dtype, rank and layout."),
    "V224": Rule("continuation-carried", "No loop carries a continuation's cell."),
    "V225": Rule("two-continuations", "A workflow has at most one continuation."),
    "V226": Rule("session-group", "A session cell's group has ports for it."),
    "V227": Rule("session-not-carried", "Something carries a semantic session cell from turn to turn."),
    "V228": Rule("session-not-written", "A session cell only its group carries is fed from an input and written back."),
}


def check_sessions(workflow: Workflow) -> Faults:
    """Every session cell, and every continuation."""
    carried = {each.cell for _, step in walk(workflow.steps) if isinstance(step, LoopStep) for each in step.carried}
    first = ""
    for name, cell in workflow.state.items():
        path = (*STATE, name)
        continuation = cell.session.continuation if cell.session is not None else None
        if continuation is not None:
            place = (*path, "session", "continuation")
            if first:
                what = f"cell '{first}' has a continuation already, and a conversation has one store"
                yield Fault("V225", place, what, "keep one of them")
            first = first or name
            yield from _continuation(name, cell, continuation, workflow, carried, path)
        if cell.scope == "session":
            yield from _carrier(name, cell, workflow, carried, path)


def _continuation(
    name: str, cell: StateCell, continuation: PromptPrefix, workflow: Workflow, carried: set[str], path: Path
) -> Faults:
    if cell.scope != "session":
        what = "a continuation stands on a cell that lives for one invocation"
        yield Fault("V216", (*path, "session", "continuation"), what, "write scope: session")
        return
    if cell.state_class != "semantic":
        yield Fault("V217", (*path, "class"), "advisory state may be dropped, a conversation may not", "remove class")
    if cell.management != "runtime" or cell.release_boundary != "session":
        what = "a continuation's cell is held by the runtime for the session"
        yield Fault("V218", path, what, "write management: runtime and release_boundary: session")
    yield from _bound(cell, workflow, path)
    yield from _ends(cell, continuation, workflow, path)
    if name in carried:
        what = "a loop carries this cell, and its continuation writes it too"
        yield Fault("V224", path, what, "remove the carry or the continuation")


def _bound(cell: StateCell, workflow: Workflow, path: Path) -> Faults:
    rule, place = cell.recurrence, (*path, "recurrence")
    if not isinstance(rule, Growing | Bounded) or rule.axis != cell.contract.rank - 1:
        what = "a conversation grows on the last axis of its cell"
        yield Fault("V219", place, what, f"write kind: bounded with axis: {max(cell.contract.rank - 1, 0)}")
        return
    declared = workflow.inputs.get(rule.max)
    if declared is None:
        what = f"the bound '{rule.max}' of the conversation is no declared input"
        yield Fault("V220", (*place, "max"), what, did_you_mean(rule.max, workflow.inputs))
    elif not declared.required and declared.default is None:
        what = f"the bound '{rule.max}' of the conversation is an input that may have no value"
        yield Fault("V220", (*place, "max"), what, "make it required, or give it a default")


def _ends(cell: StateCell, continuation: PromptPrefix, workflow: Workflow, path: Path) -> Faults:
    place = (*path, "session", "continuation")
    prompt, tokens = workflow.inputs.get(continuation.prompt_input), workflow.outputs.get(continuation.tokens_output)
    if prompt is None or not isinstance(prompt.role, RuntimeRole) or prompt.role.role != "prompt_tokens":
        what = f"'{continuation.prompt_input}' is no declared input with role prompt_tokens"
        help = did_you_mean(continuation.prompt_input, workflow.inputs) if prompt is None else "give it that role"
        yield Fault("V221", (*place, "prompt_input"), what, help)
        prompt = None
    if tokens is None or tokens.role != "tokens":
        what = f"'{continuation.tokens_output}' is no declared output with role tokens"
        help = did_you_mean(continuation.tokens_output, workflow.outputs) if tokens is None else "give it that role"
        yield Fault("V222", (*place, "tokens_output"), what, help)
        tokens = None
    ends = (("prompt", prompt), ("tokens output", tokens))
    differing = [which for which, end in ends if end is not None and _form(end.contract) != _form(cell.contract)]
    if differing:
        what = f"the cell and its {' and '.join(differing)} differ in dtype, rank or batch_layout"
        yield Fault("V223", (*path, "contract"), what, "write the same on all three")


def _form(contract: TensorContract) -> object:
    return canonical(contract.dtype), contract.rank, contract.batch_layout


def _carrier(name: str, cell: StateCell, workflow: Workflow, carried: set[str], path: Path) -> Faults:
    group = groups_of(workflow).get(cell.service_group or "")
    aliases = {c: cells[name] for c, cells in group.ports.items() if name in cells} if group is not None else {}
    if group is not None and not aliases:
        what = f"group '{cell.service_group}' has no ports for this session cell"
        yield Fault("V226", (*path, "service_group"), what, "add the cell below the group's ports")
        return
    continued = cell.session is not None and cell.session.continuation is not None
    read = any(cell.initializer in step.inputs.values() for _, step in invokes(workflow))
    if name in carried or continued or (cell.service_group is not None and group is None):
        return
    if aliases:
        yield from _group_carrier(name, workflow, aliases, path)
    elif not read and cell.state_class == "semantic":
        what = f"nothing carries session cell '{name}': no loop, no step that reads '{cell.initializer}', no group"
        yield Fault("V227", path, what, "carry it in a loop, or write scope: invocation")


def _group_carrier(name: str, workflow: Workflow, aliases: dict[str, StatePortAlias], path: Path) -> Faults:
    for component, alias in aliases.items():
        bound = {step.inputs.get(alias.input) for _, step in invokes(workflow) if step.component == component}
        if alias.output is None:
            what = f"only its group carries session cell '{name}', and component '{component}' never writes it back"
            yield Fault("V228", path, what, "give the alias an output, or carry the cell in a loop")
        elif not any(value in workflow.inputs for value in bound):
            what = f"only its group carries session cell '{name}', and no invoke feeds '{alias.input}' from an input"
            yield Fault("V228", path, what, f"bind port '{alias.input}' of '{component}' to a workflow input")
