"""Plan -> Plan, in the order written here and nowhere else. Every pass is a pure function named like its file."""

from genai_compiler.passes.choose_forms import choose_forms
from genai_compiler.passes.drop_dead_steps import drop_dead_steps
from genai_compiler.passes.feed_lengths import feed_lengths
from genai_compiler.passes.fuse_islands import fuse_islands
from genai_compiler.passes.gather_columns import gather_columns
from genai_compiler.passes.hoist_selection import hoist_selection
from genai_compiler.passes.hold_state import hold_state
from genai_compiler.passes.keep_results import keep_results
from genai_compiler.passes.link_readers import link_readers
from genai_compiler.passes.mark_last_reads import mark_last_reads
from genai_compiler.passes.peel_prompt import peel_prompt
from genai_compiler.passes.place_policy import place_policy
from genai_compiler.passes.place_state import place_state
from genai_compiler.passes.profile import Pass
from genai_compiler.passes.prove_extents import prove_extents
from genai_compiler.passes.select_last import select_last
from genai_compiler.passes.speculate import speculate
from genai_compiler.passes.split_opening import split_opening
from genai_compiler.passes.use_numbers import use_numbers

PASSES: tuple[Pass, ...] = (
    drop_dead_steps,
    peel_prompt,
    select_last,
    place_state,
    feed_lengths,
    hold_state,
    prove_extents,
    choose_forms,
    fuse_islands,
    link_readers,
    hoist_selection,
    keep_results,
    use_numbers,
    mark_last_reads,
    place_policy,
    speculate,
    gather_columns,
    split_opening,
)
