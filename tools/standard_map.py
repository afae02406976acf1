"""Where each construct of the metadata standard is implemented: the table behind docs/standard.md.

Names are modules: `check.loops` of the compiler, `rt.rows` of the runtime, `plan.types:type_of` a function.
`tools.make_standard` writes the page; tests/test_standard_page.py holds every name, every struct and every capability
against the sources.
"""

from tools.standard_services import SERVICES
from tools.standard_workflow import WORKFLOW

SECTIONS = {**WORKFLOW, **SERVICES}

LATER: frozenset[str] = frozenset()
"""Modules that are awaited: the page marks them. None is."""

NEVER, AUTHOR = "never", "when an author lists it"
CAPABILITIES: dict[str, str] = {
    **dict.fromkeys(
        (
            "kv_cache",
            "grouped_query_attention",
            "multi_head_attention",
            "prefix_cache",
            "continuous_batching",
            "control_flow_loop",
        ),
        NEVER,
    ),
    **dict.fromkeys(
        (
            "image_preprocessing_program",
            "packed_image_outputs",
            "position_program",
            "multi_axis_positions",
            "loop_carried_state",
            "dual_sequence_inputs",
        ),
        AUTHOR,
    ),
    "workflow_ssa": "by every workflow",
    "linear_effects": "`effects`; a component with effects; a loop that carries or emits below its steps; a branch "
    "with an emit, an effectful invoke or a carrying loop in it",
    "serving_service_contract": "`serving`",
    "parameter_adapters": "`adapters`; a component of the parameter-overlay contract",
    "heterogeneous_adapter_batching": "`adapters`; an input with an `adapter_*` role",
    "session_state_lease": "a cell of scope `session`",
    "bounded_state_recurrence": "a cell of recurrence `bounded`",
    "advisory_state": "a cell of class `advisory`",
    "adaptive_proposal_budget": "a component of that contract",
    "grammar_guidance_adapter": "a component of the grammar-guidance contract",
    "telemetry_adapter": "a component of the telemetry contract",
    "nested_control_flow": "a loop or a branch",
    "loop_induction_values": "a loop with `iteration`",
    "typed_emit": "an emit",
    "streaming_emit": "an emit of mode `event`",
    "emit_valid_length": "an emit with `valid_length`",
    "input_presence": "an input with `present_as`",
    "explicit_transfer": NEVER,
}
"""The catalogue of 8.1: capability -> what in a document implies it."""
