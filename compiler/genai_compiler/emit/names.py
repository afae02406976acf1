"""Names and literals for generated code: nothing a package says reaches the text in any other way.

A name keeps the readable part of the SSA name (`decoder.setup.logits` -> `decoder_setup_logits`); a literal is a quoted
Python string in ASCII; a comment has no line breaks.
"""

import math
import re
from collections.abc import Iterable

_ILLEGAL = re.compile(r"[^0-9A-Za-z_]+")
MAX_NAME = 60
KEYWORDS = frozenset(
    """
    and as assert async await break case class continue def del elif else except finally for from global if
    import in is lambda match nonlocal not or pass raise return try type while with yield
    """.split()  # noqa: SIM905
)
BUILTINS = frozenset(
    """
    abs aiter all anext any ascii bin bool breakpoint bytearray bytes callable chr classmethod compile complex
    copyright credits delattr dict dir divmod enumerate eval exec exit filter float format frozenset getattr
    globals hasattr hash help hex id input int isinstance issubclass iter len license list locals map max
    memoryview min next object oct open ord pow print property quit range repr reversed round set setattr slice
    sorted staticmethod str sum super tuple vars zip
    """.split()  # noqa: SIM905
)
"""Lower-case names of Python 3.11 to 3.14, written down: asked of the interpreter that compiles, they would make the
text depend on its version. A name here is never all upper case, and never starts with `_`.
"""


class Names:
    """Hands out legal, stable, collision-free Python names in the order asked for."""

    def __init__(self, reserved: frozenset[str] = frozenset()) -> None:
        self._taken = set(reserved) | KEYWORDS | BUILTINS
        self._given: dict[str, str] = {}

    def of(self, value: str) -> str:
        """The name of a value; the same value always has the same one."""
        if value not in self._given:
            self._given[value] = self.fresh(value)
        return self._given[value]

    def fresh(self, hint: str) -> str:
        """A name like `hint` that nothing else has."""
        stem = _ILLEGAL.sub("_", hint)[:MAX_NAME].strip("_").lower() or "value"
        stem = f"v_{stem}" if stem[0].isdigit() else stem
        name, count = stem, 1
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._taken.add(name)
        return name

    def constant(self, hint: str) -> str:
        """An upper-case name like `hint` that nothing else has."""
        stem = _ILLEGAL.sub("_", hint)[:MAX_NAME].strip("_").upper() or "VALUE"
        stem = f"V_{stem}" if stem[0].isdigit() else stem
        name, count = stem, 1
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._taken.add(name)
        return name


def literal(value: object) -> str:
    """A Python literal: str in ASCII, numbers, bools, None, and tuples of these.

    Quotes are double unless single ones need fewer escapes, as formatters have it.
    """
    match value:
        case str():
            quote = "'" if value.count('"') > value.count("'") else '"'
            return quote + value.encode("unicode_escape").decode("ascii").replace(quote, "\\" + quote) + quote
        case float() if not math.isfinite(value):
            return f'float("{value}")'
        case bool() | int() | float() | None:
            return repr(value)
        case tuple():
            return tuple_of(map(literal, value))
        case _:
            raise TypeError(f"no literal for {type(value).__name__}")


def tuple_of(parts: Iterable[str]) -> str:
    """A tuple of expressions."""
    inside = tuple(parts)
    return "(" + ", ".join(inside) + ("," if len(inside) == 1 else "") + ")"


def comment(text: str) -> str:
    """Text that may stand behind a `#` or inside a docstring: one line, printable ASCII, no quotes or backslashes."""
    safe = text.encode("ascii", "backslashreplace").decode("ascii")
    return "".join(each if each.isprintable() and each not in "\\" else "?" for each in safe).replace('"""', "'''")
