"""A module that is not there: a library that an extra brings, or a fault of ours."""

import sys

_OURS = ("genai_compiler", "genai_runtime")


def library(missing: ModuleNotFoundError) -> str:
    """The library that a missing module belongs to; "" where it is one of ours, or of Python's own."""
    name = (missing.name or "").partition(".")[0]
    return "" if name in _OURS or name in sys.stdlib_module_names else name
