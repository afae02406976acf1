"""Select each row's last position before the projection to logits, not after it: a prompt computes one row of them.

Before:  component decoder = model.onnx
         %logits = decode decoder(%prompt) prompt
After:   component decoder = model.onnx, edited
           edit after final_norm: one position a row, port last_position
         %logits = decode decoder(%prompt) prompt

Needs all of: the runtime's own policy reads the logits, which is the last position of each row and nothing else; the
component runs nowhere else; all logits come from one hidden state, and every operator between treats each position for
itself. The projection then sees one position a row, as it does in every later step. Its sums may round differently than
among many positions, as they do there.
"""

from dataclasses import replace

from genai_compiler.passes.profile import Profile
from genai_compiler.plan.edits import Edited, SelectLast, free_name
from genai_compiler.plan.ir import Decode, Invoke, Plan, Type
from genai_compiler.plan.state import DecodeFacts
from genai_compiler.plan.uses import walk
from genai_compiler.read.nodes import value_names
from genai_compiler.read.package import Graph
from genai_compiler.read.projection import Projection, logits_projection

PORT = "last_position"
MIN_OPSET = 12
"""Of GatherND's batch_dims."""


def select_last(plan: Plan, profile: Profile) -> Plan:
    """The plan whose decoder gives one position of logits a row, where it gave all."""
    facts = plan.decoder
    if facts is None or facts.last_logits_only or facts.one_token or facts.pages is not None:
        return plan
    if plan.speculation is not None and plan.speculation.drafting is not None:
        return replace(plan, decisions=(*plan.decisions, "select_last: drafts are verified by logits of all positions"))
    if facts.left:
        what = "select_last: prompts compute all logits: what the last run gives besides is read behind the loop"
        return replace(plan, decisions=(*plan.decisions, what))
    graph = profile.graphs[facts.component]
    found = _place(plan, facts, graph)
    if isinstance(found, str):
        return replace(plan, decisions=(*plan.decisions, f"select_last: prompts compute all logits: {found}"))
    component = plan.component(facts.component)
    if component.edit is not None:
        return replace(plan, decisions=(*plan.decisions, "select_last: prompts compute all logits: stages are linked"))
    if facts.window is not None:
        return replace(plan, decisions=(*plan.decisions, "select_last: windows of a prompt are read at any position"))
    port = free_name(PORT, value_names(graph.model.graph))
    edited = replace(
        component,
        inputs=(*component.inputs, (port, Type("int64", 3, ("batch", 1, 1), 0))),
        outputs=tuple((name, _one(type) if name == facts.logits else type) for name, type in component.outputs),
        edit=Edited((SelectLast(port, found.hidden, found.behind, found.label),)),
    )
    note = f"select_last: after '{found.label}' only each row's last position is computed"
    return replace(
        plan,
        components=tuple(edited if each is component else each for each in plan.components),
        decoder=replace(facts, last_position=port),
        decisions=(*plan.decisions, note),
    )


def _place(plan: Plan, facts: DecodeFacts, graph: Graph) -> Projection | str:
    """Where to select, or why not."""
    used = [op for op in walk(plan.body) if isinstance(op, Invoke | Decode) and op.component == facts.component]
    if any(isinstance(op, Invoke) for op in used):
        return "a step of the document runs the decoder too"
    shape = next(each.shape for each in graph.signature.outputs if each.name == facts.logits)
    if shape is None or len(shape) != 3:
        return "the graph does not say that its logits are [rows, positions, vocabulary]"
    if dict(graph.signature.opsets).get("", 0) < MIN_OPSET:
        return f"the graph's opset is older than {MIN_OPSET}"
    return logits_projection(graph.model, facts.logits, {port for port, _ in plan.component(facts.component).inputs})


def _one(type: Type) -> Type:
    return type.with_dim(1, 1)
