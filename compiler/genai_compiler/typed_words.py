"""A command line whose slips are told with what may have been meant."""

import argparse
from collections.abc import Sequence

from genai_compiler.read.suggest import closest


class Parser(argparse.ArgumentParser):
    """A parser that names the nearest option for one that it does not know."""

    def parsed(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """The command line. Leaves with exit code 2 where words of it are left over."""
        found, unknown = self.parse_known_args(argv)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown[0])}")
        return found

    def _meant(self, word: str) -> str:
        if not word.startswith("-"):
            return "; the place to write to goes in as -o"
        near = closest(word.partition("=")[0], self._option_string_actions)
        return f"; did you mean {near}?" if near is not None else ""
