"""Process the prompt once, before the loop, and let the loop's decoder take one token a step.

Before:  loop { %logits = decode(%sequence) step; %token = select(%logits); emit; carry %sequence -> %token }
After:   %prompt.logits = decode(%prompt) prompt
         loop { %token = select(%logits); emit } between iterations { %next.logits = decode(%token) step }

The decoder runs between iterations only: the pass whose logits nobody would read is never made.
"""

from collections.abc import Iterator
from dataclasses import replace

from genai_compiler.passes.profile import Profile
from genai_compiler.plan.edits import Linked
from genai_compiler.plan.ir import Carry, Decode, Loop, Op, Plan, SelectToken, Type
from genai_compiler.read.weights import weight_bytes


def peel_prompt(plan: Plan, profile: Profile) -> Plan:
    """The plan with every decoder loop rotated."""
    types = dict(plan.types)
    body: list[Op] = []
    for op in plan.body:
        body.extend(_peeled(op, types) if isinstance(op, Loop) and _leads_with_decode(op) else (op,))
    if tuple(body) == plan.body:
        return plan
    notes = ["peel_prompt: the prompt is one decoder run before the loop; a step is one run a token"]
    notes += _twice(plan, profile)
    return replace(plan, body=tuple(body), types=types, decisions=(*plan.decisions, *notes))


def _twice(plan: Plan, profile: Profile) -> Iterator[str]:
    """What the graphs of prompt and steps both hold: two graphs can't be one session."""
    facts = plan.decoder
    edits = {each.name: each.edit for each in plan.components}
    step, prompt = (edits.get(name) for name in (facts.component, facts.prompt_component)) if facts else (None, None)
    if facts is None or not isinstance(step, Linked) or not isinstance(prompt, Linked):
        return
    theirs = {each.component for each in prompt.members}
    both = [each.component for each in step.members if each.component in theirs]
    size = sum(weight_bytes(profile.graphs[each].model) for each in both)
    sessions = f"{facts.component} and {facts.prompt_component}"
    yield f"peel_prompt: {size} bytes of weights ({', '.join(both) or 'none'}) are in two sessions, {sessions}"


def _leads_with_decode(loop: Loop) -> bool:
    return bool(loop.body) and isinstance(loop.body[0], Decode)


def _peeled(loop: Loop, types: dict[str, Type]) -> tuple[Op, ...]:
    decode, *rest = loop.body
    assert isinstance(decode, Decode)
    select = next(op for op in rest if isinstance(op, SelectToken))
    sequence = next(carry for carry in loop.carried if carry.cell == decode.tokens)
    first, following = f"{decode.logits}.prompt", f"{decode.logits}.next"
    types[first] = types[following] = types[decode.logits]
    cells = {carry.cell: carry for carry in loop.carried}
    media = tuple((port, cells[cell].initial) for port, cell in decode.media)
    later = tuple((port, cells[cell].next) for port, cell in decode.media)
    prompt = replace(
        decode, phase="prompt", tokens=sequence.initial, logits=first, maximum=sequence.maximum, media=media
    )
    step = replace(decode, tokens=select.token, logits=following, extras=(), media=later, positions="", adapted="")
    gone = {sequence.cell, *(cell for _, cell in decode.media)}
    carried = tuple(carry for carry in loop.carried if carry.cell not in gone)
    rotated = replace(
        loop, body=tuple(rest), advance=(step,), carried=(*carried, Carry(decode.logits, first, following, False))
    )
    return prompt, rotated
