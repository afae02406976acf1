"""Files of which a package's own program makes something else than its graphs take: what to say of them."""

from genai_runtime.adapters.files import split_files
from genai_runtime.adapters.image.decode import upright_size
from genai_runtime.inputs import Bound
from genai_runtime.problem import GenaiError, RequestError
from genai_runtime.values import to_array

_SHOWN = 8
"""Files that a message tells the sizes of."""


def wrong_files(what: str, name: str, inputs: Bound) -> RequestError:
    """The refusal. name: the input that takes the files; inputs: what the request bound."""
    given = inputs.values.get(name)
    files = split_files(to_array(given).tobytes()) if given is not None else []
    sizes = ", ".join(map(_size, files[:_SHOWN])) + (", ..." if len(files) > _SHOWN else "")
    made = f"; input '{name}' was given {sizes}" if sizes else ""
    help = "give as many files as the package takes, of the size (of a sound: the length) that it takes"
    return RequestError("wrong-shape", what + made, help=help)


def _size(data: bytes) -> str:
    try:
        height, width = upright_size(data)
    except GenaiError:  # no picture
        return f"a file of {len(data)} bytes"
    return f"a picture of {width} x {height} pixels"
