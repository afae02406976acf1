"""Facts that compiler and runtime both state, because neither may import the other: they are the same."""

from dataclasses import fields
from importlib.metadata import entry_points
from typing import Any, get_args

import pytest
from genai_compiler.check import audio_program as audio
from genai_compiler.check import image_words
from genai_compiler.emit import manifest as written
from genai_compiler.emit import view
from genai_compiler.plan import audio_program, image_program, speculation
from genai_compiler.plan import state as planned
from genai_compiler.read import negotiate, ort_options, session_options, text_assembly
from genai_runtime import abi, binding, manifest, providers, state
from genai_runtime.adapters import registry
from genai_runtime.adapters.audio import log_mel, program, wav
from genai_runtime.adapters.image import limits
from genai_runtime.text_assembly import TRANSFORMS

STATED = (
    audio_program.AudioProgram,
    image_program.ImageOutput,
    image_program.ImagePatches,
    image_program.ImageProgram,
    image_program.ImageResize,
    image_program.ImageTiles,
    speculation.BudgetSpec,
    speculation.DraftSpec,
    planned.Slot,
)


def test_the_interface_of_generated_code() -> None:
    assert abi.ABI_VERSION == view.ABI_VERSION
    assert set(abi.__all__) == {"ABI_VERSION", *view.ALWAYS, *view.SOMETIMES}
    assert all(hasattr(abi, each) for each in abi.__all__)


def test_the_manifest() -> None:
    assert (manifest.FORMAT, manifest.SMALL_FILE) == (written.FORMAT, written.SMALL_FILE)
    assert tuple(binding.SESSION_ATTRIBUTES) == ort_options.ATTRIBUTES


def test_execution_providers() -> None:
    assert providers.SPELLINGS == session_options.PROVIDERS


def test_marks_of_a_slots_axes() -> None:
    assert (state.ROWS, state.GROWTH) == (planned.ROWS, planned.GROWTH)


@pytest.mark.parametrize("kind", STATED, ids=lambda kind: str(kind.__name__))
def test_constants_of_generated_code(kind: Any) -> None:
    """Generated code states them in the compiler's words, without the fields that are at their defaults."""
    theirs = getattr(abi, kind.__name__)
    assert [(each.name, each.default) for each in fields(kind)] == [
        (each.name, each.default) for each in fields(theirs)
    ]


def test_audio_programs() -> None:
    assert {op for op in audio.FIELDS if op in ("resample", "rescale", "zero_mean_unit_variance")} == set(
        program._STEPS
    )
    assert set(program._CONTENTS) == set(audio._DTYPES)
    assert (log_mel.RATE, log_mel.FFT, log_mel.HOP) == (audio.RATE, audio.FFT, audio.HOP)
    assert audio.MOST_SAMPLES == wav.MAX_SAMPLES


def test_text_transforms() -> None:
    kinds = {each.model_fields["kind"].default for each in get_args(get_args(text_assembly.Transform)[0])}
    assert kinds == set(TRANSFORMS)


def test_adapters_that_the_runtime_brings() -> None:
    assert set(registry.OURS) | registry.BY_SERVICE == negotiate.PROVIDED
    assert registry.GROUP == negotiate.ENTRY_POINTS
    assert not entry_points(group=registry.GROUP), "nothing of ours is found through an entry point"


def test_image_programs() -> None:
    assert (image_words.MAX_PIXELS, image_words.MAX_ELEMENTS) == (limits.MAX_PIXELS, limits.MAX_ELEMENTS)
