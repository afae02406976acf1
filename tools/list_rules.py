"""`python -m tools.list_rules`: write the rules that the compiler checks into docs/problems.md."""

import re
import sys
from pathlib import Path

from genai_compiler.check.rules import CHECKED
from genai_compiler.read.negotiate import RULES as NEGOTIATED

PAGE = Path(__file__).resolve().parent.parent / "docs" / "problems.md"
BLOCK = re.compile(r"(<!-- rules: [^\n]*-->\n).*(<!-- end of rules -->\n)", re.DOTALL)


def rules_table() -> str:
    """One row a rule, by code and then by number."""
    rows = sorted((each.code, rule, each.demands) for rule, each in {**CHECKED, **NEGOTIATED}.items())
    lines = (f"| `{code}` | {rule} | {text} |\n" for code, rule, text in rows)
    return "".join(("| code | rule | demand |\n|---|---|---|\n", *lines))


def page_with_rules(page: str) -> str:
    """The page with a current table."""
    table = rules_table()
    return BLOCK.sub(lambda found: f"{found[1]}\n{table}\n{found[2]}", page)


if __name__ == "__main__":
    PAGE.write_text(page_with_rules(PAGE.read_text("utf-8")), "utf-8")
    sys.exit(0)
