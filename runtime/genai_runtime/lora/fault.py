"""What can be wrong with an adapter's files."""

from genai_runtime.problem import GenaiError


class AdapterFault(GenaiError):
    """An adapter's file is no such file, or does not hold what the document says. The codes begin with `adapter-`."""
