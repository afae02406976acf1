"""How many entries of a prompt a sound takes, by its length alone: no sample is looked at."""

from collections.abc import Mapping
from typing import Any

from genai_runtime.adapters.audio.program import entries_in, variant_of
from genai_runtime.adapters.audio.resample import length_at
from genai_runtime.adapters.audio.sound_file import extent_of
from genai_runtime.adapters.audio.stated_features import AudioFeatures, frames_in
from genai_runtime.problem import ExecutionError, RequestError


def entries_of_sound(data: bytes, heard: Mapping[str, Any]) -> int:
    """The entries of the sound in the bytes of a file.

    heard: `variants`, `strides` and `most` of its program; `entry` in the place of strides: (frames that have one
    together, how many more count as there), of all frames. Raises RequestError `bad-audio`; LoadError
    `miniaudio-missing`.
    """
    try:
        frames, rate = extent_of(data)
    except ExecutionError as fault:
        raise RequestError(fault.code, fault.what, help=fault.help) from fault
    how = variant_of([AudioFeatures(**each) for each in heard["variants"]], rate)
    count = length_at(frames, rate, how.rate)
    count = min(count, heard["most"]) if heard["most"] else count
    frames_made = frames_in(count, how)
    if "entry" in heard:
        together, more = heard["entry"]
        return max(0, (frames_made + int(more)) // int(together))
    return entries_in(max(frames_made - how.blank, 0), heard["strides"])
