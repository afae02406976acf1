"""What is wrong with a package, in the user's terms: one `Problem` a fault, all of them in one `CompileError`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

LONGEST = 300
"""Characters of a word that a message shows whole: no part of a path may be longer, and what is reads as noise."""
_ENDLESS = re.compile(rf"\S{{{LONGEST + 1},}}")


def counted(number: int, noun: str) -> str:
    """`1 session`, `2 sessions`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def sized(count: int) -> str:
    """`812 bytes`, `20.5 kB`, `64.0 MB`: decimal units, and never a zero for what is something."""
    if count < 1000:
        return counted(count, "byte")
    return f"{count / 1e3:.1f} kB" if count < 1_000_000 else f"{count / 1e6:.1f} MB"


def printable(text: str) -> str:
    """A text for a terminal: characters that could move its cursor, colour it or turn its text around are escaped.

    Names of a package stand in messages, and a package is made by others. Lines after the first are indented, so that
    none can pass for a message of its own. Of an endless word (a file's name, say) both ends are shown.
    """
    if not text.isprintable():
        text = "".join(each if each.isprintable() else "\n    " if each == "\n" else repr(each)[1:-1] for each in text)
    return _ENDLESS.sub(lambda found: f"{found[0][:80]}...{found[0][-40:]}", text)


class Severity(StrEnum):
    """How much a problem matters: an error refuses the package, a warning is printed and compilation goes on."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, order=True)
class Place:
    """A position in a file of the package. `line` and `column` count from 1; 0 means unknown."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return self.file if not self.line else f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Problem:
    """One fault of a package.

    code: a stable, kebab-case name (listed in docs/problems.md).
    where: file and line of the value at fault.
    path: the document path, e.g. ``pipeline.workflow.steps[0].steps[3].inputs.logits``; "" when it is in no document.
    what: what is wrong. help: the way out ("did you mean ...").
    """

    code: str
    where: Place
    path: str
    what: str
    help: str = ""
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        head = f"{self.where} {self.path}".rstrip()
        kind = "" if self.severity is Severity.ERROR else "warning: "
        lines = [printable(head), f"  {kind}{self.code}: {printable(self.what)}"]
        if self.help:
            lines.append(f"  help: {printable(self.help)}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Missing(Problem):
    """Something that a document asks for and that is not offered here: no fault of the document (standard, 8.2).

    id: the capability, or the adapter as name@version. needed_by: what needs it, in words, and where that stands.
    """

    id: str = ""
    needed_by: str = ""


class CompileError(Exception):
    """The package can't be compiled. `problems` holds every fault found, ordered by place, errors and warnings."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = ordered(problems)
        super().__init__("\n".join(str(each) for each in self.problems))


class InternalError(Exception):
    """A bug of the compiler itself, never the user's fault: names the pass and carries the plan it had in hand."""

    def __init__(self, stage: str, what: str, plan_text: str = "") -> None:
        self.stage, self.plan_text = stage, plan_text
        super().__init__(f"internal error in {stage}: {what}")


def disk_problem(failure: OSError, where: object) -> Problem:
    """What the disk said, while what belongs at `where` was read or written."""
    help = "see that the disk has room and that the folder may be written, or name another place with -o"
    return Problem("disk-failed", Place(str(where)), "", f"can't read or write: {failure.strerror or failure}", help)


def ordered(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Problems by place, then path, then code; duplicates dropped."""
    unique = dict.fromkeys(problems)
    return tuple(sorted(unique, key=lambda p: (p.where, p.path, p.code, p.what)))


def errors(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Only those that refuse the package."""
    return tuple(each for each in problems if each.severity is Severity.ERROR)
