"""Every rule that documents and packages are checked for: its code, its sentence and the module that checks it."""

from types import ModuleType

from genai_compiler.check import (
    artifacts,
    audio_program,
    branches,
    capabilities,
    components,
    contracts_io,
    effects_rows,
    emits,
    generation_profiles,
    geometry,
    graph_contracts,
    group_ports,
    groups,
    image_program,
    image_shapes,
    image_values,
    loops,
    lora_artifacts,
    lora_targets,
    preprocessing,
    replacement,
    rollback,
    serving,
    sessions,
    speculative,
    state_cells,
    steps,
)
from genai_compiler.check.fault import Rule, Rules

MODULES: tuple[ModuleType, ...] = (
    artifacts, generation_profiles, preprocessing, image_program, image_values, image_shapes, audio_program,
    lora_targets, lora_artifacts, contracts_io, components, effects_rows,
    state_cells, sessions, groups, group_ports, serving, steps, loops, branches, emits, capabilities, speculative,
    rollback, graph_contracts, replacement, geometry,
)  # fmt: skip


def _rules_of(module: ModuleType) -> Rules:
    found: Rules = module.RULES
    return found


CHECKED: Rules = {rule: each for module in MODULES for rule, each in _rules_of(module).items()}
"""Rule number -> its code and what it demands."""

OWNERS: dict[str, str] = {rule: module.__name__ for module in MODULES for rule in _rules_of(module)}
"""Rule number -> the module that checks it."""


def rules_of(code: str) -> dict[str, Rule]:
    """Every rule whose problems carry this code."""
    return {rule: each for rule, each in sorted(CHECKED.items()) if each.code == code}
