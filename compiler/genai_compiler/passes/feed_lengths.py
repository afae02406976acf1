"""Feed attention the lengths that it needs, in the place of a mask from which its graph computes them at every run.

Before:  component decoder = model.onnx
           in  attention_mask: int64[batch, ?]
After:   component decoder = model.onnx, edited
           edit: ports seqlens_k and total_sequence_length in the place of attention_mask
           in  seqlens_k: int32[batch]
           in  total_sequence_length: int32[1]

Needs all of: the runtime drives the decoder, its state lies in shared buffers, and the component runs nowhere else; the
mask is asked for nothing but sums of its rows less one and its width, and both reach attention alone
(read/mask_lengths.py). The numbers are those that the graph would compute, so results are the same to the last bit.
"""

from collections.abc import Iterator
from dataclasses import replace

from genai_compiler.passes.profile import Profile
from genai_compiler.plan.edits import Edited, FeedLengths, free_name
from genai_compiler.plan.ir import Invoke, Plan, Type
from genai_compiler.plan.state import DecodeFacts, FedLengths
from genai_compiler.plan.uses import walk
from genai_compiler.read.mask_lengths import mask_lengths
from genai_compiler.read.nodes import value_names

PORTS = "seqlens_k", "total_sequence_length"
"""As the operator calls its inputs."""


def feed_lengths(plan: Plan, profile: Profile) -> Plan:
    """The plan whose decoder takes lengths, where it took a mask."""
    facts = plan.decoder
    if facts is None or facts.mask is None or facts.mask.use != "lengths" or not _in_place(plan, facts):
        return plan
    component, mask = plan.component(facts.component), facts.mask.port
    if isinstance(component.edit, Edited | None):
        model = profile.graphs[facts.component].model
        found = mask_lengths(model, mask)
    else:
        found = "stages are linked"
    if isinstance(found, str):
        return replace(plan, decisions=(*plan.decisions, f"feed_lengths: the graph computes lengths itself: {found}"))
    taken = {*value_names(model.graph), *(port for port, _ in component.inputs)}
    last, width = (free_name(port, taken) for port in PORTS)
    parts = component.edit.parts if isinstance(component.edit, Edited) else ()
    edited = replace(
        component,
        inputs=tuple(_inputs(component.inputs, mask, last, width)),
        edit=Edited((*parts, FeedLengths(mask, last, width, found))),
    )
    note = f"feed_lengths: attention gets its lengths as numbers, {len(found.made)} values less are computed of a mask"
    return replace(
        plan,
        components=tuple(edited if each is component else each for each in plan.components),
        decoder=replace(facts, mask=None, lengths=FedLengths(last, width)),
        decisions=(*plan.decisions, note),
    )


def _in_place(plan: Plan, facts: DecodeFacts) -> bool:
    """Whether one graph runs prompts and steps, whole, over shared buffers, and nobody else runs it."""
    whole = facts.pages is None and facts.window is None and facts.shift is None and not facts.prompt_component
    alone = all(not (isinstance(op, Invoke) and op.component == facts.component) for op in walk(plan.body))
    shared = bool(plan.groups) and all(group.storage == "shared-buffer" for group in plan.groups)
    return whole and alone and shared and plan.speculation is None and not facts.one_token


def _inputs(inputs: tuple[tuple[str, Type], ...], mask: str, last: str, width: str) -> Iterator[tuple[str, Type]]:
    """The component's ports, with the two where the mask stood."""
    for port, type in inputs:
        if port == mask:
            yield last, Type("int32", 1, ((type.shape or (None,))[0],), 0)
            yield width, Type("int32", 1, (1,))
        else:
            yield port, type
