"""Plan -> Plan, in the order written here and nowhere else. Every pass is a pure function named like its file."""

from genai_compiler.passes.drop_dead_steps import drop_dead_steps
from genai_compiler.passes.hold_state import hold_state
from genai_compiler.passes.mark_last_reads import mark_last_reads
from genai_compiler.passes.peel_prompt import peel_prompt
from genai_compiler.passes.place_state import place_state
from genai_compiler.passes.profile import Pass
from genai_compiler.passes.speculate import speculate

PASSES: tuple[Pass, ...] = (drop_dead_steps, peel_prompt, place_state, hold_state, mark_last_reads, speculate)
