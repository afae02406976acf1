"""Which version this is, for the command's `--version`."""

import argparse
from typing import Any


class ShowVersion(argparse.Action):
    """`--version`: looks the version up only when asked for it."""

    def __init__(self, option_strings: list[str], dest: str, help: str = "") -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(f"{parser.prog} {installed_version()}")
        parser.exit()


def installed_version() -> str:
    """The version of the installed distribution, "unknown" where it is run without being installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("genai-compile")
    except PackageNotFoundError:
        return "unknown"
