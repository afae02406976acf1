"""Decide where each state group lives: one buffer written in place where that is provably equal, else growing tensors.

Before:  group decoder_kv: growing
After:   group decoder_kv: shared-buffer    (every slot is of an operator that takes its valid length from the mask)

In-place storage needs all of: the document permits aliasing (a lowered package says so only when its config did); every
slot is past and present of one operator that writes in place (GroupQueryAttention); nothing else reads the past or the
present. An operator that concatenates gets growing tensors: the session allocates, past is what present was.
"""

from dataclasses import replace

from genai_compiler.passes.profile import Profile
from genai_compiler.plan.ir import Plan
from genai_compiler.plan.state import GROWTH, PAGES, StateGroup
from genai_compiler.read.attention import CacheOp, read_counts, writes_in_place


def place_state(plan: Plan, profile: Profile) -> Plan:
    """The plan with a storage and a reason for every group."""
    groups = tuple(_placed(group, profile) for group in plan.groups)
    if plan.decoder is not None and plan.decoder.left:
        groups = tuple(_grown(group, "a run's other results are read behind the loop") for group in groups)
    if any(group.storage != "shared-buffer" for group in groups):
        groups = tuple(_grown(group) for group in groups)
    notes = tuple(f"place_state: {group.name} is {group.storage}: {group.reason}" for group in groups)
    return replace(plan, groups=groups, decisions=(*plan.decisions, *notes))


def _placed(group: StateGroup, profile: Profile) -> StateGroup:
    if group.storage == "shifted":
        return group
    if any(PAGES in slot.dims for slot in group.slots):
        return replace(group, storage="pages", reason="a table says which pages are whose, and runs write into them")
    if not any(GROWTH in slot.dims for slot in group.slots) and not _windows(group, profile):
        return replace(group, storage="constant", reason="what a step gives is what the next one takes")
    if any(slot.once for slot in group.slots):
        return replace(group, storage="once", reason="the first run alone gives it: nothing is written again")
    declared = profile.groups.get(group.name)
    if declared is not None and declared.aliasing == "forbidden":
        return replace(group, storage="growing", reason="the package does not permit past and present to be one buffer")
    if profile.graphs[group.component].absent:
        return replace(group, storage="growing", reason="its graph is absent, and nothing is proved without it")
    ops = profile.graphs[group.component].signature.cache_ops
    pairs = {pair: op for op in ops for pair in _pairs(op)}
    for slot in group.slots:
        op = pairs.get((slot.past, slot.present))
        if op is None:
            reason = f"{slot.past} -> {slot.present} is not past and present of one attention operator"
            return replace(group, storage="growing", reason=reason)
        if not writes_in_place(op):
            return replace(group, storage="growing", reason=f"{op.op_type} appends: past is exactly what is valid")
    reads = read_counts(profile.graphs[group.component].model.graph)
    shown = next((slot.present for slot in group.slots if reads[slot.present] != 1), "")
    if shown:
        return replace(group, storage="growing", reason=f"the graph itself reads {shown}, and would see the room")
    kinds = ", ".join(sorted({op.op_type for op in ops}))
    return replace(group, storage="shared-buffer", reason=f"{kinds} writes in place at each row's own length")


def _grown(
    group: StateGroup, reason: str = "another group here is no shared buffer; a session has one way"
) -> StateGroup:
    return replace(group, storage="growing", reason=reason) if group.storage == "shared-buffer" else group


def _windows(group: StateGroup, profile: Profile) -> bool:
    """Whether all slots are caches of one size whose operator drops what left its window."""
    ops = profile.graphs[group.component].signature.cache_ops
    bounded = {pair for op in ops if op.bounded for pair in _pairs(op)}
    return all((slot.past, slot.present) in bounded for slot in group.slots)


def _pairs(op: CacheOp) -> tuple[tuple[str, str], ...]:
    return (op.past_key, op.present_key), (op.past_value, op.present_value)
