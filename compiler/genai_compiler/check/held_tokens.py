"""How many tokens the cells of a workflow hold: those that begin as the prompt, and the caches of who decodes it.

    state:  history { initializer: request.input_ids, recurrence { axis: 1, max: package.most } }
            cache.0.key { recurrence { axis: 2, max: package.most }, service_group: of full attention }

A prompt with more tokens than that breaks the cell's law at the first step. What bounds a cell is a value; only where
it is an input with a number of its own is the number known before a run. A session's conversation has its own check.
"""

from collections.abc import Iterable, Iterator, Mapping

from genai_compiler.check.walk import branches, invokes, walk
from genai_compiler.read.document import BranchStep, LoopStep, RuntimeRole, SequenceStep, Step, Workflow
from genai_compiler.read.state import Bounded, Growing, StateCell

_WHOLE = frozenset({"full_attention", "multi_latent_attention"})
"""Kinds of state that keep an entry of every token; a window or a recurrent state does not."""
_SEQUENCE = frozenset({"token_ids", "inputs_embeds"})


def held_tokens(workflow: Workflow) -> tuple[int, str] | None:
    """(tokens, the input that says so) of the tightest bound, None where none is known."""
    prompts = {name for name, each in workflow.inputs.items() if _role(each.role) == "prompt_tokens"}
    if not prompts:
        return None
    decoders = frozenset(_decoders(workflow, prompts))
    outermost = list(_outermost(workflow.steps))
    inner = [step for loop in outermost for _, step in walk((*loop.setup, *loop.steps)) if isinstance(step, LoopStep)]
    carried = _carried(outermost) - _carried(inner)
    bounds = (_bound(name, workflow.state[name], workflow, prompts, decoders) for name in carried & set(workflow.state))
    return min((each for each in bounds if each is not None), default=None)


def _bound(
    name: str, cell: StateCell, workflow: Workflow, prompts: set[str], decoders: frozenset[str]
) -> tuple[int, str] | None:
    law = cell.recurrence
    if not isinstance(law, Growing | Bounded) or law.max in _conversations(workflow):
        return None
    begins = cell.initializer in prompts and law.axis == cell.contract.rank - 1
    if not begins and not _caches(name, cell, law.axis, workflow, decoders):
        return None
    given = workflow.inputs.get(law.max)
    stated = given.default if given is not None else None
    numbers = stated if isinstance(stated, list | tuple) else (stated,)
    whole = [each for each in numbers if isinstance(each, int) and not isinstance(each, bool) and each > 0]
    return (max(whole), law.max) if whole and len(whole) == len(numbers) else None


def _caches(name: str, cell: StateCell, axis: int, workflow: Workflow, decoders: frozenset[str]) -> bool:
    """Whether the cell has an entry of every token of a component that takes the prompt."""
    serving = workflow.serving
    group = serving.state_service.groups.get(cell.service_group or "") if serving is not None else None
    if group is None or group.kind not in _WHOLE or group.sequence_axis != axis:
        return False
    return any(name in cells for component, cells in group.ports.items() if component in decoders)


def _conversations(workflow: Workflow) -> frozenset[str]:
    """Values that bound a conversation, which the runtime holds against them by itself."""
    laws = (
        each.recurrence
        for each in workflow.state.values()
        if each.session is not None and each.session.continuation is not None
    )
    return frozenset(law.max for law in laws if isinstance(law, Growing | Bounded))


def _decoders(workflow: Workflow, prompts: set[str]) -> Iterator[str]:
    """Components that take the prompt's tokens, or what another makes of these an entry a token."""
    steps = [step for _, step in invokes(workflow)]
    made = {value for each in steps if prompts & set(each.inputs.values()) for value in each.outputs.values()}
    for each in steps:
        roles: Mapping[str, str] = workflow.components[each.component].ports.roles
        taken = {port: value for port, value in each.inputs.items() if roles.get(port) in _SEQUENCE}
        if any(value in prompts or (roles[port] == "inputs_embeds" and value in made) for port, value in taken.items()):
            yield each.component


def _carried(loops: Iterable[LoopStep]) -> set[str]:
    return {each.cell for loop in loops for each in loop.carried}


def _outermost(steps: tuple[Step, ...]) -> Iterator[LoopStep]:
    """Loops in no other loop: positions of one within another may begin anew."""
    for step in steps:
        match step:
            case LoopStep():
                yield step
            case SequenceStep():
                yield from _outermost(step.steps)
            case BranchStep():
                yield from _outermost(tuple(case for _, case in branches(step, ())))
            case _:
                pass


def _role(role: object) -> str:
    return role.role if isinstance(role, RuntimeRole) else ""
