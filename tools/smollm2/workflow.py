"""The package's second form: inference_metadata.yaml with an explicit workflow, its policies as ONNX graphs.

The loop is the standard's autoregressive one: setup runs the prompt, each iteration samples a token from the logits it
was left with, decides which rows end, publishes, and runs the network on the new token.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx_ir as ir
import yaml

from tools.policies import BOOL, FLOAT, INT, POLICIES, decoder_state_initializer, write_policies
from tools.smollm2.checkpoint import Checkpoint, Config
from tools.smollm2.tokenizer import specials
from tools.smollm2.workflow_steps import loop_step

Document = dict[str, Any]
NAMES = {INT: "int64", FLOAT: "float32", BOOL: "bool"}
CAPABILITIES = (
    "workflow_ssa",
    "linear_effects",
    "nested_control_flow",
    "typed_emit",
    "emit_valid_length",
    "loop_induction_values",
    "serving_service_contract",
    "bounded_state_recurrence",
)


class _Plain(yaml.SafeDumper):
    """Writes equal parts out each time: readers rightly distrust anchors and aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def write_workflow(folder: Path, checkpoint: Checkpoint, graph: str) -> None:
    """Write `policies/*.onnx` and inference_metadata.yaml into `folder`, where the decoder is `graph`."""
    config = checkpoint.config
    write_policies(folder / "policies", config.kv_heads, config.head_size)
    text = yaml.dump(metadata(checkpoint, graph), Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120)
    (folder / "inference_metadata.yaml").write_text(text, encoding="utf-8")


def metadata(checkpoint: Checkpoint, graph: str) -> Document:
    """The whole document."""
    config = checkpoint.config
    workflow = {
        "manifest": {"capabilities": list(CAPABILITIES)},
        "inputs": _inputs(checkpoint),
        "outputs": {
            "tokens": {
                "contract": contract("int64", ["batch", "generated_sequence"]),
                "role": "tokens",
                "stage": "pre_adapter",
            }
        },
        "components": {"model": _network(config, graph), **_policy_components(config)},
        "state": _state(config),
        "serving": _serving(config),
        "steps": [loop_step(config.layers)],
    }
    return {
        "schema_version": "1.0",
        "model": _model_facts(config),
        "pipeline": {"workflow": workflow},
        "package": {"tokenizer": _tokenizer(checkpoint)},
        "generation": {"overrides": _overrides()},
    }


def contract(dtype: str, shape: Iterable[int | str]) -> Document:
    """A tensor contract; one entry a request row on axis 0 where that axis is `batch`."""
    extents = list(shape)
    tensor: Document = {"dtype": dtype, "rank": len(extents), "shape": extents}
    if extents[0] == "batch":
        tensor["batch_layout"] = {"kind": "request_aligned", "axis": 0}
    return tensor


def cells(layers: int) -> list[tuple[str, str, str, int]]:
    """(cell, past port, present port, layer) of every cache tensor, in layer order, key before value."""
    return [
        (f"cache_{layer}_{part}", f"past_key_values.{layer}.{part}", f"present.{layer}.{part}", layer)
        for layer in range(layers)
        for part in ("key", "value")
    ]


def _inputs(checkpoint: Checkpoint) -> Document:
    row, one = ["batch"], [1]
    return {
        "request.input_ids": _request("int64", ["batch", "sequence"], "prompt_tokens"),
        "request.max_iterations": _request("int64", one, "max_output_tokens"),
        "request.prompt_lengths": _application("int64", row, "prompt_lengths", -1),
        "request.eos_ids": _application("int64", ["batch", "num_own"], "eos_ids", -1),
        "request.eos_lengths": _application("int64", row, "eos_lengths", -1),
        "request.row_max_iterations": _application("int64", row, "row_max_iterations", -1),
        "request.temperature": _request("float32", row, "sampling_temperature", 1.0),
        "request.top_k": _request("int64", row, "sampling_top_k", 1),
        "request.top_p": _request("float32", row, "sampling_top_p", 1.0),
        "request.min_p": _request("float32", row, "sampling_min_p", 0.0),
        "request.seed": _request("int64", row, "seed", 0),
        "request.rng_counter": _application("int64", row, "rng_counter", 0),
        "package.eos_ids": _literal("int64", ["num_package"], [checkpoint.vocabulary.eos]),
        "package.max_context": _literal("int64", one, checkpoint.config.context_length),
        "package.active": _literal("bool", row, True),
        "package.not_done": _literal("bool", row, False),
        "package.one": _literal("int64", row, 1),
        "package.zero": _literal("int64", row, 0),
    }


def _request(dtype: str, shape: list[Any], role: str, default: Any = None) -> Document:
    known = {"kind": "runtime", "version": "1.0", "role": role}
    return _input(contract(dtype, shape), known, {"kind": "request"}, default)


def _application(dtype: str, shape: list[Any], name: str, default: Any) -> Document:
    return _input(contract(dtype, shape), {"kind": "opaque"}, {"kind": "application", "name": name}, default)


def _literal(dtype: str, shape: list[Any], default: Any) -> Document:
    return _input(contract(dtype, shape), {"kind": "opaque"}, {"kind": "literal"}, default)


def _input(tensor: Document, role: Document, source: Document, default: Any) -> Document:
    if default is None:
        return {"contract": tensor, "role": role, "source": source, "required": True}
    return {"contract": tensor, "role": role, "source": source, "required": False, "default": default}


def _network(config: Config, graph: str) -> Document:
    def cache(length: str) -> Document:
        return contract("float32", ["batch", config.kv_heads, length, config.head_size])

    inputs = {
        "input_ids": contract("int64", ["batch", "sequence"]),
        "attention_mask": contract("int64", ["batch", "total_sequence"]),
    }
    outputs = {"logits": contract("float32", ["batch", "sequence", config.vocabulary])}
    for _, past, present, _ in cells(config.layers):
        inputs[past] = cache("past_sequence")
        outputs[present] = cache("present_sequence")
    roles = {"input_ids": "token_ids", "attention_mask": "attention_mask", "logits": "logits"}
    ports = {"inputs": inputs, "outputs": outputs, "roles": roles}
    return {"implementation": {"kind": "onnx", "artifact": graph}, "ports": ports}


_CONTRACTS = {
    "token_sampler": ("onnx-genai.token-sampler", {"mode": "seeded_stochastic"}),
    "termination": ("onnx-genai.termination-predicate", {}),
    "token_state_update": ("onnx-genai.state-update", {}),
}


def _policy_components(config: Config) -> Document:
    initializer = decoder_state_initializer(config.kv_heads, config.head_size)
    models = [initializer, *(make() for make in POLICIES)]
    return {str(model.graph.name): _policy(model.graph) for model in models}


def _policy(graph: ir.Graph) -> Document:
    name = str(graph.name)
    ports = {"inputs": _ports(graph.inputs), "outputs": _ports(graph.outputs)}
    component: Document = {"implementation": {"kind": "onnx", "artifact": f"policies/{name}.onnx"}, "ports": ports}
    if name in _CONTRACTS:
        identifier, parameters = _CONTRACTS[name]
        component["contract"] = {
            "id": identifier,
            "version": "2",
            "bindings": {port: port for side in ports.values() for port in side},
            "parameters": {**parameters, "batching": "per_row", "inactive_rows": "preserve"},
        }
    if name == "token_sampler":
        component["application_overridable"] = True
    return component


def _ports(values: Iterable[ir.Value]) -> Document:
    ports: Document = {}
    for value in values:
        assert value.dtype is not None
        assert value.shape is not None
        extents: list[int | str] = [extent if isinstance(extent, int) else str(extent) for extent in value.shape]
        ports[str(value.name)] = contract(NAMES[value.dtype], extents)
    return ports


def _state(config: Config) -> Document:
    row = contract("int64", ["batch"])
    flag = contract("bool", ["batch"])
    fixed: Document = {
        "token": _cell(contract("int64", ["batch", 1]), "initializer.token_slot"),
        "logits": _cell(contract("float32", ["batch", config.vocabulary]), "decoder.setup.last_logits"),
        "attention_mask": _cell(contract("int64", ["batch", "context"]), "initializer.attention_mask"),
        "generated_lengths": _cell(row, "initializer.generated_lengths", semantic=True),
        "active": _cell(flag, "package.active", semantic=True),
        "done": _cell(flag, "package.not_done", semantic=True),
        "accepted_len": _cell(row, "package.zero", semantic=True),
        "cache_lengths": _cell(row, "initializer.cache_lengths", semantic=True),
        "rng_counter": _cell(row, "request.rng_counter", semantic=True),
    }
    shape: list[int | str] = ["batch", config.kv_heads, "past_sequence", config.head_size]
    caches = {
        cell: {
            "contract": contract("float32", shape),
            "scope": "invocation",
            "initializer": f"decoder.setup.{present}",
            "recurrence": {"kind": "bounded", "axis": 2, "max": "package.max_context"},
            "service_group": "decoder_cache",
            "management": "runtime",
            "release_boundary": "invocation",
        }
        for cell, _, present, _ in cells(config.layers)
    }
    return {**fixed, **caches}


def _cell(tensor: Document, initializer: str, *, semantic: bool = False) -> Document:
    kind = {"class": "semantic"} if semantic else {}
    return {
        "contract": tensor,
        **kind,
        "scope": "invocation",
        "initializer": initializer,
        "recurrence": {"kind": "invariant"},
    }


def _serving(config: Config) -> Document:
    ports = {
        cell: {"input": past, "output": present, "role": cell.rsplit("_", 1)[1], "layer": layer}
        for cell, past, present, layer in cells(config.layers)
    }
    group = {
        "kind": "full_attention",
        "sequence_axis": 2,
        "layout": "bnsh",
        "logical_lengths": "cache_lengths",
        "aliasing": "permitted",
        "update": {"kind": "append"},
        "reuse": {"prefix_reusable": True, "evictable_prefix": False},
        "capabilities": {"snapshot": True, "fork": True},
        "ports": {"model": ports},
    }
    state_service = {"groups": {"decoder_cache": group}}
    return {"active": "active", "done": "done", "accepted_len": "accepted_len", "state_service": state_service}


def _model_facts(config: Config) -> Document:
    attention = {
        "type": "grouped_query_attention",
        "num_attention_heads": config.heads,
        "num_kv_heads": config.kv_heads,
        "head_dim": config.head_size,
    }
    return {
        "attention": attention,
        "max_sequence_length": config.context_length,
        "vocab_size": config.vocabulary,
    }


def _tokenizer(checkpoint: Checkpoint) -> Document:
    vocabulary = checkpoint.vocabulary
    ids = {"bos": vocabulary.bos, "eos": vocabulary.eos, "pad": vocabulary.padding, "unk": vocabulary.unknown}
    assert all(vocabulary.tokens[index] in specials(vocabulary) for index in ids.values())
    return {
        "algorithm": "bpe",
        "vocab_size": checkpoint.config.vocabulary,
        "byte_level": True,
        "artifacts": [{"location": "tokenizer.json"}],
        "special_tokens": {role: {"id": index, "content": vocabulary.tokens[index]} for role, index in ids.items()},
    }


def _overrides() -> Document:
    probability = {"minimum": 0.0, "maximum": 1.0}
    return {
        "max_output_tokens": {"input": "request.max_iterations"},
        "temperature": {"input": "request.temperature", "constraint": {"minimum": 0.0}},
        "top_k": {"input": "request.top_k", "constraint": {"minimum": 0}},
        "top_p": {"input": "request.top_p", "constraint": probability},
        "min_p": {"input": "request.min_p", "constraint": probability},
        "seed": {"input": "request.seed"},
    }
