"""Which passes a compilation does without: to see what one of them does, and to hold the program against itself.

Only optimisations can be left out. `peel_prompt` can't: a decoder loop is written in its rotated form only. Nor can
`place_state` where a graph fixes how many positions its caches have and no number says where it writes: they can't
grow.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from genai_compiler.plan.ir import Plan
from genai_compiler.plan.state import PAGES, StateGroup
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
    """The plan that the other passes start from: it says what is left out, and that nobody drafts where that is.

    Raises CompileError `needed-pass` for one that this plan can't do without.
    """
    written = plan.decoder is not None and any(each.kind == "written" for each in plan.decoder.counts)
    fixed = next(filter(_is_fixed, plan.groups), None) if not written else None
    if fixed is not None and "place_state" in names:
        what = f"place_state can't be left out: the caches of '{fixed.component}' have a fixed size, and do not grow"
        raise CompileError([Problem("needed-pass", WITHOUT, "", what, "leave out other passes only")])
    found = plan.speculation
    if found is not None and found.drafting is not None and "speculate" in names:
        plan = replace(plan, speculation=replace(found, drafting=None, reason="compiled --without speculate"))
    notes = (f"{name}: left out, as --without asks" for name in sorted(set(names)))
    return replace(plan, decisions=(*plan.decisions, *notes))


def _is_fixed(group: StateGroup) -> bool:
    """Whether the graph takes a group at its full size only."""
    paged = any(PAGES in each.dims for each in group.slots)
    return group.storage != "shifted" and (group.capacity is not None or paged)
