"""Hints that a graph carries in its metadata properties, keys `onnx_runtime.*` (standard, section 9, weakest source).

Only keys that exporters are known to write are read, in both spellings that are about; docs/hints.md lists them. A key
of a node speaks of that node; the same key at the graph or the model speaks of all nodes. Unknown keys and values that
can't be meant are named, never followed.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from onnx import NodeProto

from genai_compiler.problem import Place
from genai_compiler.read.hint_sources import GRAPH, MAX_HINTS, Action, Hint
from genai_compiler.read.hints import DeviceTarget
from genai_compiler.read.nodes import nested_graphs
from genai_compiler.read.package import Graph
from genai_compiler.read.places import quoted

PREFIX = "onnx_runtime."
NODE_KEYS: dict[str, tuple[Action, str]] = {
    "memory.pin": ("pin", "bool"),
    "memory.priority": ("low_priority", "priority"),
    "scheduling.cuda_graph": ("cuda_graph_region", "bool"),
    "scheduling.overlap": ("overlap", "bool"),
    "group": ("group", "text"),
    "offloadable": ("offloadable", "bool"),
    "kernel": ("kernel", "text"),
}
"""Keys of nodes, beside `device`, `device.strength` and `layer`: what they ask for and the form of their value."""
ARENAS = {"memory.arena_gpu_mb": "gpu", "memory.arena_cpu_mb": "cpu"}
PREFETCHES = ("prefetch", "memory.prefetch")
PATTERNS = ("layer_pattern", "model.layer_pattern")
FACTS = frozenset({"version", "num_layers", "model.num_layers", "model.architecture", *PATTERNS})
"""Keys that ask for nothing; a layer pattern says how node names tell their layer."""
PRIORITIES: dict[str, Action | Literal[""]] = {"high": "pin", "low": "low_priority", "normal": ""}
NAMES = frozenset({"group", "kernel"})
"""Keys whose value is a name that means nothing here."""
MAX_NUMBER = 10**9
_DEVICE = re.compile(r"(gpu|cpu|npu|any)(?::([0-9]{1,4}))?\Z")
_SAYS = {"bool": "true or false", "priority": "high, normal or low", "text": "a text"}


@dataclass
class GraphAdvice:
    """What one component's graph says: hints, the layer of each node that tells it, and what could not be read."""

    nodes: tuple[NodeProto, ...]
    hints: list[Hint] = field(default_factory=list[Hint])
    layers: dict[int, int] = field(default_factory=dict[int, int])
    notes: list[str] = field(default_factory=list[str])


def graph_hints(component: str, graph: Graph) -> GraphAdvice:
    """The hints of a component's graph. Nodes are those of the graph and of the graphs nested in it, in this order."""
    nodes = tuple(node for each in nested_graphs(graph.model.graph) for node in each.node)
    found = GraphAdvice(nodes)
    asked: dict[tuple[str, str], set[int]] = {}
    whole = {**_properties(graph.model.graph.metadata_props), **_properties(graph.model.metadata_props)}
    own = [_properties(node.metadata_props) for node in nodes]
    for key, value in whole.items():
        if key in ARENAS or key in PREFETCHES:
            _of_graph(found, component, graph.artifact, key, value)
        elif key not in FACTS:
            asked.setdefault((key, value), set()).update(range(len(nodes)))
    for at, properties in enumerate(own):
        for key, value in properties.items():
            if key == "layer":
                _layer(found, graph.artifact, at, value)
            else:
                asked.setdefault((key, "" if key in NAMES else value), set()).add(at)
    _layers_by_name(found, next((whole[key] for key in PATTERNS if key in whole), ""))
    strengths = [each.get("device.strength", whole.get("device.strength", "prefer")) for each in own]
    for (key, value), which in list(asked.items())[:MAX_HINTS]:
        found.hints += _of_nodes(found, component, graph.artifact, key, value, which, strengths)
    if len(asked) > MAX_HINTS:
        found.notes.append(f"{graph.artifact} says {len(asked)} different things; only {MAX_HINTS} are read")
    return found


def _properties(entries: Iterable[object]) -> dict[str, str]:
    """The properties below the prefix; a text that is no UTF-8 comes as bytes and says nothing."""
    pairs = ((getattr(each, "key", None), getattr(each, "value", None)) for each in entries)
    texts = ((key, value) for key, value in pairs if isinstance(key, str) and isinstance(value, str))
    return {key.removeprefix(PREFIX): value for key, value in texts if key.startswith(PREFIX)}


def _of_nodes(
    found: GraphAdvice, component: str, artifact: str, key: str, value: str, at: set[int], strengths: list[str]
) -> Iterator[Hint]:
    place, own = Place(artifact), frozenset(at)
    path = f"{PREFIX}{quoted(key)[1:-1]} on {len(own)} of {len(found.nodes)} nodes"
    if key == "device":
        target = _DEVICE.match(value.lower())
        if target is None:
            found.notes.append(_odd(artifact, key, value, "gpu, cpu, npu or any, with :number"))
            return
        device = DeviceTarget.model_validate({"type": target[1], **({"index": int(target[2])} if target[2] else {})})
        for force in (True, False):
            part = frozenset(each for each in own if (strengths[each] == "force") == force)
            if part:
                place_of = f"{PREFIX}device = {value} on {len(part)} of {len(found.nodes)} nodes"
                yield Hint("placement", place, place_of, GRAPH, None, device, force, None, component, part)
    elif key == "device.strength":
        if value not in ("prefer", "force"):
            found.notes.append(_odd(artifact, key, value, "prefer or force"))
    elif key not in NODE_KEYS:
        found.notes.append(f"{artifact} has a property {quoted(PREFIX + key)}, which is none of those known: ignored")
    else:
        action, form = NODE_KEYS[key]
        meant = _meant(action, form, value)
        if meant is None:
            found.notes.append(_odd(artifact, key, value, _SAYS[form]))
        elif meant:
            yield Hint(meant, place, path, GRAPH, component=component, nodes=own)


def _meant(action: Action, form: str, value: str) -> Action | Literal[""] | None:
    """What a value asks for; "" for nothing, None when it can't be meant."""
    word = value.lower()
    if form == "text":
        return action
    if form == "priority":
        return PRIORITIES.get(word)
    if word not in ("true", "false"):
        return None
    return action if word == "true" else ("no_cuda_graph" if action == "cuda_graph_region" else "")


def _of_graph(found: GraphAdvice, component: str, artifact: str, key: str, value: str) -> None:
    path, place = f"{PREFIX}{key}", Place(artifact)
    if key in PREFETCHES:
        found.hints.append(Hint("prefetch", place, path, GRAPH, component=component))
        return
    number = _number(value)
    if number is None:
        found.notes.append(_odd(artifact, key, value, "a number of megabytes"))
        return
    device = DeviceTarget.model_validate({"type": ARENAS[key]})
    found.hints.append(Hint("arena_size", place, path, GRAPH, device=device, amount=number << 20, component=component))


def _layer(found: GraphAdvice, artifact: str, at: int, value: str) -> None:
    number = _number(value)
    if number is not None:
        found.layers[at] = number
    elif len(found.notes) < MAX_HINTS:
        found.notes.append(_odd(artifact, "layer", value, "a number"))


def _layers_by_name(found: GraphAdvice, pattern: str) -> None:
    """Layers of nodes that do not tell theirs, from the pattern's one `{}` in their names."""
    before, hole, after = pattern.partition("{}")
    if not hole:
        return
    shape = re.compile(rf"{re.escape(before)}([0-9]{{1,9}})(?![0-9]){re.escape(after)}")
    for at, node in enumerate(found.nodes):
        if at not in found.layers and (told := shape.search(node.name)) is not None:
            found.layers[at] = int(told[1])


def _number(value: str) -> int | None:
    text = value.strip()
    return int(text) if re.fullmatch("[0-9]{1,10}", text) and int(text) <= MAX_NUMBER else None


def _odd(artifact: str, key: str, value: str, wanted: str) -> str:
    return f"{artifact} has {PREFIX}{key} = {quoted(value)}, which is not {wanted}: ignored"
