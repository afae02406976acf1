"""Graphs as tools for dynamic quantization write them: activations are rounded while they run."""

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper


def rounded(model: ModelProto) -> ModelProto:
    """Products by weights as tools for dynamic quantization write them: of int8 weights and uint8 activations."""
    weights = {each.name: each for each in model.graph.initializer}
    nodes = list[NodeProto]()
    for at, node in enumerate(model.graph.node):
        weight = weights.get(node.input[1]) if node.op_type == "MatMul" else None
        if weight is None:
            nodes.append(node)
            continue
        array = numpy_helper.to_array(weight)
        scale = np.float32(np.abs(array).max() / 127)
        weight.CopyFrom(numpy_helper.from_array(np.round(array / scale).astype(np.int8), weight.name))
        model.graph.initializer.append(numpy_helper.from_array(scale, f"scale.{at}"))
        whole, found, zero = f"whole.{at}", f"found.{at}", f"zero.{at}"
        nodes += [
            helper.make_node("DynamicQuantizeLinear", [node.input[0]], [whole, found, zero]),
            helper.make_node("MatMulInteger", [whole, weight.name, zero], [f"sum.{at}"]),
            helper.make_node("Cast", [f"sum.{at}"], [f"float.{at}"], to=TensorProto.FLOAT),
            helper.make_node("Mul", [found, f"scale.{at}"], [f"both.{at}"]),
            helper.make_node("Mul", [f"float.{at}", f"both.{at}"], [node.output[0]]),
        ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model
