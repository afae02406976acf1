"""Inputs that tell a decoder its lengths as numbers, without a mask (reference, 2.4).

`past_sequence_length` is one less than the positions after the run; beside it stands either that number itself
(`current_sequence_length`) or how many positions the caches have room for (`total_sequence_length`). A decoder that
takes one token of each row a run may count its runs (`past_key_values_length`).
"""

from genai_compiler.lower.decoder_facts import LengthPort, Role
from genai_compiler.lower.matching import INPUTS, Matching, rank_of, spell_port
from genai_compiler.read.signature import Port

_ROLES: tuple[Role, ...] = ("past_sequence_length", "current_sequence_length", "total_sequence_length")
_PAST = "past_key_values_length"
_RANKS = {
    "past_sequence_length": (1, 2),
    "current_sequence_length": (1,),
    "total_sequence_length": (1,),
}


def counts_runs(port: Port | None) -> bool:
    """Whether positions of a decoder that takes one token of each row are one number for all rows, int [1]."""
    return port is not None and port.dtype in ("int32", "int64") and port.shape == (1,)


def match_past_length(matching: Matching) -> tuple[LengthPort, ...]:
    """Of a decoder that takes one token of each row a run: the number of runs before, [1]. Reports wrong-port."""
    port = matching.unclaimed.pop(matching.config.decoder.inputs[_PAST], None)
    if port is None:
        return ()
    if not counts_runs(port):
        what = f"input {port.name!r} is {spell_port(port)}; it must be one int64 number, [1], for all rows"
        matching.problem("wrong-port", (*INPUTS, _PAST), what)
    return (LengthPort("past_length", port),)


def match_lengths(matching: Matching) -> tuple[LengthPort, ...]:
    """The ports, () where the graph has none that belong together. Reports wrong-port."""
    names = matching.config.decoder.inputs
    ports = {role: matching.unclaimed.get(names[role]) for role in _ROLES}
    if ports["past_sequence_length"] is None or sum(each is not None for each in ports.values()) < 2:
        return ()
    made: list[LengthPort] = []
    for role in _ROLES:
        port = ports[role]
        if port is None:
            continue
        del matching.unclaimed[port.name]
        if port.dtype not in ("int32", "int64") or rank_of(port) not in _RANKS[role]:
            what = f"input {port.name!r} is {spell_port(port)}; it must be one int32 number"
            matching.problem("wrong-port", (*INPUTS, role), what)
        made.append(LengthPort(role, port))
    return tuple(made)
