"""Where a failure of a step is told to be: in the package's own document, not in the workflow that was made of it.

A package of another dialect is compiled by way of a workflow that its author has never seen. The manifest says for each
of that workflow's steps what its own document says there: `genai_config.json:16 model.decoder.filename`.
"""

from collections.abc import Mapping

from genai_runtime.problem import GenaiError

Origins = Mapping[str, str]
"""Path of a step -> the place in the package's own document; empty for a workflow that stands in it."""


def in_own_terms(failure: GenaiError, origins: Origins) -> GenaiError:
    """The failure with its place as the package's author knows it; the same one where nothing is known of it."""
    path, component, rest = failure.origin.partition(" (")
    if path not in origins:
        return failure
    place = f"{origins[path]}{component}{rest}"
    return type(failure)(failure.code, failure.what, help=failure.help, origin=place)
