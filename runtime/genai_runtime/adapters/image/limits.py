"""What an image program may take and make (standard, 5.6), and refusing more before memory is asked for."""

from math import prod

from genai_runtime.problem import RequestError

MAX_IMAGES = 1024
MAX_PIXELS = 16 << 20
MAX_ELEMENTS = 64 << 20


def hold_count(count: int) -> None:
    """So many pictures may be given. Raises RequestError `image-limit`."""
    if count > MAX_IMAGES:
        told = f"{count} pictures are more than the {MAX_IMAGES} of the standard (V067)"
        raise RequestError("image-limit", told, help="give them in several calls")


def hold_size(height: int, width: int, what: str) -> None:
    """A picture of this size may be made. Raises RequestError `image-limit`."""
    if height < 1 or width < 1:
        raise RequestError("image-limit", f"{what} would be {width}x{height} pixels: nothing (V067)")
    if height * width > MAX_PIXELS:
        told = f"{what} has {width}x{height} pixels, more than the {MAX_PIXELS} of the standard (V067)"
        raise RequestError("image-limit", told, help="give a smaller picture")


def hold_elements(shape: tuple[int, ...], what: str) -> None:
    """A tensor of this shape may be made. Raises RequestError `image-limit`."""
    if prod(shape) > MAX_ELEMENTS:
        told = f"{what} would have shape {list(shape)}, more than {MAX_ELEMENTS} elements (V067)"
        raise RequestError("image-limit", told, help="give fewer or smaller pictures")
