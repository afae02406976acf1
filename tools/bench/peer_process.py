"""The other end of peer_worker.py: a peer that takes its turns from a process of its own."""

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.bench.run_clock import Trace

PROGRAM = Path(__file__).parent / "peer_worker.py"


class PeerProcess:
    """A running peer. Between its turns it waits on a pipe and takes no time."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start it and wait until it has opened its model. Raises RuntimeError with its last words if it doesn't."""
        self._command = list(command)
        self._words = tempfile.TemporaryFile("w+")  # noqa: SIM115  (a pipe that nobody reads would fill up)
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._words, text=True
        )
        self.versions: dict[str, str] = self._hear()["versions"]

    def generate(self, rows: Sequence[list[int]], new: int) -> Trace:
        """One generation of the only row. Times are the peer's own: the pipe is not in them."""
        (ids,) = rows
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"ids": ids, "new": new}) + "\n")
        self._process.stdin.flush()
        answer = self._hear()
        return Trace(answer["tokens"], answer["ttft"], answer["seconds"], steps=answer["steps"])

    def close(self) -> None:
        """End it: it leaves when its requests end."""
        self._process.communicate()
        self._words.close()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.communicate()
            self._words.seek(0)
            words = self._words.read().strip().splitlines()[-6:]
            self._words.close()
            raise RuntimeError("\n".join([f"{' '.join(self._command)} ended:", *words]))
        found: dict[str, Any] = json.loads(line)
        return found


def peer_command(python: Path, kind: str, package: Path, threads: int) -> list[str]:
    """The command line of a peer."""
    return [str(python), "-P", str(PROGRAM), kind, str(package), str(threads)]
