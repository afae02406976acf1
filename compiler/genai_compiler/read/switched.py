"""A graph that holds two networks behind one flag: an `If` (ONNX operator) whose condition is an input of the graph.

Exporters merge a decoder for prompts and one for later tokens so. Each branch put in the place of its `If` is a graph
like any other; what holds of it can be proved as of any other.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from onnx import GraphProto, helper

from genai_compiler.read.nodes import input_at, is_onnx
from genai_compiler.read.signature import Port, Signature

_SAME_FLAG = frozenset({"Identity", "Squeeze", "Unsqueeze", "Reshape", "Cast"})
_STEPS = 8


@dataclass(frozen=True)
class Switched:
    """port: the flag, bool with one element. branches: its value -> the graph with that branch in place."""

    port: Port
    branches: dict[bool, GraphProto]


def switched(graph: GraphProto, signature: Signature) -> Switched | None:
    """The one flag of a graph, None where there is none, or where more than one `If` depends on it."""
    flags = {each.name: each for each in signature.inputs if _is_flag(each)}
    found = [(flags[flag], at) for at, flag in _switches(graph) if flag in flags]
    if len(found) != 1:
        return None
    port, at = found[0]
    branches = {each.name: each.g for each in graph.node[at].attribute if each.HasField("g")}
    if set(branches) != {"then_branch", "else_branch"}:
        return None
    then, other = (_in_place(graph, at, branches[name]) for name in ("then_branch", "else_branch"))
    return Switched(port, {True: then, False: other}) if then is not None and other is not None else None


def _is_flag(port: Port) -> bool:
    return port.dtype == "bool" and port.shape in ((), (1,))


def _switches(graph: GraphProto) -> Iterator[tuple[int, str]]:
    """The place of every `If` of the outermost graph, and the value that its condition is a mere copy of."""
    writers = {name: node for node in graph.node for name in node.output}
    for at, node in enumerate(graph.node):
        if node.op_type == "If" and is_onnx(node) and node.input:
            name = str(node.input[0])
            for _ in range(_STEPS):
                writer = writers.get(name)
                if writer is None or writer.op_type not in _SAME_FLAG or not is_onnx(writer):
                    break
                name = input_at(writer, 0)
            yield at, name


def _in_place(graph: GraphProto, at: int, branch: GraphProto) -> GraphProto | None:
    """The graph with a branch's nodes in the place of the `If` at `at`; None where two values would have one name."""
    outputs = [str(each) for each in graph.node[at].output]
    results = [str(each.name) for each in branch.output]
    copied = {target: source for target, source in zip(outputs, results, strict=False) if target not in ("", source)}
    inner = {str(each.name) for each in branch.initializer}
    inner |= {str(name) for node in branch.node for name in node.output}
    if len(outputs) != len(results) or inner & set(copied):
        return None
    made = GraphProto(name=graph.name)
    made.input.extend(graph.input)
    made.output.extend(graph.output)
    for held in (graph, branch):
        made.initializer.extend(held.initializer)
        made.sparse_initializer.extend(held.sparse_initializer)
        made.value_info.extend(held.value_info)
    made.node.extend(graph.node[:at])
    made.node.extend(branch.node)
    made.node.extend(helper.make_node("Identity", [source], [target]) for target, source in copied.items())
    made.node.extend(graph.node[at + 1 :])
    return made
