"""The graph that says how many tokens to draft next, where the document declares one (contract, 4.1)."""

from genai_compiler.plan.report import WORKFLOW
from genai_compiler.plan.speculation import BudgetSpec
from genai_compiler.plan.unfit import Unfit
from genai_compiler.read.document import OnnxImplementation
from genai_compiler.read.package import Package
from genai_compiler.read.places import format_path

CONTRACT = "onnx-genai.adaptive-proposal-budget"
TAKES = (
    "current_k", "accepted", "evaluated", "committed_tokens", "filled_proposal_budget", "draft_ms", "target_ms",
    "estimates",
)  # fmt: skip
GIVES = ("next_k", "next_estimates")


def build_budget(package: Package) -> BudgetSpec | None:
    """The budget of a package's drafts; None without one. Raises Unfit for one whose ports are not the contract's."""
    found = [
        name for name, each in package.workflow.components.items()
        if each.contract is not None and each.contract.id == CONTRACT
    ]  # fmt: skip
    if not found:
        return None
    name, declared = found[0], package.workflow.components[found[0]]
    graph = package.graphs.get(name)
    if len(found) > 1 or graph is None or not isinstance(declared.implementation, OnnxImplementation):
        raise Unfit(f"there must be one graph that sets the proposal budget, found {', '.join(found)}")
    bound = declared.contract.bindings if declared.contract is not None else {}
    inputs, outputs = ({each.name: each for each in side} for side in (graph.signature.inputs, graph.signature.outputs))
    for role, side in (*((role, inputs) for role in TAKES), *((role, outputs) for role in GIVES)):
        if bound.get(role) not in side:
            raise Unfit(f"the proposal budget '{name}' binds no port of its graph to '{role}'")
    if {bound[role] for role in TAKES} != set(inputs):
        raise Unfit(f"the proposal budget '{name}' has inputs that its contract does not name")
    shape = inputs[bound["estimates"]].shape
    if shape is None or not all(isinstance(dim, int) for dim in shape[1:]):
        raise Unfit(f"the proposal budget '{name}' does not say how many estimates it keeps")
    estimates = tuple(dim if isinstance(dim, int) else 1 for dim in shape)
    ports = tuple(
        (role, bound[role], inputs[bound[role]].dtype, len(inputs[bound[role]].shape or ())) for role in TAKES
    )
    gives = tuple((role, bound[role]) for role in GIVES)
    return BudgetSpec(name, format_path((*WORKFLOW, "components", name)), ports, gives, estimates)
