"""How many tokens of one row's prompt a run takes: what a request says, else who loads, else the package; 0 is all."""

from collections.abc import Mapping
from typing import Any

from genai_runtime.problem import GenaiError, LoadError, RequestError

_HELP = "give a whole number of tokens, 1 or more; 0 runs a prompt as a whole"


def loaded_chunk(asked: object, manifest: Mapping[str, Any]) -> int:
    """What holds for a loaded package. asked: None is the package's own. Raises LoadError `bad-chunk`."""
    own: int = manifest["generation"].get("prefill_chunk", 0)
    return own if asked is None else _held(asked, LoadError)


def chunk_of_request(asked: object, generation: Mapping[str, Any]) -> int | None:
    """What a request says, None where it says nothing.

    Raises RequestError `bad-chunk`; `unsupported-option` where the package's own steps say how a prompt runs.
    """
    if asked is None:
        return None
    size = _held(asked, RequestError)
    if generation["policy"] != "runtime":
        what = "prefill_chunk has no effect here: the package's own steps say how a prompt runs"
        raise RequestError("unsupported-option", what, help="leave it out")
    return size


def _held(asked: object, kind: type[GenaiError]) -> int:
    if isinstance(asked, bool) or not hasattr(asked, "__index__"):
        raise kind("bad-chunk", f"prefill_chunk must be a number of tokens, got {str(asked)[:40]!r}", help=_HELP)
    size: int = asked.__index__()
    if size < 0:
        raise kind("bad-chunk", f"prefill_chunk must not be negative, got {size}", help=_HELP)
    return size
