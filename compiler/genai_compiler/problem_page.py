"""docs/problems.md as data: every code, what is wrong, and the way out, in the words of the page itself."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from genai_compiler.shipped import shipped


class Entry(NamedTuple):
    """One row of the page: the section it stands in, what is wrong and the way out, as plain text."""

    section: str
    what: str
    help: str


def problem_page() -> dict[str, list[Entry]]:
    """Code -> its rows; a code that several sections have stands in several. Raises FileNotFoundError."""
    text = (shipped("docs") / "problems.md").read_text("utf-8")
    found: dict[str, list[Entry]] = {}
    for code, entry in _rows(re.sub(r"<!-- rules.*end of rules -->", "", text, flags=re.DOTALL)):
        found.setdefault(code, []).append(entry)
    return found


def _rows(page: str) -> Iterator[tuple[str, Entry]]:
    section = ""
    for line in page.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line.startswith("| `"):
            codes, what, help = (_plain(cell) for cell in line.strip("|").split("|")[:3])
            yield from ((code, Entry(section, what, help)) for code in codes.split(", "))


def _plain(cell: str) -> str:
    """A cell without its marks: links keep their words, and the page of docs/ that they lead to."""
    named = re.sub(r"\[([^]]*)\]\(([a-z-]+\.md)[^)]*\)", r"\1 (docs/\2)", cell)
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", named).replace("`", "").strip()
