"""Stored sessions: graphs as ONNX Runtime's optimiser left them, which loading opens in the place of the plain ones.

What the optimiser makes depends on the build of ONNX Runtime and on the processor (layouts of convolutions). Both are
noted when sessions are stored; where they are others now, or a stored graph is not what was written, the plain graph
is opened and a notice says so. Weights are none in a stored graph: it refers to the package's files as they lie.
"""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genai_runtime import binding
from genai_runtime.manifest import Manifest, file_hash

PROCESSOR = Path("/proc/cpuinfo")
_HEAD = 16384
"""Bytes that the first processor's entry fits in: the kernel makes the text of those alone that are read."""
_KEYS = (
    "vendor_id", "cpu family", "model", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features", "isa",
)  # fmt: skip
"""What of an entry decides which kernels there are (x86, arm64, RISC-V)."""
RENEW = "compile again with --store-sessions, here, to renew them"


@dataclass(frozen=True)
class Stored:
    """A stored graph, and the folder its external weights are relative to."""

    file: Path
    weights: Path


def facts() -> dict[str, str] | None:
    """What stored sessions belong to: `onnxruntime`, `system`, `processor`; None where the system does not tell."""
    try:
        with PROCESSOR.open("rb") as file:
            entry = file.read(_HEAD).decode("utf-8", "replace").partition("\n\n")[0]
    except OSError:
        return None
    found = [tuple(part.strip() for part in line.partition(":")[::2]) for line in entry.splitlines()]
    told = "; ".join(f"{key}: {value}" for key, value in found if key in _KEYS)
    system = f"{platform.system()} {platform.machine()}"
    return {"onnxruntime": binding.build(), "system": system, "processor": told} if told else None


def stored_graphs(manifest: Manifest) -> tuple[dict[str, Stored], tuple[str, ...]]:
    """(component -> the graph to open in its place, notices of what was stored and is not used)."""
    entry = manifest.data.get("stored")
    if entry is None:
        return {}, ()
    now = facts() or dict.fromkeys(entry["made"], "unknown")
    other = next((key for key, value in entry["made"].items() if now.get(key) != value), None)
    if other is not None:
        said = _differing(other, entry["made"][other], now.get(other, "unknown"))
        return {}, (f"stored sessions are not used: {said}; {RENEW}",)
    found, spoilt = dict[str, Stored](), list[str]()
    for name, each in entry["graphs"].items():
        file = manifest.folder / each["file"]
        if _same(file, each["sha256"]):
            found[name] = Stored(file, manifest.weights(each["weights"]))
        else:
            spoilt.append(each["file"])
    missing = (
        f"stored sessions that are missing or were changed are not used: {', '.join(sorted(set(spoilt)))}; {RENEW}"
    )
    return found, (missing,) if spoilt else ()


def _same(file: Path, digest: str) -> bool:
    try:
        return file.is_file() and file_hash(file) == digest
    except OSError:
        return False


def _differing(key: str, made: str, now: str) -> str:
    if key == "processor":
        return "they were made on another processor"
    return f"they were made for {made}, this is {now}"


def save(task: Mapping[str, Any]) -> None:
    """Write a graph as the optimiser leaves it. Raises what ONNX Runtime raises; LoadError without it.

    task: `graph`, `weights` (the folder that it is opened with), `target`; `options`, as sessions are opened with.
    """
    binding.require()
    options = {"log_severity_level": 3, **task["options"], "intra_op_num_threads": 1}
    if task["weights"] != str(Path(task["graph"]).parent):
        options["session.model_external_initializers_file_folder_path"] = task["weights"]
    binding.write_optimised(Path(task["graph"]), Path(task["target"]), options)


def main() -> None:
    """A task as JSON on standard input, facts() as JSON out: a process of its own, as native code reads graphs.

    Where there are no facts nothing is optimised: nobody could tell later whether the graph fits.
    """
    import json
    import sys

    binding.require()
    known = facts()
    if known is not None:
        save(json.load(sys.stdin))
    print(json.dumps(known))


if __name__ == "__main__":
    main()
