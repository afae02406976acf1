"""States of one size, as the graph has them: extents are numbers, and what a step gives is as large as what it took."""

from genai_compiler.lower.decoder_facts import FixedState
from genai_compiler.lower.match_ports import MatchedPorts
from genai_compiler.lower.match_state import LayerPorts, spell_pair
from genai_compiler.lower.merge_facts import Merge
from genai_compiler.lower.row_forms import keeps_rows, row_symbols, rows_axis


def merge_fixed_states(ports: MatchedPorts, one_token: bool, merge: Merge) -> tuple[FixedState, ...]:
    """The states in the order of the graph's inputs. Reports wrong-port and unknown-state-shape.

    one_token: a call takes one token a row, so that an extent which the graph spells by its sequence length is a number
    after all.
    """
    shape = ports.token_ids.shape if ports.token_ids is not None else None
    sequence = shape[1] if shape is not None and len(shape) > 1 else None
    symbol = sequence if isinstance(sequence, str) and not one_token else ""
    rows = row_symbols(merge.signature.inputs, merge.signature.outputs)
    found: list[FixedState] = []
    for each in ports.fixed:
        axis = rows_axis(each.past)
        if axis is None:
            what = f"{spell_pair(each)}: its extents are not numbers, so it can't be made before the first step"
            help = "a state is float [batch, n, m, ...] or [n, batch, m, ...]; export it with fixed extents"
            merge.report("unknown-state-shape", merge.path("state"), what, help, True)
        elif reason := _changes(each, symbol):
            help = "what a step gives must be as large as what it took, whatever the number of tokens"
            merge.report("wrong-port", merge.path("state"), f"{spell_pair(each)}: {reason}", help, True)
        elif not keeps_rows(each.past, each.present, rows):
            what = f"{spell_pair(each)}: nothing says that the second axis is that of rows"
            help = "call it, in both, as the first axis of the token ids is called"
            merge.report("unknown-state-shape", merge.path("state"), what, help, True)
        else:
            shape = tuple(extent for at, extent in enumerate(each.past.shape or ()) if at != axis)
            numbers = tuple(extent for extent in shape if isinstance(extent, int))
            found.append(FixedState(each.layer, each.past.name, each.present.name, each.past.dtype, numbers, axis))
    return tuple(found)


def _changes(each: LayerPorts, sequence: str) -> str:
    """How the next value differs from the past in dtype or size, "" when nothing says that it does."""
    past, present = each.past, each.present
    if past.dtype != present.dtype:
        return "the dtypes differ"
    if past.shape is None or present.shape is None:
        return ""
    if len(past.shape) != len(present.shape):
        return "the ranks differ"
    rows = rows_axis(past)
    for axis, (old, new) in enumerate(zip(past.shape, present.shape, strict=True)):
        if axis == rows:
            continue
        if isinstance(new, int) and new != old:
            return f"axis {axis} has another extent"
        if sequence and isinstance(new, str) and sequence in new.split():
            return f"axis {axis} grows with the tokens of a call"
    return ""
