"""`genai-compile --explain CODE`: what a code means, which rules of the standard it stands for, where to look."""

import re
from collections.abc import Iterator

from genai_compiler.check.rules import CHECKED, rules_of
from genai_compiler.problem_page import problem_page
from genai_compiler.read.negotiate import RULES as NEGOTIATED
from genai_compiler.read.rules import RULES as READING
from genai_compiler.read.suggest import did_you_mean
from genai_compiler.rule_page import Answer, rule_page

REFERENCE = (
    "docs/problems.md has every code: what is wrong and the way out, or what a rule of the standard demands; "
    "docs/validation-rules.md has every rule"
)


def explain(code: str) -> tuple[bool, tuple[str, ...]]:
    """(known, lines to print). A code, or a rule such as V231: how it is answered for, then the codes it stands for."""
    rule = _rule_name(code)
    lines = tuple(_rule_lines(rule) if rule in known_rules() else _lines(code))
    if lines:
        return True, (*lines, REFERENCE)
    near = did_you_mean(code, known_codes() | known_rules())
    return False, (f"there is no code and no rule '{code}'", *filter(None, [near]), REFERENCE)


def known_codes() -> frozenset[str]:
    """Every code: of rules, of the reader, and all that the page of problems lists, the runtime's too."""
    rules = (*CHECKED.values(), *NEGOTIATED.values())
    return frozenset({*READING, *(each.code for each in rules), *problem_page()})


def known_rules() -> frozenset[str]:
    """Every rule: the standard's (V), and our own (G)."""
    return frozenset({*rule_page(), *CHECKED})


def _rule_name(code: str) -> str:
    """A rule as the pages spell it: `v4` is V004."""
    number = re.fullmatch(r"[vVgG]([0-9]{1,3})", code)
    return f"{code[0].upper()}{int(number[1]):03}" if number else code


def _rule_lines(rule: str) -> Iterator[str]:
    """How a rule is answered for, then each code that it is reported under."""
    # only a rule of our own is not on the page
    answer = rule_page().get(rule) or Answer("", (CHECKED[rule].code,), "", "")
    level = f" (level {answer.level})" if answer.level else ""
    told = f"reported as {', '.join(answer.codes)}" if answer.codes else "no code of its own"
    yield f"{rule}{level}: {told}{'; ' * bool(answer.remark)}{answer.remark}"
    if answer.place:
        yield f"  checked in {answer.place}"
    for code in answer.codes:
        yield from _lines(code)


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
