"""At which length a graph's tables change over: the condition of the change is computed for the lengths around it.

How the length enters the comparison (a width, a sum, one more, operands in either order) need not be understood.
"""

from collections.abc import Iterator

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, helper

from genai_compiler.read.graph_facts import length_switches
from genai_compiler.read.nodes import input_at, is_onnx

_COMPARISONS = frozenset({"Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"})
_AROUND = 2
_MOST_NODES, _LONGEST = 64, 1 << 22


def switch_length(model: ModelProto, mask: str) -> int:
    """The most positions for which the graph takes its first tables, 0 where it has but one set or nothing proves it.

    mask: the input [rows, positions] whose ones, or width, are that length.
    """
    switches = {each.threshold for each in length_switches(model) if each.inputs == (mask,)}
    if len(switches) != 1 or not 0 < (threshold := switches.pop()) < _LONGEST:
        return 0
    found = {_turn(model.graph, node, mask, threshold) for node in _compared(model.graph, mask)}
    return found.pop() if len(found) == 1 else 0


def _compared(graph: GraphProto, mask: str) -> Iterator[NodeProto]:
    """The comparisons that choose: those of the mask's length whose result an If or a Where takes."""
    writers = {name: node for node in graph.node for name in node.output}
    chosen = {input_at(node, 0) for node in graph.node if node.op_type in ("If", "Where")}
    for name in sorted(chosen):
        node = writers.get(name)
        while (
            node is not None and is_onnx(node) and node.op_type in ("Not", "Cast", "Identity", "Squeeze", "Unsqueeze")
        ):
            node = writers.get(input_at(node, 0))
        if node is not None and is_onnx(node) and node.op_type in _COMPARISONS:
            ports = {each.name for each in graph.input} & _sources(node, writers)
            if ports == {mask}:
                yield node


def _turn(graph: GraphProto, node: NodeProto, mask: str, threshold: int) -> int:
    """The length behind which the condition is another, 0 where that is not one near the threshold."""
    part = _part(graph, node, mask)
    if part is None:
        return 0
    from onnx.reference import ReferenceEvaluator  # 12 MB: only for graphs that change over

    evaluator = ReferenceEvaluator(part)
    lengths = range(max(1, threshold - _AROUND), threshold + _AROUND + 2)
    try:
        values = [bool(np.all(evaluator.run(None, {mask: np.ones((1, each), np.int64)})[0])) for each in lengths]
    except Exception:  # an operator that the library does not run, or types that do not fit: nothing is proved
        return 0
    turns = [length for length, one, other in zip(lengths, values, values[1:], strict=False) if one != other]
    return turns[0] if len(turns) == 1 else 0


def _part(graph: GraphProto, node: NodeProto, mask: str) -> ModelProto | None:
    """The nodes that make a condition, as a model of their own; None where they are many."""
    writers = {name: each for each in graph.node for name in each.output}
    needed, pending = set[str](), list(node.input)
    while pending:
        name = pending.pop()
        maker = writers.get(name)
        if maker is not None and maker.output[0] not in needed:
            needed.add(maker.output[0])
            pending.extend(maker.input)
    nodes = [each for each in graph.node if each.output and each.output[0] in needed]
    if len(nodes) > _MOST_NODES:
        return None
    taken = {name for each in (*nodes, node) for name in each.input}
    held = [each for each in graph.initializer if each.name in taken]
    port = helper.make_tensor_value_info(mask, 7, ["rows", "positions"])
    made = helper.make_tensor_value_info(node.output[0], 9, None)
    return helper.make_model(helper.make_graph([*nodes, node], "condition", [port], [made], held))


def _sources(node: NodeProto, writers: dict[str, NodeProto]) -> set[str]:
    """Names that nothing in the graph makes, and that a node's value comes from."""
    pending, seen = list(node.input), set[str]()
    while pending:
        name = pending.pop()
        if name and name not in seen:
            seen.add(name)
            pending.extend(writers[name].input if name in writers else ())
    return {each for each in seen if each not in writers}
