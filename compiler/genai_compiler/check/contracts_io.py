"""Contracts, inputs and outputs (standard, 12.7)."""

from collections.abc import Iterator

from genai_compiler.check.fault import COMPONENTS, STATE, WORKFLOW, Fault, Faults, Path, Rule, Rules, blank
from genai_compiler.check.walk import walk
from genai_compiler.plan.dtypes import FLOATS, canonical
from genai_compiler.read.document import (
    ArtifactSource,
    LiteralSource,
    LoopStep,
    Media,
    OpaqueRole,
    RequestExpanded,
    RequestSource,
    RuntimeRole,
    RuntimeSequenceState,
    Shared,
    TensorContract,
    Workflow,
    WorkflowInput,
    WorkflowOutput,
)
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V124": Rule("unknown-dtype", "A contract's dtype is one that a workflow tensor can have."),
    "V125": Rule("rank-shape-disagree", "A contract's shape has as many entries as its rank says."),
    "V126": Rule("expansion-factor", "A request expands into at least one row."),
    "V127": Rule("request-role", "A request-sourced input has a runtime role."),
    "V128": Rule("optional-input", "An optional input has a default or `present_as`."),
    "V129": Rule("presence", "Only an optional input has `present_as`."),
    "V130": Rule("presence", "An input with a default has no `present_as`."),
    "V131": Rule("presence", "An input from a literal or a file has no `present_as`."),
    "V132": Rule("presence", "Of request-sourced inputs, media, constraint and session_id may have `present_as`."),
    "V133": Rule("blank-name", "`present_as` names a value."),
    "V134": Rule("value-defined-twice", "`present_as` has a name of its own."),
    "V135": Rule("maybe-absent", "An input that may be absent is read where a branch has proved it present."),
    "V136": Rule("maybe-absent", "A branch takes an input that may be absent from the case that proves it present."),
    "V137": Rule("media", "Only an audio output has `media`."),
    "V138": Rule("media", "`media` says its sample rate."),
    "V139": Rule("media", "`media` says its channels."),
    "V140": Rule("media", "A sample rate is not 0."),
    "V141": Rule("media", "A source sample rate is not 0."),
    "V142": Rule("media", "There is at least one channel."),
    "V143": Rule("media-dtype", "A finished WAV file is uint8."),
    "V144": Rule("media-dtype", "Samples that the host makes a WAV file of are float32, float16 or bfloat16."),
    "V145": Rule("value-range", "An image output says its value range."),
    "V146": Rule("value-range", "Only an image output has a value range."),
    "G001": Rule("layout-axis", "The axis of a contract's batch layout is one that the contract has."),
}

DTYPES = (
    "float16", "fp16", "float32", "fp32", "bfloat16", "bf16", "float8_e4m3fn", "fp8_e4m3fn", "float8_e4m3",
    "fp8_e4m3", "float8_e5m2", "fp8_e5m2", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "bool",
)  # fmt: skip
"""What a tensor of a workflow can hold (standard, 1.4)."""
_MAY_BE_ABSENT = ("media", "constraint", "session_id")


def check_contracts_io(workflow: Workflow) -> Faults:
    """Every contract, every input and every output."""
    for path, contract in _contracts(workflow):
        yield from _contract(contract, path)
        yield from _layout_axis(contract, path)
    for path, step in walk(workflow.steps):
        if isinstance(step, LoopStep) and step.iteration is not None:
            yield from _layout_axis(step.iteration.contract, (*path, "iteration", "contract"))
    taken = dict.fromkeys(workflow.inputs, "an input")
    for name, declared in workflow.inputs.items():
        path = (*WORKFLOW, "inputs", name)
        yield from _input(declared, path)
        yield from _presence(declared, taken, path)
    for name, output in workflow.outputs.items():
        yield from _output(name, output, (*WORKFLOW, "outputs", name))


def _contracts(workflow: Workflow) -> Iterator[tuple[Path, TensorContract]]:
    for side, declared in (("inputs", workflow.inputs), ("outputs", workflow.outputs)):
        for name, each in declared.items():
            yield (*WORKFLOW, side, name, "contract"), each.contract
    for name, component in workflow.components.items():
        for side, ports in (("inputs", component.ports.inputs), ("outputs", component.ports.outputs)):
            for port, contract in ports.items():
                yield (*COMPONENTS, name, "ports", side, port), contract
    for name, cell in workflow.state.items():
        yield (*STATE, name, "contract"), cell.contract


def _contract(contract: TensorContract, path: Path) -> Faults:
    if contract.dtype not in DTYPES:
        what = f"no tensor of a workflow can have dtype '{contract.dtype}'"
        yield Fault("V124", (*path, "dtype"), what, did_you_mean(contract.dtype, DTYPES))
    if contract.shape is not None and len(contract.shape) != contract.rank:
        what = f"rank {contract.rank} and {len(contract.shape)} entries of shape {list(contract.shape)} disagree"
        yield Fault("V125", (*path, "rank"), what, "make rank the number of entries in shape")
    if isinstance(contract.batch_layout, RequestExpanded) and contract.batch_layout.factor == 0:
        what = "a request that expands into 0 rows has none"
        yield Fault("V126", (*path, "batch_layout", "factor"), what, "write a factor of 1 or more")


def _layout_axis(contract: TensorContract, path: Path) -> Faults:
    layout = contract.batch_layout
    if not isinstance(layout, Shared | RuntimeSequenceState) and layout.axis >= contract.rank:
        what = f"a tensor of rank {contract.rank} has no axis {layout.axis} that its {layout.kind} rows could lie on"
        yield Fault("G001", (*path, "batch_layout", "axis"), what, "axes count from 0; name one below the rank")


def _input(declared: WorkflowInput, path: Path) -> Faults:
    if isinstance(declared.source, RequestSource) and isinstance(declared.role, OpaqueRole):
        what = "the request has no field that an opaque role names"
        yield Fault("V127", (*path, "role"), what, "write kind: runtime with a role, or source: application")
    if not declared.required and declared.default is None and declared.present_as is None:
        what = "the input is optional, and nothing says what a step reads when it is absent"
        yield Fault("V128", path, what, "add a default, or present_as and a branch on it")


def _presence(declared: WorkflowInput, taken: dict[str, str], path: Path) -> Faults:
    name, place = declared.present_as, (*path, "present_as")
    if name is None:
        return
    source, role = declared.source, declared.role
    if declared.required:
        yield Fault("V129", place, "the input is required, so it is always present", "write required: false")
    if declared.default is not None:
        yield Fault("V130", place, "the input has a default, so it is always present", "remove one of them")
    if isinstance(source, LiteralSource | ArtifactSource):
        yield Fault("V131", place, f"a {source.kind} is always present", "remove present_as")
    if isinstance(source, RequestSource) and isinstance(role, RuntimeRole) and role.role not in _MAY_BE_ABSENT:
        what = f"the request field '{role.role}' always has a value"
        yield Fault("V132", place, what, f"remove present_as; only {', '.join(_MAY_BE_ABSENT)} may be absent")
    if blank(name):
        yield Fault("V133", place, "present_as names no value", "write the name of the presence flag")
    elif name in taken:
        what = f"'{name}' already names {taken[name]}"
        yield Fault("V134", place, what, "choose another name")
    taken.setdefault(name, "another presence flag")


def _output(name: str, output: WorkflowOutput, path: Path) -> Faults:
    if output.media is not None:
        if output.role != "audio":
            what = f"output '{name}' has role {output.role}, and media describes sound"
            yield Fault("V137", (*path, "media"), what, "remove media, or write role: audio")
        yield from _media(output.media, (*path, "media"))
        yield from _wav(output.media, output, (*path, "contract", "dtype"))
    if output.role == "image" and output.value_range is None:
        what = f"nothing says which values image output '{name}' takes"
        yield Fault("V145", path, what, "add value_range: zero_to_one, negative_one_to_one or zero_to_255")
    if output.role != "image" and output.value_range is not None:
        what = f"output '{name}' has role {output.role}, and value_range describes images"
        yield Fault("V146", (*path, "value_range"), what, "remove value_range")


def _media(media: Media, path: Path) -> Faults:
    if media.sample_rate_hz is None:
        yield Fault("V138", path, "the media contract names no sample_rate_hz", "add sample_rate_hz")
    if media.channels is None:
        yield Fault("V139", path, "the media contract names no channels", "add channels")
    for rule, field, value in (
        ("V140", "sample_rate_hz", media.sample_rate_hz),
        ("V141", "source_sample_rate_hz", media.source_sample_rate_hz),
        ("V142", "channels", media.channels),
    ):
        if value == 0:
            yield Fault(rule, (*path, field), f"{field} is 0", "write the real number")


def _wav(media: Media, output: WorkflowOutput, path: Path) -> Faults:
    if media.container != "wav":
        return
    dtype = output.contract.dtype
    if output.stage == "post_adapter" and dtype != "uint8":
        what = f"a finished WAV file is bytes, and the output is {dtype}"
        yield Fault("V143", path, what, "write dtype: uint8, or stage: pre_adapter")
    if output.stage == "pre_adapter" and canonical(dtype) not in FLOATS:
        what = f"the host makes a WAV file of float samples, and the output is {dtype}"
        yield Fault("V144", path, what, "write a float dtype, or stage: post_adapter")
