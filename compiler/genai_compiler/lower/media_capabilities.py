"""Capabilities that a document of several models asks for, and that belong to a front end that makes tensors of media.

The models run without it: their inputs are given as tensors. What is missing is said, not refused.
"""

from collections.abc import Mapping

from genai_compiler.problem import Problem, Severity
from genai_compiler.read.composite import CompositeDocument
from genai_compiler.read.places import Places, format_path

_DONE = frozenset({"autoregressive_every_step_components", "loop_carried_state"})
"""What the lowered workflow does by its form."""

_IMAGES = ("image", "images go in as tensors that the caller makes")
_PLACES = ("positions", "positions beside media are tensors that the caller makes")
_TENSORS: Mapping[str, tuple[str, str]] = {
    "image_preprocessing_program": _IMAGES,
    "audio_preprocessing_program": ("audio", "sound goes in as tensors that the caller makes"),
    "packed_image_outputs": _IMAGES,
    "position_program": _PLACES,
    "multi_axis_positions": _PLACES,
}
"""Capability -> (what offers it, what is true where that is not there)."""


def media_capabilities(
    document: CompositeDocument, places: Places, offered: frozenset[str] = frozenset()
) -> tuple[tuple[str, ...], tuple[Problem, ...]]:
    """(the other capabilities, a warning for each that only a front end for media has). offered: what this one does."""
    others: list[str] = []
    problems: list[Problem] = []
    for at, each in enumerate(document.required_capabilities):
        if each in _TENSORS and (_TENSORS[each][0] in offered or _linear(document, each)):
            continue
        if each in _TENSORS:
            path = ("required_capabilities", at)
            what = f"'{each}' is not offered here: {_TENSORS[each][1]}"
            help = "give them to run(inputs)"
            problems.append(
                Problem("capability-missing", places.find(path), format_path(path), what, help, Severity.WARNING)
            )
        elif each not in _DONE:
            others.append(each)
    return tuple(others), tuple(problems)


def _linear(document: CompositeDocument, capability: str) -> bool:
    """Whether positions are asked for that are those of text."""
    positions = document.pipeline.positions
    return _TENSORS[capability] == _PLACES and positions is not None and positions.generation == "linear"
