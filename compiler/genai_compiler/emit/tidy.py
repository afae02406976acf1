"""Generated text -> the same text with long lines folded as formatters fold them, and a check that it is Python.

A logical line over the margin is opened at its outermost bracket, one item a line with a trailing comma; items still
too long are opened in turn, and so are the targets of an assignment. Comments are wrapped; docstrings are left alone.
"""

import ast
import io
import textwrap
import tokenize
from itertools import pairwise

from genai_compiler.problem import InternalError

MARGIN = 120
_OPEN, _CLOSE = "([{", ")]}"


def tidy(text: str) -> str:
    """The folded text. Raises InternalError when it is no Python: that is a bug of the emitter."""
    quoted = _quoted_lines(text)
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        lines.extend([line] if number in quoted else _fold(line))
    folded = "\n".join(lines) + "\n"
    try:
        ast.parse(folded)
    except SyntaxError as failure:
        raise InternalError("emit", f"the generated text is no Python: {failure}", folded) from failure
    return folded


def _quoted_lines(text: str) -> set[int]:
    """Numbers of the lines on which a string of several lines stands."""
    strings = [each for each in _tokens(text) if each.type == tokenize.STRING and each.start[0] < each.end[0]]
    return {number for each in strings for number in range(each.start[0], each.end[0] + 1)}


def _fold(line: str) -> list[str]:
    if len(line) <= MARGIN:
        return [line]
    text = line.lstrip()
    indent = line[: len(line) - len(text)]
    if text.startswith("#"):
        return textwrap.wrap(
            text, MARGIN - len(indent), initial_indent=indent, subsequent_indent=f"{indent}#   ",
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    return _fold_code(_bracketed(text), indent)


def _fold_code(text: str, indent: str) -> list[str]:
    split = _outermost(text)
    if split is None:
        return [indent + text]
    head, items, tail = split
    comma = "" if head.endswith("[") else ","  # in a subscript it would make a tuple
    inner = [piece for item in items for piece in _fold(f"{indent}    {item}{comma}")]
    if len(indent + tail) <= MARGIN:
        return [indent + head, *inner, indent + tail]
    closing, source = tail.split(" ", 1)
    first, *rest = _fold_code(source, indent)
    return [indent + head, *inner, f"{indent}{closing} {first.lstrip()}", *rest]


def _bracketed(text: str) -> str:
    """Names after `del`, and the sides of an assignment that would not fit as they are, in brackets of their own."""
    if text.startswith("del "):
        return f"del ({text.removeprefix('del ')})"
    targets, _, source = text.partition(" = ")
    if not source or not _is_names(targets):
        return text
    fits = len(f"{targets} = {source.partition('(')[0]}(") <= MARGIN // 2
    if _is_names(source):
        source = f"({source})"
    return f"{targets} = {source}" if fits else f"({targets}) = {source}"


def _is_names(text: str) -> bool:
    return ", " in text and text.replace(", ", "").replace("_", "").isalnum()


def _outermost(text: str) -> tuple[str, list[str], str] | None:
    """(text up to a bracket that opens, its items, text from where it closes): targets first, else the widest."""
    depth, start, commas, spans = 0, -1, list[int](), list[tuple[int, int, list[int]]]()
    for token in _tokens(text):
        if token.type != tokenize.OP:
            continue
        column = token.start[1]
        if token.string in _OPEN:
            depth += 1
            if depth == 1:
                start, commas = column, []
        elif token.string in _CLOSE:
            depth -= 1
            if depth == 0:
                spans.append((start, column, commas))
        elif token.string == "," and depth == 1:
            commas.append(column)
    held = [span for span in spans if span[1] > span[0] + 1]
    if not held:
        return None
    first, last, commas = held[0] if text.startswith("(") else max(held, key=lambda span: span[1] - span[0])
    cuts = [first, *commas, last]
    items = [text[a + 1 : b].strip() for a, b in pairwise(cuts)]
    return text[: first + 1], [item for item in items if item], text[last:]


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    try:
        return list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return []
