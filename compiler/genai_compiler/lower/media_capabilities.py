"""Capabilities that a document of several models asks for, and that belong to a front end that makes tensors of media.

The models run without it: their inputs are given as tensors. What is missing is said, not refused.
"""

from collections.abc import Mapping

from genai_compiler.problem import Problem, Severity
from genai_compiler.read.composite import CompositeDocument
from genai_compiler.read.places import Places, format_path

_DONE = frozenset({"autoregressive_every_step_components", "loop_carried_state"})
"""What the lowered workflow does by its form."""

_TENSORS: Mapping[str, str] = {
    "image_preprocessing_program": "images go in as tensors that the caller makes",
    "audio_preprocessing_program": "sound goes in as tensors that the caller makes",
    "packed_image_outputs": "images go in as tensors that the caller makes",
    "position_program": "positions beside media are tensors that the caller makes",
    "multi_axis_positions": "positions beside media are tensors that the caller makes",
}


def media_capabilities(document: CompositeDocument, places: Places) -> tuple[tuple[str, ...], tuple[Problem, ...]]:
    """(the other capabilities, a warning for each that only a front end for media has)."""
    others: list[str] = []
    problems: list[Problem] = []
    for at, each in enumerate(document.required_capabilities):
        if each in _TENSORS:
            path = ("required_capabilities", at)
            what = f"'{each}' is not offered here: {_TENSORS[each]}"
            help = "give them to run(inputs)"
            problems.append(
                Problem("capability-missing", places.find(path), format_path(path), what, help, Severity.WARNING)
            )
        elif each not in _DONE:
            others.append(each)
    return tuple(others), tuple(problems)
