"""The capabilities that a workflow uses, by the table of the standard (8.1), without the compiler's own reckoning."""

from collections.abc import Iterable

from tests.property.kinds import Document
from tests.reference.document import child_steps, steps_below


def derived(workflow: Document) -> set[str]:
    """What the manifest must declare."""
    steps = list(steps_below(workflow["steps"]))
    cells = list((workflow.get("state") or {}).values())
    kinds = [step["kind"] for step in steps]
    emits = [step for step in steps if step["kind"] == "emit"]
    found = {"workflow_ssa"}
    for capability, used in (
        ("linear_effects", _effects(workflow, steps)),
        ("serving_service_contract", bool(workflow.get("serving"))),
        ("session_state_lease", any(cell["scope"] == "session" for cell in cells)),
        ("bounded_state_recurrence", any(cell["recurrence"]["kind"] == "bounded" for cell in cells)),
        ("advisory_state", any(cell.get("class") == "advisory" for cell in cells)),
        ("grammar_guidance_adapter", _adapter(workflow, "onnx-genai.grammar-guidance")),
        ("telemetry_adapter", _adapter(workflow, "onnx-genai.telemetry")),
        ("nested_control_flow", "loop" in kinds or "branch" in kinds),
        ("loop_induction_values", any(step.get("iteration") for step in steps)),
        ("typed_emit", bool(emits)),
        ("streaming_emit", any(step["mode"] == "event" for step in emits)),
        ("emit_valid_length", any(step.get("valid_length") for step in emits)),
        ("input_presence", any(spec.get("present_as") for spec in workflow["inputs"].values())),
    ):
        if used:
            found.add(capability)
    return found


def _adapter(workflow: Document, abi: str) -> bool:
    return any(each["implementation"].get("abi") == abi for each in workflow["components"].values())


def _effects(workflow: Document, steps: Iterable[Document]) -> bool:
    components = workflow["components"]
    if workflow.get("effects") or any(each.get("effects") for each in components.values()):
        return True
    return any(_changes(step) for step in steps if step["kind"] in ("loop", "branch"))


def _changes(step: Document) -> bool:
    """Whether a loop or branch has a lowered effect: a carry of its own, an emit or a carrying loop below its body."""
    if step["kind"] == "loop":
        below = list(steps_below(step["steps"]))
        return bool(step.get("carried")) or any(_stirs(each) for each in below)
    return any(_stirs(each) for each in steps_below(child_steps(step)))


def _stirs(step: Document) -> bool:
    return step["kind"] == "emit" or bool(step.get("carried"))
