"""Extensible vocabularies (section 1.4): plain strings whose known values are listed for editors and messages only.

An unknown value is a question of capability, asked by the stage that needs the value, never a fault of the document.
"""

from typing import Annotated

from pydantic import Field

TENSOR_DTYPES = (
    "float32", "fp32", "float16", "fp16", "bfloat16", "bf16", "float8_e4m3fn", "float8_e5m2",
    "int64", "int32", "int8", "uint8", "bool", "string",
)  # fmt: skip
HARDWARE_DTYPES = (
    "float32", "fp32", "float16", "fp16", "half", "bfloat16", "bf16", "float8_e4m3fn", "fp8_e4m3fn",
    "float8_e4m3", "fp8_e4m3", "float8_e5m2", "fp8_e5m2", "int8", "uint8", "int4", "uint4",
)  # fmt: skip
PRECISIONS = (
    "float32", "fp32", "float16", "fp16", "bfloat16", "bf16", "float8_e4m3fn", "float8_e5m2",
    "int8", "int4", "int4_group128",
)  # fmt: skip
ATTENTION_TYPES = (
    "multi_head", "multi_head_attention", "grouped_query", "group_query_attention",
    "grouped_query_attention", "gqa", "multi_latent", "multi_latent_attention", "mla",
)  # fmt: skip
IMAGE_OPS = (
    "decode", "decode_rgb", "convert_rgb", "resize", "rescale", "normalize", "tile", "flatten", "patchify",
    "pad", "emit_original_size", "emit_transformed_size", "emit_validity_mask", "emit_patch_coordinates",
    "emit_grid_coordinates",
)  # fmt: skip
IMAGE_CONTENTS = (
    "pixels", "patch_coordinates", "grid_dimensions", "original_size", "transformed_size", "validity_mask",
)  # fmt: skip
AUDIO_OPS = (
    "decode", "resample", "downmix", "rescale", "zero_mean_unit_variance", "normalize", "pad", "trim", "frame",
    "spectrogram", "log_mel", "log_mel_spectrogram", "emit_valid_frames", "emit_valid_samples",
    "emit_sample_lengths", "emit_validity_mask",
)  # fmt: skip
AUDIO_CONTENTS = (
    "waveform", "features", "audio_features", "valid_frames", "valid_samples", "sample_lengths",
    "frame_lengths", "validity_mask",
)  # fmt: skip

TensorDType = Annotated[str, Field(examples=list(TENSOR_DTYPES))]
HardwareDType = Annotated[str, Field(examples=list(HARDWARE_DTYPES))]
Precision = Annotated[str, Field(examples=list(PRECISIONS))]
AttentionType = Annotated[str, Field(examples=list(ATTENTION_TYPES))]
ExpertRepresentation = Annotated[str, Field(examples=["dense_fallback", "moe", "qmoe"])]
RouterScore = Annotated[str, Field(examples=["softmax", "sigmoid"])]
RouterSelection = Annotated[str, Field(examples=["top_k", "grouped_top_k", "sparse_mixer"])]
RouterGroupScore = Annotated[str, Field(examples=["maximum", "top_2_sum"])]
ImageOp = Annotated[str, Field(examples=list(IMAGE_OPS))]
ImageContent = Annotated[str, Field(examples=list(IMAGE_CONTENTS))]
ThumbnailOrder = Annotated[str, Field(examples=["none", "prepend", "append"])]
AudioOp = Annotated[str, Field(examples=list(AUDIO_OPS))]
AudioContent = Annotated[str, Field(examples=list(AUDIO_CONTENTS))]
DecodingKind = Annotated[str, Field(examples=["ctc", "greedy_argmax"])]
VocabularySource = Annotated[str, Field(examples=["tokenizer", "inline"])]
BatchInvariance = Annotated[str, Field(examples=["row_independent", "padding_sensitive"])]
StateInit = Annotated[str, Field(examples=["zeros"])]
StatePairUpdate = Annotated[str, Field(examples=["replace"])]
