"""Image and audio programs, and the adapter of the workflow that runs each (standard, 12.4)."""

from genai_compiler.check.fault import COMPONENTS, Fault, Faults, Path, Rule, Rules
from genai_compiler.check.walk import invokes
from genai_compiler.plan.dtypes import canonical
from genai_compiler.read.document import (
    AdapterImplementation,
    AudioOutput,
    Component,
    ImageOutput,
    InvokeStep,
    Metadata,
    TensorContract,
    Workflow,
)
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "G006": Rule("unmade-output", "The invoke takes from a preprocessing adapter only what its program makes."),
    "V046": Rule("missing-program", "A preprocessing adapter goes with the program that it runs."),
    "V047": Rule("preprocess-adapter", "A preprocessing program goes with exactly one adapter that runs it."),
    "V048": Rule("missing-port", "A preprocessing adapter takes the file on its input `encoded`."),
    "V049": Rule("encoded-type", "A preprocessing adapter's input `encoded` is uint8 of rank 1."),
    "V050": Rule("preprocess-once", "A preprocessing adapter is invoked exactly once."),
    "V051": Rule("program-output", "In a workflow, no output of a program is optional."),
    "V052": Rule("program-output", "In a workflow, each output of a program has a contract."),
    "V053": Rule("program-output", "A program output's dtype is spelt as in its contract."),
    "V054": Rule("unknown-value", "A program output is a value that the adapter's invoke defines."),
    "V055": Rule("unknown-port", "The invoke takes a program output from a port that the adapter declares."),
    "V056": Rule("type-mismatch", "A program output has the contract of the adapter's port."),
}

VERSION = "1"


def check_preprocessing(metadata: Metadata, workflow: Workflow) -> Faults:
    """Both programs against the workflow."""
    programs = metadata.preprocessing
    image, audio = (programs.image, programs.audio) if programs is not None else (None, None)
    for kind, program in (("image", image), ("audio", audio)):
        outputs = program.outputs if program is not None else None
        yield from _program(kind, outputs, workflow)


def _program(kind: str, outputs: tuple[ImageOutput | AudioOutput, ...] | None, workflow: Workflow) -> Faults:
    abi, path = f"onnx-genai.{kind}-preprocess", ("preprocessing", kind)
    adapters = {
        name: each
        for name, each in workflow.components.items()
        if isinstance(each.implementation, AdapterImplementation) and each.implementation.abi == abi
    }
    if outputs is None:
        for name in adapters:
            what = f"component '{name}' runs the document's {kind} program, and there is none"
            yield Fault("V046", (*COMPONENTS, name), what, f"add preprocessing.{kind}")
        return
    current = [name for name, each in adapters.items() if _version(each) == VERSION]
    if len(current) != 1:
        what = f"{len(current) or 'no'} component{'s' * (len(current) != 1)} implement {abi}@{VERSION}"
        yield Fault("V047", path, what, "declare exactly one adapter component with that ABI")
        return
    yield from _adapter(current[0], workflow.components[current[0]], outputs, workflow, path)


def _version(component: Component) -> str:
    how = component.implementation
    return how.version if isinstance(how, AdapterImplementation) else ""


def _adapter(
    name: str,
    component: Component,
    outputs: tuple[ImageOutput | AudioOutput, ...],
    workflow: Workflow,
    path: Path,
) -> Faults:
    place = (*COMPONENTS, name)
    encoded = component.ports.inputs.get("encoded")
    if encoded is None:
        what = f"component '{name}' has no input 'encoded' for the file's bytes"
        yield Fault("V048", (*place, "ports", "inputs"), what, did_you_mean("encoded", component.ports.inputs))
    elif encoded.dtype != "uint8" or encoded.rank != 1:
        what = f"the file's bytes are uint8 of rank 1, not {encoded.dtype} of rank {encoded.rank}"
        yield Fault("V049", (*place, "ports", "inputs", "encoded"), what, "write dtype: uint8, rank: 1")
    uses = [step for _, step in invokes(workflow) if step.component == name]
    if len(uses) != 1:
        what = f"component '{name}' is invoked {len(uses)} times"
        yield Fault("V050", place, what, "invoke it exactly once")
    invokes_once = uses[0] if len(uses) == 1 else None
    for at, output in enumerate(outputs):
        yield from _output(output, component, invokes_once, (*path, "outputs", at))
    if invokes_once is not None:
        yield from _unmade(invokes_once, outputs, path)


def _unmade(step: InvokeStep, outputs: tuple[ImageOutput | AudioOutput, ...], path: Path) -> Faults:
    """Values of the invoke that the program lacks; an output under a wrong name (V054) says so by itself."""
    made, wanted = {each.name for each in outputs}, set(step.outputs.values())
    if made <= wanted:
        for value in sorted(wanted - made):
            what = f"the invoke of '{step.component}' defines '{value}', which the program does not make"
            yield Fault("G006", (*path, "outputs"), what, "add the output, or take nothing from that port")


def _output(output: ImageOutput | AudioOutput, component: Component, step: InvokeStep | None, path: Path) -> Faults:
    if output.optional:
        what = f"the workflow reads '{output.name}' always, and the program may leave it out"
        yield Fault("V051", (*path, "optional"), what, "remove optional")
    contract = output.contract
    if contract is None:
        yield Fault("V052", path, f"program output '{output.name}' has no contract", "add the contract of its port")
    elif output.dtype != contract.dtype:
        what = f"dtype says {output.dtype} and the contract {contract.dtype}"
        yield Fault("V053", (*path, "dtype"), what, "write the same spelling in both")
    if step is None:
        return
    port = next((port for port, value in step.outputs.items() if value == output.name), None)
    if port is None:
        what = f"the invoke of '{step.component}' defines no value '{output.name}'"
        yield Fault("V054", (*path, "name"), what, did_you_mean(output.name, step.outputs.values()))
    elif port not in component.ports.outputs:
        what = f"'{output.name}' comes from port '{port}', which component '{step.component}' does not declare"
        yield Fault("V055", (*path, "name"), what, did_you_mean(port, component.ports.outputs))
    elif contract is not None and _form(contract) != _form(component.ports.outputs[port]):
        what = f"the contract of '{output.name}' is not that of port '{port}' of '{step.component}'"
        yield Fault("V056", (*path, "contract"), what, "write the same dtype, rank, shape and batch_layout")


def _form(contract: TensorContract) -> object:
    return canonical(contract.dtype), contract.rank, contract.shape, contract.batch_layout
