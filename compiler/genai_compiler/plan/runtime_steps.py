"""Binding components whose contract a runtime must supply (standard, 4.3), where a document invokes one by itself.

What this runtime supplies is the whole loop of section 10.3 (build_decoder); its block form the compiler writes.
An invoke that is neither would be read as an identity of equal ports, so it is refused, with the reason.
"""

from genai_compiler.plan.report import Path, Report
from genai_compiler.read.document import BindingImplementation
from genai_compiler.read.document import Component as DeclaredComponent

_LOOP = "write the loop as the runtime's own form has it: decoder, token policy, emit (standard, 10.3)"
STEPS = {
    "onnx-genai.autoregressive-decode": (
        "names no graph that decodes: a binding component has no artifact",
        "give the decoder an onnx implementation",
    ),
    "onnx-genai.token-policy": (
        "has no place here: the runtime selects tokens for one decoder, in a loop of that decoder",
        f"{_LOOP}, or declare graphs for sampling and termination",
    ),
    "onnx-genai.continuous-batch": (
        "is a pass over rows of several requests, whose slots are recycled, and names no graph: this runtime runs the "
        "rows of one request",
        f"{_LOOP}: its rows run as one batch, each with a liveness of its own",
    ),
    "onnx-genai.speculative-block": (
        "is the body that a compiler writes for a decoder and its proposer, and names neither",
        f"{_LOOP}, and say who drafts in 'speculative'",
    ),
}
"""Contract -> why an invoke of it can't be run, and the way out."""


def refuse_runtime_step(name: str, declared: DeclaredComponent, path: Path, report: Report) -> bool:
    """Whether the component's step is the runtime's and can't be supplied here; reported then."""
    contract = declared.contract.id if declared.contract is not None else ""
    if not isinstance(declared.implementation, BindingImplementation) or contract not in STEPS:
        return False
    why, help = STEPS[contract]
    report.error("runtime-step", (*path, "component"), f"component '{name}' ({contract}) {why}", help)
    return True
