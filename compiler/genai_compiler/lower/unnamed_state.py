"""State that a configuration does not name, found in the graph: caches and states of other names than the file's.

Only where the graph leaves no doubt, and never a port that a name has found already.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from genai_compiler.lower.match_state import LayerPorts
from genai_compiler.lower.plain_state import PlainState
from genai_compiler.read.signature import Port

ByGraph = Callable[[], PlainState]
"""What a decoder's graph tells of its state; asked for only where inputs are left."""
_NUMBER = re.compile(r"[0-9]{1,5}")
Found = tuple[tuple[LayerPorts, ...], tuple[LayerPorts, ...], tuple[LayerPorts, ...]]


class Ports(Protocol):
    """A matching of names under way: the graph's ports, and the inputs that are still unclaimed."""

    @property
    def inputs(self) -> Mapping[str, Port]: ...

    @property
    def outputs(self) -> Mapping[str, Port]: ...

    @property
    def unclaimed(self) -> dict[str, Port]: ...


def unnamed_state(matching: Ports, told: ByGraph, taken: Iterable[LayerPorts]) -> Found:
    """(keys, values, states of one size) among the unclaimed inputs. taken: what names have found.

    Layers are numbered as in the ports' names where those say it, else behind the ones that are known.
    """
    state = told() if matching.unclaimed else None
    if state is None or state.doubts or state.scattered:
        return (), (), ()
    layers = {each.past.name: each.layer for each in taken}
    used = {each.present.name for each in taken}
    keys, values, fixed = list[LayerPorts](), list[LayerPorts](), list[LayerPorts]()
    for key, value in zip(state.caches[0::2], state.caches[1::2], strict=True):
        beside = next((layers[past] for past in (key[0], value[0]) if past in layers), None)
        layer = beside if beside is not None else _layer(key[0], set(layers.values()))
        for half, pair in ((keys, key), (values, value)):
            half += _claimed(matching, layer, pair, used)
            layers[pair[0]] = layer
    numbered = set[int]()
    for pair in state.replaced:
        layer = _layer(pair[0], numbered)
        fixed += _claimed(matching, layer, pair, used)
        numbered.add(layer)
    return tuple(keys), tuple(values), tuple(fixed)


def _layer(name: str, taken: set[int]) -> int:
    numbers = _NUMBER.findall(name)
    if len(numbers) == 1 and int(numbers[0]) not in taken:
        return int(numbers[0])
    return max(taken, default=-1) + 1


def _claimed(matching: Ports, layer: int, pair: tuple[str, str], used: set[str]) -> list[LayerPorts]:
    """The pair as ports of a layer, nothing where a name has found one of them."""
    past, present = pair
    if past not in matching.unclaimed or present in used or present not in matching.outputs:
        return []
    del matching.unclaimed[past]
    return [LayerPorts(layer, matching.inputs[past], matching.outputs[present])]
