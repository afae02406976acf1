"""A script in a process of its own: for what only a fresh process shows (memory, exit)."""

import subprocess
import sys

import pytest

PROBE_NEEDS_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self and resource limits of Linux")


def run_probe(script: str, timeout: float = 300) -> str:
    """What the script prints. It must exit with 0 and write nothing to stderr."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=timeout, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout
