"""Finds the data files that ship with the compiler: in a wheel under `_shipped/`, in a checkout at its root."""

from pathlib import Path


def shipped(folder: str) -> Path:
    """The folder `templates`, `schema` or `docs`. Raises FileNotFoundError that says how to mend the installation."""
    here = Path(__file__).resolve().parent
    for home in (here / "_shipped" / folder, here.parent.parent / folder):
        if home.is_dir():
            return home
    raise FileNotFoundError(f"the compiler's own folder '{folder}' is missing beside {here}: reinstall genai-compile")
