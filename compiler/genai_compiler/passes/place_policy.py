"""Decide, for each way of drawing a token, whether the host or a graph does it: what costs less for this vocabulary.

Before:  decoder decoder: tokens input_ids (int64), logits logits (float32)
After:   decoder decoder: tokens input_ids (int64), logits logits (float32)
           tokens drawn by a graph: top_k+top_p, min_p

A draw is of one row, with the number that its generator gives. The most likely token, penalties and bans are the host's
(docs/decisions/0015). A caller of `load` may have it all one way or the other, so every graph goes into the folder.
"""

from collections.abc import Mapping
from dataclasses import replace

from genai_compiler.costs import WAYS, Costs
from genai_compiler.passes.profile import Profile
from genai_compiler.plan.ir import Plan

SAVES = 0.85
"""A graph takes over where it costs at most so much of what the host does. In a decoder's loop caches are cold, both
sides take longer, and a smaller gain can't be seen there."""
MISSES: Mapping[str, float] = {"top_p": 0.25, "min_p": 0.02}
"""Share of draws whose cut keeps more tokens than the graph looks at: the host draws then, after the graph has run."""


def place_policy(plan: Plan, profile: Profile) -> Plan:
    """The plan whose decoder says which draws are a graph's. A package with a sampler of its own stays as it is."""
    facts = plan.decoder
    if facts is None:
        return plan
    drawn = tuple(way for way in WAYS if graph_costs_less(profile.costs, way, facts.vocab_size))
    rest = [way for way in WAYS if way not in drawn]
    graph = f"a graph draws by {', '.join(drawn)}; " if drawn else ""
    host = f"the host by {', '.join(rest)}" if rest else "the host takes only the most likely one"
    note = f"place_policy: of {facts.vocab_size} scores {graph}{host}: what costs less where it was measured"
    return replace(plan, decoder=replace(facts, by_graph=drawn), decisions=(*plan.decisions, note))


def graph_costs_less(costs: Costs, way: str, vocabulary: int) -> bool:
    """Whether a graph should draw a token of so many."""
    host = costs.draw(way, "host", vocabulary)
    return costs.draw(way, "graph", vocabulary) + MISSES.get(way, 0.0) * host < SAVES * host
