"""The command line of genai-run: its options, and which of them have an effect on what is asked."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from genai_runtime.problem import RequestError
from genai_runtime.versions import ShowVersion

FLOATS = {
    "temperature": "0 is greedy, more is wilder; default 1",
    "top_p": "only the likeliest tokens with this mass together; default 1, all",
    "min_p": "only tokens at least this fraction as likely as the best; default 0, all",
    "repetition_penalty": "once for each token of prompt and output; default 1, none",
    "presence_penalty": "once for each token of the output; default 0",
    "frequency_penalty": "for each time that a token stands in the output; default 0",
}
WHOLE = {
    "top_k": "only the N likeliest tokens; default 0, all",
    "seed": "the same seed, the same tokens; default: a fresh one",
    "min_new_tokens": "no end before N tokens; default 0",
    "no_repeat_ngram_size": "no sequence of N tokens twice; default 0, off",
}
_SAMPLING = (
    "An option left out has the package's default, else the one named here. Temperature, top-k, top-p or min-p asks "
    "for sampling; without any, the package's default decides, else the output is greedy."
)

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

LENGTH_SWITCHES = ("keep", "recompute", "refuse")
"""Those of length_switch.py, which imports more than a command line may before it runs."""


def parse(epilog: str, argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line. Leaves with exit code 2 when it is none, or names an option that would have no effect."""
    parser = _parser(epilog)
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


class _Parser(argparse.ArgumentParser):
    """A parser that says what may have been meant by what it does not know."""

    def unknown(self, words: Sequence[str]) -> str:
        """What is told of words that are left over: the nearest option, or the option that takes such a text."""
        from difflib import get_close_matches  # for a mistake alone: every start would pay for it

        told = f"unrecognized arguments: {' '.join(words)}"
        typed = words[0].partition("=")[0]
        if not typed.startswith("-"):
            return f'{told}; a text goes in as --prompt "{words[0]}"'
        near = get_close_matches(typed, self._option_string_actions, n=1)
        return f"{told}; did you mean {near[0]}?" if near else told


class _Either(argparse.Action):
    """Stores the value of an option of two names, and which of them was typed."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, values)
        namespace.typed[self.dest] = option_string


class _OnOrOff(argparse.BooleanOptionalAction):
    """Stores whether an option or its opposite was typed, and which."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        super().__call__(parser, namespace, values, option_string)
        namespace.typed[self.dest] = option_string


def _asked(found: argparse.Namespace) -> set[str]:
    """What is asked for: describe, speech, task; or text, and with it chat where one may begin."""
    kinds = {each for each in ("describe", "speech", "task") if getattr(found, each) not in (None, False)}
    if kinds or found.chat is not None:
        return kinds | ({"text", "chat"} if found.chat is not None else set())
    return {"text"} if found.prompt is not None or found.tokens is not None else {"text", "chat"}


def _parser(epilog: str) -> _Parser:
    parser = _Parser(
        "genai-run",
        description="Run a compiled package. Without --prompt, --chat or --tokens, standard input is the prompt; "
        "in a terminal, a conversation begins.",
        epilog=epilog,
    )
    parser.set_defaults(typed={})
    parser.add_argument("folder", type=Path, metavar="DIR", help="a folder that genai-compile wrote")
    parser.add_argument("--version", action=ShowVersion, help="print the version and leave")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--prompt", help="continue this text; or draw it, where the package makes pictures")
    what.add_argument(
        "--chat", metavar="TEXT", nargs="?", const="", help="answer this message; without TEXT, a conversation"
    )
    what.add_argument("--tokens", metavar="1,2,3", help="continue these token ids; prints ids")
    what.add_argument("--speech", metavar="TEXT", help="say this text; --save says where to")
    what.add_argument("--describe", action="store_true", help="print inputs, outputs, state and providers as JSON")
    _add_text_options(parser)
    _add_picture_options(parser)
    _add_other_options(parser)
    _add_loading_options(parser)
    parser.add_argument("--stats", action="store_true", help="print counts, times and memory to stderr")
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of text")
    parser.add_argument(
        "--profile",
        nargs="?",
        const="",
        metavar="TRACE.json",
        help="print to stderr where the time went; with a file, write a trace for Perfetto or chrome://tracing too",
    )
    return parser


def _add_text_options(parser: argparse.ArgumentParser) -> None:
    """The options of a prompt or a chat."""
    parser.add_argument(
        "--image", action="append", type=Path, default=[], metavar="FILE", help="show this picture; may be repeated"
    )
    parser.add_argument(
        "--audio", action="append", type=Path, default=[], metavar="FILE", help="hear this sound; may be repeated"
    )
    parser.add_argument("--system", metavar="TEXT", help="system message of a chat")
    most = "how many tokens at most, without the prompt; default: what the package or its context leaves"
    parser.add_argument("-n", "--max-new-tokens", action=_Either, type=int, metavar="N", help=most)
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end at this text; may be repeated")
    parser.add_argument(
        "--adapter", action="append", default=[], metavar="NAME[=SCALE]", help="use this LoRA adapter; may be repeated"
    )
    parser.add_argument("--ignore-eos", action="store_true", help="do not stop at end tokens")
    parser.add_argument("--keep-special", action="store_true", help="show special tokens in the text")
    parser.add_argument("--speculate", action=_OnOrOff, help="whether the package's proposer drafts tokens")
    sampling = parser.add_argument_group("sampling", _SAMPLING)
    for name, help in FLOATS.items():
        sampling.add_argument(f"--{name.replace('_', '-')}", type=float, metavar="X", help=help)
    for name, help in WHOLE.items():
        sampling.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help=help)


def _add_picture_options(parser: argparse.ArgumentParser) -> None:
    """The options of a prompt that is drawn."""
    parser.add_argument("--negative-prompt", metavar="TEXT", help="what a picture is not to show")
    parser.add_argument("--steps", type=int, metavar="N", help="steps of a picture")
    parser.add_argument("--guidance-scale", type=float, metavar="X", help="how closely a picture keeps to its prompt")
    parser.add_argument("--width", type=int, metavar="PIXELS", help="of a picture; default: the package's")
    parser.add_argument("--height", type=int, metavar="PIXELS", help="of a picture; default: the package's")
    parser.add_argument(
        "--strength", type=float, metavar="X", help="part of the steps, for one that starts from latents"
    )


def _add_other_options(parser: argparse.ArgumentParser) -> None:
    """The options of a task, of speech and of pictures."""
    parser.add_argument(
        "--task",
        metavar="NAME",
        help="run once and print what the package's profile NAME makes of it; a package that "
        "makes neither text nor pictures and has one profile needs no name",
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an input of --task, or of a picture: numbers as JSON, or a .npy file; may be repeated",
    )
    parser.add_argument("--instructions", default="", metavar="TEXT", help="how --speech says it, in words")
    parser.add_argument(
        "-o",
        "--save",
        action=_Either,
        type=Path,
        metavar="FILE",
        help="write the picture (.png), the sound of --speech, or the result of --task (.npy, .json), to a file",
    )


def _add_loading_options(parser: argparse.ArgumentParser) -> None:
    """How the folder is loaded."""
    parser.add_argument(
        "--provider", action="append", metavar="NAME", help="execution provider, strict; may be repeated"
    )
    help = "tokens of a prompt that one run takes at most, 0: all (default: as the package says, else all)"
    parser.add_argument("--prefill-chunk", type=int, metavar="N", help=help)
    parser.add_argument("--policy", choices=("host", "graph"), help="who draws sampled tokens (default: the cheaper)")
    help = "where a graph takes other tables of positions behind a length: keep its caches, recompute them, or refuse"
    parser.add_argument("--length-switch", choices=LENGTH_SWITCHES, default="keep", help=help)
    parser.add_argument("--threads", type=int, help="intra-op threads (default: the cores this process may use)")
    parser.add_argument("--verify", action="store_true", help="check large files by content too")
