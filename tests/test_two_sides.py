"""Facts that compiler and runtime both state, because neither may import the other: they are the same."""

from dataclasses import fields
from importlib.metadata import entry_points
from typing import get_args

from genai_compiler.check import audio_program as audio
from genai_compiler.check import image_words
from genai_compiler.emit import manifest as written
from genai_compiler.emit import view
from genai_compiler.plan import audio_program, image_program
from genai_compiler.plan import state as planned
from genai_compiler.read import negotiate, ort_options, session_options, text_assembly
from genai_runtime import abi, binding, manifest, providers, state
from genai_runtime.adapters import registry
from genai_runtime.adapters.audio import log_mel, program, wav
from genai_runtime.adapters.image import limits
from genai_runtime.text_assembly import TRANSFORMS


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


def test_audio_programs() -> None:
    """Generated code states a program in the compiler's words; the runtime has the same class and bounds."""
    written_fields = [each.name for each in fields(audio_program.AudioProgram)]
    assert [each.name for each in fields(abi.AudioProgram)] == written_fields
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
    for name in ("ImageProgram", "ImageResize", "ImageTiles", "ImagePatches", "ImageOutput"):
        ours, theirs = getattr(image_program, name), getattr(abi, name)
        assert [(each.name, each.default) for each in fields(ours)] == [
            (each.name, each.default) for each in fields(theirs)
        ]
    assert (image_words.MAX_PIXELS, image_words.MAX_ELEMENTS) == (limits.MAX_PIXELS, limits.MAX_ELEMENTS)
