"""The steps of the workflow form: one loop, its setup, its body and its carries."""

from typing import Any

Document = dict[str, Any]
LIVENESS = {"active": "active", "done": "done"}


def loop_step(layers: int) -> Document:
    """The whole program for a decoder of `layers` layers; row liveness is the loop's predicate."""
    return {
        "kind": "loop",
        "setup": _setup(layers),
        "steps": [*_choose_token(), *_account(), *_decode(layers)],
        "continue_when": "active",
        "max_iterations": "request.max_iterations",
        "carried": _carried(layers),
        "termination": "generation_eos",
        "iteration": {"value": "loop.iteration", "contract": {"dtype": "int64", "rank": 1, "shape": [1]}},
    }


def _setup(layers: int) -> list[Document]:
    return [
        _invoke(
            "decoder_state_initializer",
            {
                "prompt_tokens": "request.input_ids",
                "prompt_lengths": "request.prompt_lengths",
                "max_iterations": "request.max_iterations",
            },
            {
                "attention_mask": "initializer.attention_mask",
                "cache_lengths": "initializer.cache_lengths",
                "generated_lengths": "initializer.generated_lengths",
                "token_slot": "initializer.token_slot",
                "empty_cache": "initializer.empty_cache",
            },
        ),
        _invoke(
            "model",
            {
                "input_ids": "request.input_ids",
                "attention_mask": "initializer.attention_mask",
                **{f"past_key_values.{name}": "initializer.empty_cache" for name in _caches(layers)},
            },
            _network_outputs("decoder.setup", layers),
        ),
        _invoke(
            "last_token_logits",
            {"logits": "decoder.setup.logits", "lengths": "initializer.cache_lengths"},
            {"last_logits": "decoder.setup.last_logits"},
        ),
        _invoke(
            "termination_batch_initializer",
            {
                "input_eos_ids": "request.eos_ids",
                "input_eos_lengths": "request.eos_lengths",
                "package_eos_ids": "package.eos_ids",
                "input_max_iterations": "request.row_max_iterations",
                "fallback_max_iterations": "request.max_iterations",
                "active": "package.active",
            },
            {
                "row_eos_ids": "termination.eos_ids",
                "eos_lengths": "termination.eos_lengths",
                "max_iterations": "termination.max_iterations",
            },
        ),
    ]


def _choose_token() -> list[Document]:
    controls = {name: f"request.{name}" for name in ("temperature", "top_k", "top_p", "min_p", "seed")}
    return [
        _invoke(
            "token_sampler",
            {"logits": "logits", **controls, "counter": "rng_counter", **LIVENESS},
            {"token": "sample.token", "next_counter": "sample.next_counter"},
        ),
        _invoke("token_to_slot", {"token": "sample.token"}, {"slot": "sample.slot"}),
        _invoke(
            "token_state_update",
            {"current": "token", "update": "sample.slot", **LIVENESS},
            {"next": "token.next"},
        ),
        _invoke(
            "termination",
            {
                "tokens": "sample.token",
                "eos_ids": "termination.eos_ids",
                "eos_lengths": "termination.eos_lengths",
                "iteration": "loop.iteration",
                "max_iterations": "termination.max_iterations",
                "active": "active",
            },
            {"done": "loop.done", "next_active": "loop.next_active", "continue": "loop.continue"},
        ),
    ]


def _account() -> list[Document]:
    return [
        _add("generated_length_update", "generated_lengths", "generated_lengths.next"),
        _add("generated_length_update", "package.zero", "emitted_length"),
        _add("cache_length_update", "cache_lengths", "cache_lengths.next"),
        _add("cache_length_update", "package.zero", "accepted_len.next"),
        {
            "kind": "emit",
            "value": "token.next",
            "output": "tokens",
            "mode": "append",
            "valid_length": "emitted_length",
            "when": "active",
        },
    ]


def _decode(layers: int) -> list[Document]:
    return [
        _invoke(
            "decoder_step_update",
            {"attention_mask": "attention_mask", "logical_length": "cache_lengths"},
            {"next_attention_mask": "attention_mask.next"},
        ),
        _invoke(
            "model",
            {
                "input_ids": "token.next",
                "attention_mask": "attention_mask.next",
                **{f"past_key_values.{name}": _cell(name) for name in _caches(layers)},
            },
            _network_outputs("decoder.body", layers),
        ),
        _invoke(
            "last_token_logits",
            {"logits": "decoder.body.logits", "lengths": "cache_lengths"},
            {"last_logits": "decoder.body.last_logits"},
        ),
    ]


def _carried(layers: int) -> list[Document]:
    pairs = {
        "token": "token.next",
        "logits": "decoder.body.last_logits",
        "attention_mask": "attention_mask.next",
        "generated_lengths": "generated_lengths.next",
        "active": "loop.next_active",
        "done": "loop.done",
        "accepted_len": "accepted_len.next",
        "cache_lengths": "cache_lengths.next",
        "rng_counter": "sample.next_counter",
        **{_cell(name): f"decoder.body.present.{name}" for name in _caches(layers)},
    }
    return [{"cell": cell, "next": value} for cell, value in pairs.items()]


def _network_outputs(prefix: str, layers: int) -> dict[str, str]:
    presents = [f"present.{name}" for name in _caches(layers)]
    return {port: f"{prefix}.{port}" for port in ("logits", *presents)}


def _caches(layers: int) -> list[str]:
    return [f"{layer}.{part}" for layer in range(layers) for part in ("key", "value")]


def _cell(cache: str) -> str:
    return "cache_" + cache.replace(".", "_")


def _add(component: str, left: str, total: str) -> Document:
    return _invoke(component, {"left": left, "right": "package.one", **LIVENESS}, {"total": total})


def _invoke(component: str, inputs: dict[str, str], outputs: dict[str, str]) -> Document:
    return {"kind": "invoke", "component": component, "inputs": inputs, "outputs": outputs}
