"""What can go wrong at run time, in the user's terms. Each has a stable code and, where there is one, a way out."""

import re

LONGEST = 300
"""Characters of a word that a message shows whole: no part of a path may be longer, and what is reads as noise."""
_ENDLESS = re.compile(rf"\S{{{LONGEST + 1},}}")


def printable(text: str) -> str:
    """A text for a terminal: characters that could move its cursor, colour it or turn its text around are escaped.

    Names of a package stand in messages, and a package is made by others. Lines after the first are indented, so that
    none can pass for a message of its own. Of an endless word (a file's name, say) both ends are shown.
    """
    if not text.isprintable():
        text = "".join(each if each.isprintable() else "\n    " if each == "\n" else repr(each)[1:-1] for each in text)
    return _ENDLESS.sub(lambda found: f"{found[0][:80]}...{found[0][-40:]}", text)


class GenaiError(Exception):
    """Base of all failures of this runtime.

    code: stable kebab-case name. origin: the document path of the step that failed, "" when none did.
    """

    def __init__(self, code: str, what: str, *, help: str = "", origin: str = "") -> None:
        self.code, self.what, self.help, self.origin = code, what, help, origin
        place = f"{printable(origin)}: " if origin else ""
        tail = f"\n  help: {printable(help)}" if help else ""
        super().__init__(f"{place}{code}: {printable(what)}{tail}")


class LoadError(GenaiError):
    """The compiled folder, or the package it refers to, is damaged, moved, changed or made for another ABI."""


class RequestError(GenaiError, ValueError):
    """The request can't be served as asked: an unknown input, a wrong dtype or shape, a value out of bounds."""


class NoOutput(RequestError, KeyError):
    """A result is asked for an output that it does not have: `no-output`."""

    __str__ = GenaiError.__str__  # a KeyError shows the repr


class ExecutionError(GenaiError, RuntimeError):
    """A step failed while the workflow ran: `origin` names it."""
