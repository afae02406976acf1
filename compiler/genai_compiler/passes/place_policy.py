"""Decide, for each way of drawing a token, whether the host or a graph does it: what costs less for this vocabulary.

Before:  decoder decoder: tokens input_ids (int64), logits logits (float32)
After:   decoder decoder: tokens input_ids (int64), logits logits (float32)
           tokens drawn by a graph: top_k+top_p, min_p

A draw is of one row, with the number that its generator gives. The most likely token, penalties and bans are the host's
(docs/decisions/0015). A caller of `load` may have it all one way or the other, so every graph goes into the folder.
"""

from dataclasses import replace

from genai_compiler.passes.policy_costs import WAYS, graph_costs_less
from genai_compiler.passes.profile import Profile
from genai_compiler.plan.ir import Plan


def place_policy(plan: Plan, profile: Profile) -> Plan:
    """The plan whose decoder says which draws are a graph's. A package with a sampler of its own stays as it is."""
    facts = plan.decoder
    if facts is None:
        return plan
    drawn = tuple(way for way in WAYS if graph_costs_less(way, facts.vocab_size))
    rest = [way for way in WAYS if way not in drawn]
    graph = f"a graph draws by {', '.join(drawn)}; " if drawn else ""
    host = f"the host by {', '.join(rest)}" if rest else "the host takes only the most likely one"
    note = f"place_policy: of {facts.vocab_size} scores {graph}{host}: what costs less where it was measured"
    return replace(plan, decoder=replace(facts, by_graph=drawn), decisions=(*plan.decisions, note))
