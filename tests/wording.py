"""Messages that read as if a part of them had gone missing, or as Python's own notation of a value.

What stands in quotes is the author's own text and is left alone.
"""

import re
from collections.abc import Iterable

from genai_compiler.problem import Problem

_QUOTED = re.compile(r"(?<!\w)'[^']*'(?!\w)|\"(?:[^\"\\]|\\.)*\"|`[^`]*`")
_SMELLS = {
    "a part is missing before a semicolon or a comma": r"^\s*[;,]|[;,]\s*[;,.](?!\.)|[;,]\s*$|\s[;,](\s|$)",
    "two spaces": r"\S {2,}\S|^\s|\s$",
    "nothing behind a colon": r":\s*$",
    "brackets around nothing": r"\( *\)(?<!\w\(\))",
    "a value as Python has it": r"\b(None|True|False|NoneType)\b|\b(dict|list|tuple|set|frozenset|dtype)\(",
    "a type or an object as Python has it": r"<(class|function|enum|built-in|module)\b|\bobject at 0x|Error\(",
}
_EMPTY = r"''|\"\"|``"


def smells(problems: Iterable[Problem], empty: bool = True) -> list[str]:
    """What is odd about the words of problems. empty: empty quotes are, too: no text in the document is empty."""
    return [
        f"{name}: {each.code}: {text!r}"
        for each in problems
        for text in filter(None, (each.what, each.help))
        for name, pattern in {**_SMELLS, **({"empty quotes": _EMPTY} if empty else {})}.items()
        if re.search(pattern, text if name == "empty quotes" else _QUOTED.sub("_", text))
    ]
