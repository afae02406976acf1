"""The options of genai-run, in groups; each with an example."""

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NoReturn

from genai_runtime.problem import GenaiError, printable
from genai_runtime.versions import ShowVersion

_USAGE = "%(prog)s DIR [--prompt TEXT | --chat [TEXT] | --tokens IDS | --task NAME] [OPTION ...]"
_DESCRIPTION = """Run a compiled package. Without a word of what is asked, standard input is the prompt; in a
terminal, a conversation begins. genai-run DIR --help says what that package takes and gives."""
_EXIT_CODES = """Exit codes: 0 done; 1 our fault; 2 the input's fault (bad folder, bad request); 3 interrupted. Text
goes to stdout as it is made, everything else to stderr."""
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
_SAMPLING = """An option left out has the package's default, else the one named here. Temperature, top-k, top-p or min-p
asks for sampling; without any, the package's default decides, else the output is greedy."""
_CHUNK = "tokens of a prompt that one run takes at most, 0: all (default: as the package says, else all)"
LENGTH_SWITCHES = ("keep", "recompute", "refuse")
"""Those of length_switch.py, which imports more than a command line may before it runs."""
ASKED, TEXT, SAMPLING, PICTURES = "what is asked", "text", "sampling", "pictures"
FILES, LOADING, TOLD = "files and values", "loading", "what is told"
_EXAMPLES = {
    ASKED: 'genai-run DIR --chat "What is the capital of France?"',
    TEXT: 'genai-run DIR --prompt "Once upon a time" -n 64 --stop "The end"',
    SAMPLING: 'genai-run DIR --prompt "Once upon a time" --temperature 0.8 --top-p 0.9 --seed 7',
    PICTURES: 'genai-run DIR --prompt "a red boat" --steps 20 --seed 7 -o boat.png',
    FILES: 'genai-run DIR --chat "What is this?" --image boat.png',
    LOADING: 'genai-run DIR --prompt "Once upon a time" --threads 4',
    TOLD: 'genai-run DIR --prompt "Once upon a time" --stats --profile trace.json',
}
"""Group of options -> a command that uses some of them."""
_ONLY_FOR = {TEXT: {"text"}, SAMPLING: {"text"}, PICTURES: {"pictures"}}
"""Group of options -> what a package makes that they have an effect on."""
_OPTIONS_FOR = {
    "chat": {"text"},
    "speech": {"speech"},
    "task": {"tasks"},
    "adapter": {"adapters"},
    "speculate": {"drafts"},
    "image": {"image"},
    "audio": {"audio"},
    "input": {"tasks", "pictures"},
    "instructions": {"speech"},
    "save": {"speech", "tasks", "pictures"},
}
"""Option of another group -> what a package makes or takes that it has an effect on, one of these."""


def path(text: str) -> Path:
    """The file or folder of an option. Raises ArgumentTypeError for `-`, which a Path does not tell from `./-`."""
    if text == "-":
        raise argparse.ArgumentTypeError("'-' is no file: nothing goes over standard streams; ./- is one called so")
    return Path(text)


def _assigned(text: str) -> str:
    """NAME=VALUE whose value is no stream."""
    path(text.partition("=")[2])
    return text


class Parser(argparse.ArgumentParser):
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

    def error(self, message: str) -> NoReturn:
        """Leave with exit code 2; an endless word of the command line is cut."""
        super().error(printable(message))

    def help_without(self, titles: Collection[str], options: Collection[str]) -> str:
        """The help without these groups of options and these options; a group that has none left goes, too."""
        groups, helps = self._action_groups, [(each, each.help) for each in self._actions]
        for each, _ in helps:
            each.help = argparse.SUPPRESS if each.dest in options else each.help
        shown = [each for each in groups if any(one.help != argparse.SUPPRESS for one in each._group_actions)]
        self._action_groups = [each for each in shown if each.title not in titles]
        try:
            return self.format_help()
        finally:
            self._action_groups = groups
            for each, help in helps:
                each.help = help


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


class ShowHelp(argparse.Action):
    """`--help`: all options; behind a folder, what its package takes and gives, and the options that count for it."""

    def __init__(self, option_strings: list[str], dest: str, help: str = "") -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
        assert isinstance(parser, Parser)
        folder: Path | None = getattr(namespace, "folder", None)
        if folder is None:
            parser.print_help()
            parser.exit()
        from genai_runtime import package_help as about

        try:
            found = about.package_help(folder)
        except (GenaiError, OSError) as refused:
            parser.print_help()
            print(f"\n{refused}" if isinstance(refused, GenaiError) else printable(f"\n{folder}: {refused}"))
            parser.exit()
        has = found.makes | found.takes
        without = [title for title, kinds in _ONLY_FOR.items() if has.isdisjoint(kinds)]
        options = [name for name, kinds in _OPTIONS_FOR.items() if has.isdisjoint(kinds)]
        print(parser.help_without(without, options), found.text, sep="\n")
        if without or options:
            print("\nwithout the options that do nothing for this package: genai-run --help has all")
        parser.exit()


def options() -> Parser:
    """The parser of genai-run. What it has parsed has `typed`: option -> which of its two names was typed."""
    parser = Parser(
        "genai-run",
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    parser.set_defaults(typed={})
    groups = {title: parser.add_argument_group(title, _described(title)) for title in _EXAMPLES}
    _add_asked(groups[ASKED])
    _add_text_options(groups[TEXT])
    for name, help in FLOATS.items():
        groups[SAMPLING].add_argument(f"--{name.replace('_', '-')}", type=float, metavar="X", help=help)
    for name, help in WHOLE.items():
        groups[SAMPLING].add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help=help)
    _add_picture_options(groups[PICTURES])
    _add_file_options(groups[FILES])
    _add_loading_options(groups[LOADING])
    _add_told_options(groups[TOLD])
    return parser


def _described(title: str) -> str:
    example = f"for example: {_EXAMPLES[title]}"
    return f"{example}\n{_SAMPLING}" if title == SAMPLING else example


def _add_asked(group: argparse._ArgumentGroup) -> None:
    group.add_argument("folder", type=path, metavar="DIR", help="a folder that genai-compile wrote")
    one = group.add_mutually_exclusive_group()
    one.add_argument(
        "--prompt", metavar="TEXT", help="continue this text; or draw it, where the package makes pictures"
    )
    one.add_argument(
        "--chat", metavar="TEXT", nargs="?", const="", help="answer this message; without TEXT, a conversation"
    )
    one.add_argument("--tokens", metavar="1,2,3", help="continue these token ids; prints ids")
    one.add_argument("--speech", metavar="TEXT", help="say this text; --save says where to")
    one.add_argument("--describe", action="store_true", help="print inputs, outputs, state and providers as JSON")
    group.add_argument(
        "--task",
        metavar="NAME",
        help="run once and print what the package's profile NAME makes of it; a package that "
        "makes neither text nor pictures and has one profile needs no name",
    )


def _add_text_options(group: argparse._ArgumentGroup) -> None:
    """The options of a prompt or a chat."""
    most = "how many tokens at most, without the prompt; default: what the package or its context leaves"
    group.add_argument("-n", "--max-new-tokens", action=_Either, type=int, metavar="N", help=most)
    group.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end at this text; may be repeated")
    group.add_argument("--system", metavar="TEXT", help="system message of a chat")
    group.add_argument(
        "--adapter", action="append", default=[], metavar="NAME[=SCALE]", help="use this LoRA adapter; may be repeated"
    )
    group.add_argument("--ignore-eos", action="store_true", help="do not stop at end tokens")
    group.add_argument("--keep-special", action="store_true", help="show special tokens in the text")
    group.add_argument("--speculate", action=_OnOrOff, help="whether the package's proposer drafts tokens")


def _add_picture_options(group: argparse._ArgumentGroup) -> None:
    """The options of a prompt that is drawn."""
    group.add_argument("--negative-prompt", metavar="TEXT", help="what a picture is not to show")
    group.add_argument("--steps", type=int, metavar="N", help="steps of a picture")
    group.add_argument("--guidance-scale", type=float, metavar="X", help="how closely a picture keeps to its prompt")
    group.add_argument("--width", type=int, metavar="PIXELS", help="of a picture; default: the package's")
    group.add_argument("--height", type=int, metavar="PIXELS", help="of a picture; default: the package's")
    group.add_argument(
        "--strength", type=float, metavar="X", help="part of the steps, for one that starts from latents"
    )


def _add_file_options(group: argparse._ArgumentGroup) -> None:
    """What goes in beside a text, and out."""
    group.add_argument(
        "--image", action="append", type=path, default=[], metavar="FILE", help="show this picture; may be repeated"
    )
    group.add_argument(
        "--audio", action="append", type=path, default=[], metavar="FILE", help="hear this sound; may be repeated"
    )
    group.add_argument(
        "--input",
        action="append",
        type=_assigned,
        default=[],
        metavar="NAME=VALUE",
        help="an input of --task, or of a picture: numbers as JSON, or a .npy file; may be repeated",
    )
    group.add_argument("--instructions", default="", metavar="TEXT", help="how --speech says it, in words")
    group.add_argument(
        "-o",
        "--save",
        action=_Either,
        type=path,
        metavar="FILE",
        help="write the picture (.png), the sound of --speech, or the result of --task (.npy, .json), to a file",
    )


def _add_loading_options(group: argparse._ArgumentGroup) -> None:
    """How the folder is loaded."""
    group.add_argument(
        "--provider", action="append", metavar="NAME", help="execution provider, strict; may be repeated"
    )
    group.add_argument(
        "--threads", type=int, metavar="N", help="intra-op threads (default: the cores this process may use)"
    )
    group.add_argument("--prefill-chunk", type=int, metavar="N", help=_CHUNK)
    group.add_argument("--policy", choices=("host", "graph"), help="who draws sampled tokens (default: the cheaper)")
    help = "where a graph takes other tables of positions behind a length: keep its caches, recompute them, or refuse"
    group.add_argument("--length-switch", choices=LENGTH_SWITCHES, default="keep", help=help)
    group.add_argument("--verify", action="store_true", help="check large files by content too")


def _add_told_options(group: argparse._ArgumentGroup) -> None:
    """What is told beside the result."""
    group.add_argument("--stats", action="store_true", help="print counts, times and memory to stderr")
    group.add_argument("--json", action="store_true", help="print one JSON line instead of text")
    group.add_argument(
        "--profile",
        nargs="?",
        type=path,
        const=False,
        metavar="TRACE.json",
        help="print to stderr where the time went; with a file, write a trace for Perfetto or chrome://tracing too",
    )
    group.add_argument("--version", action=ShowVersion, help="print the version and leave")
    group.add_argument("-h", "--help", action=ShowHelp, help="print this and leave; with DIR, what it takes and gives")
