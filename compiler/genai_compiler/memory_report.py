"""The memory plan in a person's words, and as data."""

from collections.abc import Iterator
from typing import Any

from genai_compiler.plan.memory import MEGABYTE, MemoryPlan


def memory_lines(found: MemoryPlan) -> Iterator[str]:
    """A table: each term and where it comes from, then what the process has at each time."""
    yield f"memory of a process: {_asked(found)}"
    if found.generates:
        yield f"  one more token of one row costs {found.per_token} bytes of state"
    width = max(*(len(each.name) for each in found.terms), *(len(name) for name, _ in found.phases))
    for each in found.terms:
        mark = "~" if each.estimated else " "
        yield f"  {each.name:{width}} {mark}{_shown(each.bytes):>8} MB  {each.source}"
    first = next(at for at, (_, size) in enumerate(found.phases) if size == found.peak)
    for at, (name, size) in enumerate(found.phases):
        mark = "  <- the peak" if at == first else ""
        yield f"  = {name:{width}}{_shown(size):>8} MB{mark}"
    yield "  ~ is an estimate; MB are 1000000 bytes; memory is what the process has alone (USS), on the CPU"
    for note in found.notes:
        yield f"  note: {note}"


def _asked(found: MemoryPlan) -> str:
    """The request that is spoken of: a prompt and what follows it, or what goes in where nothing does."""
    lengths = found.lengths
    if not found.generates:
        return f"batch {lengths.batch}" + (f", {lengths.prompt} tokens a row" if found.tokens else "")
    runs = f" in runs of {lengths.at_once}" if lengths.at_once < lengths.prompt else ""
    return f"batch {lengths.batch}, prompt {lengths.prompt}{runs}, context {lengths.context} tokens"


def memory_data(found: MemoryPlan) -> dict[str, Any]:
    """The same for a program; sizes in bytes."""
    lengths = found.lengths
    return {
        "batch": lengths.batch,
        "prompt": lengths.prompt,
        "context": lengths.context,
        "prefill_chunk": lengths.at_once,
        "bytes_per_token": found.per_token,
        "terms": [
            {"name": each.name, "bytes": each.bytes, "source": each.source, "estimated": each.estimated}
            for each in found.terms
        ],
        "phases": [{"name": name, "bytes": size} for name, size in found.phases],
        "peak": found.peak,
        "notes": list(found.notes),
    }


def _shown(size: int) -> str:
    return f"{size / MEGABYTE:.1f}" if size >= MEGABYTE // 10 else f"{size / MEGABYTE:.3f}"
