"""State ports by name: caches, and states of one size that each step replaces (convolution, recurrence).

The reference finds a layer's fixed states beside its cache: the cache template up to its last dot, and another last
part. Whether such a port is a state of one size is told by its shape alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from genai_compiler.lower.matching import (
    INPUTS,
    OUTPUTS,
    Matching,
    filled,
    has_slot,
    listed,
    spell_port,
    template_layers,
)
from genai_compiler.lower.row_forms import rows_axis
from genai_compiler.problem import Problem
from genai_compiler.read.genai_config import named
from genai_compiler.read.signature import Port

_FIXED = (
    ("past_conv_names", "present_conv_names"),
    ("past_recurrent_names", "present_recurrent_names"),
    ("rnn_states_prev", "rnn_states"),
)


@dataclass(frozen=True)
class LayerPorts:
    """The past and present of one layer's keys, values or other state."""

    layer: int
    past: Port
    present: Port


def match_layers(matching: Matching, past_key: str, present_key: str) -> tuple[LayerPorts, ...]:
    """The layers that a pair of templates finds, in order. A past without its present stays unclaimed and unpaired."""
    past_template = matching.config.decoder.inputs[past_key]
    present_template = matching.config.decoder.outputs[present_key]
    past = template_layers(past_template, matching.inputs)
    present = template_layers(present_template, matching.outputs)
    layers: list[LayerPorts] = []
    for layer, name in past.items():
        if layer in present:
            matching.unclaimed.pop(name, None)
            layers.append(LayerPorts(layer, matching.inputs[name], matching.outputs[present[layer]]))
            continue
        what = f"state input {name!r} has no output that gives its next value: no {filled(present_template, layer)!r}"
        help = f"the graph's outputs are {listed(matching.outputs)}; name them in {present_key}"
        where = named(matching.config, (*OUTPUTS, present_key))
        matching.unpaired[name] = Problem("unpaired-state", *where, what, help)
    return tuple(layers)


def refuse_unpaired(matching: Matching) -> None:
    """Report unpaired-state for pasts whose present neither a name nor the graph tells."""
    for name, problem in matching.unpaired.items():
        if matching.unclaimed.pop(name, None) is not None:
            matching.problems.append(problem)


def check_pairs(matching: Matching, keys: tuple[LayerPorts, ...], values: tuple[LayerPorts, ...]) -> None:
    """Report layers with keys and no values, or the reverse."""
    for here, there, missing in ((keys, values, "past_value_names"), (values, keys, "past_key_names")):
        for layer in sorted({each.layer for each in here} - {each.layer for each in there}):
            name = next(each.past.name for each in here if each.layer == layer)
            wanted = filled(matching.config.decoder.inputs[missing], layer)
            what = f"layer {layer} has the cache input {name!r} but no {wanted!r}"
            matching.problem("unpaired-state", (*INPUTS, missing), what, f"name the other half in {missing}")


def match_fixed(matching: Matching) -> tuple[LayerPorts, ...]:
    """States of one size, in the order of the graph's inputs. Reports unpaired-state and wrong-port."""
    named = [each for keys in _FIXED for each in match_layers(matching, *keys)]
    found = {each.past.name: each for each in (*named, *_beside_caches(matching))}
    order = {name: at for at, name in enumerate(matching.inputs)}
    return tuple(sorted(found.values(), key=lambda each: order[each.past.name]))


def is_fixed_size(port: Port) -> bool:
    """Whether only the rows' extent is left open: float [batch, n, m, ...], or [n, batch, m, ...]."""
    return rows_axis(port) is not None


def _beside_caches(matching: Matching) -> Iterator[LayerPorts]:
    """Unclaimed inputs named as a cache but for the last part, with an output named so too."""
    stems = [
        (_stem(matching.config.decoder.inputs[past]), _stem(matching.config.decoder.outputs[present]))
        for past, present in (("past_key_names", "present_key_names"), *_FIXED)
    ]
    for past_stem, present_stem in dict.fromkeys(stems):
        for name, port in list(matching.unclaimed.items()):
            last = name.rpartition(".")[2]
            layers = template_layers(past_stem + last, [name]) if has_slot(past_stem) and not has_slot(last) else {}
            for layer in layers:
                present = matching.outputs.get(filled(present_stem + last, layer))
                if present is not None and is_fixed_size(port):
                    del matching.unclaimed[name]
                    yield LayerPorts(layer, port, present)


def state_layers(template: str, name: str) -> bool:
    """Whether a name is that of a layer's state: by its template, or beside it with another last part."""
    stem, last = _stem(template), name.rpartition(".")[2]
    beside = has_slot(stem) and not has_slot(last) and bool(template_layers(stem + last, [name]))
    return beside or bool(template_layers(template, [name]))


def _stem(template: str) -> str:
    """`past.%d.key` -> `past.%d.`"""
    head, dot, _ = template.rpartition(".")
    return head + dot


def spell_pair(each: LayerPorts) -> str:
    """Both ports of a state with their types, for messages."""
    return f"state {each.past.name!r} is {spell_port(each.past)}, {each.present.name!r} {spell_port(each.present)}"
