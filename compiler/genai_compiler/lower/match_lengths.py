"""Inputs that tell a decoder of one row its lengths as numbers, without a mask (reference, 2.4).

`past_sequence_length` is one less than the positions after the run; beside it stands either that number itself
(`current_sequence_length`) or how many positions the caches have room for (`total_sequence_length`).
"""

from genai_compiler.lower.decoder_facts import LengthPort, Role
from genai_compiler.lower.matching import INPUTS, Matching, rank_of, spell_port

_ROLES: tuple[Role, ...] = ("past_sequence_length", "current_sequence_length", "total_sequence_length")
_RANKS = {
    "past_sequence_length": (1, 2),
    "current_sequence_length": (1,),
    "total_sequence_length": (1,),
}


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
