"""Generated text -> the same text with long lines folded as formatters fold them, and a check that it is Python.

A logical line over the margin is opened at its outermost bracket, one item a line with a trailing comma; items still too
long are opened in turn. Comments and strings are left alone.
"""

import ast
import io
import tokenize

from genai_compiler.problem import InternalError

MARGIN = 120
_OPEN, _CLOSE = "([{", ")]}"


def tidy(text: str) -> str:
    """The folded text. Raises InternalError when it is no Python: that is a bug of the emitter."""
    lines: list[str] = []
    quoted = False
    for line in text.splitlines():
        lines.extend([line] if quoted else _fold(line))
        quoted ^= line.count('"""') % 2 == 1
    folded = "\n".join(lines) + "\n"
    try:
        ast.parse(folded)
    except SyntaxError as failure:
        raise InternalError("emit", f"the generated text is no Python: {failure}", folded) from failure
    return folded


def _fold(line: str) -> list[str]:
    if len(line) <= MARGIN or line.lstrip().startswith("#") or '"""' in line:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    split = _outermost(line)
    if split is None:
        return [line]
    head, items, tail = split
    inner = [piece for item in items for piece in _fold(f"{indent}    {item},")]
    rest = _fold(indent + tail)
    return [head, *inner, *rest]


def _outermost(line: str) -> tuple[str, list[str], str] | None:
    """(text up to the last outermost bracket that opens, its items, text from where it closes), or None."""
    depth, start, commas, spans = 0, -1, list[int](), list[tuple[int, int, list[int]]]()
    for token in _tokens(line.strip()):
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
    text, indent = line.strip(), line[: len(line) - len(line.lstrip())]
    first, last, commas = max(held, key=lambda span: span[1] - span[0])
    cuts = [first, *commas, last]
    items = [text[a + 1 : b].strip() for a, b in zip(cuts, cuts[1:], strict=False)]
    return indent + text[: first + 1], [item for item in items if item], text[last:]


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    try:
        return list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return []
