"""From the texts of a speech request to the prompt, as the package's artifact says (standard, 5.4).

No request's text keeps a transform busy: each looks at a character a bounded number of times, and texts are bounded.
White space is what Unicode calls so; lines end at `\\n` alone.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from genai_runtime.problem import RequestError

MAX_TEXT = 1 << 15
"""Characters of one text of a request."""
MAX_PROMPT = 1 << 20
"""Characters that transforms may make of it."""

WHITE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
"""Characters with the property White_Space. (Python's own notion has four separators more.)"""

_BLANK = re.compile(f"[{WHITE}]")
_STARS = re.compile(r"(\*+)")
_ITALIC = re.compile(r"(^|[^*])\*([^*]++)\*([^*]|\Z)")
_NEWLINES = re.compile(r"\n{2,}")


@dataclass(frozen=True)
class TextAssembly:
    """An artifact that the compiler has read. program: its content, every key known, every value of its type."""

    component: str
    program: Mapping[str, Any]

    @property
    def most_tokens(self) -> int:
        """Tokens that a prompt may have."""
        return int(self.program["max_input_tokens"])

    @property
    def most_units(self) -> int:
        """Units of sound that a request may ask for."""
        return int(self.program["max_output_units"])

    @property
    def advance(self) -> int:
        """Steps beyond those units that the state takes."""
        return int(self.program["state_advance_units"])

    def prompt(self, text: str, instructions: str) -> str:
        """The segments one behind the other. Raises RequestError `text-too-long`."""
        fields = {"input": text, "instructions": instructions}
        for name, each in fields.items():
            if len(each) > MAX_TEXT:
                what = f"'{name}' has {len(each)} characters, at most {MAX_TEXT} are taken"
                raise RequestError("text-too-long", what, help="say it in parts")
        return "".join(_segment(each, fields) for each in self.program["segments"])

    def rows(self, tokens: Sequence[int]) -> list[list[int]]:
        """The prompt's tokens; with guidance also a row in which those between its bounds are replaced.

        Raises RequestError `text-too-long`, `text-too-short`.
        """
        if len(tokens) > self.most_tokens:
            what = f"the prompt has {len(tokens)} tokens, the package takes {self.most_tokens}"
            raise RequestError("text-too-long", what, help="give a shorter text")
        guidance = self.program.get("guidance_rows")
        if guidance is None:
            return [list(tokens)]
        first, kept = guidance["replace_from"], guidance["preserve_trailing"]
        if len(tokens) < first + kept:
            what = f"the prompt has {len(tokens)} tokens, and the package's guidance keeps {first} and {kept} of them"
            raise RequestError("text-too-short", what, help="give a longer text")
        replaced = [guidance["unconditional_token_id"]] * (len(tokens) - first - kept)
        return [list(tokens), [*tokens[:first], *replaced, *tokens[len(tokens) - kept :]]]


def _segment(segment: Mapping[str, Any], fields: Mapping[str, str]) -> str:
    if "literal" in segment:
        return str(segment["literal"])
    value = fields[segment["field"]]
    for each in segment["transforms"]:
        value = TRANSFORMS[each["kind"]](value, each)
        if len(value) > MAX_PROMPT:
            raise RequestError("text-too-long", f"the prompt grows beyond {MAX_PROMPT} characters")
    return value


def rewrite_delimited_tags(text: str, opening: str, closing: str) -> str:
    """Each shortest `open`...`close` on one line becomes its trimmed inside; of several words, `first is rest`."""
    return "".join(_rewritten(text, opening, closing))


def _rewritten(text: str, opening: str, closing: str) -> Iterator[str]:
    done = 0
    at = text.find(opening)
    while at >= 0:
        start = at + len(opening)
        line_end = text.find("\n", start)
        line_end = len(text) if line_end < 0 else line_end
        end = text.find(closing, start, line_end + len(closing))
        if end < 0:  # nor has any other opening before the end of this line a closing
            at = text.find(opening, max(at + 1, line_end - len(opening) + 1))
            continue
        yield text[done:at]
        yield _tag(text[start:end].strip(WHITE))
        done = end + len(closing)
        at = text.find(opening, done)
    yield text[done:]


def _tag(inside: str) -> str:
    parts = _BLANK.split(inside, maxsplit=1)
    return parts[0] if len(parts) == 1 else f"{parts[0]} is {parts[1].strip(WHITE)}"


def strip_markdown(text: str) -> str:
    """Heading marks, bullets, bold, italics and rules go; then bullet characters and runs of four spaces."""
    lines = map(_plain_line, text.split("\n"))
    kept = "\n".join(each for each in lines if not _is_rule(each))
    return kept.replace("\u2022 ", "").replace("    ", "")


def _plain_line(line: str) -> str:
    line = _without_bold(_without_bullet(_without_heading(line)))
    return _ITALIC.sub(r"\1\2\3", line).rstrip(WHITE)


def _without_bold(line: str) -> str:
    """`**x**` becomes x, over and over. One pass over the line would take two stars from each side of a text, from
    left to right; here a pass looks only at runs of stars that the one before has changed, so that all of them together
    take no longer than there are stars."""
    parts = _STARS.split(line)
    texts, stars = parts[::2], [len(each) for each in parts[1::2]]
    before, after = list(range(-1, len(stars))), list(range(1, len(stars) + 2))
    changed = set(range(len(stars)))
    while changed:
        rights = sorted({each for at in changed for each in (at, after[at]) if 0 < each < len(stars)})
        changed = set()
        for right in rights:
            left = before[right]
            if left >= 0 and stars[left] >= 2 and stars[right] >= 2:
                stars[left], stars[right] = stars[left] - 2, stars[right] - 2
                changed |= {left, right}
        for gone in [each for each in changed if not stars[each]]:  # its neighbours are neighbours now
            after[before[gone]], before[after[gone]] = after[gone], before[gone]
            changed.discard(gone)
            changed |= {each for each in (before[gone],) if each >= 0}
    return texts[0] + "".join("*" * count + text for count, text in zip(stars, texts[1:], strict=True))


def _without_heading(line: str) -> str:
    rest = line.lstrip(WHITE)
    marked = rest.lstrip("#")
    text = marked.lstrip(WHITE)
    is_heading = len(line) - len(rest) <= 3 and 1 <= len(rest) - len(marked) <= 6 and len(text) < len(marked)
    return text if is_heading else line


def _without_bullet(line: str) -> str:
    rest = line.lstrip(WHITE)
    text = rest[1:].lstrip(WHITE)
    return text if rest[:1] in ("*", "+", "-") and len(text) < len(rest) - 1 else line


def _is_rule(line: str) -> bool:
    held = line.strip(WHITE)
    return len(held) >= 3 and not held.strip("-*_")


def keep_leading_bracket_tags(text: str) -> str:
    """A line that starts with `[..]` tags is cut to them."""
    return "\n".join(map(_leading_tags, text.split("\n")))


def _leading_tags(line: str) -> str:
    start = at = len(line) - len(line.lstrip(" \t"))
    while at < len(line) and line[at] == "[":
        end = line.find("]", at + 1)
        if end <= at + 1:  # no end, or nothing inside
            break
        at = end + 1
        while at < len(line) and line[at] in " \t":
            at += 1
    return line if at == start else line[start:at].strip(WHITE)


def lowercase_bracket_tags(text: str) -> str:
    """The inside of each `[..]` in lower case."""
    return "".join(_lowered(text))


def _lowered(text: str) -> Iterator[str]:
    done = 0
    at = text.find("[")
    while at >= 0:
        end = text.find("]", at + 1)
        if end < 0:
            break
        if end > at + 1:
            yield text[done:at]
            yield text[at : end + 1].lower()
            done = end + 1
        at = text.find("[", max(done, at + 1))
    yield text[done:]


def replace(text: str, source: str, target: str) -> str:
    """Every occurrence. Raises RequestError `text-too-long` before a text that large is made."""
    if len(text) + text.count(source) * (len(target) - len(source)) > MAX_PROMPT:
        raise RequestError("text-too-long", f"the prompt grows beyond {MAX_PROMPT} characters")
    return text.replace(source, target)


TRANSFORMS: Mapping[str, Callable[[str, Mapping[str, Any]], str]] = {
    "rewrite_delimited_tags": lambda text, given: rewrite_delimited_tags(text, given["open"], given["close"]),
    "strip_markdown": lambda text, given: strip_markdown(text),
    "keep_leading_bracket_tags": lambda text, given: keep_leading_bracket_tags(text),
    "replace": lambda text, given: replace(text, given["from"], given["to"]),
    "lowercase_bracket_tags": lambda text, given: lowercase_bracket_tags(text),
    "collapse_newlines": lambda text, given: _NEWLINES.sub("\n", text),
    "prefix": lambda text, given: f"{given['value']}{text}",
}
