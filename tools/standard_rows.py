"""One row of docs/standard.md: a construct of the metadata standard and the modules that know it."""

from typing import NamedTuple


class Row(NamedTuple):
    """One construct. structs: models of `genai_compiler.read` whose fields it has; they say where it is read.

    read: further modules that read it. An empty stage needs a remark that says why.
    """

    construct: str
    structs: tuple[str, ...] = ()
    read: str = ""
    verified: str = ""
    planned: str = ""
    run: str = ""
    tests: str = ""
    remark: str = ""


FACT = "a fact for hosts; nothing that runs depends on it"
