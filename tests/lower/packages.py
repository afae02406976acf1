"""Tiny v1 packages made on the spot: an embedding, attention layers with random weights, a head."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from genai_compiler.lower.genai_config_v1 import lower_genai_config
from genai_compiler.lower.lowered import Lowered
from genai_compiler.problem import CompileError, Problem
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, save
from onnx.external_data_helper import set_external_data

VOCABULARY, HIDDEN = 24, 8


@dataclass(frozen=True)
class Layer:
    """One attention layer: its number in port names, cache heads and head size."""

    number: int
    heads: int = 1
    head_dim: int = 8


@dataclass(frozen=True)
class Recipe:
    """What to build. op: "gqa" (com.microsoft, writes in place) or "attention" (ai.onnx, appends)."""

    layers: tuple[Layer, ...] = (Layer(0),)
    op: str = "gqa"
    dtype: int = TensorProto.FLOAT
    past_length: str | int = "past_sequence_length"
    present_length: str | int = "total_sequence_length"
    symbolic_heads: bool = False
    past: str = "past_key_values.{}.{}"
    present: str = "present.{}.{}"
    extra_inputs: Mapping[str, tuple[int, list[Any]]] = field(default_factory=dict)
    logits_dtype: int | None = None


def decoder(recipe: Recipe) -> ModelProto:
    """A decoder graph by `recipe`: input_ids, attention_mask and caches in, logits and caches out. It runs."""
    rng = np.random.default_rng(3)
    scale = recipe.dtype
    nodes: list[NodeProto] = [*_lengths(), helper.make_node("Gather", ["embedding", "input_ids"], ["x.0"])]
    weights = {"embedding": rng.normal(size=(VOCABULARY, HIDDEN)), "head": rng.normal(size=(HIDDEN, VOCABULARY))}
    caches_in, caches_out = [], []
    for index, layer in enumerate(recipe.layers):
        width = layer.heads * layer.head_dim
        for part in "qkv":
            weights[f"{part}.{index}"] = rng.normal(size=(HIDDEN, width)) * 0.5
            nodes.append(helper.make_node("MatMul", [f"x.{index}", f"{part}.{index}"], [f"{part}s.{index}"]))
        weights[f"o.{index}"] = rng.normal(size=(width, HIDDEN)) * 0.5
        past = [recipe.past.format(layer.number, half) for half in ("key", "value")]
        present = [recipe.present.format(layer.number, half) for half in ("key", "value")]
        nodes += [_attention(recipe, index, layer, past, present)]
        nodes += [helper.make_node("MatMul", [f"a.{index}", f"o.{index}"], [f"ao.{index}"])]
        nodes += [helper.make_node("Add", [f"x.{index}", f"ao.{index}"], [f"x.{index + 1}"])]
        heads = f"kv_heads_{index}" if recipe.symbolic_heads else layer.heads
        size = f"head_dim_{index}" if recipe.symbolic_heads else layer.head_dim
        caches_in += [_value(name, scale, ["batch", heads, recipe.past_length, size]) for name in past]
        caches_out += [_value(name, scale, ["batch", heads, recipe.present_length, size]) for name in present]
    last = f"x.{len(recipe.layers)}"
    nodes += [helper.make_node("MatMul", [last, "head"], ["raw_logits"])]
    to = recipe.logits_dtype or recipe.dtype
    nodes += [helper.make_node("Cast", ["raw_logits"], ["logits"], to=to)]
    inputs = [_value("input_ids", TensorProto.INT64, ["batch", "sequence"])]
    inputs += [_value("attention_mask", TensorProto.INT64, ["batch", "total"]), *caches_in]
    inputs += [_value(name, *kind) for name, kind in recipe.extra_inputs.items()]
    outputs = [_value("logits", to, ["batch", "sequence", VOCABULARY]), *caches_out]
    tensors = [_tensor(name, value, scale) for name, value in weights.items()]
    tensors += [numpy_helper.from_array(np.array([1], np.int64), "axis")]
    tensors += [numpy_helper.from_array(np.array(1, np.int64), "one")]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def write_package(folder: Path, model: ModelProto | Recipe, config: Mapping[str, Any] | None = None) -> Path:
    """A package with `model.onnx` and a genai_config.json: `config` laid over the usual one."""
    folder.mkdir(parents=True, exist_ok=True)
    save(decoder(model) if isinstance(model, Recipe) else model, folder / "model.onnx")
    write_config(folder, config or {})
    return folder


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """genai_config.json: `config` laid over a plain one, object by object; a value of ... removes the key."""
    plain = {
        "model": {
            "type": "decoder",
            "vocab_size": VOCABULARY,
            "context_length": 64,
            "eos_token_id": 2,
            "pad_token_id": 0,
            "decoder": {
                "filename": "model.onnx",
                "head_size": 8,
                "num_key_value_heads": 1,
                "num_hidden_layers": 1,
                "session_options": {"provider_options": []},
            },
        },
        "search": {},
    }
    (folder / "genai_config.json").write_text(json.dumps(laid_over(plain, config)))


def outside(model: ModelProto, *names: str) -> ModelProto:
    """The model with its weights in files of these names, in turns, once it is saved; its small constants stay."""
    for at, held in enumerate(each for each in model.graph.initializer if len(each.dims) == 2):
        held.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(held), held.name))
        set_external_data(held, names[at % len(names)])
    return model


def laid_over(plain: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(plain)
    for key, value in over.items():
        if value is ...:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = laid_over(merged[key], value)
        else:
            merged[key] = value
    return merged


def lower(folder: Path, recipe: Recipe | None = None, config: dict[str, Any] | None = None) -> Lowered:
    return lower_genai_config(write_package(folder, recipe or Recipe(), config))


def refused(folder: Path, recipe: Recipe | None = None, config: dict[str, Any] | None = None) -> dict[str, Problem]:
    with pytest.raises(CompileError) as caught:
        lower(folder, recipe, config)
    return {each.code: each for each in caught.value.problems}


def outcome(folder: Path) -> tuple[tuple[Problem, ...], dict[str, Any] | None]:
    """(problems, the document if the package was not refused)."""
    try:
        lowered = lower_genai_config(folder)
    except CompileError as refusal:
        return refusal.problems, None
    return lowered.problems, lowered.document


def warned(lowered: Lowered) -> dict[str, Problem]:
    return {each.code: each for each in lowered.problems}


def eos_literal(lowered: Lowered) -> list[int]:
    default = lowered.document["pipeline"]["workflow"]["inputs"]["package.eos_token_ids"]["default"]
    assert isinstance(default, list)
    return default


def _lengths() -> list[NodeProto]:
    """The valid length less one of each row, and the total length, from the mask: as exporters write it."""
    return [
        helper.make_node("ReduceSum", ["attention_mask", "axis"], ["row_sums"], keepdims=0),
        helper.make_node("Sub", ["row_sums", "one"], ["last_positions"]),
        helper.make_node("Cast", ["last_positions"], ["seqlens"], to=TensorProto.INT32),
        helper.make_node("Shape", ["attention_mask"], ["mask_shape"]),
        helper.make_node("Gather", ["mask_shape", "one"], ["total_length"], axis=0),
        helper.make_node("Cast", ["total_length"], ["total"], to=TensorProto.INT32),
    ]


def _attention(recipe: Recipe, index: int, layer: Layer, past: list[str], present: list[str]) -> NodeProto:
    qkv = [f"{part}s.{index}" for part in "qkv"]
    if recipe.op == "gqa":
        inputs = [*qkv, *past, "seqlens", "total"]
        heads = {"num_heads": layer.heads, "kv_num_heads": layer.heads}
        outputs = [f"a.{index}", *present]
        return helper.make_node("GroupQueryAttention", inputs, outputs, domain="com.microsoft", **heads)
    heads = {"q_num_heads": layer.heads, "kv_num_heads": layer.heads}
    return helper.make_node("Attention", [*qkv, "", *past], [f"a.{index}", *present], is_causal=1, **heads)


def _value(name: str, kind: int, shape: list[Any]) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _tensor(name: str, value: Any, kind: int) -> TensorProto:
    return helper.make_tensor(name, kind, value.shape, value.astype(np.float32).reshape(-1).tolist())
