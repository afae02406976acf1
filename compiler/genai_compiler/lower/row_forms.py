"""Forms of a decoder's ports that stand by themselves: one token of each row a run, and where a state has its rows.

Recurrent decoders have both at times: token ids without an axis of tokens, and state of all layers in one tensor.
"""

from collections.abc import Iterable

from genai_compiler.lower.matching import rank_of
from genai_compiler.read.signature import Port

_INTEGERS = ("int64", "int32")
FORM_OF_ONE_TOKEN = (
    "a graph that takes one token of each row, [batch], gives logits [batch, vocabulary] and keeps state with an entry "
    "for each row, all of one symbol"
)


def one_token_a_run(tokens: Port, inputs: Iterable[Port], outputs: Iterable[Port]) -> bool:
    """Whether ids [rows] are one token of each row, and not tokens of all rows in one axis.

    Told by the logits, [rows, n], and by state with an entry a row: nothing is kept for a token that has gone by.
    """
    made = list(outputs)
    return gives_logits_each(tokens, made) and any(
        _follows(past, present, _first(tokens)) for past in inputs for present in made
    )


def gives_logits_each(tokens: Port, outputs: Iterable[Port]) -> bool:
    """Whether ids of one axis have an output of as many rows, which could be their logits."""
    if tokens.dtype not in _INTEGERS or rank_of(tokens) != 1 or isinstance(_first(tokens), int):
        return False
    return any(rank_of(each) == 2 and _first(each) == _first(tokens) and "float" in each.dtype for each in outputs)


def rows_axis(port: Port) -> int | None:
    """The axis of rows of a state of one size, float: its only open extent, first or second; None for other ports."""
    shape = port.shape if port.shape is not None and "float" in port.dtype else ()
    open_axes = [axis for axis, extent in enumerate(shape) if axis and not isinstance(extent, int)]
    if len(shape) > 1 and not open_axes:
        return 0
    return 1 if len(shape) > 2 and open_axes == [1] and isinstance(shape[0], int) else None


def row_symbols(inputs: Iterable[Port], outputs: Iterable[Port]) -> frozenset[str]:
    """What a graph calls its rows: the first axis of integers [rows, n], or [rows] beside an output [rows, n]."""
    made = {_first(each) for each in outputs if rank_of(each) == 2 and "float" in each.dtype}
    whole = [each for each in inputs if each.dtype in _INTEGERS]
    firsts = [_first(each) for each in whole if rank_of(each) == 2 or (rank_of(each) == 1 and _first(each) in made)]
    return frozenset(each for each in firsts if isinstance(each, str))


def keeps_rows(past: Port, present: Port, rows: frozenset[str]) -> bool:
    """Whether a state of one size has its rows where its open extent is: one that is second could be of tokens, too.

    rows: see row_symbols.
    """
    axis = rows_axis(past)
    if axis != 1:
        return axis == 0
    return past.shape == present.shape and (past.shape or ())[1] in rows


def _follows(past: Port, present: Port, rows: int | str | None) -> bool:
    """Whether they could be state, before and after, with the rows on one of the first two axes of both."""
    if "float" not in past.dtype or past.dtype != present.dtype or past.shape is None or present.shape is None:
        return False
    if len(past.shape) != len(present.shape) or len(past.shape) < 2:
        return False
    pairs = list(zip(past.shape, present.shape, strict=True))
    fits = all(one == other for one, other in pairs if isinstance(one, int) or isinstance(other, int))
    return fits and (rows, rows) in pairs[:2]


def _first(port: Port) -> int | str | None:
    return port.shape[0] if port.shape else None
