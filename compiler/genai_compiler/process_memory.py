"""What a process has in memory before it loads a package: measured in a child process, or what was measured once."""

import json
import subprocess
import sys

from genai_compiler.plan.memory import Term

IMPORTED = 22_000_000
"""numpy, onnxruntime 1.32 and genai_runtime imported, on Linux x86-64, where other processes use the libraries too."""

_CHILD = """
import json
import numpy, onnxruntime, genai_runtime
kinds = ("Private_Clean:", "Private_Dirty:")
with open("/proc/self/smaps_rollup") as rollup:
    print(json.dumps(sum(int(line.split()[1]) << 10 for line in rollup if line.startswith(kinds))))
"""
SECONDS = 30


def imported_process() -> Term:
    """The memory that is the process's alone (USS) once it has imported what runs a package."""
    try:
        done = subprocess.run([sys.executable, "-c", _CHILD], capture_output=True, timeout=SECONDS, check=True)
        return Term("process", int(json.loads(done.stdout)), "imports only, measured just now in a child process")
    except (OSError, subprocess.SubprocessError, ValueError):
        source = "imports only, as measured on Linux x86-64: it can't be measured here"
        return Term("process", IMPORTED, source, estimated=True)
