"""How many positions prompt and output may have together: what the document states, and what its decoders' graphs hold.

A document that was lowered from another dialect states a length that its graphs have limited already. An authored one
states what it likes, or nothing; what its decoder's tables of positions hold is then read from the graph, and what the
cells hold that the prompt's tokens, or their keys and values, go to (check/held_tokens.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from genai_compiler.check.held_tokens import held_tokens
from genai_compiler.check.walk import branches
from genai_compiler.problem import Problem, Severity
from genai_compiler.read.document import BranchStep, Component, InvokeStep, LoopStep, SequenceStep, Step
from genai_compiler.read.package import Package
from genai_compiler.read.places import format_path
from genai_compiler.read.position_tables import table_rows

_STATED = ("model", "max_sequence_length")
_COUNTED = ("position_ids", "attention_mask")
_SEQUENCE = frozenset({"token_ids", "inputs_embeds"})
"""Roles of what a decoder takes an entry a position of."""


@dataclass(frozen=True)
class Context:
    """length: positions of prompt and output together, 0 where nobody says. stated: what the document says, 0 for
    nothing. component: whose table of positions is the shortest, "" where none is known; rows: of that table. held:
    tokens that the workflow's cells hold at most, and the input that says so, None without such a bound.
    """

    length: int
    stated: int
    component: str
    rows: int
    held: tuple[int, str] | None = None


def context_of(package: Package) -> Context:
    """The context of a package."""
    model = package.metadata.model
    stated = (model.max_sequence_length if model is not None else None) or 0
    rows, component = min(_tables(package), default=(0, ""))
    held = held_tokens(package.workflow)
    bounds = (stated, rows, held[0] if held is not None else 0)
    return Context(min(filter(None, bounds), default=0), stated, component, rows, held)


def context_doubts(package: Package) -> tuple[Problem, ...]:
    """A warning where the document states more positions than the graph has."""
    found = context_of(package)
    if not found.component or found.stated <= found.rows:
        return ()
    what = (
        f"max_sequence_length is {found.stated}, but the table of positions of '{found.component}' has {found.rows} "
        f"rows, and no run gets beyond them; {found.rows} is taken"
    )
    help = f"set it to {found.rows}, or export the graph for more"
    place = package.places.find(_STATED)
    return (Problem("config-contradicts-graph", place, format_path(_STATED), what, help, Severity.WARNING),)


def context_notes(package: Package) -> Iterator[str]:
    """What bounds prompt and output where only a graph says it."""
    found = context_of(package)
    most = min(filter(None, (found.stated, found.rows)), default=0)
    if found.held is not None and (not most or found.held[0] < most):
        length, name = found.held
        yield f"prompt and output: {length} tokens at most, for '{name}' bounds what the cells hold"
    elif found.component and not found.stated:
        yield f"prompt and output: {found.rows} tokens at most, for the positions of '{found.component}' are a table"


def _tables(package: Package) -> Iterator[tuple[int, str]]:
    """(rows, component) of each decoder that steps through the output and has a table of positions."""
    for name in dict.fromkeys(_stepped(package.workflow.steps, inside=False)):
        declared, graph = package.workflow.components.get(name), package.graphs.get(name)
        if declared is None or graph is None or graph.absent:
            continue
        ports = _ports(declared)
        if _SEQUENCE.isdisjoint(ports) or "logits" not in ports:
            continue
        rows = table_rows(graph.model, graph.signature, *(ports.get(role, "") for role in _COUNTED))
        if rows is not None:
            yield rows, name


def _ports(declared: Component) -> dict[str, str]:
    """Role -> port: the standard's roles, and the two of positions also where only the step's contract binds them."""
    bound = declared.contract.bindings if declared.contract is not None else {}
    of_contract = {role: port for role, port in bound.items() if role in _COUNTED}
    return {**of_contract, **{role: port for port, role in declared.ports.roles.items()}}


def _stepped(steps: tuple[Step, ...], inside: bool) -> Iterator[str]:
    """Components that run in each iteration of an outermost loop; positions of a loop within it may begin anew."""
    for step in steps:
        match step:
            case InvokeStep() if inside:
                yield step.component
            case SequenceStep():
                yield from _stepped(step.steps, inside)
            case BranchStep():
                yield from _stepped(tuple(case for _, case in branches(step, ())), inside)
            case LoopStep() if not inside:
                yield from _stepped(step.steps, True)
            case _:
                pass
