"""Packages by onnxruntime-genai's own builder: the real model in three precisions, random ones in three sizes."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tools.peers.checkpoints import CONTEXT, Size, write_random, write_real
from tools.peers.environments import PeerError, require
from tools.peers.policy_package import write_policy_package
from tools.smollm2.checkpoint import read_checkpoint
from tools.smollm2.download import fetch_checkpoint


@dataclass(frozen=True)
class Wanted:
    """precision: the builder's -p. size: a random decoder's, None for the real model."""

    precision: str
    size: Size | None = None


PACKAGES = {
    "int4": Wanted("int4"),
    "int8": Wanted("int8"),
    "fp32": Wanted("fp32"),
    "tiny": Wanted("fp32", Size(2, 64, 128, 4, 2, 512)),
    "small": Wanted("fp32", Size(6, 256, 704, 4, 2, 8192)),
    "medium": Wanted("fp32", Size(10, 512, 1408, 8, 4, 16384)),
    "tiny-workflow": Wanted(""),
}
"""tiny-workflow: the graph of `tiny` with policies around it, which needs no builder."""


def build_package(name: str, peers: Path, cache: Path) -> None:
    """Build one package into `peers`/packages/NAME; one that is there is left alone.

    Raises DownloadError (the checkpoint can't be had) or PeerError (no builder, or it failed; its log is named).
    """
    folder = peers / "packages" / name
    if folder.exists():
        print(f"{name}: {folder} (already built)", flush=True)
        return
    part = folder.with_name(f"{name}.part")
    shutil.rmtree(part, ignore_errors=True)
    if name == "tiny-workflow":
        build_package("tiny", peers, cache)
        write_policy_package(part, folder.with_name("tiny"), CONTEXT)
    else:
        source = checkpoint_folder(name, PACKAGES[name], peers, cache)
        run_builder(require(peers, "builder"), source, part, PACKAGES[name].precision)
        shutil.copyfile(source / "config.json", part / "config.json")
    part.replace(folder)
    print(f"{name}: {folder}", flush=True)


def checkpoint_folder(name: str, wanted: Wanted, peers: Path, cache: Path) -> Path:
    """The folder of the checkpoint that a package is built from, written when it is not there."""
    folder = peers / "checkpoints" / ("real" if wanted.size is None else name)
    if not folder.exists():
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        if wanted.size is None:
            write_real(part, read_checkpoint(fetch_checkpoint(cache)))
        else:
            write_random(part, wanted.size)
        part.replace(folder)
    return folder


def run_builder(interpreter: Path, source: Path, out: Path, precision: str) -> None:
    """One run of the builder, offline. Its words, a line a weight, go to a log beside the package."""
    log = out.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [str(interpreter), "-m", "onnxruntime_genai.models.builder", "-i", str(source), "-o", str(out)]
    command += ["-p", precision, "-e", "cpu", "-c", str(out.with_suffix(".cache"))]
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    with log.open("wb") as file:
        ended = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, **offline})
    if ended.returncode:
        raise PeerError(f"the builder failed; its last words are in {log}")
    shutil.rmtree(out.with_suffix(".cache"), ignore_errors=True)
