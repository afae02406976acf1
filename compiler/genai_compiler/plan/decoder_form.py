"""Whether a loop whose token policy the runtime supplies has exactly the form of section 10.3.

The runtime drives such a loop as a whole, so nothing in it may say anything else: every binding, carry, guard and first
value is held against the form, and a loop that deviates is refused at the place where it does.
"""

from collections.abc import Iterator, Mapping

from genai_compiler.plan.decoder_front import FrontStep, media_faults, switch_cells, tokens_port
from genai_compiler.plan.report import Path
from genai_compiler.read.document import (
    Carry,
    Component,
    EmitStep,
    IndexedScatter,
    InvokeStep,
    LiteralSource,
    LoopStep,
    RuntimeRole,
    StatePortAlias,
    Workflow,
    WorkflowInput,
)

Fault = tuple[Path, str]
FLAGS: Mapping[str, bool | int] = {"active": True, "done": False, "accepted_len": 0}
"""Policy outputs that become cells, and what each cell starts from."""

GRID_POSITIONS = "genai-compile.grid-positions"
"""Contract of the step that makes a prompt's positions; what it gives may be negative throughout, for none."""
_PACKED = ("cumulative_sequence_lengths", "past_sequence_lengths", "block_table", "attention_metadata")
_LENGTHS = ("past_sequence_length", "current_sequence_length", "total_sequence_length", "past_length")
OWNED = ("attention_mask", "position_ids", *_PACKED, *_LENGTHS)
"""Roles of ports whose values the runtime forms at every run."""


def roles_of(component: Component) -> dict[str, str]:
    """Port -> role: the standard's roles, and those that only the step's contract binds."""
    bound = component.contract.bindings if component.contract is not None else {}
    return {**component.ports.roles, **{port: role for role, port in bound.items() if role in OWNED}}


LENGTHS = "cache_lengths"
"""The policy's further output where caches of fixed capacity are written by index."""

HELP = (
    "write the loop as the runtime's own form has it (standard, 10.3), or declare graphs for sampling and termination"
)


def form_faults(
    workflow: Workflow,
    loop: LoopStep,
    roles: Mapping[str, str],
    logits: str,
    tokens: str,
    front: FrontStep | None = None,
) -> Iterator[Fault]:
    """(path within the loop, what deviates). roles: port -> role of the decoder; logits, tokens: its ports.

    front: the step before the decoder's that takes the tokens; `tokens` is then its port.
    """
    at = 0 if front is None else 1
    if (misplaced := _misplaced(loop, at)) is not None:
        yield ("steps",), misplaced
        return
    decode, policy, *emits = loop.steps[at:]
    assert isinstance(decode, InvokeStep)
    assert isinstance(policy, InvokeStep)
    if loop.termination != "generation_eos":
        yield ("termination",), "a loop with the runtime's token policy ends by generation_eos"
    flags = {**FLAGS, **_lengths(workflow, decode.component)}
    taker = decode if front is None else front.step
    if front is not None:
        yield from media_faults(workflow, loop, front)
    yield from _policy(decode, policy, logits, flags, at + 1)
    aliases = _aliases(workflow, decode.component)
    cells = {each.cell: (at, each) for at, each in enumerate(loop.carried)}
    beside = switch_cells(workflow, loop, decode) if front is None else front.media
    media = {cell: cells[cell][1].next for cell in beside.values() if cell in cells}
    prompt = taker.inputs.get(tokens, "")
    yield from _carries(workflow, loop, decode, policy, aliases, cells, (tokens, prompt), flags, media)
    yield from _prompt(workflow, prompt, tokens)
    own = tokens_port(workflow.components[decode.component])
    if front is not None and own and decode.inputs.get(own) not in (prompt, front.step.outputs.get(tokens)):
        yield ("steps", at, "inputs", own), f"'{own}' takes the tokens that '{front.step.component}' takes: '{prompt}'"
    yield from _bindings(workflow, decode, roles, aliases, at)
    active = _cell_of(loop, policy.outputs.get("active"))
    if loop.continue_when != active:
        yield ("continue_when",), f"the loop goes on while the policy's liveness cell '{active}' says so"
    for place, step in enumerate(emits, start=at + 2):
        if isinstance(step, EmitStep):
            yield from _emit(step, place, policy, active)


def _misplaced(loop: LoopStep, at: int) -> str | None:
    """What keeps the steps from being the form's, the decoder's being number `at`; None where nothing does."""
    if loop.setup or len(loop.steps) < at + 3 or not isinstance(loop.steps[at], InvokeStep):
        return "the loop must hold the decoder, the token policy and an emit, in this order, and no setup"
    if not isinstance(loop.steps[at + 1], InvokeStep):
        return "after the decoder comes the token policy"
    if not all(isinstance(each, EmitStep) for each in loop.steps[at + 2 :]):
        return "after the decoder come the token policy and then emits, nothing else"
    return None


def control_ports(workflow: Workflow, component: str) -> Iterator[tuple[str, str, str]]:
    """(port, cell, kind) of a component's ports that tell where its caches are written, and how far they are valid."""
    for group in workflow.serving.state_service.groups.values() if workflow.serving is not None else ():
        update = group.update
        if isinstance(update, IndexedScatter) and component in group.ports:
            if component in update.write_indices_ports:
                yield update.write_indices_ports[component], update.write_indices, "written"
            if component in update.kv_length_ports:
                yield update.kv_length_ports[component], group.logical_lengths or update.write_indices, "valid"


def left_cells(workflow: Workflow, loop: LoopStep, decode: InvokeStep) -> dict[str, str]:
    """Cell -> port of the decoder, for cells that only hold what its last run gave: nothing in the loop reads them."""
    read = {value for step in loop.steps if isinstance(step, InvokeStep) for value in step.inputs.values()}
    state = {alias.output for alias in _aliases(workflow, decode.component).values()}
    ports = {value: port for port, value in decode.outputs.items() if port not in state and value not in read}
    return {each.cell: ports[each.next] for each in loop.carried if each.next in ports and each.cell not in read}


def _lengths(workflow: Workflow, component: str) -> dict[str, int]:
    """The cell of written lengths, which the policy advances; it starts from 0."""
    return {LENGTHS: 0} if any(True for _ in control_ports(workflow, component)) else {}


def _policy(
    decode: InvokeStep, policy: InvokeStep, logits: str, flags: Mapping[str, bool | int], at: int
) -> Iterator[Fault]:
    if dict(policy.inputs) != {"logits": decode.outputs.get(logits, "")}:
        yield ("steps", at, "inputs"), f"the token policy takes the decoder's '{logits}' and nothing else"
    if set(policy.outputs) != {"token", *flags}:
        names = ", ".join(each for each in flags if each != "accepted_len")
        yield ("steps", at, "outputs"), f"the token policy gives token, {names} and accepted_len, all bound"


def _aliases(workflow: Workflow, component: str) -> dict[str, StatePortAlias]:
    groups = workflow.serving.state_service.groups.values() if workflow.serving is not None else ()
    return {cell: alias for group in groups for cell, alias in group.ports.get(component, {}).items()}


def _cell_of(loop: LoopStep, value: str | None) -> str | None:
    """The one cell that becomes this value."""
    found = [each.cell for each in loop.carried if each.next == value]
    return found[0] if len(found) == 1 else None


def _carries(
    workflow: Workflow,
    loop: LoopStep,
    decode: InvokeStep,
    policy: InvokeStep,
    aliases: Mapping[str, StatePortAlias],
    cells: Mapping[str, tuple[int, Carry]],
    prompt: tuple[str, str],
    flags: Mapping[str, bool | int],
    media: Mapping[str, str],
) -> Iterator[Fault]:
    """Every state cell is past and present of its ports; flags and sequence come from the policy; nothing more.

    prompt: (port of the tokens, what is bound to it). media: cell beside the tokens -> what it becomes.
    """
    wanted = {cell: decode.outputs.get(alias.output or "") for cell, alias in aliases.items()} | dict(media)
    wanted |= {cell: decode.outputs[port] for cell, port in left_cells(workflow, loop, decode).items()}
    for port, start in flags.items():
        cell = _cell_of(loop, policy.outputs.get(port))
        if cell is None or cell in wanted:
            yield ("carried",), f"one cell must carry the policy's '{port}'"
            continue
        wanted[cell] = policy.outputs.get(port)
        if not _starts_as(workflow, cells[cell][1], start):
            yield ("carried", cells[cell][0]), f"cell '{cell}' starts as the literal {str(start).lower()}"
    sequence = _cell_of(loop, policy.outputs.get("token"))
    if sequence is None or sequence in wanted:
        yield ("carried",), "one cell must carry the policy's token: the sequence"
    else:
        wanted[sequence] = policy.outputs.get("token")
        if _initial(workflow, cells[sequence][1]) != prompt[1]:
            yield ("carried", cells[sequence][0]), f"the sequence '{sequence}' starts as what '{prompt[0]}' is bound to"
    for cell, (at, carry) in cells.items():
        if wanted.get(cell) != carry.next:
            meant = wanted.get(cell)
            help = f"becomes '{meant}'" if meant else "has no place in this loop"
            yield ("carried", at), f"cell '{cell}' {help}"
    for cell in sorted(set(wanted) - set(cells)):
        yield ("carried",), f"cell '{cell}' must be carried"
    for cell in aliases:
        if cell in cells and not _starts_as(workflow, cells[cell][1], 0):
            yield ("carried", cells[cell][0]), f"state cell '{cell}' starts from a literal zero"


def _initial(workflow: Workflow, carry: Carry) -> str:
    cell = workflow.state.get(carry.cell)
    return carry.initial or (cell.initializer if cell is not None else "")


def _starts_as(workflow: Workflow, carry: Carry, value: bool | int) -> bool:
    given = workflow.inputs.get(_initial(workflow, carry))
    return given is not None and isinstance(given.source, LiteralSource) and given.default == value


def _prompt(workflow: Workflow, bound: str, tokens: str) -> Iterator[Fault]:
    prompt = workflow.inputs.get(bound)
    if prompt is None or not (is_prompt(prompt) or _starts_an_output(workflow, prompt)):
        what = (
            "the decoder's tokens are the workflow input of role prompt_tokens, or one of the application's beside it"
        )
        yield ("steps", 0, "inputs", tokens), what


def _bindings(
    workflow: Workflow, decode: InvokeStep, roles: Mapping[str, str], aliases: Mapping[str, StatePortAlias], at: int
) -> Iterator[Fault]:
    for port, name in decode.inputs.items():
        if roles.get(port) in OWNED:
            given = workflow.inputs.get(name)
            if roles.get(port) == "position_ids" and placed_by_grids(workflow, name):
                continue
            if given is None or given.source.kind != "application":
                what = f"'{port}' is formed by the runtime: bind it to an application input of its own"
                yield ("steps", at, "inputs", port), what
    for port, cell, _ in control_ports(workflow, decode.component):
        if decode.inputs.get(port) != cell:
            yield ("steps", at, "inputs", port), f"the port '{port}' takes the cell '{cell}'"
    for cell, alias in aliases.items():
        if decode.inputs.get(alias.input) != cell:
            yield ("steps", at, "inputs", alias.input), f"the state port '{alias.input}' takes its cell '{cell}'"


def placed_by_grids(workflow: Workflow, value: str) -> bool:
    """Whether a value is the prompt's positions, made of its tokens and of grids before the loop."""
    for step in workflow.steps:
        if isinstance(step, InvokeStep) and value in step.outputs.values():
            contract = workflow.components[step.component].contract
            return contract is not None and contract.id == GRID_POSITIONS
    return False


def is_prompt(given: WorkflowInput) -> bool:
    """Whether the input takes the request's tokens."""
    return isinstance(given.role, RuntimeRole) and given.role.role == "prompt_tokens"


def _starts_an_output(workflow: Workflow, given: WorkflowInput) -> bool:
    """Whether the application gives the tokens that an output starts from, because the request's go elsewhere."""
    return given.source.kind == "application" and any(is_prompt(each) for each in workflow.inputs.values())


def _emit(step: EmitStep, at: int, policy: InvokeStep, active: str | None) -> Iterator[Fault]:
    if step.value != policy.outputs.get("token") or step.mode != "append" or step.valid_length is not None:
        yield ("steps", at), "beside a token policy of the runtime only its token can be emitted, by append"
    if step.when != active:
        yield ("steps", at, "when"), f"the emit is guarded by the liveness cell '{active}'"
    if step.axis not in (None, 1):
        yield ("steps", at, "axis"), "tokens are appended on axis 1"
