"""Whether a long prompt of one row goes in by several runs, as its package asks: decided once, from the plan's decoder.

What is asked is a default: a caller of the compiled package may ask for other chunks, or for none.
"""

from collections.abc import Iterable
from dataclasses import replace

from genai_compiler.plan.ir import Loop, Plan
from genai_compiler.plan.state import DecodeFacts, StateGroup
from genai_compiler.plan.uses import walk
from genai_compiler.problem import Problem, Severity
from genai_compiler.read.prompt_chunk import PromptChunk


def with_prompt_chunks(plan: Plan, asked: PromptChunk | None) -> tuple[Plan, tuple[Problem, ...]]:
    """The plan whose decoder takes prompts as the package asks, and what is to be said where it can't."""
    if asked is None:
        return plan, ()
    loops = any(isinstance(op, Loop) for op in walk(plan.body))
    why = undivided(plan.decoder, plan.groups) if loops else "the package generates nothing"
    why = why or ("" if takes_prompts(plan) else "prompts go to another graph")
    if plan.decoder is not None and not why:
        note = (
            f"prompt_chunks: prompts of one row above {asked.size} tokens go in by runs of {asked.size}: {asked.path}"
        )
        facts = replace(plan.decoder, chunk=asked.size)
        return replace(plan, decoder=facts, decisions=(*plan.decisions, note)), ()
    note = f"prompt_chunks: {asked.path} is {asked.size} and left alone: {why}"
    found = (_without_effect(asked, why),) if asked.setting else ()
    return replace(plan, decisions=(*plan.decisions, note)), found


def undivided(facts: DecodeFacts | None, groups: Iterable[StateGroup]) -> str:
    """Why prompts go in as they do whatever chunks one asks for, in words; "" where they may go in by chunks.

    The runtime's own conditions (genai_runtime.decoding: in_chunks), as far as the plan decides them.
    """
    if facts is None:
        return "its own steps say how a prompt runs"
    once = any(slot.once for group in groups if group.component == facts.component for slot in group.slots)
    reasons = (
        (facts.window is not None, "the package cuts prompts into windows of its own"),
        (facts.one_token, "the graph takes one token a run"),
        (facts.front is not None, "its tokens go through another graph first, a prompt as a whole"),
        (facts.pages is not None, "its caches are in pages, for rows that are packed"),
        (facts.shift is not None, "its caches move by what a run adds"),
        (bool(facts.prompt_component), "another graph runs with the prompt"),
        (facts.switched, "it takes other values with the prompt than later"),
        (bool(facts.left), "what its last run gives is read behind the loop, of a whole prompt where that is the last"),
        (once, "the first run makes what later ones read of an encoder"),
    )
    return next((why for holds, why in reasons if holds), "")


def takes_prompts(plan: Plan) -> bool:
    """Whether a loop starts from the request's tokens; else an encoder has these."""
    prompts = {each.name for each in plan.inputs if each.role == "prompt_tokens"}
    return any(carry.initial in prompts for op in walk(plan.body) if isinstance(op, Loop) for carry in op.carried)


def _without_effect(asked: PromptChunk, why: str) -> Problem:
    key = asked.path.rpartition(".")[2]
    what = f"{key} {asked.size} has no effect: {why}"
    return Problem("ignored-key", asked.where, asked.path, what, "remove it; the tokens are the same", Severity.WARNING)
