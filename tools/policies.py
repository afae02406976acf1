"""The ten policy graphs of an autoregressive loop, authored with onnxscript: everything in it that is not the network.

Each function returns a model for one role; B is the request axis `batch`, and a row that is inactive or done keeps what
it has. Ports of `token_sampler`, `termination` and `token_state_update` are those of the standard's contracts
`onnx-genai.token-sampler`, `onnx-genai.termination-predicate` and `onnx-genai.state-update`, all version 2.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from onnxscript import build_graph

OPSET = 21
IR_VERSION = 10
NO_TOKEN = -1
"""What the sampler returns for a row that takes no part in a step."""

Spec = tuple[ir.DataType, tuple[int | str, ...]]
INT, FLOAT, BOOL = ir.DataType.INT64, ir.DataType.FLOAT, ir.DataType.BOOL
ROW_INT: Spec = (INT, ("batch",))
ROW_FLOAT: Spec = (FLOAT, ("batch",))
ROW_BOOL: Spec = (BOOL, ("batch",))
SLOT: Spec = (INT, ("batch", 1))
ONE: Spec = (INT, (1,))


def decoder_state_initializer(heads: int, head_size: int) -> ir.Model:
    """Masks, lengths and an empty cache for a whole generation, with room for prompt and new tokens.

    prompt_tokens int64 [B, prompt_sequence], padded on the right; prompt_lengths int64 [B], a value below 1 meaning
    the full width; max_iterations int64 [1]. The mask is as wide as the cache's capacity, ones up to the length.
    """

    def body(op: Any, tokens: ir.Value, lengths: ir.Value, limit: ir.Value) -> list[ir.Value]:
        rows, width = op.Shape(tokens, start=0, end=1), op.Shape(tokens, start=1, end=2)
        known = op.Where(op.Greater(lengths, 0), lengths, width)
        capacity = op.Add(width, limit)
        positions = op.Unsqueeze(op.Range(0, op.Squeeze(capacity), 1), [0])
        mask = op.Cast(op.Less(positions, op.Unsqueeze(known, [1])), to=INT)
        cache_shape = op.Concat(rows, [heads], capacity, [head_size], axis=0)
        cache = op.ConstantOfShape(cache_shape, value=ir.tensor(np.zeros(1, np.float32)))
        nothing = op.Sub(known, known)
        return [mask, known, nothing, op.Unsqueeze(nothing, [1]), cache]

    inputs = {"prompt_tokens": (INT, ("batch", "prompt_sequence")), "prompt_lengths": ROW_INT, "max_iterations": ONE}
    outputs: dict[str, Spec] = {
        "attention_mask": (INT, ("batch", "capacity")),
        "cache_lengths": ROW_INT,
        "generated_lengths": ROW_INT,
        "token_slot": SLOT,
        "empty_cache": (FLOAT, ("batch", heads, "capacity", head_size)),
    }
    return _model("decoder_state_initializer", inputs, outputs, body)


def last_token_logits() -> ir.Model:
    """The logits of each row's own last token: logits float32 [B, S, V], lengths int64 [B] -> [B, V].

    S is a padded prompt's width, where `lengths` counts each row's tokens, or 1 in a decode step, where every length
    points at the only position.
    """

    def body(op: Any, logits: ir.Value, lengths: ir.Value) -> list[ir.Value]:
        last = op.Sub(op.Min(lengths, op.Shape(logits, start=1, end=2)), 1)
        return [op.GatherND(logits, op.Unsqueeze(last, [1]), batch_dims=1)]

    inputs = {"logits": (FLOAT, ("batch", "sequence", "vocabulary")), "lengths": ROW_INT}
    return _model("last_token_logits", inputs, {"last_logits": (FLOAT, ("batch", "vocabulary"))}, body)


def token_sampler() -> ir.Model:
    """Draw one token a row; greedy where top_k is 1 or the temperature is not positive.

    Filters as independent conditions on the distribution at the row's temperature: rank below top_k (0 = no limit),
    probability at least min_p times the largest, and mass of all likelier tokens below top_p. The draw is a pure
    function of (seed, counter): uniform numbers come from SplitMix64 (Steele, Lea, Flood 2014) at position `counter`
    of the stream that `seed` selects, so a row repeats its tokens whatever its neighbours are.
    """

    def body(
        op: Any,
        logits: ir.Value,
        temperature: ir.Value,
        top_k: ir.Value,
        top_p: ir.Value,
        min_p: ir.Value,
        seed: ir.Value,
        counter: ir.Value,
        active: ir.Value,
        done: ir.Value,
    ) -> list[ir.Value]:
        greedy = op.Or(op.Equal(top_k, 1), op.LessOrEqual(temperature, 0.0))
        vocabulary = op.Shape(logits, start=1, end=2)
        limited = op.Where(op.Greater(top_k, 0), op.Min(top_k, vocabulary), vocabulary)
        limit = op.Unsqueeze(op.Where(greedy, 1, limited), [1])
        # Only as many candidates as the widest row needs: for small top_k this is no sort of the vocabulary.
        values, tokens = op.TopK(logits, op.ReduceMax(op.Squeeze(limit, [1]), keepdims=1), _outputs=2)
        divisor = op.Where(greedy, 1.0, op.Max(temperature, 1e-6))
        probabilities = _filtered(op, op.Div(values, op.Unsqueeze(divisor, [1])), limit, top_p, min_p)
        choice = _draw(op, probabilities, _uniform(op, seed, counter))
        token = op.Squeeze(op.GatherElements(tokens, op.Unsqueeze(choice, [1]), axis=1), [1])
        live = op.And(active, op.Not(done))
        return [op.Where(live, token, NO_TOKEN), op.Where(live, op.Add(counter, 1), counter)]

    inputs: dict[str, Spec] = {
        "logits": (FLOAT, ("batch", "vocabulary")),
        "temperature": ROW_FLOAT,
        "top_k": ROW_INT,
        "top_p": ROW_FLOAT,
        "min_p": ROW_FLOAT,
        "seed": ROW_INT,
        "counter": ROW_INT,
        "active": ROW_BOOL,
        "done": ROW_BOOL,
    }
    return _model("token_sampler", inputs, {"token": ROW_INT, "next_counter": ROW_INT}, body)


def termination() -> ir.Model:
    """Which rows end with this token: an end id of the row, or the row's last permitted iteration (0-based)."""

    def body(
        op: Any,
        tokens: ir.Value,
        eos_ids: ir.Value,
        eos_lengths: ir.Value,
        iteration: ir.Value,
        limits: ir.Value,
        active: ir.Value,
    ) -> list[ir.Value]:
        width = op.Squeeze(op.Shape(eos_ids, start=1, end=2))
        valid = op.Less(op.Unsqueeze(op.Range(0, width, 1), [0]), op.Unsqueeze(eos_lengths, [1]))
        hits = op.Cast(op.And(valid, op.Equal(op.Unsqueeze(tokens, [1]), eos_ids)), to=INT)
        ended = op.Greater(op.ReduceSum(hits, [1], keepdims=0), 0)
        exhausted = op.GreaterOrEqual(op.Add(iteration, 1), limits)
        next_active = op.And(active, op.Not(op.Or(ended, exhausted)))
        any_active = op.Greater(op.ReduceMax(op.Cast(next_active, to=INT), [0], keepdims=1), 0)
        return [op.Not(next_active), next_active, any_active]

    inputs: dict[str, Spec] = {
        "tokens": ROW_INT,
        "eos_ids": (INT, ("batch", "num_eos")),
        "eos_lengths": ROW_INT,
        "iteration": ONE,
        "max_iterations": ROW_INT,
        "active": ROW_BOOL,
    }
    outputs: dict[str, Spec] = {"done": ROW_BOOL, "next_active": ROW_BOOL, "continue": (BOOL, (1,))}
    return _model("termination", inputs, outputs, body)


def termination_batch_initializer() -> ir.Model:
    """Each row's end ids and iteration limit: the request's own, or the package's where it gives none.

    A row's `input_eos_lengths` below 0 and `input_max_iterations` below 1 mean "none given". The table is wide enough
    for both lists, the valid ids first.
    """

    def body(
        op: Any,
        own_ids: ir.Value,
        own_lengths: ir.Value,
        package_ids: ir.Value,
        own_limits: ir.Value,
        limit: ir.Value,
        active: ir.Value,
    ) -> list[ir.Value]:
        rows, count = op.Shape(active), op.Shape(package_ids)
        shared = op.Expand(op.Unsqueeze(package_ids, [0]), op.Concat(rows, count, axis=0))
        given = op.GreaterOrEqual(own_lengths, 0)
        own_first, shared_first = op.Concat(own_ids, shared, axis=1), op.Concat(shared, own_ids, axis=1)
        ids = op.Where(op.Unsqueeze(given, [1]), own_first, shared_first)
        limits = op.Where(op.Greater(own_limits, 0), own_limits, limit)
        return [ids, op.Where(given, own_lengths, count), limits]

    inputs: dict[str, Spec] = {
        "input_eos_ids": (INT, ("batch", "num_own")),
        "input_eos_lengths": ROW_INT,
        "package_eos_ids": (INT, ("num_package",)),
        "input_max_iterations": ROW_INT,
        "fallback_max_iterations": ONE,
        "active": ROW_BOOL,
    }
    outputs = {"row_eos_ids": (INT, ("batch", "num_eos")), "eos_lengths": ROW_INT, "max_iterations": ROW_INT}
    return _model("termination_batch_initializer", inputs, outputs, body)


def token_state_update() -> ir.Model:
    """The token that the next step reads: the new one, or the old one in a row that is inactive or done."""

    def body(op: Any, current: ir.Value, update: ir.Value, active: ir.Value, done: ir.Value) -> list[ir.Value]:
        return [op.Where(op.Unsqueeze(op.And(active, op.Not(done)), [1]), update, current)]

    inputs = {"current": SLOT, "update": SLOT, "active": ROW_BOOL, "done": ROW_BOOL}
    return _model("token_state_update", inputs, {"next": SLOT}, body)


def decoder_step_update() -> ir.Model:
    """Make one more token of each row visible: the mask gets a one at the row's length."""

    def body(op: Any, mask: ir.Value, lengths: ir.Value) -> list[ir.Value]:
        positions = op.Unsqueeze(op.Range(0, op.Squeeze(op.Shape(mask, start=1, end=2)), 1), [0])
        return [op.Where(op.Equal(positions, op.Unsqueeze(lengths, [1])), 1, mask)]

    context: Spec = (INT, ("batch", "context"))
    inputs = {"attention_mask": context, "logical_length": ROW_INT}
    return _model("decoder_step_update", inputs, {"next_attention_mask": context}, body)


def cache_length_update() -> ir.Model:
    """left + right where the row is active and not done, else left."""
    return _selective_add("cache_length_update")


def generated_length_update() -> ir.Model:
    """left + right where the row is active and not done, else left."""
    return _selective_add("generated_length_update")


def token_to_slot() -> ir.Model:
    """int64 [B] -> [B, 1]."""

    def body(op: Any, token: ir.Value) -> list[ir.Value]:
        return [op.Unsqueeze(token, [1])]

    return _model("token_to_slot", {"token": ROW_INT}, {"slot": SLOT}, body)


def write_policies(folder: Path, heads: int, head_size: int) -> None:
    """Write the ten graphs as `<role>.onnx` into `folder`, for a cache of `heads` heads of `head_size`."""
    folder.mkdir(parents=True, exist_ok=True)
    for make in POLICIES:
        model = make()
        ir.save(model, folder / f"{model.graph.name}.onnx")
    ir.save(decoder_state_initializer(heads, head_size), folder / "decoder_state_initializer.onnx")


POLICIES: tuple[Callable[[], ir.Model], ...] = (
    last_token_logits,
    token_sampler,
    termination,
    termination_batch_initializer,
    token_state_update,
    decoder_step_update,
    cache_length_update,
    generated_length_update,
    token_to_slot,
)


def _filtered(op: Any, scaled: ir.Value, limit: ir.Value, top_p: ir.Value, min_p: ir.Value) -> ir.Value:
    """Probabilities of the candidates, most likely first, zero where a filter excludes one; the first always stays."""
    rank = op.Unsqueeze(op.Range(0, op.Squeeze(op.Shape(scaled, start=1, end=2)), 1), [0])
    floor = op.Add(op.Slice(scaled, [0], [1], [1]), op.Log(op.Unsqueeze(op.Clip(min_p, 1e-30, 1.0), [1])))
    likely = op.Or(op.LessOrEqual(op.Unsqueeze(min_p, [1]), 0.0), op.GreaterOrEqual(scaled, floor))
    ranked = op.And(op.Less(rank, limit), likely)
    probabilities = op.Softmax(op.Where(ranked, scaled, float(np.finfo(np.float32).min)), axis=-1)
    nucleus = op.Unsqueeze(top_p, [1])
    before = op.CumSum(probabilities, 1, exclusive=1)
    inside = op.Or(op.Or(op.Less(before, nucleus), op.GreaterOrEqual(nucleus, 1.0)), op.Equal(rank, 0))
    return op.Where(inside, probabilities, 0.0)


def _draw(op: Any, probabilities: ir.Value, uniform: ir.Value) -> ir.Value:
    """The first index whose cumulative probability exceeds uniform [B] in [0, 1) of the total: int64 [B]."""
    cumulative = op.CumSum(op.Cast(probabilities, to=ir.DataType.DOUBLE), 1)
    total = op.ReduceMax(cumulative, [1], keepdims=1)
    passed = op.LessOrEqual(cumulative, op.Mul(op.Unsqueeze(uniform, [1]), total))
    return op.ReduceSum(op.Cast(passed, to=INT), [1], keepdims=0)


def _uniform(op: Any, seed: ir.Value, counter: ir.Value) -> ir.Value:
    """float64 [B] in [0, 1): the 53 upper bits of SplitMix64's output."""
    gamma = _word(op, 0x9E3779B97F4A7C15)
    unsigned = ir.DataType.UINT64
    stream = _mix(op, op.Add(op.Cast(seed, to=unsigned), gamma))
    position = op.Mul(op.Add(op.Cast(counter, to=unsigned), _word(op, 1)), gamma)
    bits = op.BitShift(_mix(op, op.Add(stream, position)), _word(op, 11), direction="RIGHT")
    return op.Mul(op.Cast(bits, to=ir.DataType.DOUBLE), op.Constant(value=ir.tensor(np.array(2.0**-53))))


def _mix(op: Any, word: ir.Value) -> ir.Value:
    """SplitMix64's output function (Stafford's variant 13) on uint64 [B]."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        folded = op.BitwiseXor(word, op.BitShift(word, _word(op, shift), direction="RIGHT"))
        word = op.Mul(folded, _word(op, factor))
    return op.BitwiseXor(word, op.BitShift(word, _word(op, 31), direction="RIGHT"))


def _word(op: Any, value: int) -> ir.Value:
    constant: ir.Value = op.Constant(value=ir.tensor(np.array(value, np.uint64)))
    return constant


def _selective_add(name: str) -> ir.Model:
    def body(op: Any, left: ir.Value, right: ir.Value, active: ir.Value, done: ir.Value) -> list[ir.Value]:
        return [op.Where(op.And(active, op.Not(done)), op.Add(left, right), left)]

    inputs = {"left": ROW_INT, "right": ROW_INT, "active": ROW_BOOL, "done": ROW_BOOL}
    return _model(name, inputs, {"total": ROW_INT}, body)


def _model(
    name: str, inputs: dict[str, Spec], outputs: dict[str, Spec], body: Callable[..., Sequence[ir.Value]]
) -> ir.Model:
    graph = build_graph(body, _values(inputs), _values(outputs), opset_imports={"": OPSET}, name=name)
    return ir.Model(graph, ir_version=IR_VERSION, producer_name="genai-compile tools.policies")


def _values(specs: dict[str, Spec]) -> list[ir.Value]:
    return [
        ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape)) for name, (dtype, shape) in specs.items()
    ]
