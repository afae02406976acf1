"""A command line whose slips are told with what may have been meant."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from genai_compiler.problem import printable
from genai_compiler.read.suggest import closest


def named(text: str) -> str:
    """The text where it names a file or a folder, for an option's `type`. Raises ArgumentTypeError for `-`."""
    if text == "-":
        raise argparse.ArgumentTypeError("'-' is no file: nothing goes over standard streams; ./- is one called so")
    return text


def path(text: str) -> Path:
    """Likewise, as a Path, which does not tell `-` from `./-` any more."""
    return Path(named(text))


class Parser(argparse.ArgumentParser):
    """A parser that names the nearest option for one that it does not know."""

    def parsed(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """The command line. Leaves with exit code 2 where words of it are left over."""
        found, unknown = self.parse_known_args(argv)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown[0])}")
        return found

    def error(self, message: str) -> NoReturn:
        """Leave with exit code 2; an endless word of the command line is cut."""
        super().error(printable(message))

    def _meant(self, word: str) -> str:
        if not word.startswith("-"):
            return "; the place to write to goes in as -o"
        near = closest(word.partition("=")[0], self._option_string_actions)
        return f"; did you mean {near}?" if near is not None else ""
