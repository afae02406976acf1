"""Facts that compiler and runtime both state, because neither may import the other: they are the same."""

from importlib.metadata import entry_points

from genai_compiler.emit import manifest as written
from genai_compiler.emit import view
from genai_compiler.plan import state as planned
from genai_compiler.read import negotiate, ort_options, session_options
from genai_runtime import abi, binding, manifest, providers, state
from genai_runtime.adapters import registry


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


def test_adapters_that_the_runtime_brings() -> None:
    assert set(registry.OURS) | registry.BY_SERVICE == negotiate.PROVIDED
    assert registry.GROUP == negotiate.ENTRY_POINTS
    assert not entry_points(group=registry.GROUP), "nothing of ours is found through an entry point"
