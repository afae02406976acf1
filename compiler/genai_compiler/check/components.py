"""Components: implementations, semantic contracts and replacement (standard, 12.8)."""

from genai_compiler.check.fault import COMPONENTS, Fault, Faults, Path, Rule, Rules, blank
from genai_compiler.read.document import (
    AdapterImplementation,
    Component,
    ComponentContract,
    OnnxImplementation,
    Workflow,
)
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V147": Rule("component-name", "A component's name is not blank and has no dot."),
    "V148": Rule("blank-artifact", "An ONNX component names its file."),
    "V149": Rule("adapter-not-pinned", "The manifest pins each adapter's exact version."),
    "V150": Rule("blank-name", "A component's contract has an id and a version."),
    "V151": Rule("contract-binding", "A contract binds a named role to a port that its component has."),
    "V152": Rule("adapter-contract", "An adapter's contract has the id and version of its ABI."),
    "V153": Rule("adapter-action", "A known adapter's contract names an action that the adapter has."),
    "V154": Rule("adapter-binding", "An adapter's contract binds every role of its action."),
    "V155": Rule("adapter-binding", "An adapter's contract binds input roles to inputs and output roles to outputs."),
    "V156": Rule("not-replaceable", "A component that an application may replace has a contract."),
    "V157": Rule("not-replaceable", "A component that an application may replace is an ONNX graph."),
}

_STEP = ("state", "tokens", "valid_length", "transition_table")
ACTIONS: dict[str, dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "onnx-genai.grammar-guidance": {
        "clone": (("state",), ("next_state",)),
        "lookahead": (_STEP, ("next_state", "consumed_length", "logits_mask", "forced_tokens", "forced_length")),
        "commit": (_STEP, ("next_state", "consumed_length")),
    },
    "onnx-genai.telemetry": {"start": ((), ("timestamp",)), "elapsed": (("timestamp",), ("duration_ms",))},
    "onnx-genai.parameter-overlay": {"apply": (("input",), ("output",))},
    "genai-compile.diffusion": {
        "schedule": (("steps",), ("timesteps", "table", "scale")),
        "start": (("noise", "scale"), ("latents",)),
        "draw": (("seed", "width", "height", "scale"), ("latents",)),
        "blend": (("clean", "signal", "latents"), ("latents",)),
        "input": (("latents", "timesteps", "table", "step"), ("sample", "timestep")),
        "guide": (("unconditional", "conditional", "scale"), ("estimate",)),
        "step": (("latents", "estimate", "table", "step"), ("next",)),
        "finish": (("latents",), ("latents",)),
    },
}
"""Contract id -> action -> input roles and output roles that it needs (standard, 4.2; ours behind the standard's)."""


def check_components(workflow: Workflow) -> Faults:
    """Every component by itself."""
    for name, component in workflow.components.items():
        path = (*COMPONENTS, name)
        if blank(name) or "." in name:
            yield Fault("V147", path, f"'{name}' can't name a component: blank, or with a dot", "choose a plain word")
        yield from _implementation(component, workflow, path)
        if component.contract is not None:
            yield from _contract(component, component.contract, path)
        yield from _replacement(name, component, path)


def _implementation(component: Component, workflow: Workflow, path: Path) -> Faults:
    how, place = component.implementation, (*path, "implementation")
    if isinstance(how, OnnxImplementation) and blank(how.artifact):
        yield Fault("V148", (*place, "artifact"), "the component names no file", "write the path of its graph")
    if isinstance(how, AdapterImplementation):
        pins = workflow.manifest.adapter_abis
        if pins.get(how.abi) != how.version:
            pinned = f"version '{pins[how.abi]}'" if how.abi in pins else "nothing"
            what = f"the component needs {how.abi}@{how.version} and manifest.adapter_abis pins {pinned}"
            yield Fault("V149", place, what, f"add '{how.abi}: \"{how.version}\"' to manifest.adapter_abis")


def _contract(component: Component, contract: ComponentContract, path: Path) -> Faults:
    place = (*path, "contract")
    if blank(contract.id) or blank(contract.version):
        yield Fault("V150", place, "the contract has no id or no version", "name both, or remove the contract")
    yield from _bindings(component, contract, place)
    how = component.implementation
    if not isinstance(how, AdapterImplementation):
        return
    if (contract.id, contract.version) != (how.abi, how.version):
        what = f"the contract is {contract.id}@{contract.version} and the adapter {how.abi}@{how.version}"
        yield Fault("V152", place, what, "write the ABI's own id and version")
    elif contract.id in ACTIONS and contract.version == "1":
        yield from _action(component, contract, place)


def _bindings(component: Component, contract: ComponentContract, path: Path) -> Faults:
    ports = (*component.ports.inputs, *component.ports.outputs)
    for role, port in contract.bindings.items():
        place = (*path, "bindings", role)
        if blank(role):
            yield Fault("V151", place, "a binding names no role", "name the role")
        elif ports and port not in ports:
            what = f"role '{role}' is bound to '{port}', which is no port of the component"
            yield Fault("V151", place, what, did_you_mean(port, ports))


def _action(component: Component, contract: ComponentContract, path: Path) -> Faults:
    actions, action = ACTIONS[contract.id], contract.parameters.get("action")
    if not isinstance(action, str) or action not in actions:
        place = (*path, "parameters", "action") if "action" in contract.parameters else (*path, "parameters")
        found = f"has no action '{action}'" if action is not None else "needs a parameter 'action'"
        yield Fault("V153", place, f"{contract.id} {found}", f"write one of: {', '.join(actions)}")
        return
    sides = (("input", component.ports.inputs), ("output", component.ports.outputs))
    for roles, (side, ports) in zip(actions[action], sides, strict=True):
        for role in roles:
            port = contract.bindings.get(role)
            if port is None:
                what = f"action '{action}' of {contract.id} needs the {side} role '{role}'"
                yield Fault("V154", (*path, "bindings"), what, f"bind '{role}' to a port")
            elif port not in ports and (port in component.ports.inputs or port in component.ports.outputs):
                what = f"role '{role}' is an {side} of action '{action}', and '{port}' is none"
                yield Fault("V155", (*path, "bindings", role), what, f"bind it to an {side} port")


def _replacement(name: str, component: Component, path: Path) -> Faults:
    if not component.application_overridable:
        return
    place = (*path, "application_overridable")
    if component.contract is None:
        what = f"an application can't tell what may replace '{name}': it has no contract"
        yield Fault("V156", place, what, "add a contract with id, version and bindings")
    if not isinstance(component.implementation, OnnxImplementation):
        what = f"only an ONNX component can be replaced, and '{name}' is of kind {component.implementation.kind}"
        yield Fault("V157", place, what, "remove application_overridable")
