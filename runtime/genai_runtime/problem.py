"""What can go wrong at run time, in the user's terms. Each has a stable code and, where there is one, a way out."""


class GenaiError(Exception):
    """Base of all failures of this runtime.

    code: stable kebab-case name. origin: the document path of the step that failed, "" when none did.
    """

    def __init__(self, code: str, what: str, *, help: str = "", origin: str = "") -> None:
        self.code, self.what, self.help, self.origin = code, what, help, origin
        place = f"{origin}: " if origin else ""
        tail = f"\n  help: {help}" if help else ""
        super().__init__(f"{place}{code}: {what}{tail}")


class LoadError(GenaiError):
    """The compiled folder, or the package it refers to, is damaged, moved, changed or made for another ABI."""


class RequestError(GenaiError, ValueError):
    """The request can't be served as asked: an unknown input, a wrong dtype or shape, a value out of bounds."""


class ExecutionError(GenaiError, RuntimeError):
    """A step failed while the workflow ran: `origin` names it."""
