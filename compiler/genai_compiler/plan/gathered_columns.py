"""A graph that gathers columns of a weight where it gathered rows of the weight transposed, which is gone."""

from onnx import ModelProto, NodeProto, ValueInfoProto, helper

from genai_compiler.plan.edits import GatherColumns, free_name
from genai_compiler.read.nodes import value_names


def gather_columns(model: ModelProto, edit: GatherColumns) -> None:
    """Edit the graph in place."""
    graph, found = model.graph, edit.found
    ranks, taken = dict(found.gathers), value_names(graph)
    nodes = list[NodeProto]()
    for node in graph.node:
        if found.turned in node.output:
            continue
        kept = NodeProto.FromString(node.SerializeToString())
        nodes.append(kept)
        if found.turned in node.input:
            made = node.output[0]
            columns = free_name(f"{made}_columns", taken)
            del kept.attribute[:]
            kept.attribute.append(helper.make_attribute("axis", 1))
            kept.input[0], kept.output[0] = found.weight, columns
            order = [*range(1, ranks[made] + 1), 0]
            nodes.append(helper.make_node("Transpose", [columns], [made], name=f"{columns}.Transpose", perm=order))
    infos = [ValueInfoProto.FromString(each.SerializeToString()) for each in graph.value_info]
    for held, values in (
        (graph.node, nodes),
        (graph.value_info, [each for each in infos if each.name != found.turned]),
    ):
        del held[:]
        held.extend(values)
