"""`python -m tools.make_rules`: write docs/validation-rules.md, rule by rule where each is checked and tested.

Rules of documents and packages come from the tables of the checks themselves; those of reading, negotiation and run
time from the tables here, which a test holds against the sources.
"""

from pathlib import Path
from typing import NamedTuple

from genai_compiler.check.rules import CHECKED, OWNERS
from genai_compiler.read.negotiate import RULES as NEGOTIATED
from genai_compiler.read.rules import RULES as READ

PAGE = Path(__file__).resolve().parent.parent / "docs" / "validation-rules.md"
LAST = 348

LEVELS = (
    ("P", (1, 15)), ("J", (16, 23)), ("J, S", (24, 24)), ("P", (25, 28)), ("S", (29, 56)), ("R", (57, 68)),
    ("S", (69, 215)), ("L", (216, 228)), ("S", (229, 308)), ("N", (309, 310)), ("A", (311, 323)), ("R", (324, 345)),
    ("L", (346, 348)),
)  # fmt: skip
"""Level of the standard -> first and last rule number, in order."""


class Row(NamedTuple):
    """One rule: its codes, the module that reports it and the test that breaks it; or why neither is there."""

    codes: tuple[str, ...]
    module: str
    test: str
    remark: str = ""


_RUN = "tests/test_conformance.py"
_ROWS = "tests/runtime/test_row_rules.py"
RUNTIME: dict[str, Row] = {
    "V324": Row(("unknown-input",), "genai_runtime.inputs", _RUN),
    "V325": Row(("missing-input",), "genai_runtime.inputs", _RUN),
    "V326": Row(
        ("bad-literal", "literal-length"),
        "genai_compiler.plan.literals",
        "tests/plan/test_literals.py",
        "before a run, except the number of elements: `genai_runtime.inputs`",
    ),
    "V327": Row(("wrong-dtype", "wrong-rank", "wrong-shape", "symbol-conflict"), "genai_runtime.inputs", _RUN),
    "V328": Row(("wrong-rank", "empty-prompt"), "genai_runtime.inputs", _RUN),
    "V329": Row(
        ("loop-bound", "recurrence"),
        "genai_runtime.rows",
        _RUN,
        "a loop's bound; of a recurrence: `genai_runtime.cells`",
    ),
    "V330": Row(
        ("loop-predicate",),
        "genai_runtime.rows",
        "tests/property/test_findings.py",
        "a rank above 1: V249, before a run",
    ),
    "V332": Row(("recurrence",), "genai_runtime.cells", _RUN),
    "V333": Row(
        ("recurrence",), "genai_runtime.cells", _ROWS, "where a graph says no rank; else before a run, by V247"
    ),
    "V334": Row(("inactive-rows",), "genai_runtime.rows", _RUN),
    "V335": Row(("branch-case",), "genai_runtime.rows", "tests/test_flow_documents.py"),
    "V336": Row(("emit-length", "emit-rows", "emit-contract"), "genai_runtime.emission", _RUN),
    "V337": Row(("capacity",), "genai_runtime.cells", _RUN),
    "V338": Row(("bad-override",), "genai_runtime.sessions", _RUN),
    "V344": Row(("bad-checkpoint",), "genai_runtime.kept", "tests/runtime/test_checkpoint.py"),
    "V346": Row(("no-session-state",), "genai_runtime.kept", "tests/runtime/test_conversation.py"),
    "V347": Row(("conversation-too-long",), "genai_runtime.conversation", "tests/runtime/test_conversation.py"),
    "V348": Row(("committed-tokens",), "genai_runtime.publish", "tests/runtime/test_speculation.py"),
    "V339": Row(("row-selection",), "genai_runtime.row_selection", _ROWS),
    "V340": Row(("binding-without-source",), "genai_compiler.plan.build_steps", _ROWS, "before a run"),
    "V342": Row(("adapter",), "genai_runtime.adapters.registry", "tests/runtime/test_grammar.py"),
    "V343": Row(
        ("adapter-selection", "adapter-cache", "adapter-binding", "adapter-fallback"),
        "genai_runtime.lora.selection",
        "tests/lora/test_selection.py",
        "before the first step of a run",
    ),
}
"""Rules of a run that are reported, by the codes that a run's failures carry."""

OPEN = {
    "V123": "breaks with V230 or V241 only, which are reported instead; checking goes on",
    "V273": "no document breaks it; after every pass `plan.verify` holds the order of effects against the one before",
    "V331": "decided before anything runs, by V236",
    "V345": "retired: a call without a session id is a first turn",
}  # fmt: skip
"""Rules without a code of their own, and why."""

NOT_YET = "not implemented yet"


def level(number: int) -> str:
    """The level that the standard gives a rule."""
    return next(name for name, (first, last) in LEVELS if first <= number <= last)


def row(number: int) -> Row:
    """Where a rule stands."""
    rule = f"V{number:03}"
    reading = tuple(code for code, rules in READ.items() if rule in rules)
    if number <= 24:
        return Row(reading, "genai_compiler.read", _reading_test(number))
    if number == 25:
        return Row(("no-workflow",), "genai_compiler.read.load", "tests/check/test_conformance.py")
    if rule in CHECKED:
        return Row((CHECKED[rule].code,), OWNERS[rule], _checking_test(number))
    if rule in NEGOTIATED:
        test = "tests/runtime/audio/test_speech.py" if number == 341 else "tests/check/test_negotiate.py"
        return Row((NEGOTIATED[rule].code,), "genai_compiler.read.negotiate", test)
    return RUNTIME.get(rule, Row((), "", "", OPEN.get(rule, NOT_YET)))


def _reading_test(number: int) -> str:
    return {1: "tests/read/test_yaml.py", 23: "tests/read/test_hints.py"}.get(number, "tests/read/test_rules.py")


def _checking_test(number: int) -> str:
    if number <= 28:
        return "tests/check/test_artifacts.py"
    return "tests/check/test_admission.py" if number >= 311 else "tests/check/test_rules.py"


def page() -> str:
    """The whole page."""
    rows = [(number, row(number)) for number in range(1, LAST + 1)]
    missing = [f"V{number:03}" for number, each in rows if each.remark == NOT_YET]
    lines = [
        "# The rules of the metadata standard, one by one\n\n",
        "Written by `python -m tools.make_rules`. Numbers and levels are those of the standard, section 12: P parse\n",
        "and load, J schema, S structure, N negotiation, A admission against graphs, R run time, L added later. What\n",
        "a code means stands in [problems.md](problems.md). A message ends with the rule it speaks of.\n\n",
        f"{len(rows) - len(missing)} of {len(rows)} rules are answered for; not implemented yet: ",
        f"{', '.join(missing) or 'none'}.\n\n",
        "| rule | level | code | module | test | remark |\n|---|---|---|---|---|---|\n",
    ]
    for number, each in rows:
        codes = ", ".join(f"`{code}`" for code in each.codes)
        cells = (f"V{number:03}", level(number), codes, _code(each.module), _code(each.test), each.remark)
        lines.append("|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|\n")
    return "".join(lines)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
