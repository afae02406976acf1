"""What a table was measured on, in words."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from genai_compiler.costs.table import Machine


def machine() -> Machine:
    """This machine and what is installed."""
    return Machine(
        processor=_processor(),
        system=f"{platform.system()}, {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        numpy=_installed("numpy"),
        onnxruntime=_installed("onnxruntime") or _installed("onnxruntime-gpu") or "unknown",
    )


def _processor() -> str:
    """Its name as the system gives it, with family and model where the name says little."""
    found: dict[str, str] = {}
    info = Path("/proc/cpuinfo")
    for line in info.read_text("utf-8", "replace").splitlines() if info.exists() else ():
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), value.strip())
    name = found.get("model name") or platform.processor() or "unknown"
    family = [f"{key} {found[key]}" for key in ("cpu family", "model") if key in found]
    return f"{name} ({', '.join(family)})" if family else name


def _installed(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
