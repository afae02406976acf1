"""One invoke step: overrides, fixed-capacity checks, contracts, the run (metadata standard 3.3, 3.9, 3.10)."""

from collections.abc import Mapping

from tests.reference import executors
from tests.reference.adapters import AdapterCall, run_adapter
from tests.reference.graphs import run_graph
from tests.reference.lora_graphs import run_adapted
from tests.reference.machine import Env, Machine, read
from tests.reference.values import Array, Document, ReferenceError, Scope, whole_number


def invoke(machine: Machine, step: Document, env: Env) -> None:
    """Run a component and define the values the step binds to its output ports."""
    name = step["component"]
    bound_in: dict[str, str] = dict(step.get("inputs") or {})
    bound_out: dict[str, str] = dict(step.get("outputs") or {})
    _check_capacity(machine, name, bound_in, env)
    if name in machine.overrides:
        name, rename = _replacement(machine, name, machine.overrides[name])
        bound_in = {_renamed(rename, port): value for port, value in bound_in.items()}
        bound_out = {_renamed(rename, port): value for port, value in bound_out.items()}
    component = machine.workflow["components"][name]
    feeds = {
        port: read(env, value) for port, value in bound_in.items() if not _absent(machine, component, port, env, value)
    }
    feeds = executors.adjust_feeds(machine, name, bound_in, feeds, env)
    _check_ports(component, "inputs", feeds)
    results = _run(machine, name, feeds, env, bound_out)
    taken = {port: results[port] for port in bound_out if port in results}
    if set(bound_out) - set(taken):
        raise ReferenceError("execution", f"{name} produced no {sorted(set(bound_out) - set(taken))}")
    _check_ports(component, "outputs", taken)
    for port, value in bound_out.items():
        env[value] = taken[port]


def check_overrides(machine: Machine) -> None:
    """Refuse what a request may not replace, whether or not a step invokes it (3.10, V338)."""
    for target, other in machine.overrides.items():
        _replacement(machine, target, other)


def _absent(machine: Machine, component: Document, port: str, env: Env, value: str) -> bool:
    """An input left out that its port, or the runtime, can do without."""
    spec = (component.get("ports") or {}).get("inputs", {}).get(port, {})
    return value not in env and (bool(spec.get("optional")) or value in executors.synthesised_inputs(machine.workflow))


def _run(
    machine: Machine, name: str, feeds: Mapping[str, Array], env: Env, defines: Mapping[str, str]
) -> dict[str, Array]:
    component = machine.workflow["components"][name]
    implementation = component["implementation"]
    if implementation["kind"] == "onnx":
        if machine.document.get("adapters"):
            return run_adapted(machine.package, machine.document, name, feeds, env)
        return run_graph(machine.package / implementation["artifact"], feeds)
    if implementation["kind"] == "adapter":
        return run_adapter(AdapterCall(component, feeds, machine.package, machine.document, env, defines))
    if executors.is_token_policy(component):
        return executors.token_policy(machine, feeds, env)
    return dict(feeds)


def _check_ports(component: Document, side: str, values: Mapping[str, Array]) -> None:
    """Hold the ports of one side against their contracts, in a scope of their own; bindings are identities."""
    if component["implementation"]["kind"] == "binding":
        return
    scope = Scope()
    declared = (component.get("ports") or {}).get(side) or {}
    for port in sorted(values):
        if port in declared:
            scope.check(port, values[port], declared[port])


def _check_capacity(machine: Machine, component: str, bound: Mapping[str, str], env: Env) -> None:
    for group_name, group in machine.groups.items():
        update = group.get("update") or {}
        port = update.get("write_indices_ports", {}).get(component)
        if port in bound:
            _check_group(machine, group_name, component, env[bound[port]], bound, env)


def _check_group(
    machine: Machine, name: str, component: str, destinations: Array, bound: Mapping[str, str], env: Env
) -> None:
    group = machine.groups[name]
    capacity = whole_number(group["update"]["capacity"], read(env, group["update"]["capacity"]))
    if capacity == 0:
        raise ReferenceError("capacity", f"state group {name!r} has no capacity")
    for alias in group.get("ports", {}).get(component, {}).values():
        if alias["input"] in bound:
            extent = env[bound[alias["input"]]].shape[group["sequence_axis"]]
            if extent != capacity:
                raise ReferenceError("capacity", f"state group {name!r} holds {extent} positions, declared {capacity}")
    for row, position in enumerate(int(entry) for entry in destinations.reshape(-1)):
        if not 0 <= position < capacity:
            raise ReferenceError(
                "capacity",
                f"state group {name!r} would write row {row} to position {position}, "
                f"outside its capacity of {capacity}",
            )
    lengths = env.get(group.get("logical_lengths") or "")
    if lengths is not None and (
        lengths.size != destinations.size or any(not 0 <= int(n) <= capacity for n in lengths.reshape(-1))
    ):
        raise ReferenceError("capacity", f"state group {name!r} has lengths {lengths} outside {capacity}")


def _renamed(rename: Mapping[str, str], port: str) -> str:
    if port not in rename:
        raise ReferenceError("override", f"port {port!r} is covered by no contract binding")
    return rename[port]


def _replacement(machine: Machine, target: str, other: str) -> tuple[str, dict[str, str]]:
    """The replacement's name, and the target's ports renamed through the roles both contracts bind."""
    components = machine.workflow["components"]
    if target not in components or other not in components:
        raise ReferenceError("override", f"no component {target!r} or {other!r}")
    old, new = components[target], components[other]
    if not old.get("application_overridable"):
        raise ReferenceError("override", f"component {target!r} is not overridable")
    if {old["implementation"]["kind"], new["implementation"]["kind"]} != {"onnx"}:
        raise ReferenceError("override", "only ONNX components can be replaced")
    before, after = old.get("contract"), new.get("contract")
    if not before or not after or _abi(before) != _abi(after):
        shown = _abi(after) if after else "none"
        raise ReferenceError("override", f"replacement component {other!r} has contract {shown}")
    if set(before.get("bindings", {})) != set(after.get("bindings", {})):
        raise ReferenceError("override", f"replacement component {other!r} binds other roles")
    if (old.get("effects") or []) != (new.get("effects") or []):
        raise ReferenceError("override", f"replacement component {other!r} has other effects")
    rename: dict[str, str] = {}
    for role, port in before.get("bindings", {}).items():
        if _port(old, port) != _port(new, after["bindings"][role]):
            raise ReferenceError("override", f"role {role!r} differs between {target!r} and {other!r}")
        rename[port] = after["bindings"][role]
    return other, rename


def _abi(contract: Document) -> str:
    return f"{contract['id']}@{contract['version']}"


def _port(component: Document, port: str) -> tuple[str, object]:
    ports = component.get("ports") or {}
    for side in ("inputs", "outputs"):
        if port in ports.get(side, {}):
            return side, ports[side][port]
    return "inferred", None
