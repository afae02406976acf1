"""Write the loop of a decoder that has a proposer as a block body (standard, 4.3).

Before:  loop { %token = token-policy(%logits); emit %token } between iterations { %next = autoregressive-decode }
After:   loop { %token, %accepted, %next = speculative-block m(%logits) by draft; emit %token, first %accepted }

Bound, predicate, carries and termination stay. The block drafts, verifies in one pass, and commits what the token
policy itself chooses, so it publishes what the single-token body would. Where nobody asks for drafts, it is that body.
"""

from dataclasses import replace

from genai_compiler.passes.profile import Profile
from genai_compiler.plan.ir import Decode, Emit, Loop, Op, Plan, SelectToken, SpeculativeBlock
from genai_compiler.plan.speculation import Speculation


def speculate(plan: Plan, profile: Profile) -> Plan:
    """The plan with a block body where a proposer is driven; else with a decision that says why not."""
    found = plan.speculation
    if found is None:
        return plan
    if found.drafting is None:
        note = f"speculate: '{found.proposer}' drafts nothing: {found.reason}"
        return replace(plan, decisions=(*plan.decisions, note))
    types, body = dict(plan.types), list[Op]()
    for op in plan.body:
        if isinstance(op, Loop) and op.advance:
            select = next(each for each in op.body if isinstance(each, SelectToken))
            body.append(_blocked(op, select, found))
            types[select.token] = types[select.token].with_dim(1, None)
        else:
            body.append(op)
    when = "by itself" if found.by_itself else "where a request asks for it"
    note = f"speculate: '{found.proposer}' drafts up to {found.width} tokens a block, {when}"
    return replace(plan, body=tuple(body), types=types, decisions=(*plan.decisions, note))


def _blocked(loop: Loop, select: SelectToken, found: Speculation) -> Loop:
    decode = next(op for op in loop.advance if isinstance(op, Decode))
    block = SpeculativeBlock(decode, select, found.proposer, found.width, decode.origin)
    rest = tuple(_prefix(op, select) for op in loop.body if op is not select)
    return replace(loop, body=(block, *rest), advance=())


def _prefix(op: Op, select: SelectToken) -> Op:
    return replace(op, valid_length=select.accepted, axis=1) if isinstance(op, Emit) else op
