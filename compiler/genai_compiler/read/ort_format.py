"""Graphs in ONNX Runtime's own format (`.ort`): told by their mark, and never read here.

That format is a memory image for the runtime's own code. What a graph holds is told by opening it there, which runs
native code on a file that may be anybody's: compiling refuses it, and `genai-compile convert` is the user's word.
"""

from pathlib import Path
from shlex import quote

from genai_compiler.problem import Place, Problem

SUFFIX = ".ort"
_MARK = b"ORTM"
"""The identifier of the flatbuffer, behind the offset of its root (onnxruntime, ort.fbs)."""


def is_ort_format(head: bytes) -> bool:
    """Whether a file that begins with these bytes is in that format."""
    return head[4:8] == _MARK


def has_ort_format(file: Path) -> bool:
    """Whether it is a file in that format. Raises OSError."""
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        return is_ort_format(stream.read(8))


def ort_format(name: str) -> Problem:
    """The refusal of the package's file `name`."""
    what = f"{name!r} is in ONNX Runtime's own format, which can't be read without running native code on it"
    return Problem("ort-format", Place(name), "", what, way_out(name))


def way_out(name: str) -> str:
    """What to type for the file `name` of a package."""
    made = name.removesuffix(SUFFIX) + ".onnx"
    words = ("genai-compile", "convert", name, "-o", made)
    command = " ".join(map(quote, words))  # a package's file names are anybody's, and this line is for pasting
    return f"if you trust the file, run `{command}` in the package's folder, and name {made} wherever {name} is named"


def ort_files(root: Path) -> tuple[str, ...]:
    """Such files in a folder and one below, the first few, in order."""
    found = (each for pattern in (f"*{SUFFIX}", f"*/*{SUFFIX}") for each in sorted(root.glob(pattern)))
    return tuple(each.relative_to(root).as_posix() for _, each in zip(range(8), found, strict=False))
