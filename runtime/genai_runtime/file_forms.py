"""File names against the form of what is written: WAV bytes named `said.mp3` would fail far from here."""

from pathlib import Path

from genai_runtime.problem import RequestError

WAV, PNG, NPY, JSON, RAW = ".wav", ".png", ".npy", ".json", ""
_NAMES = {WAV: "a WAV file", PNG: "a PNG file", NPY: "an .npy file", RAW: "raw samples without a header"}
_PROMISING = frozenset({
    WAV, PNG, NPY, ".mp3", ".flac", ".ogg", ".oga", ".opus", ".m4a", ".mp4", ".aac", ".aif", ".aiff", ".wma", ".webm",
    ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".svg", ".avif", ".heic", ".ppm", ".pdf",
    ".npz", ".csv", ".json", ".txt", ".safetensors",
})  # fmt: skip
"""Endings that promise a form; any other, and none at all, leaves open what the file holds."""


def hold_ending(file: str | Path, form: str) -> None:
    """form: what will be written. Raises RequestError `file-ending` where the name promises another form."""
    ending = Path(file).suffix.lower()
    if ending in _PROMISING and ending != form:
        help = f"name it {Path(file).with_suffix(form or '.raw').name}, and convert that"
        raise RequestError("file-ending", f"'{file}' would hold {_NAMES[form]}, no {ending} file", help=help)
