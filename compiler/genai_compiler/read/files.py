"""A metadata file as plain data (dict, list, str, int, float, bool, None) that remembers where every value stood."""

import stat
from pathlib import Path

from genai_compiler.problem import CompileError, Place, Problem
from genai_compiler.read.artifacts import may_hold
from genai_compiler.read.json_text import read_json
from genai_compiler.read.places import Places
from genai_compiler.read.tree import Limits
from genai_compiler.read.yaml_text import read_yaml

METADATA_NAMES = ("inference_metadata.yaml", "inference_metadata.yml", "inference_metadata.json")
LIMITS = Limits()


def find_metadata(root: Path) -> Path | None:
    """The metadata file of a package: the first of METADATA_NAMES that exists (section 1.1), else None."""
    return next((root / name for name in METADATA_NAMES if (root / name).exists()), None)


def read_document(path: Path, root: Path, limits: Limits = LIMITS) -> tuple[object, Places]:
    """The data of `path`, a regular file inside the package `root`, by its extension (section 1.1, rule V001).

    `.yaml`, `.yml`: YAML; `.json`: JSON; anything else: YAML, then JSON. Raises CompileError with every fault found.
    """
    file = _shown_name(path, root)
    text = _decode(_read_bytes(path, root, file, limits), file)
    if path.suffix.lower() == ".json":
        return read_json(text, file, limits)
    if path.suffix.lower() in (".yaml", ".yml"):
        return read_yaml(text, file, limits)
    try:
        return read_yaml(text, file, limits)
    except CompileError as as_yaml:
        try:
            return read_json(text, file, limits)
        except CompileError:
            raise as_yaml from None


def _shown_name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def _read_bytes(path: Path, root: Path, file: str, limits: Limits) -> bytes:
    try:
        if not may_hold(root, path.resolve(strict=True)):
            raise _fault("outside-package", file, "the file lies outside the package", "copy it into the package")
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise _fault("not-a-file", file, "not a regular file")
        with path.open("rb") as stream:
            content = stream.read(limits.size + 1)
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of symbolic links, before Python 3.13
        reason = getattr(error, "strerror", None) or "a loop of symbolic links"
        raise _fault("unreadable-file", file, f"can't be read: {reason}") from None
    if len(content) > limits.size:
        raise _fault("file-too-large", file, f"larger than {limits.size} bytes")
    return content


def _decode(content: bytes, file: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
        raise _fault("not-utf8", file, "not UTF-8 text (V001)", "save it as UTF-8", line, column) from None
    at = text.find("\0")
    if at >= 0:
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        raise _fault("forbidden-character", file, "the character U+0000 can't stand in a text", "", line, column)
    return text


def _fault(code: str, file: str, what: str, help: str = "", line: int = 0, column: int = 0) -> CompileError:
    return CompileError([Problem(code, Place(file, line, column), "", what, help)])
