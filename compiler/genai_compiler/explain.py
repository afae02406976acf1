"""`genai-compile --explain CODE`: what a code means, which rules of the standard it stands for, where to look."""

from collections.abc import Iterator

from genai_compiler.check.rules import CHECKED, rules_of
from genai_compiler.problem_page import problem_page
from genai_compiler.read.negotiate import RULES as NEGOTIATED
from genai_compiler.read.rules import RULES as READING
from genai_compiler.read.suggest import did_you_mean

REFERENCE = "docs/problems.md lists every code with its way out; docs/validation-rules.md every rule"


def explain(code: str) -> tuple[bool, tuple[str, ...]]:
    """(known, lines to print). A code, or a rule number such as V231, which stands for its code."""
    named = CHECKED.get(code.upper())
    lines = tuple(_lines(named.code if named is not None else code))
    if lines:
        return True, (*lines, REFERENCE)
    return False, (f"no rule has the code '{code}'", *filter(None, [did_you_mean(code, known_codes())]), REFERENCE)


def known_codes() -> frozenset[str]:
    """Every code: of rules, of the reader, and all that the page of problems lists, the runtime's too."""
    rules = (*CHECKED.values(), *NEGOTIATED.values())
    return frozenset({*READING, *(each.code for each in rules), *problem_page()})


def _lines(code: str) -> Iterator[str]:
    demands = {**rules_of(code), **{rule: each for rule, each in NEGOTIATED.items() if each.code == code}}
    reading, rows = READING.get(code), problem_page().get(code, [])
    if demands or reading is not None or rows:
        yield code
    for section, what, help in rows:
        yield f"  {section}: {what}"
        yield f"    way out: {help}"
    for rule, each in sorted(demands.items()):
        yield f"  {rule}: {each.demands}"
    if reading is not None:
        yield f"  a fault of reading the document{': ' + ', '.join(reading) if reading else ', a bound of this reader'}"
