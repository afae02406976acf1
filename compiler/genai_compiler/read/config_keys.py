"""Every key of `genai_config.json` v1 that a decoder-only package may hold, with its form and its default.

Names and defaults are those of onnxruntime-genai (its config.h and config.cpp, main of 2026-08, and release 0.18).
Sections of other package classes are named but not looked into: a package that fills one is refused as a whole.
"""

from enum import Enum


class Form(Enum):
    """What a key's value must be. TOKENS: an id or a list of ids. ANY: not looked into."""

    INT = "an integer"
    FLOAT = "a number"
    BOOL = "true or false"
    STR = "a string"
    INTS = "a list of integers"
    STRS = "a list of strings"
    TOKENS = "a token id or a list of token ids"
    OBJECT = "an object"
    LIST = "a list"
    ANY = "any value"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _all(form: Form, names: str) -> dict[str, Form]:
    return dict.fromkeys(_words(names), form)


def _same(names: str) -> dict[str, str]:
    return {name: name for name in _words(names)}


def _unset(names: str) -> dict[str, str]:
    return dict.fromkeys(_words(names), "")


ROOT = {
    **_all(Form.OBJECT, "model search speculative engine"),
    **_all(Form.LIST, "runtime_profiles"),
    **_all(Form.ANY, "version schema_version"),
}
TOKEN_KEYS = _words("pad_token_id eos_token_id bos_token_id sep_token_id decoder_start_token_id")
OTHER_CLASSES = _words("encoder vision embedding speech joiner vad audio_output")  # model.<name>
DRAFTERS = _words("draft mtp")  # they make speculative decoding faster and change no token
MODEL = {
    **_all(Form.STR, "type tokenizer_dir"),
    **_all(Form.INT, "vocab_size context_length"),
    **dict.fromkeys(TOKEN_KEYS, Form.TOKENS),
    **_all(Form.TOKENS, "image_token_id audio_token_id boa_token_id video_token_id vision_start_token_id"),
    **_all(Form.TOKENS, "bot_token_id eot_token_id bor_token_id eor_token_id"),
    **_all(Form.INT, "num_mels fft_size hop_length win_length subsampling_factor left_context conv_context"),
    **_all(Form.INT, "pre_encode_cache_size sample_rate chunk_samples blank_id max_symbols_per_step"),
    **_all(Form.INT, "left_context_samples right_context_samples"),
    **_all(Form.FLOAT, "preemph log_eps norm_eps"),
    **_all(Form.INTS, "tdt_durations"),
    **_all(Form.OBJECT, "decoder"),
    **dict.fromkeys((*OTHER_CLASSES, *DRAFTERS), Form.OBJECT),
}
DECODER = {
    **_all(Form.STR, "filename"),
    **_all(Form.INT, "hidden_size num_attention_heads num_key_value_heads head_size num_hidden_layers"),
    **_all(Form.INT, "conv_cache_size state_update_capacity"),
    **_all(Form.STRS, "layer_types"),
    **_all(Form.LIST, "shared_initializers state_groups"),
    **_all(Form.OBJECT, "sliding_window session_options run_options inputs outputs"),
    **_all(Form.ANY, "pipeline"),
}
DECODER_INPUTS = {
    **_same("input_ids inputs_embeds attention_mask position_ids past_key_values_length"),
    **_same("past_sequence_length current_sequence_length total_sequence_length"),
    **_same("cache_indirection encoder_hidden_states encoder_attention_mask rnn_states_prev"),
    **_same("cumulative_sequence_lengths past_sequence_lengths block_table"),
    **_same("block_table_windowed attention_metadata"),
    **_unset("past_names cross_past_key_names cross_past_value_names hidden_states per_layer_inputs"),
    **_unset("targets targets_length lstm_hidden_state lstm_cell_state logits_indices"),
    **_unset("past_key_scale_names past_value_scale_names state_update_active"),
    "state_update_capture_count": "",
    "past_key_names": "past_key_values.%d.key",
    "past_value_names": "past_key_values.%d.value",
    "past_conv_names": "past_key_values.%d.conv_state",
    "past_recurrent_names": "past_key_values.%d.recurrent_state",
}
DECODER_OUTPUTS = {
    "logits": "logits",
    "present_key_names": "present.%d.key",
    "present_value_names": "present.%d.value",
    "present_conv_names": "present.%d.conv_state",
    "present_recurrent_names": "present.%d.recurrent_state",
    "output_cross_qk_names": "output_cross_qk_%d",
    "rnn_states": "rnn_states",
    **_unset("present_names hidden_states outputs outputs_length lstm_hidden_state lstm_cell_state"),
    **_unset("present_key_scale_names present_value_scale_names"),
    **_unset("state_update_conv_value_names state_update_recurrent_capsule_names"),
}
SLIDING_WINDOW = {
    **_all(Form.INT, "window_size pad_value cache_slack"),
    **_all(Form.STR, "alignment"),
    **_all(Form.BOOL, "slide_key_value_cache slide_inputs"),
    **_all(Form.INTS, "layers"),
}
SPECULATIVE = {
    **_all(Form.INT, "max_draft_tokens ngram_size min_adaptive_k"),
    **_all(Form.BOOL, "ngram_chained_lookup cooldown"),
}
SEARCH = {
    **_all(Form.BOOL, "do_sample early_stopping past_present_share_buffer audio_interleaved"),
    **_all(Form.INT, "min_length max_length batch_size num_beams num_return_sequences top_k no_repeat_ngram_size"),
    **_all(Form.INT, "random_seed"),
    **_all(Form.FLOAT, "repetition_penalty top_p temperature diversity_penalty length_penalty blank_penalty"),
    **_all(Form.FLOAT, "chunk_size audio_temperature audio_top_k"),
}
SESSION_INTS = _words("intra_op_num_threads inter_op_num_threads log_severity_level log_verbosity_level")
SESSION_BOOLS = _words("enable_cpu_mem_arena enable_mem_pattern")
OPTIMIZATION_LEVELS = _words("ORT_DISABLE_ALL ORT_ENABLE_BASIC ORT_ENABLE_EXTENDED ORT_ENABLE_ALL")
