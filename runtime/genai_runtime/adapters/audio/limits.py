"""How many sounds one request may bring and how much is made of them: refusing more before memory is asked for.

The bounds are those of pictures (V067): as many files, as many numbers of a tensor.
"""

from genai_runtime.adapters.audio.wav import MAX_SAMPLES
from genai_runtime.problem import ExecutionError, RequestError

MAX_SOUNDS = 1024


def hold_count(count: int) -> None:
    """So many sounds may be given. Raises RequestError `audio-limit`."""
    if count > MAX_SOUNDS:
        what = f"{count} sounds are more than the {MAX_SOUNDS} that a request may bring"
        raise RequestError("audio-limit", what, help="give them in several calls")


def hold_rows(rows: int, each: int, what: str) -> None:
    """So many rows of so many numbers may be made. Raises ExecutionError `audio-too-long`."""
    if rows * each > MAX_SAMPLES:
        told = f"{what} of {rows} sounds are {rows * each} numbers, more than {MAX_SAMPLES}"
        raise ExecutionError("audio-too-long", told, help="give fewer sounds in a call")
