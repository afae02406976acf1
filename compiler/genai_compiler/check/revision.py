"""Which revision of the format a document says it follows (standard, 1.2: free text, and it may be absent)."""

import re

from genai_compiler.problem import Problem, Severity
from genai_compiler.read.document import Metadata
from genai_compiler.read.history import LATEST
from genai_compiler.read.places import Places

_VERSION = re.compile(r"v?(\d{1,6})(?:\.(\d{1,6}))?(?:\.\d{1,6})*")


def check_revision(metadata: Metadata, places: Places) -> tuple[Problem, ...]:
    """A warning for a revision that is newer than this reader; what is no number says nothing."""
    found = _VERSION.fullmatch(metadata.schema_version or "")
    if found is None or (int(found[1]), int(found[2] or 0)) <= LATEST:
        return ()
    known = ".".join(map(str, LATEST))
    what = f"schema_version is '{metadata.schema_version}', and the newest known here is {known}: read as {known}"
    help = "a field may mean something else there; look for a newer genai-compile"
    return (
        Problem("newer-revision", places.find(("schema_version",)), "schema_version", what, help, Severity.WARNING),
    )
