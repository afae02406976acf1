"""A graph whose attention gets its lengths as inputs: what computed them from a mask is gone, and so is the mask."""

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from genai_compiler.plan.edits import FeedLengths


def feed_lengths(model: ModelProto, edit: FeedLengths) -> None:
    """Edit the graph in place."""
    graph, made = model.graph, set(edit.found.made)
    ports = {**dict.fromkeys(edit.found.last, edit.last), **dict.fromkeys(edit.found.width, edit.width)}
    nodes = list[NodeProto]()
    for node in graph.node:
        if not made.intersection(node.output):
            node.input[:] = [ports.get(name, name) for name in node.input]
            nodes.append(NodeProto.FromString(node.SerializeToString()))
    inputs = list[ValueInfoProto]()
    for port in graph.input:
        inputs += (
            _lengths(port, edit) if port.name == edit.mask else [ValueInfoProto.FromString(port.SerializeToString())]
        )
    kept = [ValueInfoProto.FromString(each.SerializeToString()) for each in graph.value_info if each.name not in made]
    for held, values in ((graph.node, nodes), (graph.input, inputs), (graph.value_info, kept)):
        del held[:]
        held.extend(values)


def _lengths(mask: ValueInfoProto, edit: FeedLengths) -> list[ValueInfoProto]:
    """The inputs in the mask's place; rows are called what the mask calls them."""
    dims = mask.type.tensor_type.shape.dim
    rows = (dims[0].dim_param or (dims[0].dim_value if dims[0].HasField("dim_value") else None)) if dims else None
    return [
        helper.make_tensor_value_info(edit.last, TensorProto.INT32, [rows]),
        helper.make_tensor_value_info(edit.width, TensorProto.INT32, [1]),
    ]
