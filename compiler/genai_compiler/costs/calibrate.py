"""genai-compile --calibrate: measure this machine's table of costs, and put it where it can be asked for."""

import os
import sys
from pathlib import Path

from genai_compiler.costs.files import USER_WORD, user_costs_file, write_costs
from genai_compiler.costs.table import Costs, at, shipped_costs
from genai_compiler.problem import CompileError, Place, Problem
from genai_compiler.writable import hold_file, hold_folder

SHOWN = 32768
"""The extent of which a summary speaks."""


def calibrate(output: Path | None, quiet: bool) -> tuple[str, ...]:
    """Measure, and write the table to a file (None: the user's own); lines for a person.

    Raises CompileError `onnxruntime-missing`, `bad-output`, `disk-failed`; OSError where it can't be written after all.
    """
    file = output if output is not None else user_costs_file(os.environ)
    _check_place(file)
    costs = _measured(sys.stderr.isatty() and not quiet)
    write_costs(costs, file)
    word = USER_WORD if output is None else str(file)
    return (*(_summary(costs)), f"written: {file}", f"genai-compile --costs {word} PACKAGE goes by it")


def _check_place(file: Path) -> None:
    """What can be known before measuring, which takes a while. Raises as calibrate."""
    above = next(each for each in file.absolute().parents if each.exists())
    if not above.is_dir():
        what = f"'{above}' is a file, so there can be no '{file}'"
        raise CompileError([Problem("bad-output", Place(str(file)), "", what, "name a file with -o")])
    if file.absolute().parent == above:
        hold_file(file, force=True)  # a table that was there is replaced
    else:
        hold_folder(file.absolute().parent)


def _measured(shown: bool) -> Costs:
    from genai_runtime import binding
    from genai_runtime.problem import LoadError

    try:
        binding.require()
    except LoadError as missing:
        raise CompileError([Problem(missing.code, Place("--calibrate"), "", missing.what, missing.help)]) from missing
    from genai_compiler.costs.measure import measured

    def progress(done: int, whole: int) -> None:
        if shown:
            print(f"\r\033[Kmeasuring {done * 100 // whole} %", end="", file=sys.stderr, flush=True)

    try:
        return measured(progress)
    finally:
        if shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _summary(costs: Costs) -> tuple[str, ...]:
    """The numbers that decide most, beside the shipped ones."""
    other = shipped_costs()
    rows = {
        "a session call": (costs.session.call, other.session.call),
        "an operator in a graph": (costs.node, other.node),
        "an invoke on the host": (costs.host.call, other.host.call),
        f"the largest of {SHOWN}, in a graph": (_largest(costs, True), _largest(other, True)),
        f"the largest of {SHOWN}, on the host": (_largest(costs, False), _largest(other, False)),
    }
    return tuple(f"{name:<36}{own:>8.2f} us (shipped: {them:.2f})" for name, (own, them) in rows.items())


def _largest(costs: Costs, graph: bool) -> float:
    found = costs.searches.ArgMax
    return at(found.graph if graph else found.host, SHOWN)
