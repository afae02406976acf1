"""Valid documents of one topic each, for tests that break one thing of them; no graph stands behind them."""

import functools
import json
from typing import Any

import yaml
from genai_compiler.check.document import check_document
from genai_compiler.problem import Problem
from genai_compiler.read.places import Places
from genai_compiler.read.validate import parse_metadata

from tests.read.documents import DELETE, rule_of

# Contracts that all bases share: float32 [batch, 4], bool [batch], int64 [batch], one int64.
CONTRACTS = """\
.rows: &rows {dtype: float32, rank: 2, shape: [batch, 4], batch_layout: {kind: request_aligned, axis: 0}}
.flags: &flags {dtype: bool, rank: 1, shape: [batch], batch_layout: {kind: request_aligned, axis: 0}}
.counts: &counts {dtype: int64, rank: 1, shape: [batch], batch_layout: {kind: request_aligned, axis: 0}}
.one: &one {dtype: int64, rank: 0, shape: []}
.tokens: &tokens {dtype: int64, rank: 2, shape: [batch, n], batch_layout: {kind: request_aligned, axis: 0}}
.cache: &cache {dtype: float32, rank: 4, shape: [batch, 2, past, 8], batch_layout: {kind: request_aligned, axis: 0}}
"""

FLOW = """\
pipeline:
  workflow:
    manifest:
      capabilities: [workflow_ssa, linear_effects, nested_control_flow, loop_induction_values, typed_emit,
                     emit_valid_length, input_presence, session_state_lease]
    inputs:
      x: {contract: *rows, role: {kind: opaque}, source: {kind: application, name: x}}
      live: {contract: *flags, role: {kind: opaque}, source: {kind: literal}, required: false, default: true}
      limit: {contract: *one, role: {kind: runtime, version: "1.0", role: max_iterations}, source: {kind: request}}
      one: {contract: *one, role: {kind: opaque}, source: {kind: literal}, default: 1}
      lengths: {contract: *counts, role: {kind: opaque}, source: {kind: application, name: lengths}}
      choose: {contract: {dtype: bool, rank: 0, shape: []}, role: {kind: opaque}, source: {kind: application, name: c}}
      image:
        contract: *rows
        role: {kind: runtime, version: "1.0", role: media}
        source: {kind: request}
        required: false
        present_as: has_image
    outputs:
      y: {contract: *rows, role: tensor, stage: pre_adapter}
      z: {contract: *rows, role: tensor, stage: pre_adapter}
    components:
      step:
        implementation: {kind: onnx, artifact: step.onnx}
        ports:
          inputs: {x: *rows, bias: {dtype: float32, rank: 1, shape: [4], optional: true}}
          outputs: {y: *rows, live: *flags, count: {dtype: int64, rank: 1, shape: [batch], optional: true}}
      free: {implementation: {kind: onnx, artifact: free.onnx}}
    state:
      acc: {contract: *rows, scope: invocation, initializer: x, recurrence: {kind: invariant}}
      alive: {contract: *flags, scope: invocation, initializer: live, recurrence: {kind: invariant}}
      log:
        contract: *rows
        scope: invocation
        initializer: x
        recurrence: {kind: growing, axis: 1, increment: one, max: limit}
      memo: {contract: *rows, scope: session, initializer: x, recurrence: {kind: invariant}}
    steps:
      - kind: loop
        setup: [{kind: invoke, component: step, inputs: {x: x}, outputs: {y: ready, live: ready.live}}]
        steps:
          - {kind: invoke, component: step, inputs: {x: acc}, outputs: {y: acc.next, live: alive.next}}
          - {kind: emit, value: acc, output: y, mode: replace, when: alive}
        continue_when: alive
        max_iterations: limit
        iteration: {value: i, contract: {dtype: int64, rank: 0, shape: []}}
        carried:
          - {cell: acc, initial: ready, next: acc.next}
          - {cell: alive, next: alive.next}
          - {cell: log, next: acc.next}
      - kind: branch
        predicate: choose
        cases:
          "true":
            kind: loop
            steps: [{kind: invoke, component: step, inputs: {x: memo}, outputs: {y: m, live: m.live}}]
            continue_when: live
            max_iterations: one
            carried: [{cell: memo, next: m}]
          "false": {kind: invoke, component: step, inputs: {x: x}, outputs: {y: other, live: other.live}}
        outputs: {chosen: {cases: {"true": memo, "false": other}}}
      - kind: branch
        predicate: has_image
        cases:
          "true": {kind: invoke, component: step, inputs: {x: image}, outputs: {y: seen, live: seen.live}}
        default: {kind: invoke, component: free, inputs: {in: x}, outputs: {out: blank}}
        outputs: {view: {cases: {"true": seen}, default: blank}}
      - {kind: emit, value: chosen, output: z, mode: replace, valid_length: lengths}
      - {kind: emit, value: ready, output: z, mode: replace}
"""

SERVED = """\
pipeline:
  workflow:
    manifest: {capabilities: [workflow_ssa, linear_effects, nested_control_flow, typed_emit, serving_service_contract,
                              bounded_state_recurrence]}
    inputs:
      prompt: {contract: *tokens, role: {kind: runtime, version: "1.0", role: prompt_tokens}, source: {kind: request}}
      limit: {contract: *one, role: {kind: runtime, version: "1.0", role: max_iterations}, source: {kind: request}}
      room: {contract: *one, role: {kind: opaque}, source: {kind: literal}, default: 64}
      empty: {contract: *cache, role: {kind: opaque}, source: {kind: literal}, default: 0.0}
      live: {contract: *flags, role: {kind: opaque}, source: {kind: literal}, default: true}
      dead: {contract: *flags, role: {kind: opaque}, source: {kind: literal}, default: false}
      zero: {contract: *counts, role: {kind: opaque}, source: {kind: literal}, default: 0}
    outputs: {tokens: {contract: *tokens, role: tokens, stage: pre_adapter}}
    components:
      decoder:
        implementation: {kind: onnx, artifact: decoder.onnx}
        ports:
          inputs: {ids: *tokens, k: *cache, v: *cache, rk: *cache, rv: *cache, conv: *cache, at: *counts, len: *counts}
          outputs: {ids: *tokens, live: *flags, done: *flags, count: *counts, k: *cache, v: *cache, rk: *cache,
                    rv: *cache, conv: *cache, at: *counts}
          roles: {ids: token_ids}
    state:
      ids: {contract: *tokens, scope: invocation, initializer: prompt, recurrence: {kind: bounded, axis: 1, max: room}}
      active: {contract: *flags, scope: invocation, initializer: live, recurrence: {kind: invariant}}
      done: {contract: *flags, scope: invocation, initializer: dead, recurrence: {kind: invariant}}
      accepted: {contract: *counts, scope: invocation, initializer: zero, recurrence: {kind: invariant}}
      cursor: {contract: *counts, scope: invocation, initializer: zero, recurrence: {kind: invariant}}
      k: &paged
        contract: *cache
        scope: invocation
        initializer: empty
        recurrence: {kind: bounded, axis: 2, max: room}
        management: runtime
        release_boundary: row
        service_group: paged
      v: *paged
      rk: &ring
        contract: *cache
        scope: invocation
        initializer: empty
        recurrence: {kind: invariant}
        management: runtime
        release_boundary: row
        service_group: ring
      rv: *ring
      conv: {contract: *cache, scope: invocation, initializer: empty, recurrence: {kind: invariant},
             management: runtime, release_boundary: invocation, service_group: whole}
    serving:
      active: active
      done: done
      accepted_len: accepted
      state_service:
        groups:
          paged:
            kind: full_attention
            sequence_axis: 2
            layout: bnsh
            logical_lengths: accepted
            total_length: accepted
            update: {kind: append}
            capabilities: {rollback_positions: 4, cascade: [ring]}
            ports:
              decoder:
                k: {input: k, output: k, role: key, layer: 0}
                v: {input: v, output: v, role: value, layer: 0}
          ring:
            kind: sliding_attention
            sequence_axis: 2
            layout: bnsh
            logical_lengths: accepted
            update:
              kind: indexed_scatter
              write_indices: cursor
              capacity: room
              write_indices_ports: {decoder: at}
              kv_length_ports: {decoder: len}
            ports:
              decoder:
                rk: {input: rk, output: rk, role: key}
                rv: {input: rv, output: rv, role: value}
          whole:
            kind: recurrent
            layout: any
            update: {kind: replace}
            ports: {decoder: {conv: {input: conv, output: conv}}}
    steps:
      - kind: loop
        steps:
          - kind: invoke
            component: decoder
            inputs: {ids: ids, k: k, v: v, rk: rk, rv: rv, conv: conv, at: cursor, len: accepted}
            outputs: {ids: ids.n, live: active.n, done: done.n, count: count.n, k: k.n, v: v.n, rk: rk.n, rv: rv.n,
                      conv: conv.n, at: at.n}
          - {kind: emit, value: ids.n, output: tokens, mode: append, when: active}
        continue_when: active
        max_iterations: limit
        carried:
          - {cell: ids, next: ids.n}
          - {cell: active, next: active.n}
          - {cell: done, next: done.n}
          - {cell: accepted, next: count.n}
          - {cell: cursor, next: at.n}
          - {cell: k, next: k.n}
          - {cell: v, next: v.n}
          - {cell: rk, next: rk.n}
          - {cell: rv, next: rv.n}
          - {cell: conv, next: conv.n}
"""

SESSION = """\
pipeline:
  workflow:
    manifest: {capabilities: [workflow_ssa, typed_emit, session_state_lease, bounded_state_recurrence,
                              serving_service_contract]}
    inputs:
      prompt: {contract: *tokens, role: {kind: runtime, version: "1.0", role: prompt_tokens}, source: {kind: request}}
      room: {contract: *one, role: {kind: opaque}, source: {kind: literal}, default: 64}
      x: {contract: *rows, role: {kind: opaque}, source: {kind: application, name: x}}
      past: {contract: *cache, role: {kind: opaque}, source: {kind: literal}, default: 0.0}
    outputs: {tokens: {contract: *tokens, role: tokens, stage: pre_adapter}}
    components:
      step:
        implementation: {kind: onnx, artifact: step.onnx}
        ports: {inputs: {x: *rows, past: *cache, ids: *tokens}, outputs: {ids: *tokens, past: *cache},
                roles: {ids: token_ids}}
    state:
      talk:
        contract: *tokens
        scope: session
        initializer: prompt
        recurrence: {kind: bounded, axis: 1, max: room}
        management: runtime
        release_boundary: session
        session: {continuation: {kind: prompt_prefix, prompt_input: prompt, tokens_output: tokens}}
      memo: {contract: *rows, scope: session, initializer: x, recurrence: {kind: invariant}}
      kept: {contract: *cache, scope: session, initializer: room, recurrence: {kind: invariant}, management: runtime,
             release_boundary: session, service_group: kv}
    serving:
      active: x.live
      done: x.live
      accepted_len: room
      state_service:
        groups:
          kv: {kind: recurrent, layout: any, ports: {step: {kept: {input: past, output: past}}}}
    steps:
      - {kind: invoke, component: step, inputs: {x: x, past: past, ids: prompt}, outputs: {ids: out, past: past.n}}
      - {kind: invoke, component: flag, inputs: {x: x}, outputs: {live: x.live}}
      - {kind: emit, value: out, output: tokens, mode: append}
"""
SESSION = SESSION.replace(
    "    state:\n", "      flag: {implementation: {kind: onnx, artifact: flag.onnx}}\n    state:\n", 1
)

IO = """\
pipeline:
  workflow:
    manifest:
      adapter_abis: {onnx-genai.grammar-guidance: "1", own.thing: "2"}
      capabilities: [workflow_ssa, linear_effects, typed_emit, grammar_guidance_adapter]
    inputs:
      x: {contract: *rows, role: {kind: opaque}, source: {kind: application, name: x}}
      ids: {contract: *tokens, role: {kind: runtime, version: "1.0", role: prompt_tokens}, source: {kind: request}}
      pair:
        contract:
          {dtype: float32, rank: 1, shape: [batch], batch_layout: {kind: request_expanded, axis: 0, factor: 2}}
        role: {kind: opaque}
        source: {kind: application, name: pair}
    outputs:
      picture: {contract: *rows, role: image, stage: pre_adapter, value_range: zero_to_one}
      sound:
        contract: {dtype: float32, rank: 3, shape: [batch, 1, samples]}
        role: audio
        stage: pre_adapter
        media: {container: wav, encoding: pcm_s16_le, sample_rate_hz: 16000, source_sample_rate_hz: 8000, channels: 1}
      plain: {contract: *rows, role: tensor, stage: pre_adapter}
    components:
      draw:
        implementation: {kind: onnx, artifact: draw.onnx}
        ports: {inputs: {x: *rows}, outputs: {x: *rows}}
        contract: {id: own.draw, version: "1", bindings: {in: x}}
        application_overridable: true
        effects: [log]
        row_scope: {axis: 0}
        cache_affects_state: [cells]
      guide:
        implementation: {kind: adapter, abi: onnx-genai.grammar-guidance, version: "1"}
        ports:
          inputs: {state: *counts, tokens: *tokens, valid: *counts, table: {dtype: int64, rank: 2}}
          outputs: {state: *counts, used: *counts}
        contract:
          id: onnx-genai.grammar-guidance
          version: "1"
          bindings: {state: state, tokens: tokens, valid_length: valid, transition_table: table, next_state: state,
                     consumed_length: used}
          parameters: {action: commit}
      thing: {implementation: {kind: adapter, abi: own.thing, version: "2"}}
    effects: {log: {retry: pure, speculation_safety: {kind: rewindable, max_depth: 4}}}
    steps:
      - {kind: invoke, component: draw, inputs: {x: x}, outputs: {x: drawn}}
      - {kind: emit, value: drawn, output: picture, mode: replace}
"""
IO = IO.replace("bindings: {state: state, tokens", "bindings: {state: state.in, tokens").replace(
    "inputs: {state: *counts, tokens", "inputs: {state.in: *counts, tokens"
)

TASKS = """\
generation:
  overrides: {temperature: {input: heat, constraint: {minimum: 0, maximum: 2}}}
profiles:
  speech:
    kind: transcription
    version: "1"
    outputs: {scores: scores, lengths: lengths}
    batch_invariance: padding_sensitive
    decoding:
      kind: ctc
      blank_id: 0
      time_axis: 1
      class_axis: 2
      lengths: lengths
      vocabulary: {source: inline, size: 3, word_delimiter: "|", ignored_tokens: [a], tokens: [_, "|", a]}
  odd: {kind: own.kind, version: "1", requirement: ignorable}
preprocessing:
  audio:
    transforms: [{op: decode}]
    outputs: [{source: wave, name: wave, content: waveform, dtype: float32, contract: *rows}]
pipeline:
  workflow:
    manifest: {adapter_abis: {onnx-genai.audio-preprocess: "1"}, capabilities: [workflow_ssa]}
    inputs:
      heat:
        contract: {dtype: float32, rank: 0, shape: []}
        role: {kind: runtime, version: "1.0", role: sampling_temperature}
        source: {kind: request}
      x: {contract: *rows, role: {kind: opaque}, source: {kind: application, name: x}}
      file:
        contract: {dtype: uint8, rank: 1, shape: [bytes]}
        role: {kind: runtime, version: "1.0", role: media}
        source: {kind: request}
    outputs:
      scores: {contract: {dtype: float32, rank: 3}, role: tensor, stage: pre_adapter}
      lengths: {contract: *counts, role: tensor, stage: pre_adapter}
    components:
      ears:
        implementation: {kind: adapter, abi: onnx-genai.audio-preprocess, version: "1"}
        ports: {inputs: {encoded: {dtype: uint8, rank: 1, shape: [bytes]}}, outputs: {wave: *rows}}
    steps: [{kind: invoke, component: ears, inputs: {encoded: file}, outputs: {wave: wave}}]
"""

LORA = """\
adapters:
  target_manifest:
    targets:
      - {id: q, component: model, initializer: wq, node_name: q, output_name: q.out, activation_dtype: float32,
         input_features: 4, output_features: 8, rank: 2, alpha: 4, graph_inputs: {a: q.a, b: q.b, scale: q.s},
         output_slice: {role: query, offset: 0, width: 4, rank: 2, alpha: 4}}
      - {id: v, component: model, initializer: wv, node_name: v, output_name: v.out, activation_dtype: float16,
         input_features: 4, output_features: 8}
  selection: {segments: segments, adapter_counts: counts, scales: scales, active: active, max_adapters: 2}
  application_capability: onnx-genai.adapters@1
  artifacts:
    first:
      index: 0
      identity: one
      version: "1"
      rank: 2
      alpha: 4
      dtype: float32
      weights:
        - {location: adapters/first/w.json, loader_capability: onnx-genai.adapters.json@1, scale_encoding: baked}
        - {location: adapters/first/w.safetensors, loader_capability: onnx-genai.adapters.hf-peft@1, format: hf_peft,
           scale_encoding: alpha_over_rank, config_location: adapters/first/config.json}
        - {location: adapters/first/w.onnx_adapter, loader_capability: onnxruntime.lora-adapter@1, format: ort_genai,
           scale_encoding: baked}
      bindings: [{target: q, weight_key: q, rank: 2, alpha: 4}]
      provenance: {producer: us, source: here, revision: "1"}
    second:
      index: 1
      identity: two
      version: "1"
      rank: 3
      alpha: 6
      dtype: float32
      weights: [{location: adapters/second/w.json, loader_capability: onnx-genai.adapters.json@1, scale_encoding: baked}]
      bindings: [{target: v, weight_key: v}]
pipeline:
  workflow:
    manifest:
      adapter_abis: {onnx-genai.parameter-overlay: "1"}
      capabilities: [workflow_ssa, parameter_adapters, heterogeneous_adapter_batching]
    inputs:
      x: {contract: *rows, role: {kind: opaque}, source: {kind: application, name: x}}
      segments:
        contract: {dtype: int64, rank: 2, shape: [batch, 2], batch_layout: {kind: request_aligned, axis: 0}}
        role: {kind: runtime, version: "1.0", role: adapter_segments}
        source: {kind: request}
      counts:
        contract: *counts
        role: {kind: runtime, version: "1.0", role: adapter_counts}
        source: {kind: request}
      scales:
        contract: {dtype: float32, rank: 2, shape: [batch, 2], batch_layout: {kind: request_aligned, axis: 0}}
        role: {kind: runtime, version: "1.0", role: adapter_scales}
        source: {kind: application, name: scales}
      active:
        contract: *flags
        role: {kind: runtime, version: "1.0", role: adapter_active}
        source: {kind: request}
    components:
      model: {implementation: {kind: onnx, artifact: model.onnx}}
      overlay:
        implementation: {kind: adapter, abi: onnx-genai.parameter-overlay, version: "1"}
        ports: {inputs: {in: *rows}, outputs: {out: *rows}}
        contract:
          id: onnx-genai.parameter-overlay
          version: "1"
          bindings: {input: in, output: out}
          parameters: {action: apply, component: model, parameter: wq}
    steps: [{kind: invoke, component: overlay, inputs: {in: x}, outputs: {out: y}}]
"""

DRAFTS = """\
speculative:
  proposer: draft
  target: model
  proposal_execution:
    kind: chained
    token_embedding_input: fused
    logits_output: logits
    recurrent: [{state: hidden, input: h, output: h}]
    folded_carry_output: carry
    folded_carry_seed: {component: model, output: hidden}
    token_embedding: {component: model, table: wte}
  port_bindings: {target_hidden_context: fused}
  vocabulary: {kind: identical}
  max_proposal_width: 4
  rollback_state: [hidden]
pipeline:
  workflow:
    manifest: {capabilities: [workflow_ssa, linear_effects, serving_service_contract]}
    inputs:
      x: {contract: *rows, role: {kind: opaque}, source: {kind: application, name: x}}
      live: {contract: *flags, role: {kind: opaque}, source: {kind: literal}, default: true}
      zero: {contract: *counts, role: {kind: opaque}, source: {kind: literal}, default: 0}
    components:
      model:
        implementation: {kind: onnx, artifact: model.onnx}
        ports: {inputs: {x: *rows}, outputs: {hidden: *rows}}
      draft:
        implementation: {kind: onnx, artifact: draft.onnx}
        ports: {inputs: {fused: *rows, h: *rows, more: *rows}, outputs: {logits: *rows, h: *rows, carry: *rows}}
        effects: [grammar, notes]
        row_scope: {axis: 0}
    state:
      hidden: {contract: *rows, scope: invocation, initializer: x, recurrence: {kind: invariant}, management: runtime,
               release_boundary: row, service_group: main}
      plain: {contract: *rows, scope: invocation, initializer: x, recurrence: {kind: invariant}}
    effects:
      grammar: {retry: pure, speculation_safety: {kind: rewindable, max_depth: 4}}
      notes: {retry: pure, speculation_safety: {kind: clonable}}
    serving:
      active: live
      done: live
      accepted_len: zero
      state_service:
        groups:
          main:
            kind: recurrent
            layout: any
            capabilities: {rollback_positions: 4, cascade: [side]}
            ports: {draft: {hidden: {input: h, output: h}}}
          side: {kind: recurrent, layout: any, capabilities: {rollback_positions: 4}}
    steps:
      - {kind: invoke, component: model, inputs: {x: x}, outputs: {hidden: m}}
"""

BASES = {
    "flow": FLOW, "served": SERVED, "session": SESSION, "io": IO, "tasks": TASKS, "lora": LORA, "drafts": DRAFTS,
}  # fmt: skip


@functools.cache
def _text(name: str) -> str:
    data = yaml.safe_load(CONTRACTS + BASES[name])
    return json.dumps({key: value for key, value in data.items() if not key.startswith(".")})


def base(name: str) -> Any:
    """A fresh copy of a base as plain data, nothing in it shared."""
    return json.loads(_text(name))


def broken(name: str, changes: dict[str, object]) -> Any:
    """A base with values replaced, added or taken out, in order (steps apart by `/`; one past a list appends)."""
    data = base(name)
    for path, value in changes.items():
        _change(data, path.split("/"), json.loads(json.dumps(value)) if isinstance(value, dict | list) else value)
    return data


def _change(holder: Any, steps: list[str], value: object) -> None:
    key = int(steps[0]) if isinstance(holder, list) else steps[0]
    if len(steps) > 1:
        _change(holder[key], steps[1:], value)
    elif value is DELETE:
        del holder[key]
    elif isinstance(holder, list) and key == len(holder):
        holder.append(value)
    else:
        holder[key] = value


def problems(data: Any) -> tuple[Problem, ...]:
    """What the structural check says about plain data."""
    places = Places("m.yaml")
    return check_document(parse_metadata(data, places), places)


def found(data: Any) -> list[tuple[str, str]]:
    """(rule, path) of every problem."""
    return [(rule_of(each), each.path) for each in problems(data)]
