"""genai-compile convert: write the workflow that the compiler reads from a package of another dialect.

Without -o the document goes to stdout. Exit codes as of genai-compile.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from genai_compiler.convert import convert_package, write_document
from genai_compiler.problem import CompileError, disk_problem

EXIT_DONE, EXIT_INPUT = 0, 2


def convert(argv: Sequence[str]) -> int:
    """Run `genai-compile convert` with what stands behind that word; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        made = convert_package(arguments.package, arguments.graph)
        if arguments.output is not None:
            write_document(made, arguments.output)
    except CompileError as refused:
        for each in refused.problems:
            print(each, file=sys.stderr)
        return EXIT_INPUT
    except OSError as failure:
        print(disk_problem(failure, arguments.output or arguments.package), file=sys.stderr)
        return EXIT_INPUT
    for each in made.problems:
        print(each, file=sys.stderr)
    if arguments.output is None:
        sys.stdout.write(made.text)
    elif not arguments.quiet:
        print(f"written: {arguments.output}")
        for unsaid in made.unsaid:
            print(f"not said in it: {unsaid}")
    return EXIT_DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("genai-compile convert", description=__doc__)
    parser.add_argument("package", type=Path, metavar="PACKAGE", help="a package that declares no workflow of its own")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="a new file; one that exists is not replaced")
    parser.add_argument(
        "--graph",
        action="append",
        metavar="FILE",
        help="the graph to take of a folder that declares none; twice for an encoder and its decoder",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no summary")
    return parser
