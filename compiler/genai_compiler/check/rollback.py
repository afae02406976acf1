"""What a rejected draft undoes: state cells, their groups, and effects of the region (standard, 12.11)."""

from collections.abc import Iterator

from genai_compiler.check.fault import GROUPS, WORKFLOW, Fault, Faults, Path, Rule, Rules
from genai_compiler.check.state_cells import groups_of
from genai_compiler.check.walk import walk
from genai_compiler.read.document import InvokeStep, LoopStep, NoSafety, Rewindable, Speculative, Workflow
from genai_compiler.read.places import format_path
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V303": Rule("unknown-cell", "`rollback_state` names declared cells."),
    "V304": Rule("unknown-group", "`rollback_state` reaches declared groups."),
    "V305": Rule("rollback-bound", "A group that is rolled back says how far it can be."),
    "V306": Rule("rollback-bound", "A group that is rolled back can be rolled back by a whole proposal."),
    "V307": Rule("effect-not-undoable", "Effects of the speculative region can be cloned or undone."),
    "V308": Rule("effect-not-undoable", "Effects of the speculative region can be undone by a whole proposal."),
}


def check_rollback(speculative: Speculative, workflow: Workflow) -> Faults:
    """State and effects that a rejected draft must undo."""
    yield from _state(speculative, workflow)
    yield from _effects(speculative, workflow)


def _state(speculative: Speculative, workflow: Workflow) -> Faults:
    groups, width = groups_of(workflow), speculative.max_proposal_width
    judged: set[str] = set()
    for at, name in enumerate(speculative.rollback_state):
        place, cell = ("speculative", "rollback_state", at), workflow.state.get(name)
        if cell is None:
            yield Fault("V303", place, f"no state cell '{name}' is declared", did_you_mean(name, workflow.state))
            continue
        for reached, by in _reached(cell.service_group, workflow):
            if reached in judged:
                continue
            judged.add(reached)
            if reached not in groups:
                what = f"rolling back '{name}' reaches group '{reached}' {by}, which is not declared"
                yield Fault("V304", place, what, did_you_mean(reached, groups))
                continue
            bound = groups[reached].capabilities.rollback_positions
            where = format_path((*GROUPS, reached, "capabilities", "rollback_positions"))
            if bound is None:
                what = f"rolling back '{name}' reaches group '{reached}' {by}, which can't be rolled back"
                yield Fault("V305", place, what, f"declare {where}")
            elif bound < width:
                what = f"group '{reached}' can be rolled back by {bound} positions, a proposal has {width}"
                yield Fault("V306", place, what, f"raise {where}, or lower max_proposal_width")


def _reached(first: str | None, workflow: Workflow) -> Iterator[tuple[str, str]]:
    """Groups that roll back with a group, itself first, and how each was reached."""
    groups, pending = groups_of(workflow), [(first, "as the cell's own")] if first is not None else []
    seen: set[str] = set()
    while pending:
        name, by = pending.pop(0)
        if name in seen:
            continue
        seen.add(name)
        yield name, by
        if name in groups:
            pending += [(each, f"by the cascade of '{name}'") for each in groups[name].capabilities.cascade]


def _effects(speculative: Speculative, workflow: Workflow) -> Faults:
    width = speculative.max_proposal_width
    for domain, component in _domains(speculative, workflow).items():
        effect = workflow.effects.get(domain)
        if effect is None:
            continue
        place: Path = (*WORKFLOW, "effects", domain, "speculation_safety")
        safety = effect.speculation_safety
        if isinstance(safety, NoSafety):
            what = f"component '{component}' drafts with effect '{domain}', which can be neither cloned nor undone"
            yield Fault("V307", place, what, "declare it clonable or rewindable, or keep it out of the loop")
        elif isinstance(safety, Rewindable) and safety.max_depth < width:
            what = f"effect '{domain}' can be undone by {safety.max_depth} steps, a proposal has {width}"
            yield Fault("V308", place, what, "raise max_depth, or lower max_proposal_width")


def _domains(speculative: Speculative, workflow: Workflow) -> dict[str, str]:
    """Effect domains of the region, each with a component that touches it."""
    found: dict[str, str] = {}
    for name in sorted(_region(speculative, workflow)):
        component = workflow.components.get(name)
        for domain in component.effects if component is not None else ():
            found.setdefault(domain, name)
    return found


def _region(speculative: Speculative, workflow: Workflow) -> set[str]:
    """Components of the innermost loop that invokes both proposer and target; without one, those two (7.3)."""
    both = {speculative.proposer, speculative.target}
    loops: dict[Path, set[str]] = {}
    for path, step in walk(workflow.steps):
        if isinstance(step, LoopStep):
            inside = (*walk(step.setup, (*path, "setup")), *walk(step.steps, (*path, "steps")))
            invoked = {each.component for _, each in inside if isinstance(each, InvokeStep)}
            if both <= invoked:
                loops[path] = invoked
    innermost = [path for path in loops if not any(path != each and path == each[: len(path)] for each in loops)]
    return both.union(*(loops[path] for path in innermost))
