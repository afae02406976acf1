"""The LoRA service: its fields, selection inputs and targets (standard, 12.6)."""

import math
from collections.abc import Iterator

from genai_compiler.check.fault import COMPONENTS, Fault, Faults, Path, Rule, Rules, blank
from genai_compiler.plan.dtypes import FLOATS, canonical
from genai_compiler.read.document import (
    AdapterSelection,
    AdapterService,
    AdapterTarget,
    ApplicationSource,
    Component,
    Dimension,
    GraphInputs,
    Metadata,
    RequestAligned,
    RequestSource,
    RuntimeRole,
    TargetSlice,
    Workflow,
    WorkflowInput,
)
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V069": Rule("adapter-capability", "The service asks for `onnx-genai.adapters@1`."),
    "V070": Rule("zero-size", "The adapter cache holds at least one adapter."),
    "V071": Rule("zero-size", "A row can select at least one adapter."),
    "V072": Rule("no-adapters", "The service has at least one adapter."),
    "V073": Rule("no-targets", "The service has at least one target."),
    "V074": Rule("selection-input", "`segments` is the input that carries adapter ids by row and slot."),
    "V075": Rule("selection-input", "`adapter_counts` is the input that carries the number of adapters by row."),
    "V076": Rule("selection-input", "`scales` is the input that carries scales by row and slot."),
    "V077": Rule("selection-input", "`active` is the input that carries liveness by row."),
    "V078": Rule("blank-name", "Without a workflow, the selection still names its inputs."),
    "V079": Rule("blank-name", "A target's names are not blank."),
    "V080": Rule("duplicate-target", "Targets have ids of their own."),
    "V081": Rule("duplicate-target", "No two targets are the same part of the same initializer."),
    "V082": Rule("zero-size", "A target has features."),
    "V083": Rule("adapter-dtype", "A target's activations are floats."),
    "V084": Rule("zero-size", "A target's rank is not 0."),
    "V085": Rule("adapter-alpha", "A target's alpha is a finite number above 0."),
    "V086": Rule("target-slice", "A target's slice has a role, a size, and lies in its output."),
    "V087": Rule("target-graph-inputs", "A target's graph inputs are named and differ."),
    "V088": Rule("unknown-component", "A target's component is declared in the workflow."),
    "V089": Rule("target-component", "Without a workflow, a target's component is `model`."),
    "V119": Rule("overlay-parameter", "A parameter overlay names the component it stands for."),
    "V120": Rule("overlay-parameter", "A parameter overlay names the initializer it stands for."),
    "V121": Rule("overlay-target", "A parameter overlay stands for a target of the manifest."),
}

CAPABILITY = "onnx-genai.adapters@1"
OVERLAY = "onnx-genai.parameter-overlay"
_NAMES = ("id", "component", "initializer", "node_name", "output_name")


def check_service(service: AdapterService, workflow: Workflow | None) -> Faults:
    """The service's own fields, its selection and its targets."""
    if service.application_capability != CAPABILITY:
        what = f"the service asks for '{service.application_capability}', not for {CAPABILITY}"
        yield Fault("V069", ("adapters", "application_capability"), what, f"write {CAPABILITY}")
    if service.cache.max_entries == 0:
        yield Fault("V070", ("adapters", "cache", "max_entries"), "a cache of 0 adapters holds none", "write 1 or more")
    if service.selection.max_adapters == 0:
        place = ("adapters", "selection", "max_adapters")
        yield Fault("V071", place, "a row that selects 0 adapters selects none", "write 1 or more")
    if not service.artifacts:
        yield Fault("V072", ("adapters", "artifacts"), "the service has no adapters", "add one, or remove adapters")
    if not service.target_manifest.targets:
        place = ("adapters", "target_manifest", "targets")
        yield Fault("V073", place, "no weight can be adapted", "add a target, or remove adapters")
    yield from _selection(service.selection, workflow)
    yield from _targets(service.target_manifest.targets, workflow)


def _selection(selection: AdapterSelection, workflow: Workflow | None) -> Faults:
    path, slots = ("adapters", "selection"), selection.max_adapters
    fields: tuple[tuple[str, str, str | None, str, str, tuple[Dimension, ...]], ...] = (
        ("V074", "segments", selection.segments, "adapter_segments", "int64", ("batch", slots)),
        ("V075", "adapter_counts", selection.adapter_counts, "adapter_counts", "int64", ("batch",)),
        ("V076", "scales", selection.scales, "adapter_scales", "float32", ("batch", slots)),
        ("V077", "active", selection.active, "adapter_active", "bool", ("batch",)),
    )
    for rule, field, name, role, dtype, shape in fields:
        if name is None:
            continue
        place = (*path, field)
        if workflow is None:
            if blank(name) and field != "active":
                yield Fault("V078", place, f"the selection names no input for {field}", "name it")
            continue
        declared = workflow.inputs.get(name)
        if declared is None:
            yield Fault(rule, place, f"no workflow input '{name}' is declared", did_you_mean(name, workflow.inputs))
        elif faults := list(_selection_faults(declared, role, dtype, shape)):
            what = f"input '{name}' can't select adapters: {'; '.join(faults)}"
            yield Fault(rule, place, what, f"declare it {dtype}{list(shape)} by row, required, role {role} version 1.0")


def _selection_faults(declared: WorkflowInput, role: str, dtype: str, shape: tuple[Dimension, ...]) -> Iterator[str]:
    contract = declared.contract
    if canonical(contract.dtype) != dtype:
        yield f"dtype {contract.dtype}, not {dtype}"
    if contract.rank != len(shape) or contract.shape != shape:
        yield f"shape {list(contract.shape or ())}, not {list(shape)}"
    if contract.batch_layout != RequestAligned(axis=0):
        yield "its batch_layout is not request_aligned on axis 0"
    if not isinstance(declared.role, RuntimeRole) or (declared.role.role, declared.role.version) != (role, "1.0"):
        yield f"its role is not {role} in version 1.0"
    if not declared.required:
        yield "it is optional"
    if not isinstance(declared.source, RequestSource | ApplicationSource):
        yield f"its source is {declared.source.kind}"


def _targets(targets: tuple[AdapterTarget, ...], workflow: Workflow | None) -> Faults:
    ids: dict[str, int] = {}
    parts: dict[object, int] = {}
    for at, target in enumerate(targets):
        path = ("adapters", "target_manifest", "targets", at)
        yield from _target(target, path)
        yield from _target_component(target.component, workflow, (*path, "component"))
        piece = target.output_slice
        part = (target.component, target.initializer, (piece.role, piece.offset, piece.width) if piece else None)
        if target.id in ids:
            what = f"target {ids[target.id]} already has the id '{target.id}'"
            yield Fault("V080", (*path, "id"), what, "choose another id")
        elif part in parts:
            what = f"target {parts[part]} already is this part of '{target.initializer}' of '{target.component}'"
            yield Fault("V081", (*path, "initializer"), what, "remove one, or give it an output_slice of its own")
        ids.setdefault(target.id, at)
        parts.setdefault(part, at)


def _target(target: AdapterTarget, path: Path) -> Faults:
    for field in _NAMES:
        if blank(getattr(target, field)):
            yield Fault("V079", (*path, field), f"the target's {field} is blank", "name it")
    for field in ("input_features", "output_features"):
        if getattr(target, field) == 0:
            yield Fault("V082", (*path, field), f"the target has 0 {field}", "write the extent of the weight")
    if canonical(target.activation_dtype) not in FLOATS:
        what = f"activations of type {target.activation_dtype} can't be adapted"
        yield Fault("V083", (*path, "activation_dtype"), what, "write float32, float16 or bfloat16")
    yield from rank_and_alpha(target.rank, target.alpha, ("V084", "V085"), path)
    if target.output_slice is not None:
        yield from _slice(target.output_slice, target.output_features, (*path, "output_slice"))
    if target.graph_inputs is not None:
        yield from _graph_inputs(target.graph_inputs, (*path, "graph_inputs"))


def rank_and_alpha(rank: int | None, alpha: float | None, rules: tuple[str, str], path: Path) -> Faults:
    """A rank of 0 (the first rule), and an alpha that scales nothing sensible (the second)."""
    if rank == 0:
        yield Fault(rules[0], (*path, "rank"), "a delta of rank 0 is none", "write the rank of the factors")
    if alpha is not None and not (math.isfinite(alpha) and alpha > 0):
        yield Fault(rules[1], (*path, "alpha"), f"alpha is {alpha:g}", "write a finite number above 0")


def _slice(piece: TargetSlice, features: int, path: Path) -> Faults:
    if blank(piece.role):
        yield Fault("V086", (*path, "role"), "the slice has no role", "name it")
    if piece.width == 0:
        yield Fault("V086", (*path, "width"), "the slice is empty", "write how many features it covers")
    elif piece.offset + piece.width > features:
        what = f"features {piece.offset} to {piece.offset + piece.width} lie beyond the target's {features}"
        yield Fault("V086", (*path, "width"), what, "correct offset or width")
    yield from rank_and_alpha(piece.rank, piece.alpha, ("V086", "V086"), path)


def _graph_inputs(inputs: GraphInputs, path: Path) -> Faults:
    seen: dict[str, str] = {}
    for field, name in (("a", inputs.a), ("b", inputs.b), ("scale", inputs.scale)):
        if name is None:
            continue
        if blank(name):
            yield Fault("V087", (*path, field), f"graph input '{field}' has no name", "name it")
        elif name in seen:
            what = f"'{name}' is graph input '{seen[name]}' already"
            yield Fault("V087", (*path, field), what, "name another input of the graph")
        seen.setdefault(name, field)


def _target_component(name: str, workflow: Workflow | None, path: Path) -> Faults:
    if blank(name):
        return
    if workflow is None:
        if name != "model":
            what = f"without a workflow there is one component, 'model', and no '{name}'"
            yield Fault("V089", path, what, "write component: model")
    elif name not in workflow.components:
        help = did_you_mean(name, workflow.components)
        yield Fault("V088", path, f"no component '{name}' is declared", help)


def check_overlays(metadata: Metadata, workflow: Workflow) -> Faults:
    """Parameter-overlay components: what they stand for."""
    targets = metadata.adapters.target_manifest.targets if metadata.adapters is not None else ()
    known = {(each.component, each.initializer) for each in targets}
    for name, component in workflow.components.items():
        if component.contract is None or component.contract.id != OVERLAY:
            continue
        yield from _overlay(component, known, (*COMPONENTS, name, "contract", "parameters"))


def _overlay(component: Component, known: set[tuple[str, str]], path: Path) -> Faults:
    assert component.contract is not None
    parameters, named = component.contract.parameters, list[str]()
    for rule, field in (("V119", "component"), ("V120", "parameter")):
        value = parameters.get(field)
        if isinstance(value, str) and not blank(value):
            named.append(value)
        else:
            place = (*path, field) if field in parameters else path
            yield Fault(rule, place, f"the overlay does not name its {field} as a text", f"add {field}")
    if len(named) == 2 and (named[0], named[1]) not in known:
        what = f"initializer '{named[1]}' of component '{named[0]}' is no target of the adapter manifest"
        near = did_you_mean(named[1], sorted(i for c, i in known if c == named[0]))
        yield Fault("V121", path, what, near or "add it to adapters.target_manifest.targets")
