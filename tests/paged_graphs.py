"""PagedAttention written out in plain ONNX operators, after its definition in ContribOperators.md, so that a graph with
it runs where the operator has no kernel: keys go to the slots that the tables give, a query sees its own row's past."""

import shutil
from pathlib import Path

import onnx
from onnx import ModelProto, NodeProto, helper, parser

_BODY = """
<domain: "written.out", opset_import: ["" : 22]>
PagedAttention_{name} (q, k, v, key_cache, value_cache, cumulative, past, table, cos, sin) => (out, key_out, value_out)
{{
  zero = Constant <value_int = 0> ()
  one = Constant <value_int = 1> ()
  minus = Constant <value_ints = [-1]> ()
  first = Constant <value_ints = [0]> ()
  second = Constant <value_ints = [1]> ()
  third = Constant <value_ints = [2]> ()
  far = Constant <value_ints = [9223372036854775807]> ()
  ends = Cast <to = 7> (cumulative)
  lengths = Cast <to = 7> (past)
  pages = Cast <to = 7> (table)
  block_1 = Shape <start = 1, end = 2> (key_cache)
  block = Squeeze (block_1)
  count_1 = Shape <start = 0, end = 1> (q)
  count = Squeeze (count_1)
  token = Range (zero, count, one)
  token_c = Unsqueeze (token, second)
  later = Slice (ends, second, far, first)
  later_r = Unsqueeze (later, first)
  behind = GreaterOrEqual (token_c, later_r)
  behind_n = Cast <to = 7> (behind)
  row = ReduceSum <keepdims = 0> (behind_n, second)
  start = Gather (ends, row)
  offset = Sub (token, start)
  before = Gather (lengths, row)
  position = Add (before, offset)
  row_c = Unsqueeze (row, second)
  position_c = Unsqueeze (position, second)
  page_c = Div (position_c, block)
  place = Concat <axis = 1> (row_c, page_c)
  page = GatherND (pages, place)
  within = Mod (position, block)
  page_start = Mul (page, block)
  slot = Add (page_start, within)
  slot_c = Unsqueeze (slot, second)

  q_shape = Constant <value_ints = [0, {heads}, {size}]> ()
  kv_shape = Constant <value_ints = [0, {kv_heads}, {size}]> ()
  q_f = Cast <to = 1> (q)
  k_f = Cast <to = 1> (k)
  q_3 = Reshape (q_f, q_shape)
  k_3 = Reshape (k_f, kv_shape)
  v_3 = Reshape (v, kv_shape)
  cos_f = Cast <to = 1> (cos)
  sin_f = Cast <to = 1> (sin)
  cos_t = Gather (cos_f, position)
  sin_t = Gather (sin_f, position)
  c = Unsqueeze (cos_t, second)
  s = Unsqueeze (sin_t, second)
  q_a, q_b = Split <axis = 2, num_outputs = 2> (q_3)
  k_a, k_b = Split <axis = 2, num_outputs = 2> (k_3)
  q_ac = Mul (q_a, c)
  q_bs = Mul (q_b, s)
  q_bc = Mul (q_b, c)
  q_as = Mul (q_a, s)
  k_ac = Mul (k_a, c)
  k_bs = Mul (k_b, s)
  k_bc = Mul (k_b, c)
  k_as = Mul (k_a, s)
  q_left = Sub (q_ac, q_bs)
  q_right = Add (q_bc, q_as)
  k_left = Sub (k_ac, k_bs)
  k_right = Add (k_bc, k_as)
  q_turned = Concat <axis = 2> (q_left, q_right)
  k_turned_f = Concat <axis = 2> (k_left, k_right)
  k_turned = CastLike (k_turned_f, key_cache)

  flat_shape = Constant <value_ints = [-1, {kv_heads}, {size}]> ()
  key_flat = Reshape (key_cache, flat_shape)
  value_flat = Reshape (value_cache, flat_shape)
  keys = ScatterND (key_flat, slot_c, k_turned)
  values = ScatterND (value_flat, slot_c, v_3)
  cache_shape = Shape (key_cache)
  key_out = Reshape (keys, cache_shape)
  value_out = Reshape (values, cache_shape)

  slots_1 = Shape <start = 0, end = 1> (keys)
  nobody = ConstantOfShape <value = int64[1] {{-1}}> (slots_1)
  rows_1 = Shape <start = 0, end = 1> (pages)
  rows = Squeeze (rows_1)
  wide_1 = Shape <start = 1, end = 2> (pages)
  wide = Squeeze (wide_1)
  row_ids = Range (zero, rows, one)
  page_ids = Range (zero, wide, one)
  inner_ids = Range (zero, block, one)
  behind_axes = Constant <value_ints = [1, 2]> ()
  around_axes = Constant <value_ints = [0, 2]> ()
  row_3 = Unsqueeze (row_ids, behind_axes)
  page_3 = Unsqueeze (page_ids, around_axes)
  pages_3 = Unsqueeze (pages, third)
  starts_3 = Mul (pages_3, block)
  slots_3 = Add (starts_3, inner_ids)
  page_at_3 = Mul (page_3, block)
  at_3 = Add (page_at_3, inner_ids)
  every = Shape (slots_3)
  owners_3 = Expand (row_3, every)
  places_3 = Expand (at_3, every)
  slots_f = Reshape (slots_3, minus)
  slots_c = Unsqueeze (slots_f, second)
  owners_f = Reshape (owners_3, minus)
  places_f = Reshape (places_3, minus)
  owner = ScatterND (nobody, slots_c, owners_f)
  held = ScatterND (nobody, slots_c, places_f)
  mine = Equal (row_c, owner)
  reached = LessOrEqual (held, position_c)
  seen = And (mine, reached)

  group_shape = Constant <value_ints = [0, {kv_heads}, {group}, {size}]> ()
  q_groups = Reshape (q_turned, group_shape)
  q_ready = Transpose <perm = [1, 2, 0, 3]> (q_groups)
  keys_f = Cast <to = 1> (keys)
  values_f = Cast <to = 1> (values)
  keys_t = Transpose <perm = [1, 2, 0]> (keys_f)
  values_t = Transpose <perm = [1, 0, 2]> (values_f)
  keys_4 = Unsqueeze (keys_t, second)
  values_4 = Unsqueeze (values_t, second)
  raw = MatMul (q_ready, keys_4)
  scale = Constant <value_float = {scale}> ()
  scaled = Mul (raw, scale)
  never = Constant <value_float = -1e30> ()
  scores = Where (seen, scaled, never)
  weights = Softmax <axis = -1> (scores)
  mixed = MatMul (weights, values_4)
  by_token = Transpose <perm = [2, 0, 1, 3]> (mixed)
  out_shape = Constant <value_ints = [0, -1]> ()
  out_f = Reshape (by_token, out_shape)
  out = CastLike (out_f, q)
}}
"""


def written_out(model: ModelProto) -> ModelProto:
    """The model with every PagedAttention in plain operators. Its inputs and outputs keep their names."""
    made = ModelProto()
    made.CopyFrom(model)
    nodes: list[NodeProto] = []
    for number, node in enumerate(model.graph.node):
        nodes += _replaced(made, number, node) if node.op_type == "PagedAttention" else [node]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    made.opset_import.append(helper.make_opsetid("written.out", 1))
    return made


def _replaced(model: ModelProto, number: int, node: NodeProto) -> list[NodeProto]:
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    heads, kv_heads = attributes["num_heads"], attributes["kv_num_heads"]
    cache = next(each for each in model.graph.input if each.name == node.input[3])
    size = cache.type.tensor_type.shape.dim[3].dim_value
    facts = {"heads": heads, "kv_heads": kv_heads, "group": heads // kv_heads, "size": size}
    model.functions.append(parser.parse_function(_BODY.format(name=number, scale=attributes["scale"], **facts)))
    before: list[NodeProto] = []
    names = list(node.input[:10])
    if not names[1]:  # queries, keys and values in one tensor
        parts = [f"{number}.{part}" for part in "qkv"]
        widths = [heads * size, kv_heads * size, kv_heads * size]
        before.append(helper.make_node("Constant", [], [f"{number}.widths"], value_ints=widths))
        before.append(helper.make_node("Split", [names[0], f"{number}.widths"], parts, axis=1))
        names[:3] = parts
    if not attributes["do_rotary"]:  # turning by nothing: cos 1, sin 0
        names[8:] = [f"{number}.cos", f"{number}.sin"]
        for name, value in zip(names[8:], (1.0, 0.0), strict=True):
            before.append(helper.make_node("Constant", [], [f"{name}.shape"], value_ints=[1024, size // 2]))
            filled = helper.make_tensor("value", onnx.TensorProto.FLOAT, [1], [value])
            before.append(helper.make_node("ConstantOfShape", [f"{name}.shape"], [name], value=filled))
    call = helper.make_node(f"PagedAttention_{number}", names, list(node.output), domain="written.out")
    return [*before, call]


def write_out(package: Path, folder: Path) -> Path:
    """A copy of a package whose graph runs on any provider. The weights stay beside it under their own name."""
    shutil.copytree(package, folder)
    model = onnx.load(package / "model.onnx", load_external_data=False)
    (folder / "model.onnx").write_bytes(written_out(model).SerializeToString())
    return folder
