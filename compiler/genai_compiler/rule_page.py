"""docs/validation-rules.md as data: how every rule of the standard is answered for, in the words of the page itself."""

from typing import NamedTuple

from genai_compiler.shipped import shipped


class Answer(NamedTuple):
    """One row of the page: the standard's level, the codes that report the rule, the module that does; or why none."""

    level: str
    codes: tuple[str, ...]
    place: str
    remark: str


def rule_page() -> dict[str, Answer]:
    """Rule, as `V004` -> its row. Raises FileNotFoundError."""
    text = (shipped("docs") / "validation-rules.md").read_text("utf-8")
    rows = (line.replace("`", "").split("|")[1:-1] for line in text.splitlines() if line.startswith("| V"))
    found: dict[str, Answer] = {}
    for rule, level, codes, place, _, remark in ([cell.strip() for cell in row] for row in rows):
        found[rule] = Answer(level, tuple(codes.split(", ")) if codes else (), place, remark)
    return found
