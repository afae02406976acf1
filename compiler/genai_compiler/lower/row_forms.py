"""Decoders whose rows stand where no other's do: told by the ports alone, so that they are refused for what they are.

Recurrent decoders have both forms at times: one token of each row a run, and state of all layers in one tensor.
"""

from collections.abc import Iterable

from genai_compiler.lower.matching import rank_of, spell_port
from genai_compiler.read.signature import Port

_INTEGERS = ("int64", "int32")


def one_token_a_run(tokens: Port, outputs: Iterable[Port]) -> tuple[str, str] | None:
    """(what, help) where ids are [rows] and the logits [rows, n], without an axis of tokens; else None."""
    rows = _rows(tokens)
    if rank_of(tokens) != 1 or not rows:
        return None
    logits = next(
        (each for each in outputs if rank_of(each) == 2 and _rows(each) == rows and "float" in each.dtype), None
    )
    if logits is None:
        return None
    what = (
        f"the graph takes one token of each row a run: {tokens.name!r} is {spell_port(tokens)}, and {logits.name!r}, "
    )
    what += f"{spell_port(logits)}, has no axis of tokens either; such a decoder is not compiled yet"
    return what, "export it with token ids [batch, sequence] and logits [batch, sequence, vocabulary]"


def rows_behind(port: Port, inputs: Iterable[Port], outputs: Iterable[Port]) -> tuple[str, str] | None:
    """(what, help) of a state, an input that an output of its type replaces, whose first axis is not its rows'."""
    rows = {_rows(each) for each in inputs if each.dtype in _INTEGERS and rank_of(each) in (1, 2)} - {""}
    at = [place for place, extent in enumerate(port.shape or ()) if extent in rows]
    given = next((each for each in outputs if (each.dtype, each.shape) == (port.dtype, port.shape)), None)
    if "float" not in port.dtype or not at or 0 in at or given is None:
        return None
    what = f"the graph keeps a state whose rows are on axis {at[0]}: {port.name!r} is {spell_port(port)}, and "
    what += f"{given.name!r} its next value; only state with its rows first is compiled"
    return what, "export it with the rows on the first axis, a state for each layer"


def _rows(port: Port) -> str:
    first = port.shape[0] if port.shape else None
    return first if isinstance(first, str) else ""
