"""How many entries of a prompt a picture takes, by its size alone: no pixel is decoded."""

from collections.abc import Mapping
from typing import Any

from genai_runtime.adapters.image.decode import upright_size
from genai_runtime.adapters.image.program import ImageResize, ImageViews
from genai_runtime.adapters.image.sizes import resized_to
from genai_runtime.adapters.image.views import entries_of_views


def entries_of(data: bytes, name: str, facts: Mapping[str, Any], cell: int) -> tuple[int, int]:
    """(rows, columns) of the entries of the picture in some bytes.

    facts: `resize`, `crop` and `views` of its program; cell: pixels of the edge that one entry stands for. Raises
    RequestError `bad-image`, `image-limit`; LoadError `pillow-missing`.
    """
    size = upright_size(data, name)
    if facts["views"] is not None:
        return 1, entries_of_views(size, ImageViews(**facts["views"]))
    if facts["resize"] is not None:
        size = resized_to(size, ImageResize(**facts["resize"]))
    if facts["crop"] is not None:
        size = (int(facts["crop"][0]), int(facts["crop"][1]))
    return size[0] // cell, size[1] // cell
