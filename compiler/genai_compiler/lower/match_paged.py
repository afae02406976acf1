"""Ports of a decoder over packed rows and paged caches: what tells the tokens and the pages of each row apart.

The attention operators themselves say which inputs these are; where a graph writes its attention out in other
operators, the names of the configuration find them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from genai_compiler.lower.matching import INPUTS, Matching, rank_of, spell_port
from genai_compiler.read.paged import PagedInputs
from genai_compiler.read.signature import Port, Signature

_INTEGERS = ("int64", "int32")
_KEYS = ("cumulative_sequence_lengths", "past_sequence_lengths", "block_table", "attention_metadata")
_FORMS = {
    "cumulative_sequence_lengths": (1, "[rows + 1]"),
    "past_sequence_lengths": (1, "[rows]"),
    "block_table": (2, "[rows, pages]"),
    "attention_metadata": (1, "[2] or [3]"),
}
BOUNDS = (2, 3)
"""How many bounds the operator takes: tokens of a row in this call, positions of a row, and a lower bound of these."""


@dataclass(frozen=True)
class PagedPorts:
    """int32 inputs; see decoder_facts.PagedCache."""

    cumulative: Port
    past: Port
    table: Port
    metadata: Port | None


def match_paged(matching: Matching, told: PagedInputs | None) -> PagedPorts | None:
    """The ports of a paged graph, None for any other. told: what its attention operators take. Reports wrong-port."""
    names = (told.cumulative, told.past, told.table, told.metadata) if told is not None else _named(matching)
    found = [matching.inputs.get(name) for name in names]
    cumulative, past, table, metadata = found
    if cumulative is None or past is None or table is None:
        return None
    for key, port in zip(_KEYS, found, strict=True):
        if port is not None:
            matching.unclaimed.pop(port.name, None)
            _check(matching, key, port)
    return PagedPorts(cumulative, past, table, metadata)


def told_paged(signature: Signature, unclaimed: dict[str, Port]) -> PagedPorts | None:
    """The ports that the attention operators of a graph take, out of `unclaimed`; None for any other graph."""
    told = signature.paged
    if told is None:
        return None
    inputs = {each.name: each for each in signature.inputs}
    for name in (told.cumulative, told.past, told.table, told.metadata):
        unclaimed.pop(name, None)
    return PagedPorts(inputs[told.cumulative], inputs[told.past], inputs[told.table], inputs.get(told.metadata))


def packed_integers(ports: Iterable[Port]) -> list[Port]:
    """Those that have one entry a token of all rows: integer [tokens]."""
    return [each for each in ports if each.dtype in _INTEGERS and rank_of(each) == 1]


def three_packed(ports: Iterable[Port]) -> list[Port]:
    """Those that have three: integer [3, tokens]."""
    return [each for each in ports if each.dtype in _INTEGERS and rank_of(each) == 2 and (each.shape or (0,))[0] == 3]


def _named(matching: Matching) -> tuple[str, ...]:
    return tuple(matching.config.decoder.inputs[key] for key in _KEYS)


def _check(matching: Matching, key: str, port: Port) -> None:
    rank, form = _FORMS[key]
    fits = port.dtype in _INTEGERS and rank_of(port) == rank
    if key == "attention_metadata":
        fits = fits and port.shape is not None and port.shape[0] in BOUNDS
    if not fits:
        what = f"input {port.name!r} is {spell_port(port)}; it must be int32 {form}"
        matching.problem("wrong-port", (*INPUTS, key), what)


def check_packed(matching: Matching, tokens: Port | None, mask: Port | None, positions: Port | None) -> None:
    """Ports over the tokens of all rows. Reports wrong-port."""
    if tokens is not None and (tokens.dtype not in _INTEGERS or rank_of(tokens) != 1):
        what = f"input {tokens.name!r} is {spell_port(tokens)}; beside a table of pages token ids are int64 [tokens]"
        matching.problem("wrong-port", (*INPUTS, "input_ids"), what)
    if mask is not None:
        what = f"input {mask.name!r} is {spell_port(mask)}: rows that are packed into one axis need no mask"
        matching.problem("wrong-port", (*INPUTS, "attention_mask"), what, "export without it")
    if positions is not None:
        shape = positions.shape or ()
        if positions.dtype not in _INTEGERS or not (len(shape) == 1 or (len(shape) == 2 and shape[0] == 3)):
            what = f"input {positions.name!r} is {spell_port(positions)}; positions of packed rows are int64 [tokens] "
            matching.problem("wrong-port", (*INPUTS, "position_ids"), what + "or [3, tokens]")
