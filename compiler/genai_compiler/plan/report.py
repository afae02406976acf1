"""Collecting the problems of one document while a plan is built from it."""

from genai_compiler.problem import Place, Problem
from genai_compiler.read.places import Places, format_path

Path = tuple[str | int, ...]
WORKFLOW: Path = ("pipeline", "workflow")


class Report:
    """Problems found so far, each at its place in the document."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self.problems: list[Problem] = []

    def error(self, code: str, path: Path, what: str, help: str = "") -> None:
        """The package is refused."""
        self.problems.append(Problem(code, self.where(path), format_path(path), what, help))

    def where(self, path: Path) -> Place:
        """File and line of a value of the document."""
        return self._places.find(path)
