"""A document that uses every part of the format, for tests that break one thing of it."""

from typing import Any

import yaml
from genai_compiler.problem import CompileError, Problem
from genai_compiler.read.document import Metadata
from genai_compiler.read.places import Places
from genai_compiler.read.validate import parse_metadata

FULL = """\
schema_version: "1.0"
required_capabilities: [workflow_ssa]
model:
  attention:
    {type: grouped_query, num_kv_heads: 2, sliding_window: null,
     key_sequence_lengths: {scalar_broadcast: unit_batch}}
  max_sequence_length: 128
  runtime_configurable: {prefix_cache: true, chunked_prefill: {chunk_size: 16}}
  mixture_of_experts:
    representation: moe
    routed_expert_count: 4
    shared_expert_count: 0
    experts_per_token: 2
    expert_intermediate_size: 8
    shared_expert_intermediate_size: 0
    activation: silu
    router:
      {score_function: softmax, selection_method: grouped_top_k, normalize_weights: true, scaling_factor: 1,
       group_count: 2, groups_per_token: 1, group_score: maximum}
  sharding:
    tensor_parallel: {decoder: {shard_axis: 0, max_shards: 2, replicated: [norm]}}
    pipeline_parallel: [{components: [decoder], outputs: [logits], state_groups: [kv]}]
    expert_parallel: {expert_count: 4}
quantization: {default: int4, overrides: [{precision: int8, component: decoder, layers: [0, -1]}]}
hardware_requirements: {min_memory_gb: 1.5, required_dtypes: [float16], min_tp_degree: 1}
preprocessing:
  image:
    transforms: [{op: decode}, {op: resize, size: 224, outputs: [small]}, {op: resize, size: {width: 2, height: 3}}]
    outputs: [{source: small, name: image.pixels, content: pixels, dtype: float32}]
  audio:
    transforms: [{op: decode}, {op: resample, sample_rate: 16000}]
    outputs: [{source: wave, name: audio.wave, content: waveform, dtype: float32, rank: 2}]
package:
  tokenizer:
    algorithm: bpe
    vocab_size: 32
    artifacts: [{location: tokenizer.json}]
    special_tokens: {eos: {id: 2, content: </s>}}
  constraint_languages: [{dialect: json, version: "1", component: decoder}]
generation:
  defaults: {temperature: 1, top_k: 0, do_sample: false}
  overrides: {temperature: {input: seed, constraint: {minimum: 0, maximum: 2.5}}}
profiles:
  main:
    kind: generation
    version: "1"
    outputs: {tokens: tokens}
    pooling: {kind: mean, axis: 1}
    decoding: {kind: ctc, blank_id: 0, time_axis: 1, class_axis: 2, vocabulary: {source: inline, tokens: [a]}}
adapters:
  target_manifest:
    targets:
      - {id: q, component: decoder, initializer: w, node_name: n, output_name: o, activation_dtype: float32,
         input_features: 4, output_features: 4, output_slice: {role: q, offset: 0, width: 2},
         graph_inputs: {a: a, b: b}}
  selection: {segments: s, adapter_counts: c, scales: f, max_adapters: 2}
  application_capability: onnx-genai.adapters@1
  artifacts:
    one:
      index: 0
      identity: one
      version: "1"
      rank: 2
      alpha: 4.0
      dtype: float32
      weights: [{location: one.json, loader_capability: onnx-genai.adapters.json@1, scale_encoding: baked}]
      bindings: [{target: q, weight_key: q}]
      provenance: {producer: us}
speculative:
  proposer: draft
  target: decoder
  proposal_execution:
    {kind: chained, token_embedding_input: e, logits_output: l, recurrent: [{state: s, input: i, output: o}],
     folded_carry_seed: {component: decoder, output: h}, token_embedding: {component: decoder, table: t}}
  vocabulary: {kind: subset, proposer_vocab_size: 8}
  max_proposal_width: 4
  rollback_state: [cache]
pipeline:
  workflow:
    manifest: {adapter_abis: {abi: "1"}, capabilities: [workflow_ssa, typed_emit]}
    inputs:
      request.ids:
        contract: {dtype: int64, rank: 2, shape: [batch, 4], batch_layout: {kind: request_aligned, axis: 0}}
        role: {kind: runtime, version: "1", role: prompt_tokens}
        source: {kind: request}
        default: [1, 2]
      seed:
        contract: {dtype: int64, rank: 0, shape: []}
        role: {kind: opaque}
        source: {kind: application, name: seed}
        present_as: has_seed
        required: false
    outputs:
      tokens: {contract: {dtype: int64, rank: 2}, role: tokens, stage: pre_adapter}
      sound:
        contract: {dtype: float32, rank: 3}
        role: audio
        stage: pre_adapter
        media: {container: wav, encoding: pcm_s16_le, sample_rate_hz: 16000, channels: 1}
    components:
      decoder:
        implementation: {kind: onnx, artifact: decoder.onnx}
        ports: {inputs: {ids: {dtype: int64, rank: 2}}, roles: {ids: token_ids}}
        contract: {id: c, version: "1", bindings: {ids: ids}, parameters: {n: 1, x: 0.5, b: true, t: text}}
        effects: [log]
        row_scope: {axis: 0}
        cache_affects_state: [cache]
      draft: {implementation: {kind: adapter, abi: abi, version: "1"}}
    state:
      cache:
        contract: {dtype: float32, rank: 1}
        class: advisory
        scope: session
        initializer: seed
        recurrence: {kind: growing, axis: 0, increment: one, max: limit}
        session: {continuation: {kind: prompt_prefix, prompt_input: request.ids, tokens_output: tokens}}
    effects: {log: {retry: pure, speculation_safety: {kind: rewindable, max_depth: 4}}}
    serving:
      active: active
      done: done
      state_service:
        groups:
          kv:
            kind: full_attention
            sequence_axis: 2
            layout: bnsh
            update: {kind: indexed_scatter, write_indices: cursor, capacity: room, write_indices_ports: {decoder: at}}
            capabilities: {rollback_positions: 4, cascade: [kv]}
            checkpoint: {adapter: a, version: "1"}
            ports: {decoder: {cache: {input: past, output: present, role: key, layer: 0}}}
    steps:
      - {kind: invoke, component: decoder, inputs: {ids: request.ids}, outputs: {logits: first}}
      - kind: loop
        setup: [{kind: sequence, steps: []}]
        steps:
          - kind: branch
            predicate: has_seed
            cases: {true: {kind: sequence, steps: []}, invoke: {kind: invoke, component: draft}}
            default: {kind: sequence, steps: []}
            outputs: {joined: {cases: {true: a, invoke: b}, default: c}}
        continue_when: active
        max_iterations: limit
        iteration: {value: i, contract: {dtype: int64, rank: 0}}
        carried: [{cell: cache, next: grown}]
      - {kind: emit, value: first, output: tokens, mode: append, axis: 1}
"""

BARE = """\
model:
  max_sequence_length: 64
  io:
    sequence_source: token_ids
    kv_layout: {strides: {batch: [kv_heads, seq_capacity], head: [seq_capacity]}, reservation_seq_slots: 8}
    token_input: input_ids
    kv_inputs: [past]
    state_pairs: [{input: a, output: b, init: zeros, update: replace}]
    optional_inputs: {pixels: {presence: image, absent: {kind: zeros, shape: [1, n]}}}
    static_cache:
      write_indices_input: w
      kv_sequence_length_input: l
      key_cache_inputs: [k]
      value_cache_inputs: [v]
      key_cache_outputs: [ko]
      value_cache_outputs: [vo]
"""


def full() -> Any:
    """FULL as plain data, read by PyYAML itself."""
    return _textual(yaml.safe_load(FULL))


def bare() -> Any:
    """BARE as plain data."""
    return yaml.safe_load(BARE)


def _textual(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key).lower() if isinstance(key, bool) else key: _textual(each) for key, each in value.items()}
    return [_textual(each) for each in value] if isinstance(value, list) else value


def parse(data: Any) -> Metadata:
    """Plain data to the document, places unknown."""
    return parse_metadata(data, Places("m.yaml"))


def faults(data: Any) -> list[tuple[str, str, str]]:
    """(code, path, rule) of every fault of plain data."""
    try:
        parse(data)
    except CompileError as error:
        return [(each.code, each.path, rule_of(each)) for each in error.problems]
    return []


def rule_of(problem: Problem) -> str:
    """The rule that a problem names at its end."""
    return problem.what.rpartition("(")[2].rstrip(")")


DELETE = object()

W = "pipeline/workflow"
STEP = f"{W}/steps/0"
LOOP = f"{W}/steps/1"
EMIT = f"{W}/steps/2"
GROUP = f"{W}/serving/state_service/groups/kv"


def change(data: Any, path: str, value: object) -> Any:
    """The same data with the value at `path` (steps apart by `/`) replaced, added or, by DELETE, taken out."""
    *head, last = [int(each) if each.isdigit() else each for each in path.split("/")]
    holder = data
    for step in head:
        holder = holder[step]
    if value is DELETE:
        del holder[last]
    else:
        holder[last] = value
    return data
