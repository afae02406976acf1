"""genai_config.json, version 1, with the keys and defaults that onnxruntime-genai's model builder writes."""

from typing import Any

from tools.smollm2.checkpoint import Checkpoint


def genai_config(checkpoint: Checkpoint) -> dict[str, Any]:
    """The document for a decoder-only package whose graph is `model.onnx`."""
    vocabulary, context = checkpoint.vocabulary, checkpoint.config.context_length
    return {
        "model": {
            "bos_token_id": vocabulary.bos,
            "context_length": context,
            "decoder": _decoder(checkpoint),
            "eos_token_id": vocabulary.eos,
            "pad_token_id": vocabulary.padding,
            "type": "llama",
            "vocab_size": checkpoint.config.vocabulary,
        },
        "search": {
            "diversity_penalty": 0.0,
            "do_sample": False,
            "early_stopping": True,
            "length_penalty": 1.0,
            "max_length": context,
            "min_length": 0,
            "no_repeat_ngram_size": 0,
            "num_beams": 1,
            "num_return_sequences": 1,
            "past_present_share_buffer": True,
            "repetition_penalty": 1.0,
            "temperature": 1.0,
            "top_k": 50,
            "top_p": 1.0,
        },
    }


def _decoder(checkpoint: Checkpoint) -> dict[str, Any]:
    config = checkpoint.config
    return {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": "model.onnx",
        "head_size": config.head_size,
        "hidden_size": config.hidden,
        "inputs": {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
        "num_attention_heads": config.heads,
        "num_hidden_layers": config.layers,
        "num_key_value_heads": config.kv_heads,
    }
