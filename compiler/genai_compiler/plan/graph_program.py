"""Graphs of the package that an adapter runs itself, in its own order and as often as it likes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GraphProgram:
    """components: whose graphs these are; the adapter knows them by these names."""

    components: tuple[str, ...]
