"""Numbers that the runtime's sampler takes, and beyond which it refuses every request."""

from genai_compiler.read.places import as_written
from genai_compiler.read.side_files import is_number

SMALLEST_TEMPERATURE, LARGEST = 1e-30, 1e30
_MOST_DIGITS = 18


def is_token(text: object) -> bool:
    """Whether a key of a map is a token id: digits without leading zeros."""
    digits = isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return digits and str(int(str(text))) == text


def bias_fault(token: object, delta: object) -> str:
    """What is wrong with what is added to a token's score, in words; "" where nothing is: float32 has to hold it."""
    if is_number(delta) and abs(delta) <= LARGEST:  # NaN is not within
        return ""
    return f"the bias of token {token} is {as_written(delta)}; it lies within -1e30 and 1e30"


FORBIDS = "-100 forbids a token in practice"
"""The way out for who wants none of a token."""
