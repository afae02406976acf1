"""The command line of genai-run: which of its options have an effect on what is asked."""

import argparse
from collections.abc import Sequence

from genai_runtime.command_options import FLOATS, WHOLE, options
from genai_runtime.problem import RequestError

_OF_TEXT = (
    "image",
    "audio",
    "max_new_tokens",
    *FLOATS,
    *WHOLE,
    "stop",
    "adapter",
    "ignore_eos",
    "keep_special",
    "speculate",
)
PICTURE = ("negative_prompt", "steps", "guidance_scale", "width", "height", "strength")
"""Options of a picture alone; a seed belongs to text too."""

_COUNTS = {
    **dict.fromkeys((*_OF_TEXT, *PICTURE, "stats"), ("text",)),
    "system": ("chat",),
    "instructions": ("speech",),
    "input": ("task", "text"),
    **dict.fromkeys(("image", "audio"), ("text", "task")),
    "save": ("speech", "task", "text"),
    "json": ("text", "task", "describe"),
}
"""Option -> what it has an effect on; options that are not here belong to loading."""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line. Leaves with exit code 2 when it is none, or names an option that would have no effect."""
    parser = options()
    found, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.error(parser.unknown(unknown))
    asked = _asked(found)
    if found.task is not None and asked != {"task"}:
        parser.error("--task runs by itself, with --tokens, --prompt, --image, --audio or --input")
    for name, kinds in _COUNTS.items():
        if getattr(found, name) != parser.get_default(name) and asked.isdisjoint(kinds):
            alone = asked.isdisjoint(("text", "chat"))
            wanted = {"text": "a prompt that is continued or drawn" if alone else "a prompt", "chat": "a chat"}
            effect = " or ".join(wanted.get(each, f"--{each}") for each in kinds)
            beside = f" can't go with --{min(asked)}: it" if alone else ""
            parser.error(f"{_spelled([name], found)}{beside} has an effect on {effect} only")
    return found


def refuse_picture_options(found: argparse.Namespace) -> None:
    """Raises RequestError `unsupported-option` for an option of pictures: the package makes text."""
    given = [each for each in (*PICTURE, "save") if getattr(found, each) is not None]
    given += ["input"] if found.input else []
    if given:
        raise _without_effect(given, found, "this package makes text, no pictures")


def refuse_text_options(found: argparse.Namespace) -> None:
    """Raises RequestError `unsupported-option` for an option of text: the package makes pictures."""
    names = [each for each in (*_OF_TEXT, "chat", "system", "stats") if each != "seed"]
    given = [each for each in names if _is_given(found, each)]
    if given:
        raise _without_effect(given, found, "this package makes pictures, no text")


def refuse_generation_options(found: argparse.Namespace) -> None:
    """Raises RequestError `unsupported-option` for an option of text or of pictures: the package makes neither."""
    names = [each for each in (*_OF_TEXT, *PICTURE, "chat", "system", "stats") if each not in ("image", "audio")]
    given = [each for each in names if _is_given(found, each)]
    if given:
        raise _without_effect(given, found, "this package makes neither text nor pictures")


def _is_given(found: argparse.Namespace, name: str) -> bool:
    """Whether an option was typed; 0 is a value as well, and so is the opposite of an option."""
    value = getattr(found, name)
    return name in found.typed or not (value is None or value is False or value == [])


def _without_effect(given: Sequence[str], found: argparse.Namespace, why: str) -> RequestError:
    options = _spelled(given, found)
    return RequestError("unsupported-option", f"{options}: {why}", help=f"leave {options} out")


def _spelled(names: Sequence[str], found: argparse.Namespace) -> str:
    """Options as they were typed: some have two names."""
    return ", ".join(found.typed.get(each, f"--{each.replace('_', '-')}") for each in names)


def _asked(found: argparse.Namespace) -> set[str]:
    """What is asked for: describe, speech, task; or text, and with it chat where one may begin."""
    kinds = {each for each in ("describe", "speech", "task") if getattr(found, each) not in (None, False)}
    if kinds or found.chat is not None:
        return kinds | ({"text", "chat"} if found.chat is not None else set())
    return {"text"} if found.prompt is not None or found.tokens is not None else {"text", "chat"}
