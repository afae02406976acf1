"""The command line of genai-compile: its options in groups, and what can't go together."""

import argparse
from collections.abc import Sequence

from genai_compiler.problem_formats import FORMATS
from genai_compiler.typed_words import Parser, named, path

MOST = 1 << 31
"""Rows and tokens that --memory takes at most."""
_USAGE = """%(prog)s PACKAGE [-o DIR] [OPTION ...]
       %(prog)s convert PACKAGE [-o FILE] [OPTION ...]"""
_DESCRIPTION = """Compile an ONNX generative-AI package into an executor, which genai-run runs.

genai-compile convert writes the workflow that is read from a package of another dialect as a document to edit;
genai-compile convert --help has its options."""
_EXIT_CODES = """Exit codes: 0 done; 1 our fault (a bug: the message names the pass and shows the plan); 2 the package's
or the command line's fault; 3 interrupted. Problems go to stderr, the summary to stdout."""
_EXAMPLES = {
    "what is written": "genai-compile package/ -o made/ --bundle",
    "looking without compiling": "genai-compile package/ --check --format json",
    "how it is compiled": "genai-compile package/ --strict --without fuse_islands",
    "memory": "genai-compile package/ --memory --prompt 1000 --context 1200",
    "what is told": "genai-compile --explain missing-file",
}
"""Group of options -> a command that uses some of them."""


def parse(stages: Sequence[str], argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line, and `last`: the stage to stop after. `--check` goes as far as one can without writing.

    stages: names for --stop-after and --print. Leaves with exit code 2 when it is no command line.
    """
    parser = _parser(stages)
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
    parser = Parser(
        "genai-compile",
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    written, looking, how, memory, told = (
        parser.add_argument_group(title, f"for example: {example}") for title, example in _EXAMPLES.items()
    )
    _add_written(written)
    _add_looking(looking, stages)
    _add_how(how)
    _add_memory(memory)
    _add_told(told)
    return parser


def _add_written(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "package",
        nargs="?",
        type=path,
        metavar="PACKAGE",
        help="folder with inference_metadata.yaml or genai_config.json, or with graphs beside a config.json",
    )
    group.add_argument(
        "-o", "--output", type=path, metavar="DIR", help="compiled folder (default: PACKAGE.compiled beside it)"
    )
    group.add_argument("--bundle", action="store_true", help="copy the package in, so that the folder stands alone")
    group.add_argument(
        "--store-sessions",
        action="store_true",
        dest="store",
        help="store graphs as this machine's ONNX Runtime optimises them: loading here is faster, elsewhere the same",
    )
    group.add_argument("--force", action="store_true", help="replace an output folder that is not a compiled one")


def _add_looking(group: argparse._ArgumentGroup, stages: Sequence[str]) -> None:
    group.add_argument("--check", action="store_true", help="report every problem and write nothing")
    group.add_argument(
        "--stop-after", choices=stages, metavar="STAGE", help=f"stop early and write nothing: {', '.join(stages)}"
    )
    group.add_argument("--print", choices=stages, metavar="STAGE", dest="show", help="print what a stage made")
    group.add_argument(
        "--no-artifacts",
        action="store_false",
        dest="artifacts",
        help="plan a package whose files are absent, or a document alone: prints the plan (-o: writes plan.txt only)",
    )


def _add_how(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--graph",
        action="append",
        metavar="FILE",
        help="the graph to take of a folder that declares none; again for each other that belongs to it",
    )
    group.add_argument("--strict", action="store_true", help="also refuse what onnxruntime-genai would not load")
    group.add_argument(
        "--hints",
        type=path,
        metavar="FILE",
        help="an execution_hints.json: advice on where to run; it changes no result",
    )
    group.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="PASS",
        help="leave an optimisation out, e.g. fuse_islands (repeatable); it changes no result",
    )
    group.add_argument(
        "--form",
        action="append",
        default=[],
        metavar="[COMPONENT=]FORM",
        help="how a component runs: fused, own (session) or host; alone: all others (repeatable); it changes no result",
    )
    group.add_argument(
        "--costs",
        type=named,
        metavar="FILE",
        help="the table of costs that forms are chosen by: a file, 'user' or 'shipped' (default: $GENAI_COMPILE_COSTS)",
    )
    group.add_argument(
        "--calibrate",
        action="store_true",
        help="measure this machine's table of costs, for --costs user; -o FILE puts it elsewhere",
    )


def _add_memory(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--memory",
        action="store_true",
        help="predict the memory of a process that runs it, in parts and at its peak (writes nothing without -o)",
    )
    group.add_argument("--batch", type=int, metavar="N", help="with --memory: rows of a request (1)")
    group.add_argument("--prompt", type=int, metavar="N", help="with --memory: tokens of the prompt")
    group.add_argument("--context", type=int, metavar="N", help="with --memory: tokens of prompt and output together")
    group.add_argument("--prefill-chunk", type=int, metavar="N", help="with --memory: tokens of the prompt in a run")


def _add_told(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="how problems are written")
    group.add_argument("--explain", metavar="CODE", help="say what a problem's code, or a rule such as V231, means")
    group.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary")
    group.add_argument("--version", action="store_true", help="print the version and leave")
    group.add_argument("-h", "--help", action="help", help="print this and leave")
