"""JSON text (RFC 8259) to plain data and places.

YAML reads most JSON, but not all of it (tabs, surrogate pairs) and more than it (comments, bare words); a file that
says it is JSON is read as JSON.
"""

import bisect
import json
import re

from genai_compiler.problem import CompileError
from genai_compiler.read.places import Places, quoted
from genai_compiler.read.scalars import NumberOutOfRange, decimal, integer
from genai_compiler.read.tree import Limits, TreeBuilder

_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
        (?P<mark>[{}\[\],:])
      | (?P<text>"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")
      | (?P<number>-?(?:0|[1-9][0-9]*+)(?P<part>\.[0-9]++)?(?P<power>[eE][-+]?[0-9]++)?)(?![0-9A-Za-z.+-])
      | (?P<word>true|false|null)(?![0-9A-Za-z_])
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_BREAK = re.compile(r"\r\n|\r|\n")
_WORDS = {"true": True, "false": False, "null": None}


def read_json(text: str, file: str, limits: Limits) -> tuple[object, Places]:
    """`file` is the package-relative name for messages. Raises CompileError with every fault found."""
    return _Reader(text, TreeBuilder(file, limits)).read()


class _Reader:
    """One pass over the text. `_expect` says what may come next, a key of _WANTED."""

    def __init__(self, text: str, build: TreeBuilder) -> None:
        self.text, self.build = text, build
        self._lines = [0, *(each.end() for each in _BREAK.finditer(text))]
        self._closers: list[str] = []
        self._expect = "value"

    def read(self) -> tuple[object, Places]:
        position = 0
        while True:
            token = _TOKEN.match(self.text, position)
            if token is None:
                raise self._fault(position + len(self.text[position:]) - len(self.text[position:].lstrip(" \t\r\n")))
            kind = str(token.lastgroup if token.lastgroup not in ("part", "power") else "number")
            if kind == "end":
                if self._closers or self._expect != "end":
                    raise self._fault(token.start("end"))
                return self.build.finish()
            self._take(kind, token)
            position = token.end()

    def _take(self, kind: str, token: re.Match[str]) -> None:
        start, raw = token.start(kind), token.group(kind)
        if kind == "mark":
            self._take_mark(raw, start)
        elif kind == "text" and self._expect in ("key", "start"):
            self.build.key(self._unquote(raw), *self._at(start))
            self._expect = "colon"
        elif self._expect in ("value", "first"):
            self.build.scalar(self._value(kind, raw, token, start), *self._at(start))
            self._after_value()
        else:
            raise self._fault(start)

    def _take_mark(self, mark: str, start: int) -> None:
        line, column = self._at(start)
        if mark in "{[" and self._expect in ("value", "first"):
            self.build.open(mapping=mark == "{", line=line, column=column)
            self._closers.append("}" if mark == "{" else "]")
            self._expect = "start" if mark == "{" else "first"
        elif mark in "}]" and self._closers[-1:] == [mark] and self._expect in ("next", _EMPTY[mark]):
            self._closers.pop()
            self.build.close()
            self._after_value()
        elif mark == "," and self._expect == "next":
            self._expect = "key" if self._closers[-1] == "}" else "value"
        elif mark == ":" and self._expect == "colon":
            self._expect = "value"
        else:
            raise self._fault(start)

    def _after_value(self) -> None:
        self._expect = "next" if self._closers else "end"

    def _value(self, kind: str, raw: str, token: re.Match[str], start: int) -> object:
        if kind == "text":
            return self._unquote(raw)
        if kind == "word":
            return _WORDS[raw]
        try:
            return decimal(raw) if token["part"] or token["power"] else integer(raw, 10)
        except NumberOutOfRange:
            self.build.note("number-out-of-range", f"{quoted(raw)} fits no 64-bit number (V008)", *self._at(start))
            return 0

    def _unquote(self, raw: str) -> str:
        return str(json.loads(raw)) if "\\" in raw else raw[1:-1]

    def _at(self, position: int) -> tuple[int, int]:
        line = bisect.bisect_right(self._lines, position)
        return line, position - self._lines[line - 1] + 1

    def _fault(self, position: int) -> CompileError:
        found = quoted(self.text[position : position + 1]) if position < len(self.text) else "the end of the file"
        wanted = _WANTED[self._expect]
        what = f"not valid JSON: {wanted} expected, {found} found (V001)"
        return self.build.fault("invalid-json", what, *self._at(position))


_EMPTY = {"}": "start", "]": "first"}
_WANTED = {
    "value": "a value",
    "first": "a value or ]",
    "key": "a key in double quotes",
    "start": "a key in double quotes or }",
    "colon": "a colon",
    "next": "a comma or the closing bracket",
    "end": "the end of the file",
}
