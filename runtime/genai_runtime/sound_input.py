"""Sound files for a package that takes samples: what its processor file says becomes of them, as an input tensor."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from genai_runtime.given import content_of
from genai_runtime.problem import RequestError
from genai_runtime.values import Array

Data = Mapping[str, Any]
"""A manifest's content, or its entry `sound`."""
_EPSILON = 1e-7


def samples_of(sound: Data, audio: Sequence[bytes | Path | str]) -> dict[str, Array]:
    """The value of the input for samples [1, n]. sound: the manifest's entry.

    Raises RequestError: `no-such-file`, `unreadable-file`, `bad-audio`, `audio-too-long`, `audio-window`.
    """
    from genai_runtime.adapters.audio.program import AudioProgram

    steps = [("resample", float(sound["sample_rate"]))]
    steps += [("zero_mean_unit_variance", _EPSILON)] if sound["normalized"] else []
    program = AudioProgram(tuple(steps), 0, 0, ((sound["input"], "waveform"),))
    made = program.run([content_of("audio", each) for each in audio])
    return {name: each for name, each in made.items() if isinstance(each, np.ndarray)}


def start_of_output(data: Data) -> list[int]:
    """The prompt where only a sound is given. Raises RequestError `no-prompt` where nobody says how output starts."""
    start = data["sound"]["start"] if data["sound"] is not None else None
    if start is None:
        start = next((each["prompt"].get("start") for each in data["media"] if each["kind"] == "audio"), None)
    if start is None:
        what = "the package does not say which token its output starts with"
        raise RequestError("no-prompt", what, help="give the prompt's tokens beside the sound")
    return [start]
