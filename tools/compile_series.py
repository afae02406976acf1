"""How compiling grows with a document: workflows of many steps, compiled, timed, and their function calls counted.

    python -m tools.compile_series [--shape chain|loops] [--steps 50 100 200 500 1000 2000] [--calls]

prints one JSON object a line: `shape`, `steps`, and `seconds` of CPU for one compilation, or with --calls `calls`:
Python and C functions called, which is the same on every machine. chain: in one loop so many invokes, each reading the
one before it. loops: a loop of four steps after the other, so many steps in all.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from genai_compiler.driver import Options, compile_package

from tools.fixtures.control_flow import FLOW, add_graph, below_graph
from tools.fixtures.document import (
    Document,
    application,
    cell,
    emit,
    invoke,
    literal,
    loop,
    output,
    package,
    tensor,
    write_document,
)

ONE, FLAG = tensor("int64", 1), tensor("bool", 1)
SERIES = (50, 100, 200, 500, 1000, 2000)


def chain(folder: Path, steps: int) -> None:
    """A loop whose total becomes total + steps * start with each turn, by one invoke a step."""
    names = ["total", *(f"sum.{at}" for at in range(1, steps))]
    body = [invoke("add", {"a": name, "b": "start"}, {"sum": f"sum.{at}"}) for at, name in enumerate(names, 1)]
    outer = loop(body, "package.true", "limit", {"total": f"sum.{steps}"})
    _write(folder, [outer, emit("total", "total")], {"total": cell(ONE, "start")})


def loops(folder: Path, steps: int) -> None:
    """Loops one after the other, each going on from where the one before it has ended."""
    body, state, last = list[Document](), dict[str, Document](), "start"
    for at in range(steps // 4):
        total, more = f"total.{at}", f"go.{at}"
        inner = [
            invoke("add", {"a": total, "b": "start"}, {"sum": f"{total}.next"}),
            invoke("below", {"value": f"{total}.next", "limit": "ceiling"}, {"below": f"{more}.next"}),
        ]
        body.append(loop(inner, more, "limit", {total: f"{total}.next", more: f"{more}.next"}))
        body.append(emit(total, "marks", "event"))
        state |= {total: cell(ONE, last), more: cell(FLAG, "package.true")}
        last = total
    _write(folder, [*body, emit(last, "total")], state)


def _write(folder: Path, steps: Sequence[Document], state: Document) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    components = {"add": add_graph(folder), "below": below_graph(folder)}
    named = {name: application(ONE, name) for name in ("start", "limit", "ceiling")}
    inputs = {**named, "package.true": literal(FLAG, True)}
    outputs = {"total": output(ONE), "marks": output(ONE, "event")}
    write_document(folder, package(FLOW, inputs, outputs, components, steps, state=state))


SHAPES = {"chain": chain, "loops": loops}


def seconds_of(folder: Path, out: Path) -> float:
    """CPU seconds of one compilation."""
    begun = time.process_time()
    compile_package(folder, out, Options(force=True))
    return time.process_time() - begun


def calls_of(folder: Path, out: Path) -> int:
    """Functions that one compilation calls, Python's and C's."""
    count = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        compile_package(folder, out, Options(force=True))
    finally:
        sys.setprofile(None)
    return count


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser("compile_series", description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="chain")
    parser.add_argument("--steps", type=int, nargs="+", default=SERIES)
    parser.add_argument("--calls", action="store_true")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as home:
        for at, steps in enumerate((given.steps[0], *given.steps)):
            folder, out = Path(home) / str(at) / "package", Path(home) / str(at) / "made"
            SHAPES[given.shape](folder, steps)
            found = {"calls": calls_of(folder, out)} if given.calls else {"seconds": round(seconds_of(folder, out), 3)}
            if at:  # the first one only imports what compiling needs
                print(json.dumps({"shape": given.shape, "steps": steps, **found}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
