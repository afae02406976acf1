"""A decoder's state found in its graph alone: which output is the next value of which input, and what kind it is.

An output is the next value of an input when the graph computes it from that input, both have one form, and no other
assignment of the outputs to the inputs is possible. Whether a cache holds keys or values is told by where it meets
the softmax.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from onnx import GraphProto, NodeProto

from genai_compiler.lower.matching import listed
from genai_compiler.lower.row_forms import keeps_rows, row_symbols
from genai_compiler.read.attention import CacheOp, attention_slots
from genai_compiler.read.nodes import input_at, operator_of, output_at
from genai_compiler.read.signature import Port, Signature
from genai_compiler.read.value_flow import Edges, reaching

_PLAIN = frozenset({"Cast", "Identity"})
_SPREAD = _PLAIN | frozenset({"Transpose", "Unsqueeze", "Squeeze", "Expand", "Reshape", "Mul", "Tile", "Concat", "Pad"})
_SCORES = _PLAIN | frozenset({"Add", "Mul", "Div", "Where", "Reshape", "Tanh", "Max"})
_WEIGHTS = _PLAIN | frozenset({"Reshape", "Where", "Mul", "Dropout", "Pad"})
_PRODUCTS = frozenset({"MatMul", "Einsum", "FusedMatMul"})
_OPERATORS = {("", "Attention"), ("com.microsoft", "MultiHeadAttention")}
"""Operators that take keys as their second input and values as their third."""

Pairs = dict[str, str]


@dataclass(frozen=True)
class PlainState:
    """Ports in pairs (past, present). caches: key and value of each layer in turns; replaced: states of one size.

    scattered: caches of the graph's own capacity, key and value in turns; doubts: what can't be told, in words;
    loose: inputs in the form of state that no output follows. crossed: caches over what an encoder made, key and value
    in turns: the first run gives them, later ones take them.
    """

    caches: tuple[tuple[str, str], ...]
    replaced: tuple[tuple[str, str], ...]
    scattered: tuple[tuple[str, str], ...]
    doubts: tuple[str, ...]
    loose: tuple[str, ...]
    crossed: tuple[tuple[str, str], ...] = ()

    @property
    def inputs(self) -> frozenset[str]:
        """Every past."""
        return frozenset(past for past, _ in (*self.caches, *self.replaced, *self.scattered, *self.crossed))

    @property
    def outputs(self) -> frozenset[str]:
        """Every present."""
        return frozenset(present for _, present in (*self.caches, *self.replaced, *self.scattered, *self.crossed))


def plain_state(graph: GraphProto, signature: Signature) -> PlainState:
    """The state of a decoder graph."""
    told = list(told_pairs(signature.cache_ops, scattered=False))
    scattered = list(told_pairs(signature.cache_ops, scattered=True))
    known = dict((*told, *scattered))
    inputs = {each.name: each for each in signature.inputs}
    outputs, rows = {each.name: each for each in signature.outputs}, row_symbols(signature.inputs, signature.outputs)
    pairs, doubts = _paired(graph, signature, known)
    taken = {*pairs, *known}
    loose = [each.name for each in signature.inputs if may_be_state(each) and each.name not in taken]
    replaced = [(past, present) for past, present in pairs.items() if keeps_rows(inputs[past], outputs[present], rows)]
    grown = dict(each for each in pairs.items() if each not in replaced)
    edges = Edges(graph)
    layers, unclear = layers_of(edges, grown)
    doubts += unclear
    doubts += [
        f"{past!r} holds a fixed number of keys or values, and nothing says which of them count"
        for past, present in replaced
        if meetings_of(edges, past, present)
    ]
    return PlainState(
        (*told, *layers), tuple(replaced), tuple(scattered), tuple(doubts), () if doubts else tuple(loose)
    )


def told_pairs(ops: tuple[CacheOp, ...], scattered: bool) -> Iterator[tuple[str, str]]:
    """What attention operators tell of their own past and present."""
    for op in ops:
        if (op.op_type == "TensorScatter") == scattered and op.past_value:
            yield op.past_key, op.present_key
            yield op.past_value, op.present_value


# ---- pairs -----------------------------------------------------------------------------------------------------------


def _paired(graph: GraphProto, signature: Signature, known: Mapping[str, str]) -> tuple[Pairs, list[str]]:
    """The only assignment of outputs to state inputs that dependence allows."""
    pasts = {each.name: each for each in signature.inputs if may_be_state(each) and each.name not in known}
    presents = [each for each in signature.outputs if each.name not in known.values()]
    if not pasts:
        return {}, []
    sources, edges = reaching(graph, pasts), Edges(graph)
    rows = row_symbols(signature.inputs, signature.outputs)
    choices = {
        each.name: {name for name in sources[each.name] if _may_follow(edges, pasts[name], each, rows)}
        for each in presents
    }
    choices = {name: found for name, found in choices.items() if found}
    pairs = {past: name for name, found in choices.items() for past in found if appends(edges, past, name)}
    sure = {*pairs, *pairs.values()}  # joined to it: no other could follow
    choices = {name: found - sure for name, found in choices.items() if name not in sure}
    spare = [name for name, found in choices.items() if not found]
    choices = {name: found for name, found in choices.items() if found}
    while choices:
        present = next((name for name, found in choices.items() if len(found) == 1), None) or _only_taker(choices)
        if present is None:
            break
        past = min(choices[present], key=lambda name: sum(name in found for found in choices.values()))
        pairs[past] = present
        choices = {name: found - {past} for name, found in choices.items() if name != present}
        spare += [name for name, found in choices.items() if not found]
        choices = {name: found for name, found in choices.items() if found}
    doubts = []
    if spare:
        doubts.append(f"the outputs {listed(spare, 4)} could be state too, but no input is left for them to follow")
    if choices:
        names, free = listed(choices, 4), listed(sorted(set[str]().union(*choices.values())), 4)
        doubts.append(f"each of the outputs {names} could be the next value of several of the inputs {free}")
    order = list(pasts)
    return {past: pairs[past] for past in sorted(pairs, key=order.index)}, doubts


def _only_taker(choices: Mapping[str, set[str]]) -> str | None:
    """An output that alone can follow some input."""
    for past in sorted(set[str]().union(*choices.values())):
        takers = [name for name, found in choices.items() if past in found]
        if len(takers) == 1:
            return takers[0]
    return None


def may_be_state(port: Port) -> bool:
    """Float of three axes or more: the rows are first, or second."""
    return "float" in port.dtype and port.shape is not None and len(port.shape) > 2


def _may_follow(edges: Edges, past: Port, present: Port, rows: frozenset[str]) -> bool:
    """Whether an output has the form of an input's next value.

    One of open size that gains nothing is no state, but made of what it reads: keys of what an encoder gives, say. Nor
    is one that has the input's extents on other axes.
    """
    if _turned(past, present):
        return False
    kept = past.shape == present.shape and not keeps_rows(past, present, rows)
    own, its = ([axis for axis, extent in enumerate(port.shape or ()) if extent in rows] for port in (past, present))
    if own and its and own != its:  # what an encoder gives may be as wide as state, and has its rows elsewhere
        return False
    return alike(past, present) and (not kept or appends(edges, past.name, present.name))


def _turned(past: Port, present: Port) -> bool:
    """Whether an extent of the past, by its symbol, is one of other axes of the present."""
    axes = [
        {each: {at for at, other in enumerate(port.shape or ()) if other == each} for each in port.shape or ()}
        for port in (past, present)
    ]
    return any(isinstance(each, str) and each in axes[1] and not axes[0][each] & axes[1][each] for each in axes[0])


def alike(past: Port, present: Port) -> bool:
    if past.dtype != present.dtype or past.shape is None or present.shape is None:
        return False
    pairs = zip(past.shape, present.shape, strict=False)
    return len(past.shape) == len(present.shape) and all(
        one == other for one, other in pairs if isinstance(one, int) and isinstance(other, int)
    )


# ---- keys and values -------------------------------------------------------------------------------------------------


def layers_of(edges: Edges, grown: Pairs) -> tuple[list[tuple[str, str]], list[str]]:
    """Growing caches as key and value of each layer in turns, in the order of the graph's inputs."""
    doubts = [
        f"{past!r} is no cache that grows on its third axis by joining new positions behind the old ones"
        for past, present in grown.items()
        if not appends(edges, past, present)
    ]
    met = {past: meetings_of(edges, past, present) for past, present in grown.items()}
    halves: dict[int, dict[str, str]] = {}
    for past, meetings in met.items():
        for part, where in meetings[:1] if len(meetings) == 1 else ():
            halves.setdefault(where, {})[part] = past
    whole = [each for each in halves.values() if len(each) == 2]
    found = [(past, grown[past]) for each in whole for past in (each["key"], each["value"])]
    left = [past for past in grown if past not in dict(found)]
    if left:
        doubts.append(
            f"the caches {listed(left, 4)} do not show which of them hold keys, which values, and of which layer"
        )
    return found, doubts


def appends(edges: Edges, past: str, present: str) -> bool:
    """Whether the present is the past and what is new, joined on axis 2, by itself or inside an operator."""
    return _slot(edges.writer.get(present), past) >= 0 or appended_to(edges, present) == past


def appended_to(edges: Edges, present: str) -> str:
    """What a present begins with where it is a value and what is new, joined on axis 2; "" for any other."""
    node = edges.writer.get(present)
    for _ in range(4):
        if node is None or node.op_type not in _PLAIN:
            break
        node = edges.writer.get(input_at(node, 0))
    if node is None or node.op_type != "Concat" or len(node.input) != 2:
        return ""
    axis = next((int(each.i) for each in node.attribute if each.name == "axis"), 0)
    return _first_of(edges, node.input[0]) if axis in (2, -2) else ""


def _first_of(edges: Edges, name: str) -> str:
    """The value that a name is a mere copy of."""
    seen = set[str]()
    while name not in seen and (writer := edges.writer.get(name)) is not None and writer.op_type in _PLAIN:
        seen.add(name)
        name = input_at(writer, 0)
    return str(name)


def _slot(node: NodeProto | None, past: str) -> int:
    """0 where the value is the keys that an attention operator takes from before, 1 its values, -1 neither."""
    slots = attention_slots(node) if node is not None else None
    if node is None or slots is None or slots.past[1] < 0:
        return -1
    return next((half for half, at in enumerate(slots.past) if input_at(node, at) == past), -1)


def meetings_of(edges: Edges, past: str, present: str) -> list[tuple[str, int]]:
    """("key" or "value", which softmax) for every attention that the cache takes part in."""
    told = ((node, _slot(node, past)) for node, _ in edges.readers[past])
    found = [("value" if half else "key", id(node)) for node, half in told if half >= 0]
    for node, at, name in _reached(edges, _source(edges, present), _SPREAD):
        if operator_of(node) in _OPERATORS and at in (1, 2):
            found.append(("key" if at == 1 else "value", id(node)))
        elif node.op_type in _PRODUCTS:
            others = [each for each in node.input if each != name]
            after = [
                inner for inner, _, _ in _reached(edges, output_at(node, 0), _SCORES) if inner.op_type == "Softmax"
            ]
            before = [each for other in others for each in [_softmax_before(edges, other)] if each is not None]
            found += [("key", id(each)) for each in after] + [("value", id(each)) for each in before]
    return list(dict.fromkeys(found))


def _source(edges: Edges, present: str) -> str:
    """The value that a present is a mere copy of: attention may read either."""
    node = edges.writer.get(present)
    while node is not None and node.op_type in _PLAIN:
        present = input_at(node, 0)
        node = edges.writer.get(present)
    return present


def _softmax_before(edges: Edges, name: str) -> NodeProto | None:
    pending = [name]
    for _ in range(24):
        if not pending:
            break
        node = edges.writer.get(pending.pop())
        if node is not None and node.op_type == "Softmax":
            return node
        if node is not None and node.op_type in _WEIGHTS and node.input:
            pending += node.input[1:3] if node.op_type == "Where" else node.input[:1]
    return None


def _reached(edges: Edges, name: str, steps: frozenset[str]) -> Iterator[tuple[NodeProto, int, str]]:
    """(node, which input of it, the value there) for every node that the value enters through operators of `steps`."""
    pending, seen = [name], set[str]()
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        for node, at in edges.readers[value]:
            yield node, at, value
            if node.op_type in steps and not node.domain:
                pending.extend(node.output)


def source_masks(ports: Iterable[Port], state: PlainState, edges: Edges, single: bool = False) -> Iterator[Port]:
    """Those inputs that are added to scores of no attention over the decoder's own caches, but of some other.

    single: it takes one token of each row a run, so that without caches there is nothing of its own to look at.
    """
    own = {where for past, present in state.caches for _, where in meetings_of(edges, past, present)}
    for port in ports:
        met = {id(node) for node in _scored(edges, port.name)}
        if met and not met & own and (own or single):
            yield port


def _scored(edges: Edges, name: str) -> Iterator[NodeProto]:
    """Every first `Softmax`, or operator that holds one, behind a value."""
    pending, seen = [name], set[str]()
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        for node, _ in edges.readers[value]:
            if node.op_type == "Softmax" or operator_of(node) in _OPERATORS or attention_slots(node) is not None:
                yield node
            elif node.op_type not in ("Shape", "Size"):
                pending.extend(node.output)
