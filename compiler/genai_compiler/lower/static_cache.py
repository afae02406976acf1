"""Caches of the graph's own capacity (`model.io.static_cache`): written at given positions, valid to given lengths.

Every extent is the graph's. The axis of positions is the last but one, as the operator that writes has it by default.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from genai_compiler.lower.decoder_facts import StaticCache, StaticState
from genai_compiler.lower.matching import spell_port
from genai_compiler.read.bare import BareIo
from genai_compiler.read.model_io import StaticCacheIo
from genai_compiler.read.signature import Port

if TYPE_CHECKING:
    from genai_compiler.lower.match_io import IoMatching

_FIELD = "static_cache"


def static_cache(io: BareIo, matching: "IoMatching") -> StaticCache | None:
    """The caches and their control ports, key and value of each layer in turns; None when the block declares none."""
    declared = io.static_cache
    if declared is None:
        return None
    indices = matching.input(declared.write_indices_input, _FIELD, "write_indices_input")
    lengths = matching.input(declared.kv_sequence_length_input, _FIELD, "kv_sequence_length_input")
    states = tuple(_states(declared, matching))
    for key, port in (("write_indices_input", indices), ("kv_sequence_length_input", lengths)):
        if port is not None and (
            port.dtype not in ("int64", "int32") or (port.shape is not None and len(port.shape) != 1)
        ):
            what = f"input {port.name!r} is {spell_port(port)}; it must be int64 or int32 [batch]"
            matching.report("wrong-port", (_FIELD, key), what)
    if len({each.capacity for each in states}) > 1:
        spelled = ", ".join(f"{each.input!r} {each.capacity}" for each in states[:6])
        what = f"the static caches differ in length ({spelled})"
        matching.report("wrong-port", (_FIELD,), what, "export them with one capacity")
    return StaticCache(indices, lengths, states) if indices is not None and lengths is not None else None


def _states(declared: StaticCacheIo, matching: "IoMatching") -> Iterator[StaticState]:
    lists = (
        declared.key_cache_inputs,
        declared.key_cache_outputs,
        declared.value_cache_inputs,
        declared.value_cache_outputs,
    )
    if len({len(each) for each in lists}) > 1:
        counts = ", ".join(str(len(each)) for each in lists)
        what = f"the four lists of cache ports pair by layer, but have {counts} entries"
        matching.report("unpaired-state", (_FIELD,), what, "list one port a layer in each")
        for name in (*declared.key_cache_inputs, *declared.value_cache_inputs):
            matching.unclaimed.pop(name, None)
        return
    for layer in range(len(lists[0])):
        for role, pasts, presents in (("key", *lists[:2]), ("value", *lists[2:])):
            past = matching.input(pasts[layer], _FIELD, f"{role}_cache_inputs", layer)
            present = matching.output(presents[layer], _FIELD, f"{role}_cache_outputs", layer)
            if past is not None and present is not None:
                yield from _state("key" if role == "key" else "value", layer, past, present, matching)


def _state(
    role: Literal["key", "value"], layer: int, past: Port, present: Port, matching: "IoMatching"
) -> Iterator[StaticState]:
    key = (_FIELD, f"{role}_cache_inputs", layer)
    inner = past.shape[1:] if past.shape is not None else ()
    extents = tuple(each for each in inner if isinstance(each, int))
    if len(inner) not in (2, 3) or len(extents) != len(inner):
        what = f"cache {past.name!r} is {spell_port(past)}; its extents must be numbers, except for the batch"
        matching.report("unknown-state-shape", key, what, "export it with a fixed capacity")
    elif past.dtype != present.dtype or (present.shape is not None and len(present.shape) != len(inner) + 1):
        what = f"cache {past.name!r} is {spell_port(past)}, its output {present.name!r} {spell_port(present)}"
        matching.report("wrong-port", key, what, "a run gives the cache back as it took it")
    else:
        yield StaticState(role, layer, past.name, present.name, past.dtype, extents, len(inner) - 1)
