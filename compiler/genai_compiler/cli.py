"""genai-compile: compile a package, or say everything that is wrong with it.

Exit codes: 0 done; 1 our fault (a bug: the message names the pass and shows the plan); 2 the package's or the command
line's fault; 3 interrupted. Problems go to stderr, the summary to stdout.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

EXIT_DONE, EXIT_BUG, EXIT_INPUT, EXIT_INTERRUPTED = 0, 1, 2, 3
MISSING = "genai-compile needs its '{extra}' extra ({module} is not installed): pip install 'genai-compile[{extra}]'"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    try:
        from genai_compiler.driver import STAGES

        return _run(_arguments(_parser(STAGES), STAGES, argv))
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("genai_"):
            raise
        print(MISSING.format(extra="compile", module=missing.name), file=sys.stderr)
        return EXIT_INPUT
    except KeyboardInterrupt:
        print("interrupted: nothing was written", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Who read our output has gone. Python flushes once more when it ends, and must find something to write to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_INTERRUPTED


def _arguments(
    parser: argparse.ArgumentParser, stages: Sequence[str], argv: Sequence[str] | None
) -> argparse.Namespace:
    """The command line, and `last`: the stage to stop after. `--check` goes as far as one can without writing."""
    found = parser.parse_args(argv)
    found.last = stages[-2] if found.check else found.stop_after or found.show or stages[-1]
    if found.show and stages.index(found.show) > stages.index(found.last):
        parser.error(f"--print {found.show}: that stage comes after {found.last}, the last one that runs")
    return found


def _parser(stages: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "genai-compile", description="Compile an ONNX generative-AI package into an executor.", epilog=__doc__
    )
    parser.add_argument(
        "package", type=Path, metavar="PACKAGE", help="folder with inference_metadata.yaml or genai_config.json"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="compiled folder (default: PACKAGE.compiled beside it)"
    )
    parser.add_argument("--check", action="store_true", help="report every problem and write nothing")
    parser.add_argument(
        "--stop-after", choices=stages, metavar="STAGE", help=f"stop early and write nothing: {', '.join(stages)}"
    )
    parser.add_argument("--print", choices=stages, metavar="STAGE", dest="show", help="print what a stage made")
    parser.add_argument("--bundle", action="store_true", help="copy the package in, so that the folder stands alone")
    parser.add_argument("--force", action="store_true", help="replace an output folder that is not a compiled one")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="how problems are written")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    from genai_compiler.driver import Options, compile_package
    from genai_compiler.problem import CompileError, InternalError
    from genai_compiler.summary import summary

    progress = sys.stderr if sys.stderr.isatty() and not arguments.quiet else None

    def trace(stage: str, text: str) -> None:
        if progress is not None:
            print(f"\r\033[K{stage}", end="", file=progress, flush=True)
        if stage == arguments.show:
            print(text, end="" if text.endswith("\n") else "\n")

    try:
        options = Options(arguments.bundle, arguments.force, arguments.last)
        compiled = compile_package(arguments.package, arguments.output, options, trace)
    except CompileError as refused:
        _print_problems(refused.problems, arguments.format)
        return EXIT_INPUT
    except InternalError as bug:
        print(
            f"{bug}\nThis is a bug of genai-compile, not of the package. The plan it had:\n{bug.plan_text}",
            file=sys.stderr,
        )
        return EXIT_BUG
    except OSError as failure:
        print(f"can't read or write: {failure}", file=sys.stderr)
        return EXIT_INPUT
    finally:
        if progress is not None:
            print("\r\033[K", end="", file=progress, flush=True)
    _print_problems(compiled.problems, arguments.format)
    if not arguments.quiet and not arguments.show and arguments.format == "text":
        print("\n".join(summary(compiled, arguments.package)))
    return EXIT_DONE


def _print_problems(problems: Sequence[object], form: str) -> None:
    from genai_compiler.problem import Problem, errors

    found = [each for each in problems if isinstance(each, Problem)]
    if form == "json":
        print(json.dumps([_as_data(each) for each in found], indent=2))
        return
    for each in found:
        print(each, file=sys.stderr)
    if errors(found):
        count = len(errors(found))
        print(f"{count} problem{'s' * (count > 1)}; nothing was written", file=sys.stderr)


def _as_data(problem: object) -> dict[str, object]:
    from genai_compiler.problem import Problem

    assert isinstance(problem, Problem)
    return {
        "code": problem.code,
        "severity": str(problem.severity),
        "file": problem.where.file,
        "line": problem.where.line,
        "column": problem.where.column,
        "path": problem.path,
        "what": problem.what,
        "help": problem.help,
    }
