"""Where a step is told to be, by failures and traces: in the package's own document, by file, line and path.

A package of another dialect is compiled by way of a workflow that its author has never seen. The manifest says for each
of that workflow's steps what its own document says there: `genai_config.json:16 model.decoder.filename`. A graph that
was linked of several steps has the places of all of them, ", " between.
"""

from collections.abc import Mapping

from genai_runtime.problem import GenaiError

Origins = Mapping[str, str]
"""Path of a step, or `<path> (component 'name')`, -> its place in the package's own document; {} of older folders."""


def own_place(origin: str, component: str, origins: Origins) -> str:
    """Where a run of a component within a step stands; `origin` itself where nothing is known of it."""
    return origins.get(f"{origin} (component '{component}')") or origins.get(origin, origin)


def in_own_terms(failure: GenaiError, origins: Origins) -> GenaiError:
    """The failure with its place as the package's author knows it; the same one where nothing is known of it.

    It has the traceback of the first, so that the executor's line is seen: raise it from the first one's cause.
    """
    path, component, rest = failure.origin.partition(" (")
    within = failure.origin if failure.origin in origins else path
    if within not in origins:
        return failure
    first, *others = origins[within].split(", ")  # a linked graph's members: a message names the first
    place = f"{first}{f' and {len(others)} more' if others else ''}{component}{rest}"
    told = type(failure)(failure.code, failure.what, help=failure.help, origin=place)
    return told.with_traceback(failure.__traceback__)
