"""Element types: one spelling each, sizes in bytes, and what they are called elsewhere (standard, 1.4)."""

SIZE: dict[str, int] = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
}  # fmt: skip

ALIASES: dict[str, str] = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""Spellings that two compared contracts may differ in. FP8 spellings stay apart on purpose."""

FP8 = {
    "fp8_e4m3fn": "float8_e4m3fn",
    "float8_e4m3": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
}
"""Spellings of one storage type (standard, 1.4)."""

INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
FLOATS = frozenset({"float16", "bfloat16", "float32"})
"""Dtypes that take an integer literal, and those that take a float literal (standard, 3.2)."""


def canonical(dtype: str) -> str:
    """The one spelling of an element type; unknown names come back as they are."""
    return ALIASES.get(dtype, dtype)


def stored(dtype: str) -> str:
    """What a tensor of this dtype is made of: FP8 spellings are one type there."""
    return FP8.get(dtype, canonical(dtype))
