"""YAML text to plain data and places.

Scalars follow the YAML 1.2 core schema (see `scalars`). Keys are texts as written, quoted or not; `true:` and `1:`
are the keys "true" and "1". Anchors and aliases are read (and counted as written out); tags, merge keys (`<<`), keys
that are no scalars and a second document are refused.
"""

import yaml

from genai_compiler.problem import CompileError
from genai_compiler.read.places import Places, quoted
from genai_compiler.read.scalars import NumberOutOfRange, plain_key, resolve_plain
from genai_compiler.read.tree import Limits, TreeBuilder

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(text: str, file: str, limits: Limits) -> tuple[object, Places]:
    """`file` is the package-relative name for messages. Raises CompileError with every fault found."""
    build = TreeBuilder(file, limits)
    documents = 0
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise build.fault("several-documents", "a second YAML document begins (V001)", *_at(event))
            else:
                _take(build, event)
    except yaml.YAMLError as error:
        raise _syntax_fault(build, error) from None
    return build.finish()


def _take(build: TreeBuilder, event: yaml.Event) -> None:
    line, column = _at(event)
    if isinstance(event, yaml.ScalarEvent):
        _refuse_tag(build, event.tag, line, column)
        _take_scalar(build, event, line, column)
    elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
        _refuse_tag(build, event.tag, line, column)
        mapping = isinstance(event, yaml.MappingStartEvent)
        build.open(mapping=mapping, line=line, column=column, anchor=event.anchor)
    elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
        build.close()
    elif isinstance(event, yaml.AliasEvent):
        if build.expects_key:
            raise build.fault("odd-key", "an alias can't be a key (V001)", line, column, "write a plain word")
        build.alias(str(event.anchor), line, column)


def _take_scalar(build: TreeBuilder, event: yaml.ScalarEvent, line: int, column: int) -> None:
    plain = bool(event.implicit[0])
    text: str = event.value
    if build.expects_key:
        if plain and text == "<<":
            help = "copy the fields, or alias the whole value"
            raise build.fault("merge-key", "merge keys are not part of this format (V001)", line, column, help)
        build.key(plain_key(text) if plain else text, line, column)
        return
    value: object = text
    if plain:
        try:
            value = resolve_plain(text)
        except NumberOutOfRange:
            what = f"{quoted(text)} fits no 64-bit number (V008)"
            build.note("number-out-of-range", what, line, column)
            value = 0
    build.scalar(value, line, column, event.anchor)


def _refuse_tag(build: TreeBuilder, tag: str | None, line: int, column: int) -> None:
    if tag is not None:
        help = "write the value without a tag; quote it if it is a text"
        raise build.fault("yaml-tag", f"the tag {quoted(tag)} is not part of this format (V001)", line, column, help)


def _at(event: yaml.Event) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (0, 0)


def _syntax_fault(build: TreeBuilder, error: yaml.YAMLError) -> CompileError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "not readable"
    context = getattr(error, "context", None)
    what = f"not valid YAML: {reason}" + (f" ({context})" if context else "") + " (V001)"
    return build.fault("invalid-yaml", what, line, column)
