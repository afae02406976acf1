"""A document as YAML text that people read and edit: plain data in, comments at the places they speak of.

The text reads back as the same data by this compiler's own reader (YAML 1.2), which differs from PyYAML in what it
takes for a number.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from genai_compiler.read.files import LIMITS
from genai_compiler.read.places import DocPath
from genai_compiler.read.scalars import NumberOutOfRange, resolve_plain
from genai_compiler.read.yaml_text import read_yaml

_WIDTH = 120


class _Dumper(yaml.SafeDumper):
    """Block style, except for lists of scalars; anything that this reader would not take for text is quoted."""

    def ignore_aliases(self, data: Any) -> bool:  # parts used twice are written twice
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    try:
        plain = value.isprintable() and resolve_plain(value) == value
    except NumberOutOfRange:
        plain = False
    style = None if plain else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _list(dumper: yaml.SafeDumper, value: Sequence[Any]) -> yaml.SequenceNode:
    flat = all(not isinstance(each, list | dict) for each in value)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=flat)


def _map(dumper: yaml.SafeDumper, value: Mapping[str, Any]) -> yaml.MappingNode:
    short = len(value) <= 3 and all(not isinstance(each, list | dict) for each in value.values())
    return dumper.represent_mapping("tag:yaml.org,2002:map", value, flow_style=short)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)
_Dumper.add_representer(dict, _map)


def document_text(document: Mapping[str, Any], head: Sequence[str], comments: Mapping[DocPath, Sequence[str]]) -> str:
    """The document with a comment at its head, and above each of the values that `comments` names by path."""
    text: str = yaml.dump(dict(document), Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)
    lines = text.splitlines()
    _, places = read_yaml(text, "", LIMITS)
    above: dict[int, list[str]] = {}
    for path, said in comments.items():
        where = places.find(path)
        above.setdefault(where.line, []).extend(said)
    out = [_comment(each, "") for each in head]
    for number, line in enumerate(lines, start=1):
        indent = line[: len(line) - len(line.lstrip(" "))]
        out += [_comment(each, indent) for each in above.get(number, ())]
        out.append(line)
    return "\n".join(out) + "\n"


def _comment(text: str, indent: str) -> str:
    """One comment line; what would break the line is written as an escape."""
    printable = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
    return f"{indent}# {printable}".rstrip()
