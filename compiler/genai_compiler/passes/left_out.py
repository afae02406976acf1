"""Which passes a compilation does without: to see what one of them does, and to hold the program against itself.

Only optimisations can be left out. `peel_prompt` can't: a decoder loop is written in its rotated form only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from genai_compiler.plan.ir import Plan
from genai_compiler.problem import CompileError, Place, Problem
from genai_compiler.read.suggest import did_you_mean, listed

NEEDED = frozenset({"peel_prompt"})
"""What every executor relies on."""
WITHOUT = Place("--without")


def check_left_out(names: Sequence[str], passes: Sequence[str]) -> None:
    """Raises CompileError for names that are no passes (unknown-pass) and passes that must run (needed-pass)."""
    problems = tuple(_problems(names, passes))
    if problems:
        raise CompileError(problems)


def _problems(names: Sequence[str], passes: Sequence[str]) -> Iterator[Problem]:
    optional = [each for each in passes if each not in NEEDED]
    for name in dict.fromkeys(names):
        if name not in passes:
            help = did_you_mean(name, optional)
            yield Problem("unknown-pass", WITHOUT, "", f"no pass is called {name!r}", help)
        elif name in NEEDED:
            what = f"{name} can't be left out: executors are written in the form that it makes"
            yield Problem("needed-pass", WITHOUT, "", what, listed(optional, "can be left out"))


def left_out(plan: Plan, names: Sequence[str]) -> Plan:
    """The plan that the other passes start from: it says what is left out, and that nobody drafts where that is."""
    found = plan.speculation
    if found is not None and found.drafting is not None and "speculate" in names:
        plan = replace(plan, speculation=replace(found, drafting=None, reason="compiled --without speculate"))
    notes = (f"{name}: left out, as --without asks" for name in sorted(set(names)))
    return replace(plan, decisions=(*plan.decisions, *notes))
