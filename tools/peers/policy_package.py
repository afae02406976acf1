"""A package around the tiny graph whose sampling, ending and bookkeeping are three small ONNX policies.

Every token takes a state update (mask and length), a termination, the decoder and a greedy sampler.
"""

import shutil
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
from onnx import TensorProto, helper

from tools.fixtures.document import (
    Document,
    application,
    cell,
    emit,
    invoke,
    literal,
    loop,
    output,
    package,
    request,
    tensor,
    write_document,
)
from tools.fixtures.document import (
    onnx as component,
)
from tools.policies import decoder_state_initializer

IR_VERSION = 10
NEVER = -1
"""The end token: none, so that a generation always has its full length."""
CAPABILITIES = (
    "workflow_ssa", "linear_effects", "nested_control_flow", "typed_emit", "loop_induction_values",
    "serving_service_contract", "bounded_state_recurrence",
)  # fmt: skip
INT, BOOL, FLOAT = int(TensorProto.INT64), int(TensorProto.BOOL), int(TensorProto.FLOAT)
DTYPES = {INT: "int64", BOOL: "bool", FLOAT: "float32"}
Extents = list[int | str]
Ports = dict[str, tuple[int, Extents]]

ROW: Extents = ["batch"]
SLOT: Extents = ["batch", 1]
ONE: Extents = [1]


def write_policy_package(folder: Path, tiny: Path, context: int) -> None:
    """Write the package into `folder`. tiny: the builder's package of two layers, whose graph and tokenizer it has."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "model.onnx.data"):
        if (tiny / name).exists():
            shutil.copyfile(tiny / name, folder / name)
    model = onnx.load(tiny / "model.onnx", load_external_data=False)
    caches = [port for port in model.graph.input if port.name.startswith("past_key_values.")]
    heads, size = head_shape(model)
    for port in [*caches, *(each for each in model.graph.output if each.name.startswith("present."))]:
        port.type.tensor_type.shape.dim[3].dim_value = size
    onnx.save(model, folder / "model.onnx")
    opset = next(each.version for each in model.opset_import if not each.domain)
    policies = {name: make(opset) for name, make in POLICIES.items()}
    for name, made in policies.items():
        onnx.save(made, folder / f"{name}.onnx")
    ir.save(decoder_state_initializer(heads, size), folder / "initializer.onnx")
    names = [port.name.removeprefix("past_key_values.") for port in caches]
    vocabulary = int(
        next(each for each in model.graph.output if each.name == "logits").type.tensor_type.shape.dim[2].dim_value
    )
    write_document(folder, document(policies, names, heads, size, vocabulary, context))


def head_shape(model: onnx.ModelProto) -> tuple[int, int]:
    """(heads of keys, numbers of a head), from the attention operator and the projection before it."""
    attention = next(node for node in model.graph.node if node.op_type == "GroupQueryAttention")
    facts = {each.name: each.i for each in attention.attribute}
    tables = {each.name: each.dims for each in model.graph.initializer}
    return facts["kv_num_heads"], 2 * tables[attention.input[7]][1]  # cos_cache: [positions, size / 2]


# ---- the policies ----------------------------------------------------------------------------------------------------


def sampler(opset: int) -> onnx.ModelProto:
    """The most likely token behind the last position: logits float32 [B, S, V] -> token int64 [B, 1]."""
    nodes = [
        helper.make_node("Gather", ["logits", "last"], ["row"], axis=1),
        helper.make_node("ArgMax", ["row"], ["token"], axis=-1, keepdims=0),
    ]
    ports: Ports = {"logits": (FLOAT, ["batch", "sequence", "vocabulary"])}
    return _model("sampler", opset, nodes, ports, {"token": (INT, SLOT)}, {"last": [-1]})


def termination(opset: int) -> onnx.ModelProto:
    """A row goes on where it did, its token is no end token, and the iteration (0-based) is not its last."""
    nodes = [
        helper.make_node("Squeeze", ["token", "axis"], ["flat"]),
        helper.make_node("Equal", ["flat", "eos"], ["ended"]),
        helper.make_node("Add", ["iteration", "one"], ["count"]),
        helper.make_node("GreaterOrEqual", ["count", "limit"], ["full"]),
        helper.make_node("Or", ["ended", "full"], ["done_now"]),
        helper.make_node("Not", ["done_now"], ["open"]),
        helper.make_node("And", ["open", "active"], ["next_active"]),
        helper.make_node("Not", ["next_active"], ["done"]),
    ]
    inputs: Ports = {
        "token": (INT, SLOT), "eos": (INT, ONE), "iteration": (INT, ONE), "limit": (INT, ONE), "active": (BOOL, ROW),
    }  # fmt: skip
    outputs: Ports = {"next_active": (BOOL, ROW), "done": (BOOL, ROW)}
    return _model("termination", opset, nodes, inputs, outputs, {"axis": [1], "one": [1]})


def state_update(opset: int) -> onnx.ModelProto:
    """A one in the mask at each row's length, and that length plus one."""
    nodes = [
        helper.make_node("Unsqueeze", ["lengths", "axis"], ["places"]),
        helper.make_node("ConstantOfShape", ["shape"], ["ones"], value=helper.make_tensor("v", INT, [1], [1])),
        helper.make_node("Shape", ["places"], ["shape"]),
        helper.make_node("ScatterElements", ["mask", "places", "ones"], ["next_mask"], axis=1),
        helper.make_node("Add", ["lengths", "one"], ["next_lengths"]),
    ]
    nodes[1], nodes[2] = nodes[2], nodes[1]
    inputs: Ports = {"mask": (INT, ["batch", "context"]), "lengths": (INT, ROW)}
    outputs: Ports = {"next_mask": (INT, ["batch", "context"]), "next_lengths": (INT, ROW)}
    return _model("state_update", opset, nodes, inputs, outputs, {"axis": [1], "one": [1]})


def _model(
    name: str, opset: int, nodes: list[onnx.NodeProto], inputs: Ports, outputs: Ports, constants: dict[str, list[int]]
) -> onnx.ModelProto:
    infos = [
        [helper.make_tensor_value_info(port, kind, shape) for port, (kind, shape) in ports.items()]
        for ports in (inputs, outputs)
    ]
    tensors = [helper.make_tensor(each, INT, [len(values)], values) for each, values in constants.items()]
    graph = helper.make_graph(nodes, name, infos[0], infos[1], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)


POLICIES = {"sampler": sampler, "termination": termination, "state_update": state_update}

# ---- the document ----------------------------------------------------------------------------------------------------


Models = dict[str, onnx.ModelProto]


def document(policies: Models, names: list[str], heads: int, size: int, vocabulary: int, context: int) -> Document:
    """The whole document. names: `LAYER.key` and `LAYER.value` of every cache."""
    rows, slot, one, flags = (
        tensor("int64", *ROW, rows=True),
        tensor("int64", *SLOT, rows=True),
        tensor("int64", *ONE),
        tensor("bool", *ROW, rows=True),
    )
    inputs = {
        "request.input_ids": request(tensor("int64", "batch", "sequence", rows=True), "prompt_tokens"),
        "request.max_iterations": request(one, "max_output_tokens"),
        "request.prompt_lengths": application(rows, "prompt_lengths", -1),
        "package.eos": literal(one, NEVER),
        "package.max_context": literal(one, context),
        "package.active": literal(flags, True),
        "package.not_done": literal(flags, False),
        "package.zero": literal(rows, 0),
    }
    state = {
        "token": cell(slot, "prompt.token"),
        "attention_mask": cell(tensor("int64", "batch", "context", rows=True), "init.attention_mask"),
        "lengths": cell(rows, "init.cache_lengths"),
        "active": cell(flags, "package.active"),
        "done": cell(flags, "package.not_done"),
        "accepted_len": cell(rows, "package.zero"),
    }
    bounded = {"kind": "bounded", "axis": 2, "max": "package.max_context"}
    for name in names:
        more: Document = {"management": "runtime", "release_boundary": "invocation", "service_group": "decoder_cache"}
        state[_cell(name)] = cell(_cache(heads, "past_sequence", size), f"prompt.present.{name}", bounded, **more)
    return package(
        CAPABILITIES, inputs, {"tokens": output(tensor("int64", "batch", "generated", rows=True), "tokens")},
        components(policies, names, heads, size, vocabulary), [_loop(names)], state=state, serving=_serving(names),
        generation={"overrides": {"max_output_tokens": {"input": "request.max_iterations"}}},
    )  # fmt: skip


def components(policies: Models, names: list[str], heads: int, size: int, vocabulary: int) -> Document:
    """The decoder, its initializer, and the three policies, with the ports of their graphs."""
    past, present = _cache(heads, "past_sequence", size), _cache(heads, "present_sequence", size)
    taken = {"input_ids": tensor("int64", "batch", "sequence", rows=True),
             "attention_mask": tensor("int64", "batch", "total_sequence", rows=True)}  # fmt: skip
    made = {"logits": tensor("float32", "batch", "sequence", vocabulary, rows=True)}
    roles = {"input_ids": "token_ids", "attention_mask": "attention_mask", "logits": "logits"}
    found = {
        "model": component(
            "model.onnx",
            taken | {f"past_key_values.{name}": past for name in names},
            made | {f"present.{name}": present for name in names},
            roles=roles,
        )
    }
    initializer = ir.to_proto(decoder_state_initializer(heads, size))
    graphs = {"initializer": initializer, **policies}
    for name, model in graphs.items():
        found[name] = component(f"{name}.onnx", _ports(model.graph.input), _ports(model.graph.output))
    return found


def _ports(infos: Any) -> Document:
    ports: Document = {}
    for each in infos:
        shape = [dim.dim_param or dim.dim_value for dim in each.type.tensor_type.shape.dim]
        ports[each.name] = tensor(DTYPES[each.type.tensor_type.elem_type], *shape, rows=shape[0] == "batch")
    return ports


def _loop(names: list[str]) -> Document:
    request = {name: f"request.{name}" for name in ("prompt_lengths", "max_iterations")}
    initial = ("attention_mask", "cache_lengths", "empty_cache", "generated_lengths", "token_slot")
    setup = [
        invoke(
            "initializer",
            {"prompt_tokens": "request.input_ids", **request},
            {name: f"init.{name}" for name in initial},
        ),
        _decode("prompt", "request.input_ids", "init.attention_mask", dict.fromkeys(names, "init.empty_cache")),
        invoke("sampler", {"logits": "prompt.logits"}, {"token": "prompt.token"}),
    ]
    ending = {"token": "token", "eos": "package.eos", "iteration": "loop.iteration", "limit": "request.max_iterations"}
    body = [
        emit("token", "tokens", "append", when="active"),
        invoke("state_update", {"mask": "attention_mask", "lengths": "lengths"},
               {"next_mask": "mask.next", "next_lengths": "lengths.next"}),
        invoke("termination", {**ending, "active": "active"}, {"next_active": "active.next", "done": "done.next"}),
        _decode("body", "token", "mask.next", {name: _cell(name) for name in names}),
        invoke("sampler", {"logits": "body.logits"}, {"token": "token.next"}),
    ]  # fmt: skip
    carried = {
        "token": "token.next", "attention_mask": "mask.next", "lengths": "lengths.next", "active": "active.next",
        "done": "done.next", "accepted_len": "accepted_len", **{_cell(name): f"body.present.{name}" for name in names},
    }  # fmt: skip
    return loop(
        body, "active", "request.max_iterations", carried, setup=setup, termination="generation_eos",
        iteration={"value": "loop.iteration", "contract": tensor("int64", 1)},
    )  # fmt: skip


def _decode(into: str, ids: str, mask: str, past: dict[str, str]) -> Document:
    taken = {
        "input_ids": ids,
        "attention_mask": mask,
        **{f"past_key_values.{name}": value for name, value in past.items()},
    }
    return invoke(
        "model", taken, {"logits": f"{into}.logits", **{f"present.{name}": f"{into}.present.{name}" for name in past}}
    )


def _cell(name: str) -> str:
    return "cache_" + name.replace(".", "_")


def _cache(heads: int, length: str, size: int) -> Document:
    return tensor("float32", "batch", heads, length, size, rows=True)


def _serving(names: list[str]) -> Document:
    ports = {
        _cell(name): {"input": f"past_key_values.{name}", "output": f"present.{name}", "role": name.rpartition(".")[2],
                      "layer": int(name.partition(".")[0])}
        for name in names
    }  # fmt: skip
    group = {
        "kind": "full_attention", "sequence_axis": 2, "layout": "bnsh", "logical_lengths": "lengths",
        "aliasing": "permitted", "update": {"kind": "append"},
        "reuse": {"prefix_reusable": True, "evictable_prefix": False},
        "capabilities": {"snapshot": True, "fork": True}, "ports": {"model": ports},
    }  # fmt: skip
    liveness = {"active": "active", "done": "done", "accepted_len": "accepted_len"}
    return {**liveness, "state_service": {"groups": {"decoder_cache": group}}}
