"""Which ports of a component read and write the cells of a group (standard, 12.9)."""

from genai_compiler.check.fault import COMPONENTS, GROUPS, Fault, Faults, Path, Rule, Rules
from genai_compiler.check.state_cells import groups_of
from genai_compiler.check.walk import inputs_of, outputs_of
from genai_compiler.read.document import Component, OnnxImplementation, StateGroup, StatePortAlias, Workflow
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V198": Rule("cache-layers", "Ports of one role of one component all say their layer when there are several."),
    "V199": Rule("cache-layers", "No two ports of one role of one component have the same layer."),
    "V200": Rule("cache-layers", "In an attention group, keys and values cover the same layers."),
    "V203": Rule("unknown-component", "A group's ports are those of declared components."),
    "V204": Rule("unknown-cell", "A group's ports are those of declared cells."),
    "V205": Rule("foreign-cell", "A group's ports are those of its own cells."),
    "V206": Rule("unknown-port", "An alias reads an input port that its component declares."),
    "V207": Rule("unknown-port", "An alias writes an output port that its component declares."),
    "V208": Rule("alias-output", "An alias that writes has an output."),
    "V209": Rule("decoder-roles", "The one ONNX component of a decoder says which port takes its tokens."),
}

SELF_ATTENTION = ("full_attention", "sliding_attention", "multi_latent_attention")
ATTENTION = (*SELF_ATTENTION, "cross_attention")


def check_group_ports(workflow: Workflow) -> Faults:
    """Every port alias of every group."""
    for name, group in groups_of(workflow).items():
        for component, cells in group.ports.items():
            path = (*GROUPS, name, "ports", component)
            declared = workflow.components.get(component)
            if declared is None:
                what = f"no component '{component}' is declared"
                yield Fault("V203", path, what, did_you_mean(component, workflow.components))
            for cell, alias in cells.items():
                yield from _cell(workflow, name, cell, (*path, cell))
                yield from _alias(declared, component, alias, (*path, cell))
            yield from _layers(group, component, cells, path)
    yield from _token_role(workflow)


def _cell(workflow: Workflow, group: str, cell: str, path: Path) -> Faults:
    declared = workflow.state.get(cell)
    if declared is None:
        yield Fault("V204", path, f"no state cell '{cell}' is declared", did_you_mean(cell, workflow.state))
    elif declared.service_group != group:
        home = f"group '{declared.service_group}'" if declared.service_group else "no group"
        what = f"group '{group}' has ports for cell '{cell}', which belongs to {home}"
        yield Fault("V205", path, what, f"write service_group: {group} on the cell, or move the entry")


def _alias(component: Component | None, name: str, alias: StatePortAlias, path: Path) -> Faults:
    if alias.access == "read_write" and alias.output is None:
        what = "the alias writes its cell and names no output"
        yield Fault("V208", path, what, "add output, or write access: read_only")
    if component is None:
        return
    inputs, outputs = inputs_of(component), outputs_of(component)
    if inputs is not None and alias.input not in inputs:
        what = f"component '{name}' declares no input '{alias.input}'"
        yield Fault("V206", (*path, "input"), what, did_you_mean(alias.input, inputs))
    if alias.output is not None and outputs is not None and alias.output not in outputs:
        what = f"component '{name}' declares no output '{alias.output}'"
        yield Fault("V207", (*path, "output"), what, did_you_mean(alias.output, outputs))


def _layers(group: StateGroup, component: str, cells: dict[str, StatePortAlias], path: Path) -> Faults:
    faults = [each for role in ("key", "value", "combined") for each in _role_layers(role, component, cells, path)]
    yield from faults
    if faults or group.kind not in ATTENTION:
        return
    keys, values = (
        {alias.layer or 0: cell for cell, alias in cells.items() if alias.role == r} for r in ("key", "value")
    )
    odd = sorted(keys.keys() ^ values.keys())
    if odd:
        lone = keys.get(odd[0]) or values[odd[0]]
        what = f"layer {odd[0]} of component '{component}' has a key or a value, not both"
        yield Fault("V200", (*path, lone), what, "pair the layers of keys and values")


def _role_layers(role: str, component: str, cells: dict[str, StatePortAlias], path: Path) -> Faults:
    aliases = {cell: alias for cell, alias in cells.items() if alias.role == role}
    if len(aliases) < 2:
        return
    seen: dict[int, str] = {}
    for cell, alias in aliases.items():
        if alias.layer is None:
            what = f"component '{component}' has {len(aliases)} ports of role {role}, and this one names no layer"
            yield Fault("V198", (*path, cell), what, "add layer")
        elif alias.layer in seen:
            what = f"layer {alias.layer} of role {role} belongs to cell '{seen[alias.layer]}' already"
            yield Fault("V199", (*path, cell, "layer"), what, "give each port a layer of its own")
        else:
            seen[alias.layer] = cell


def _token_role(workflow: Workflow) -> Faults:
    graphs = [name for name, each in workflow.components.items() if isinstance(each.implementation, OnnxImplementation)]
    if len(graphs) != 1:
        return
    groups = groups_of(workflow).values()
    roles = workflow.components[graphs[0]].ports.roles.values()
    served = any(group.kind in SELF_ATTENTION and graphs[0] in group.ports for group in groups)
    if served and not {"token_ids", "inputs_embeds"} & set(roles):
        what = f"no port of decoder '{graphs[0]}' has the role token_ids or inputs_embeds"
        yield Fault("V209", (*COMPONENTS, graphs[0], "ports", "roles"), what, "say which input takes the tokens")
