"""The graph that writes entries of a medium over rows of embeddings, where a token stands for one."""

from onnx import ModelProto, TensorProto, helper

from genai_compiler.lower.decoder_facts import ELEMENT_BYTES
from genai_compiler.read.signature import Port

TOKENS, ROWS, ENTRIES, PLACED = "tokens", "rows", "entries", "placed"
"""Its ports, and those of the binding that stands for it in a document."""
SINCE = 11
"""The version of operators since which there is CumSum."""
_IDS = {"int32": TensorProto.INT32, "int64": TensorProto.INT64}
_KINDS = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float64": TensorProto.DOUBLE,
}


def version_of(model: ModelProto) -> int:
    """The version of ONNX's own operators that a graph states, 0 for none."""
    return next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 0)


def can_place(tokens: Port, rows: Port) -> bool:
    """Whether token ids and rows are of types that the graph is made for."""
    return tokens.dtype in _IDS and rows.dtype in _KINDS


def placing_graph(tokens: Port, rows: Port, token: int, width: int, like: ModelProto) -> ModelProto:
    """tokens int [batch, sequence], rows float [batch, sequence, width], entries [n, width] -> placed, like rows.

    token: the id of an entry. like: the graph whose versions it has.
    """
    ids, kind = _IDS[tokens.dtype], _KINDS[rows.dtype]
    steps = [
        ("Equal", [TOKENS, "id"], "is_entry"),
        ("Reshape", ["is_entry", "flat"], "flags"),
        ("Cast", ["flags"], "ones"),
        ("CumSum", ["ones", "axis"], "count"),
        ("Sub", ["count", "one"], "nth"),
        ("Shape", [ENTRIES], "shape"),
        ("Gather", ["shape", "first"], "there_are"),
        ("Less", ["nth", "there_are"], "in_range"),
        ("And", ["flags", "in_range"], "placed_here"),
        ("Where", ["placed_here", "nth", "there_are"], "which"),
        ("Concat", [ENTRIES, "nothing"], "padded"),
        ("Gather", ["padded", "which"], "picked"),
        ("Shape", [ROWS], "rows_shape"),
        ("Reshape", ["picked", "rows_shape"], "over"),
        ("Shape", [TOKENS], "tokens_shape"),
        ("Concat", ["tokens_shape", "one"], "mask_shape"),
        ("Reshape", ["placed_here", "mask_shape"], "mask"),
        ("Where", ["mask", "over", ROWS], PLACED),
    ]
    more = {"Cast": {"to": TensorProto.INT64}, "Concat": {"axis": 0}}
    nodes = [helper.make_node(op, taken, [made], name=made, **more.get(op, {})) for op, taken, made in steps]
    numbers = {"flat": [-1], "one": [1], "first": [0]}
    weights = [helper.make_tensor(name, TensorProto.INT64, [1], value) for name, value in numbers.items()]
    weights += [
        helper.make_tensor("id", ids, [], [token]),
        helper.make_tensor("axis", TensorProto.INT64, [], [0]),
        helper.make_tensor("nothing", kind, [1, width], bytes(width * ELEMENT_BYTES[rows.dtype]), raw=True),
    ]
    inputs = [
        helper.make_tensor_value_info(TOKENS, ids, ["batch", "sequence"]),
        helper.make_tensor_value_info(ROWS, kind, ["batch", "sequence", width]),
        helper.make_tensor_value_info(ENTRIES, kind, [ENTRIES, width]),
    ]
    placed = helper.make_tensor_value_info(PLACED, kind, ["batch", "sequence", width])
    graph = helper.make_graph(nodes, "place_entries", inputs, [placed], weights)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", version_of(like))], ir_version=like.ir_version
    )
