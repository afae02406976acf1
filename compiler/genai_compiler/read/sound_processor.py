"""`preprocessor_config.json` beside a model that takes samples: at which rate, and what becomes of them before.

Nothing in a graph tells the rate of its samples; this file does. Files about pictures, and about features, have the
same name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from genai_compiler.problem import CompileError, Problem, Severity
from genai_compiler.read.files import read_document
from genai_compiler.read.places import as_written

FILE = "preprocessor_config.json"
_HIGHEST = 768_000


@dataclass(frozen=True)
class SoundProcessor:
    """rate: of the samples, Hz. normalized: to zero mean and unit variance."""

    rate: int
    normalized: bool = False


def read_sound_processor(root: Path) -> tuple[SoundProcessor | None, tuple[Problem, ...]]:
    """What the file of the package at `root` says; None without one, or where it says nothing of samples.

    Problems, warnings all: those of an unreadable file; sound-processor for a rate that is none.
    """
    if not (root / FILE).exists():
        return None, ()
    try:
        data, places = read_document(root / FILE, root)
    except CompileError as fault:
        return None, tuple(replace(each, severity=Severity.WARNING) for each in fault.problems)
    stated: Mapping[str, Any] = data if isinstance(data, dict) else {}
    if "sampling_rate" not in stated or stated.get("feature_size", 1) != 1:
        return None, ()
    rate = stated["sampling_rate"]
    if not isinstance(rate, int) or isinstance(rate, bool) or not 0 < rate <= _HIGHEST:
        what, help = f"sampling_rate is {as_written(rate)}: no rate in Hz", "state it as a whole number"
        place = places.find(("sampling_rate",))
        return None, (Problem("sound-processor", place, "sampling_rate", what, help, Severity.WARNING),)
    return SoundProcessor(rate, stated.get("do_normalize") is True), ()
