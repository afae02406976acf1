"""What the figures were taken on: processor, cores, versions, and how busy the machine was."""

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

LIBRARIES = ("numpy", "onnxruntime", "onnxruntime-gpu", "onnxruntime-genai", "tokenizers")


def machine_facts() -> dict[str, str]:
    """Facts by name, in the order they are shown."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    facts = {
        "Processor": f"{processor()}, {cores} cores for this process",
        "Memory": memory(),
        "System": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    return facts | {name: version for name in LIBRARIES if (version := installed(name))}


def processor() -> str:
    """The processor's name as the system gives it, with family and model where the name says little."""
    found: dict[str, str] = {}
    info = Path("/proc/cpuinfo")
    for line in info.read_text(encoding="utf-8").splitlines() if info.exists() else ():
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), value.strip())
    name = found.get("model name") or platform.processor() or "unknown"
    family = [f"{key} {found[key]}" for key in ("cpu family", "model") if key in found]
    return f"{name} ({', '.join(family)})" if family else name


def memory() -> str:
    """Main memory in GiB."""
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return "unknown"
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB"


def installed(distribution: str) -> str:
    """A distribution's version, "" when it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def versions_in(python: Path, names: Sequence[str]) -> dict[str, str]:
    """Versions of distributions in another environment; those that are installed there."""
    program = (
        "import importlib.metadata as m, json, sys; d = {x.metadata['Name']: x.version for x in m.distributions()}; "
        "print(json.dumps({n: d[n] for n in sys.argv[1:] if n in d}))"
    )
    made = subprocess.run([str(python), "-P", "-c", program, *names], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(made.stdout)
    return found


def load_average() -> float:
    """Processes that wanted a core, averaged over the last minute; 0 where the system does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
