"""genai-compile convert: write the workflow that the compiler reads from a package of another dialect.

Without -o the document goes to stdout. A graph in ONNX Runtime's own format (.ort) in the package's place is written as
ONNX, to -o; ONNX Runtime opens it for that. Exit codes as of genai-compile.
"""

import argparse
import io
import sys
from collections.abc import Sequence

from genai_compiler.convert import Converted, convert_package, write_document
from genai_compiler.convert_ort import convert_ort
from genai_compiler.missing import library
from genai_compiler.problem import CompileError, disk_problem, printable
from genai_compiler.read.below import hold_package_name
from genai_compiler.read.ort_format import has_ort_format
from genai_compiler.typed_words import Parser, path
from genai_compiler.writable import hold_file

EXIT_DONE, EXIT_INPUT = 0, 2


def convert(argv: Sequence[str]) -> int:
    """Run `genai-compile convert` with what stands behind that word; returns the exit code."""
    arguments = _parser().parsed(argv)
    try:
        hold_package_name(arguments.package)
        graph = has_ort_format(arguments.package)
        if graph and arguments.output is None:
            print("a graph is written to a file: name it with -o", file=sys.stderr)
            return EXIT_INPUT
        if arguments.output is not None:
            hold_file(arguments.output, arguments.force)  # before the work
        if graph:
            return _graph(arguments)
        made = convert_package(arguments.package, arguments.graph)
        if arguments.output is not None:
            write_document(made, arguments.output, arguments.force)
    except CompileError as refused:
        for each in refused.problems:
            print(each, file=sys.stderr)
        return EXIT_INPUT
    except OSError as failure:
        print(disk_problem(failure, arguments.output or arguments.package), file=sys.stderr)
        return EXIT_INPUT
    _tell(made, arguments)
    return EXIT_DONE


def _tell(made: Converted, arguments: argparse.Namespace) -> None:
    """The document where no file takes it, and what there is to say of it."""
    for each in made.problems:
        print(each, file=sys.stderr)
    if arguments.output is None:
        if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # a file that is to be read again, on any system
        sys.stdout.write(made.text)
    elif not arguments.quiet:
        print(f"written: {printable(str(arguments.output))}")
        for unsaid in made.unsaid:
            print(f"not said in it: {unsaid}")


def _graph(arguments: argparse.Namespace) -> int:
    """Convert a graph in place of a package; returns the exit code. Raises CompileError, OSError."""
    try:
        convert_ort(arguments.package, arguments.output, arguments.force)
    except ModuleNotFoundError as missing:
        if library(missing) != "onnxruntime":
            raise
        print("only ONNX Runtime reads this format: pip install 'genai-compile[cpu]'", file=sys.stderr)
        return EXIT_INPUT
    if not arguments.quiet:
        print(f"written: {printable(str(arguments.output))}")
    return EXIT_DONE


def _parser() -> Parser:
    parser = Parser("genai-compile convert", description=__doc__)
    parser.add_argument("package", type=path, metavar="PACKAGE", help="a package that declares no workflow of its own")
    parser.add_argument("-o", "--output", type=path, metavar="FILE", help="the file to write")
    parser.add_argument("--force", action="store_true", help="replace a file that is there; without it none is")
    parser.add_argument(
        "--graph",
        action="append",
        metavar="FILE",
        help="the graph to take of a folder that declares none; again for each other that belongs to it",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no summary")
    return parser
