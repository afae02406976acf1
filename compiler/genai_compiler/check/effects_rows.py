"""Effect domains, and the row axis of components (standard, 12.8)."""

from collections.abc import Iterator

from genai_compiler.check.fault import COMPONENTS, WORKFLOW, Fault, Faults, Path, Rule, Rules, blank
from genai_compiler.check.tensors import is_shared, request_axis
from genai_compiler.read.document import Component, Rewindable, TensorContract, Workflow
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V158": Rule("blank-name", "A component names the effect domains it touches."),
    "V159": Rule("unknown-effect", "A component's effect domains are described in `effects`."),
    "V160": Rule("blank-name", "An effect domain has a name."),
    "V161": Rule("rewind-depth", "A rewindable domain can be rewound by at least one step."),
    "V162": Rule("row-scope", "A component with effects or cached state and row-aligned ports has a row scope."),
    "V163": Rule("axis-out-of-rank", "A component's row axis is an axis of each of its row-scoped ports."),
    "V164": Rule("row-scope", "A component's row-aligned ports have their request axis at the row axis."),
}


def check_effects_rows(workflow: Workflow) -> Faults:
    """Every effect domain, and every component's use of them and of rows."""
    for domain, effect in workflow.effects.items():
        place, safety = (*WORKFLOW, "effects", domain), effect.speculation_safety
        if blank(domain):
            yield Fault("V160", place, "an effect domain has no name", "name what it changes")
        if isinstance(safety, Rewindable) and safety.max_depth == 0:
            what = f"domain '{domain}' is rewindable by 0 steps, so it is not"
            yield Fault("V161", place, what, "write how many steps can be undone, or kind: none")
    for name, component in workflow.components.items():
        yield from _domains(name, component, workflow)
        yield from _rows(name, component)


def _domains(name: str, component: Component, workflow: Workflow) -> Faults:
    for at, domain in enumerate(component.effects):
        place = (*COMPONENTS, name, "effects", at)
        if blank(domain):
            yield Fault("V158", place, f"component '{name}' lists an effect domain without a name", "name it")
        elif domain not in workflow.effects:
            what = f"component '{name}' touches '{domain}', which workflow.effects does not describe"
            help = did_you_mean(domain, workflow.effects) or f"add '{domain}' to workflow.effects with its retry class"
            yield Fault("V159", place, what, help)


def _rows(name: str, component: Component) -> Faults:
    path, scope = (*COMPONENTS, name), component.row_scope
    if scope is None:
        aligned = [port[-1] for port, contract in _ports(component) if request_axis(contract) is not None]
        if aligned and (component.effects or component.cache_affects_state):
            what = f"component '{name}' keeps something outside its tensors and '{aligned[0]}' has rows, "
            yield Fault("V162", path, what + "but nothing says how rows are compacted", "add row_scope with its axis")
        return
    for port, contract in _ports(component):
        if is_shared(contract):
            continue
        axis, place = request_axis(contract), (*path, "ports", *port)
        if scope.axis >= contract.rank:
            what = f"row axis {scope.axis} of component '{name}' is no axis of '{port[-1]}' (rank {contract.rank})"
            yield Fault("V163", (*path, "row_scope", "axis"), what, "axes count from 0")
        elif axis is not None and axis != scope.axis:
            what = f"'{port[-1]}' has its rows on axis {axis} and row_scope of component '{name}' on axis {scope.axis}"
            yield Fault("V164", place, what, "write the same axis on both")


def _ports(component: Component) -> Iterator[tuple[Path, TensorContract]]:
    for side, ports in (("inputs", component.ports.inputs), ("outputs", component.ports.outputs)):
        for port, contract in ports.items():
            yield (side, port), contract
