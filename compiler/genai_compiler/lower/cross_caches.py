"""Caches over what an encoder made, as a decoder takes them: given by its own first run, or by a stage before it."""

from typing import TYPE_CHECKING

from genai_compiler.lower.match_state import LayerPorts
from genai_compiler.lower.matching import Surroundings, listed
from genai_compiler.read.bare import BareIo

if TYPE_CHECKING:
    from genai_compiler.lower.match_io import IoMatching


def cross_caches(io: BareIo, surroundings: Surroundings, matching: "IoMatching") -> tuple[LayerPorts, ...]:
    """The caches that the decoder's first run gives, key and value of each layer in turns.

    Reports: missing-input, wrong-port (a pair that the graph contradicts), unsupported-package-class (caches that the
    graph reads and nothing gives).
    """
    told = dict(surroundings.crossed)
    _check_pairs(io, told, matching)
    found = [
        LayerPorts(at // 2, matching.inputs[past], matching.outputs[present])
        for at, (past, present) in enumerate(surroundings.crossed)
    ]
    for each in found:
        matching.unclaimed.pop(each.past.name, None)
        matching.unread.pop(each.present.name, None)
    _refuse_unfed(io, matching)
    return tuple(found)


def _check_pairs(io: BareIo, told: dict[str, str], matching: "IoMatching") -> None:
    for at, (past, present) in enumerate(zip(io.cross_kv_inputs or (), io.cross_kv_outputs or (), strict=False)):
        if told.get(past, present) != present:
            what = f"{past!r} is paired with {present!r}, but the graph's first run gives it as {told[past]!r}"
            matching.report("wrong-port", ("cross_kv_outputs", at), what, "list the outputs in the order of the inputs")


def _refuse_unfed(io: BareIo, matching: "IoMatching") -> None:
    """Cross-attention caches that the graph reads must come from its first run, or from a stage."""
    for at, name in enumerate(io.cross_kv_inputs or ()):
        if name not in matching.inputs:
            matching.input(name, "cross_kv_inputs", at)
    read = [name for name in io.cross_kv_inputs or () if name in matching.unclaimed]
    if read:
        what = f"nothing computes the cross-attention caches {listed(read, 2)} before the decoder runs"
        help = "describe the encoder that gives them in pipeline.models, and join them in pipeline.dataflow"
        matching.report("unsupported-package-class", ("cross_kv_inputs",), what, help)
        for name in read:
            del matching.unclaimed[name]
