"""Text-assembly artifacts: how a prompt is put together from a request's texts (section 5.4 of the standard)."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from genai_compiler.problem import CompileError, Problem
from genai_compiler.read.fields import U32, Closed, Count32, Items, Name, Positive32, Tagged
from genai_compiler.read.files import read_document
from genai_compiler.read.places import Places, format_path
from genai_compiler.read.tree import Limits
from genai_compiler.read.validate import parse_part

CONTRACT = "onnx-genai.text-assembly"
LIMITS = Limits(size=1 << 20)


class RewriteDelimitedTags(Tagged):
    """Each `open`...`close` on one line becomes what it holds."""

    kind: Literal["rewrite_delimited_tags"] = "rewrite_delimited_tags"
    open: Name
    close: Name


class StripMarkdown(Tagged):
    """Marks of markdown go."""

    kind: Literal["strip_markdown"] = "strip_markdown"


class KeepLeadingBracketTags(Tagged):
    """A line that starts with tags is cut to them."""

    kind: Literal["keep_leading_bracket_tags"] = "keep_leading_bracket_tags"


class Replace(Tagged):
    """Every `from` becomes `to`."""

    kind: Literal["replace"] = "replace"
    source: Name = Field(alias="from")
    to: str


class LowercaseBracketTags(Tagged):
    """Tags in lower case."""

    kind: Literal["lowercase_bracket_tags"] = "lowercase_bracket_tags"


class CollapseNewlines(Tagged):
    """Empty lines go."""

    kind: Literal["collapse_newlines"] = "collapse_newlines"


class Prefix(Tagged):
    """`value` comes first."""

    kind: Literal["prefix"] = "prefix"
    value: str


Transform = Annotated[
    RewriteDelimitedTags
    | StripMarkdown
    | KeepLeadingBracketTags
    | Replace
    | LowercaseBracketTags
    | CollapseNewlines
    | Prefix,
    Field(discriminator="kind"),
]


class Segment(Closed):
    """A piece of the prompt: text, or a field of the request."""

    literal: str | None = None
    field: Literal["input", "instructions"] | None = None
    transforms: Items[Transform] = ()


class GuidanceRows(Closed):
    """A second row of tokens in which those between the two bounds are replaced."""

    unconditional_token_id: Annotated[int, Field(ge=0, le=U32)]
    replace_from: Count32
    preserve_trailing: Count32


class TextAssembly(Closed):
    """The whole artifact."""

    max_input_tokens: Positive32
    max_output_units: Positive32
    state_advance_units: Count32 = 0
    segments: Items[Segment]
    guidance_rows: GuidanceRows | None = None


def read_text_assembly(file: Path, root: Path) -> TextAssembly:
    """The artifact in `file`, JSON. Raises CompileError with every fault, at its line of that file."""
    data, places = read_document(file, root, LIMITS)
    made = parse_part(TextAssembly, data, places)
    faults = [
        problem for at, each in enumerate(made.segments) if (problem := _segment_fault(each, at, places)) is not None
    ]
    if faults:
        raise CompileError(faults)
    return made


def _segment_fault(segment: Segment, at: int, places: Places) -> Problem | None:
    path = ("segments", at)
    if (segment.literal is None) == (segment.field is None):
        what = "a segment is either a literal or a field of the request"
        help = "write one of literal, field"
    elif segment.literal is not None and segment.transforms:
        what, help = "a literal segment has no transforms: it says already what it is", "write the text as it is meant"
    else:
        return None
    return Problem("bad-segment", places.find(path), format_path(path), what, help)
