"""Where things are: packages, peers, compiled folders; and the environment that processes get."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tools.bench.contestants import AGAIN, LOOP, Contestant
from tools.bench.genai_loop import has_genai
from tools.bench.machine import versions_in
from tools.peers.environments import made, python_of
from tools.smollm2.download import GGUF

ROOT = Path(__file__).parent.parent.parent
OWN = ("v1", "workflow")
"""Packages of this repository's own tool; all others are the peer's builder's."""
WAYS = {
    "genai": "pip install 'genai-compile[bench]'",
    "optimum": "make bench-peers, or python -m tools.peers environments optimum",
    "llama": "make bench-peers, or python -m tools.peers environments llama",
    "packages": "make bench-packages, or python -m tools.peers packages",
}
"""What is absent -> how to have it."""

VERSIONS = {
    "optimum": ("optimum", "optimum-onnx", "transformers", "torch", "onnxruntime"),
    "llama": ("llama_cpp_python",),
}
"""Peers in other processes -> distributions whose versions are told."""


@dataclass(frozen=True)
class Place:
    """own: packages of our tool; peers: environments and packages of the peers; work: compiled folders, task files."""

    own: Path
    peers: Path
    work: Path
    environment: dict[str, str]
    done: set[str] = field(default_factory=set[str])

    def package(self, name: str) -> Path:
        """The folder of a package, by name."""
        return (self.own if name in OWN else self.peers / "packages").resolve() / name

    def compiled(self, name: str, without: tuple[str, ...] = (), more: tuple[str, ...] = ()) -> Path:
        """The compiled folder of a package: compiled now, with this environment's compiler, once a process.

        without: passes to leave out; more: further options of the command.
        """
        key = "-".join((name, *without, *(each.strip("-") for each in more)))
        out = self.work / "compiled" / key
        if key not in self.done:
            compile_folder(self.package(name), out, self.environment, without, more)
            self.done.add(key)
        return out

    def has(self, name: str) -> bool:
        """Whether a package or a peer is there: a package's name, or genai, optimum, llama."""
        if name == "genai":
            return has_genai()
        if name == "llama":
            return made(self.peers, name) and self.gguf.exists()
        if name == "optimum":
            return made(self.peers, name)
        return self.package(name).is_dir()

    @property
    def gguf(self) -> Path:
        """The checkpoint that llama.cpp runs."""
        return (self.own.parent / "download" / GGUF).resolve()

    def versions(self, name: str) -> dict[str, str]:
        """Versions of a peer in another process."""
        return versions_in(python_of(self.peers, name).absolute(), VERSIONS[name])

    def contestant(self, name: str, package: str) -> Contestant:
        """One that takes part on a package, by the name that results have."""
        folder = str(self.package(package))
        if name in (LOOP, AGAIN):
            return Contestant(name, "loop", folder)
        if name in ("tokens", "text", "workflow"):
            kind = "executor" if name == "tokens" else name
            return Contestant(name, kind, folder, str(self.compiled(package)))
        if name == "unhoisted":
            return Contestant(name, "workflow", folder, str(self.compiled(package, ("hoist_selection",))))
        if name in ("optimum", "llama"):
            opened = folder if name == "optimum" else str(self.gguf)
            return Contestant(name, name, opened, python=str(python_of(self.peers, name).absolute()))
        if name.startswith("one-graph"):
            return Contestant(name, "one-graph", folder, str(self.work / "one-graph" / package))
        return Contestant(name, name, folder)


def compile_folder(
    package: Path,
    out: Path,
    environment: dict[str, str],
    without: tuple[str, ...] = (),
    more: tuple[str, ...] = (),
) -> None:
    """Compile one package. without: passes to leave out; more: further options of the command."""
    left_out = [part for name in without for part in ("--without", name)]
    command = [sys.executable, "-m", "genai_compiler", str(package), "-o", str(out), *left_out, *more]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


def environment_with_home(home: Path) -> dict[str, str]:
    """This process's environment, with a home of its own: ONNX Runtime opens a store below it.

    Bytecode is kept, as it is for whatever is installed: else each process would compile this repository's modules.
    """
    home.mkdir(parents=True, exist_ok=True)
    own = {**os.environ, "HOME": str(home), "USERPROFILE": str(home), "HF_HUB_OFFLINE": "1"}
    own.pop("PYTHONDONTWRITEBYTECODE", None)
    return own
