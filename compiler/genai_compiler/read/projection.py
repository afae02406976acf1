"""Where a decoder's positions can be thinned out before its logits: the narrowest value that all logits come from.

Behind that value every operator treats each position for itself. Found from dominators and from what operators do to
axis 1 of [rows, positions, ...] (layouts.py); nothing is guessed from names.
"""

from collections.abc import Set
from dataclasses import dataclass

from onnx import GraphProto, ModelProto, NodeProto

from genai_compiler.read.dominators import Flow, immediate_dominators
from genai_compiler.read.graph_facts import random_ops
from genai_compiler.read.layouts import PRODUCTS, Held, Layout, layout_of
from genai_compiler.read.nodes import (
    graphs_of,
    nested_graphs,
    operator_of,
)

_INPUTS = ""
"""Stands for all graph inputs; no value has this name."""
_FAR = 256
"""Values behind a hidden state, at most; a whole layer has more operators that mix positions than this."""


@dataclass(frozen=True)
class Projection:
    """hidden: [rows, positions, features], what all logits come from. behind: values that have positions, from it on.

    label: the name or the operator of the node that gives `hidden`.
    """

    hidden: str
    behind: tuple[str, ...]
    label: str


def logits_projection(model: ModelProto, logits: str, given: Set[str] = frozenset()) -> Projection | str:
    """How a rank-3 output [rows, positions, vocabulary] comes from the hidden state, or why that is not clear.

    given: ports that get a value although an initializer could stand in.
    """
    graph = model.graph
    if random_ops(model):
        return "the graph draws random numbers"
    flow, held = _flow(graph, given), Held(graph)
    if logits not in flow:
        return "the logits do not depend on the inputs"
    above = immediate_dominators(flow, _INPUTS)
    found: Projection | None = None
    hidden = above[logits]
    while hidden in held.writers and len(flow.descendants(hidden)) <= _FAR:
        behind = _behind(flow, hidden, logits, held)
        if behind is not None and any(operator_of(held.writers[name]) in PRODUCTS for name in behind):
            found = Projection(hidden, behind, held.writers[hidden].name or held.writers[hidden].op_type)
        hidden = above[hidden]
    return found or "the operators before the logits may mix positions, or others read what they make"


def _flow(graph: GraphProto, given: Set[str]) -> Flow:
    """An edge from each value to what is made from it, only what depends on the inputs and what else is `given`."""
    held = {each.name for each in graph.initializer} - given
    flow = Flow((_INPUTS, each.name) for each in graph.input if each.name not in held)
    for node in graph.node:
        for name in (*node.input, *_captured(node)):
            if name in flow:
                flow.add((name, made) for made in node.output if made)
    return flow


def _captured(node: NodeProto) -> set[str]:
    """Every name that graphs nested in a node read."""
    inner = (each for attribute in node.attribute for graph in graphs_of(attribute) for each in nested_graphs(graph))
    return {name for graph in inner for each in graph.node for name in each.input}


def _behind(flow: Flow, hidden: str, logits: str, held: Held) -> tuple[str, ...] | None:
    """The values on the way from `hidden` to the logits, when each operator there leaves positions alone."""
    between = flow.between(hidden, logits) | {logits}
    published = {each.name for each in held.graph.output} - {logits}
    order = [name for node in held.graph.node for name in node.output if name in between]
    layouts = {hidden: Layout(3, True)}
    for name in order:
        node = held.writers[name]
        if name in published or any(each in flow and each not in layouts for each in node.input):
            return None
        layout = layout_of(node, layouts, held)
        if layout is None:
            return None
        layouts[name] = layout
    readers = {made for name in between for made in flow.after[name]}
    alone = readers <= between and layouts[logits] == Layout(3, True)
    return tuple(order) if alone else None
