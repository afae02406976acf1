"""One broken rule, before it becomes a Problem; and what a rule is called."""

from collections.abc import Iterator
from typing import NamedTuple

Path = tuple[str | int, ...]
WORKFLOW: Path = ("pipeline", "workflow")
COMPONENTS: Path = (*WORKFLOW, "components")
STATE: Path = (*WORKFLOW, "state")
GROUPS: Path = (*WORKFLOW, "serving", "state_service", "groups")


class Rule(NamedTuple):
    """The stable code of a rule's problems, and what the rule demands, in one sentence."""

    code: str
    demands: str


Rules = dict[str, Rule]
"""Rule number -> rule, of one module."""


class Fault(NamedTuple):
    """A broken rule at a place of the document. what: the fault in the user's terms; help: the way out, or ""."""

    rule: str
    path: Path
    what: str
    help: str = ""


Faults = Iterator[Fault]


def blank(text: str | None) -> bool:
    """Whether a text says nothing."""
    return text is None or not text.strip()
