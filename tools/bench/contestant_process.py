"""The other end of contestant_worker.py and peer_worker.py: one that takes its turns from a process of its own."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tools.bench.contestants import PEERS_APART, Contestant
from tools.bench.place import ROOT
from tools.bench.run_clock import Trace

PEER_PROGRAM = Path(__file__).parent / "peer_worker.py"


class ContestantProcess:
    """A running contestant. Between its turns it waits on a pipe and takes no time."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start it and wait until it has opened its model. Raises RuntimeError with its last words if it doesn't."""
        self._command = list(command)
        self._words = tempfile.TemporaryFile("w+")  # noqa: SIM115  (a pipe that nobody reads would fill up)
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._words, text=True,
            cwd=ROOT, env=environment,
        )  # fmt: skip
        self._hear()

    def generate(self, rows: Sequence[list[int]], new: int) -> Trace:
        """One generation of these rows. Times are the process's own: the pipe is not in them."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"rows": rows, "new": new}) + "\n")
        self._process.stdin.flush()
        answer = self._hear()
        return Trace(
            answer["tokens"], answer["ttft"], answer["seconds"], rows=len(rows),
            steps=answer["steps"], hosts=answer.get("hosts", ()), runs=answer.get("runs", ()),
        )  # fmt: skip

    def close(self) -> None:
        """End it: it leaves when its requests end."""
        if not self._words.closed:
            self._process.communicate()
            self._words.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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


def command_of(each: Contestant, threads: int) -> list[str]:
    """The command line of a contestant's process."""
    if each.kind in PEERS_APART:
        return [each.python, "-P", str(PEER_PROGRAM), each.kind, each.package, str(threads)]
    task = json.dumps({**each.as_data(), "threads": threads})
    return [sys.executable, "-m", "tools.bench.contestant_worker", task]
