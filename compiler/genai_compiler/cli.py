"""genai-compile: compile a package, or say everything that is wrong with it.

Exit codes: 0 done; 1 our fault (a bug: the message names the pass and shows the plan); 2 the package's or the command
line's fault; 3 interrupted. Problems go to stderr, the summary to stdout.
"""

import argparse
import io
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genai_compiler.missing import library
from genai_compiler.problem import InternalError
from genai_compiler.problem_formats import FORMATS, as_json, as_sarif, separate
from genai_compiler.typed_words import Parser

if TYPE_CHECKING:
    from genai_compiler.memory import MemoryAsk
    from genai_compiler.problem import Problem

MOST = 1 << 31
"""Rows and tokens that --memory takes at most."""
DESCRIPTION = (
    "Compile an ONNX generative-AI package into an executor. `genai-compile convert PACKAGE` writes the workflow that "
    "is read from a package of another dialect as a document to edit; `genai-compile convert --help` has its options."
)
EXIT_DONE, EXIT_BUG, EXIT_INPUT, EXIT_INTERRUPTED = 0, 1, 2, 3
MISSING = "genai-compile needs its '{extra}' extra ({module} is not installed): pip install 'genai-compile[{extra}]'"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # names of a package may have characters that a terminal lacks
            stream.reconfigure(errors="backslashreplace")
    logging.getLogger("onnx_ir").addHandler(logging.NullHandler())  # what it says of odd graphs is in no user's terms
    try:
        from genai_compiler.driver import STAGES

        given = sys.argv[1:] if argv is None else argv
        if given[:1] == ["convert"] and (len(given) > 1 or not Path("convert").exists()):
            from genai_compiler.convert_command import convert

            return convert(given[1:])
        return _run(_arguments(_parser(STAGES), STAGES, argv))
    except ModuleNotFoundError as missing:
        return _missing(missing)
    except InternalError as bug:
        _say_bug(bug)
        return EXIT_BUG
    except MemoryError:
        what = "this machine's memory does not suffice for the package: nothing was written"
        print(
            f"{what}; give the process more, or compile on a larger machine: the folder can be moved", file=sys.stderr
        )
        return EXIT_INPUT
    except KeyboardInterrupt:
        print("interrupted: nothing was written", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # who read our output has gone
        _silence()
        return EXIT_INTERRUPTED
    except OSError as failure:
        _silence()
        with suppress(OSError):
            print(f"can't read or write: {failure}", file=sys.stderr)
        return EXIT_INPUT


def _missing(module: ModuleNotFoundError) -> int:
    """Say that a library is not installed, or that a module of ours is not there; returns the exit code."""
    name = library(module)
    if not name:
        what = f"a module is missing, {module.name}: this is no fault of the package. Install genai-compile again"
        print(what, "".join(traceback.format_exception(module)), sep="\n", file=sys.stderr)
        return EXIT_BUG
    print(MISSING.format(extra="compile", module=name), file=sys.stderr)
    return EXIT_INPUT


def _say_bug(bug: InternalError) -> None:
    had = f" The plan it had:\n{bug.plan_text}" if bug.plan_text else ""
    print(
        f"{bug}\nThis is a bug of genai-compile, not of the package.{had}",
        "".join(traceback.format_exception(bug)),
        sep="\n",
        file=sys.stderr,
    )


def _silence() -> None:
    """Python flushes once more when it ends: let that find something to write to, when stdout takes nothing more."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_closed_streams() -> None:
    """Give a closed standard stream (`<&-`) the null device: Python then has None there, and print goes elsewhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def _arguments(parser: Parser, stages: Sequence[str], argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line, and `last`: the stage to stop after. `--check` goes as far as one can without writing."""
    found = parser.parsed(argv)
    if found.calibrate:
        _check_calibrate(parser, found)
    elif found.explain is None and found.package is None and not found.version:
        parser.error("name a package folder")
    if not found.artifacts and (found.bundle or found.show == stages[-1]):
        parser.error("--no-artifacts makes no executor: there is nothing to --bundle, and no stage 'emit' to --print")
    if found.strict and not found.artifacts:
        parser.error("--strict looks into the graphs: it can't go with --no-artifacts")
    if found.show and found.format != "text":
        parser.error(f"--print writes a stage as text, --format {found.format} writes data: ask for one of the two")
    _check_memory(parser, found)
    if found.store and (found.check or found.show or found.stop_after or not found.artifacts):
        parser.error("--store-sessions writes into the compiled folder: it can't go with what writes none")
    if found.store and found.memory and found.output is None:
        parser.error("--store-sessions writes into the compiled folder: with --memory, name it with -o")
    only = found.check or (found.memory and found.output is None and not found.show and not found.stop_after)
    found.last = stages[-2] if only else found.stop_after or found.show or stages[-1]
    if found.show and stages.index(found.show) > stages.index(found.last):
        parser.error(f"--print {found.show}: that stage comes after {found.last}, the last one that runs")
    return found


def _check_calibrate(parser: argparse.ArgumentParser, found: argparse.Namespace) -> None:
    """--calibrate measures and leaves."""
    if found.package is not None or found.costs is not None or found.check or found.show or found.memory:
        parser.error("--calibrate measures this machine and compiles nothing: it goes with -o FILE and -q alone")


def _lengths(found: argparse.Namespace) -> "MemoryAsk":
    from genai_compiler.memory import MemoryAsk

    return MemoryAsk(found.batch, found.prompt, found.context, found.prefill_chunk)


def _check_memory(parser: argparse.ArgumentParser, found: argparse.Namespace) -> None:
    """What goes with --memory, and what without it has no effect."""
    lengths = {"--batch": found.batch, "--prompt": found.prompt, "--context": found.context}
    lengths["--prefill-chunk"] = found.prefill_chunk
    given = [name for name, value in lengths.items() if value is not None]
    if given and not found.memory:
        parser.error(f"{given[0]} says what --memory predicts for: give --memory as well")
    if not found.memory:
        return
    if not found.artifacts or found.format == "sarif" or found.show or found.stop_after:
        parser.error(
            "--memory looks at the whole plan and its graphs: it can't go with --no-artifacts, --print, "
            "--stop-after or --format sarif"
        )
    for name in given:
        least = 0 if name == "--prefill-chunk" else 1
        if not least <= lengths[name] <= MOST:
            parser.error(f"{name} takes a number from {least} to {MOST}")
    if found.prompt is not None and found.context is not None and found.prompt > found.context:
        parser.error("--context counts the prompt as well: it can't be below --prompt")


def _parser(stages: Sequence[str]) -> Parser:
    parser = Parser("genai-compile", description=DESCRIPTION, epilog=__doc__)
    parser.add_argument(
        "package",
        nargs="?",
        type=Path,
        metavar="PACKAGE",
        help="folder with inference_metadata.yaml or genai_config.json, or with graphs beside a config.json",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="compiled folder (default: PACKAGE.compiled beside it)"
    )
    parser.add_argument("--check", action="store_true", help="report every problem and write nothing")
    parser.add_argument(
        "--stop-after", choices=stages, metavar="STAGE", help=f"stop early and write nothing: {', '.join(stages)}"
    )
    parser.add_argument("--print", choices=stages, metavar="STAGE", dest="show", help="print what a stage made")
    parser.add_argument(
        "--no-artifacts",
        action="store_false",
        dest="artifacts",
        help="plan a package whose files are absent, or a document alone: prints the plan (-o: writes plan.txt only)",
    )
    parser.add_argument(
        "--hints",
        type=Path,
        metavar="FILE",
        help="an execution_hints.json: advice on where to run; it changes no result",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="PASS",
        help="leave an optimisation out, e.g. fuse_islands (repeatable); it changes no result",
    )
    parser.add_argument(
        "--form",
        action="append",
        default=[],
        metavar="[COMPONENT=]FORM",
        help="how a component runs: fused, own (session) or host; alone: all others (repeatable); it changes no result",
    )
    parser.add_argument(
        "--costs",
        metavar="FILE",
        help="the table of costs that forms are chosen by: a file, 'user' or 'shipped' (default: $GENAI_COMPILE_COSTS)",
    )
    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="measure this machine's table of costs, for --costs user; -o FILE puts it elsewhere",
    )
    parser.add_argument(
        "--graph",
        action="append",
        metavar="FILE",
        help="the graph to take of a folder that declares none; twice for an encoder and its decoder",
    )
    parser.add_argument("--strict", action="store_true", help="also refuse what onnxruntime-genai would not load")
    parser.add_argument("--bundle", action="store_true", help="copy the package in, so that the folder stands alone")
    parser.add_argument(
        "--store-sessions",
        action="store_true",
        dest="store",
        help="store graphs as this machine's ONNX Runtime optimises them: loading here is faster, elsewhere the same",
    )
    parser.add_argument("--force", action="store_true", help="replace an output folder that is not a compiled one")
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="how problems are written")
    parser.add_argument(
        "--memory",
        action="store_true",
        help="predict the memory of a process that runs it, in parts and at its peak (writes nothing without -o)",
    )
    parser.add_argument("--batch", type=int, metavar="N", help="with --memory: rows of a request (1)")
    parser.add_argument("--prompt", type=int, metavar="N", help="with --memory: tokens of the prompt")
    parser.add_argument("--context", type=int, metavar="N", help="with --memory: tokens of prompt and output together")
    parser.add_argument("--prefill-chunk", type=int, metavar="N", help="with --memory: tokens of the prompt in a run")
    parser.add_argument("--version", action="store_true", help="print the version and leave")
    parser.add_argument("--explain", metavar="CODE", help="say what a problem's code, or a rule such as V231, means")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    from genai_compiler.costs.files import chosen_costs
    from genai_compiler.driver import Options, compile_package
    from genai_compiler.memory_report import memory_data, memory_lines
    from genai_compiler.passes.asked_forms import asked_forms
    from genai_compiler.plan.text import plan_text
    from genai_compiler.problem import CompileError, disk_problem
    from genai_compiler.summary import summary

    if arguments.version:
        return _version()
    if arguments.explain is not None:
        return _explain(arguments.explain)
    if arguments.calibrate:
        return _calibrate(arguments)
    progress = sys.stderr if sys.stderr.isatty() and not arguments.quiet else None

    def trace(stage: str, text: str) -> None:
        if progress is not None:
            print(f"\r\033[K{stage}", end="", file=progress, flush=True)
        if stage == arguments.show:
            print(text, end="" if text.endswith("\n") else "\n")

    try:
        made = arguments.artifacts, None, arguments.hints, tuple(arguments.without), arguments.graph, arguments.strict
        ask = _lengths(arguments) if arguments.memory else None
        forms, costs = asked_forms(arguments.form), chosen_costs(arguments.costs, os.environ)
        write = not (arguments.show or arguments.stop_after)
        options = Options(
            arguments.bundle, arguments.force, arguments.last, *made, ask, forms, costs, write, arguments.store
        )
        compiled = compile_package(arguments.package, arguments.output, options, trace)
    except CompileError as refused:
        _print_problems(refused.problems, arguments.format)
        return EXIT_INPUT
    except OSError as failure:  # of the disk; a closed pipe is no matter of the package
        if isinstance(failure, BrokenPipeError):
            raise
        _print_problems([disk_problem(failure, arguments.output or arguments.package)], arguments.format)
        return EXIT_INPUT
    finally:
        if progress is not None:
            print("\r\033[K", end="", file=progress, flush=True)
    try:
        memory = memory_data(compiled.memory) if compiled.memory is not None else None
        _print_problems(compiled.problems, arguments.format, memory)
        plans = not arguments.artifacts and not arguments.check and arguments.output is None and not arguments.show
        if plans and compiled.plan is not None and arguments.format == "text":
            print(plan_text(compiled.plan), end="")
        elif not arguments.quiet and not arguments.show and arguments.format == "text":
            print("\n".join(summary(compiled, arguments.package)))
        if compiled.memory is not None and arguments.format == "text":
            print("\n".join(memory_lines(compiled.memory)))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as failure:
        done = f"'{compiled.out}' is written, but this report" if compiled.out is not None else "the report"
        raise OSError(f"{done} can't be: {failure}") from failure
    return EXIT_DONE


def _print_problems(problems: "Sequence[Problem]", form: str, memory: dict[str, Any] | None = None) -> None:
    from genai_compiler.driver import compiler_version
    from genai_compiler.problem import errors

    if form != "text":
        print(as_json(problems, memory) if form == "json" else as_sarif(problems, compiler_version()))
        return
    faults, missing = separate(problems)
    for each in faults:
        print(each, file=sys.stderr)
    if missing:
        print("not offered here:", file=sys.stderr)
    for each in missing:
        print(each, file=sys.stderr)
    if errors(problems):
        bare = [each.code for each in errors(problems) if not each.help]
        if bare:
            print(f"genai-compile --explain {bare[0]} says what it means", file=sys.stderr)
        print(f"{_counted(len(errors(faults)), len(missing))}; nothing was written", file=sys.stderr)


def _counted(faults: int, missing: int) -> str:
    """`2 problems, 1 missing capability`, without what is 0."""
    parts = [f"{faults} problem{'s' * (faults > 1)}"] if faults else []
    return ", ".join(parts + ([f"{missing} missing capabilit{'ies' if missing > 1 else 'y'}"] if missing else []))


def _version() -> int:
    from genai_compiler.driver import compiler_version

    print(f"genai-compile {compiler_version()}")
    return EXIT_DONE


def _calibrate(arguments: argparse.Namespace) -> int:
    from genai_compiler.costs.calibrate import calibrate
    from genai_compiler.problem import CompileError, disk_problem

    try:
        lines = calibrate(arguments.output, arguments.quiet)
    except CompileError as refused:
        _print_problems(refused.problems, arguments.format)
        return EXIT_INPUT
    except OSError as failure:
        _print_problems([disk_problem(failure, arguments.output or Path("the table of costs"))], arguments.format)
        return EXIT_INPUT
    if not arguments.quiet:
        print("\n".join(lines))
    return EXIT_DONE


def _explain(code: str) -> int:
    from genai_compiler.explain import explain

    known, lines = explain(code)
    print("\n".join(lines), file=sys.stdout if known else sys.stderr)
    return EXIT_DONE if known else EXIT_INPUT
