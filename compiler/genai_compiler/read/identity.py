"""The semantic identity of a metadata document: equal for documents that say the same (standard, 1.11).

An identity, no protection: it says nothing of who wrote a document, or whether its files are whole.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, cast

SCHEME = "onnx-genai-metadata-identity-v1:sha256"
_INTEGERS_BELOW = 1e18


def semantic_identity(document: object) -> str:
    """`SCHEME:<hex>` of a document as plain data, as it was written: a default written out is another document."""
    return f"{SCHEME}:{hashlib.sha256(canonical_text(document).encode(errors='surrogatepass')).hexdigest()}"


def canonical_text(document: object) -> str:
    """Compact JSON with sorted keys and without null, empty containers and ignorable profiles."""
    kept = document
    if isinstance(document, Mapping):
        whole = cast(Mapping[str, Any], document)
        profiles = whole.get("profiles")
        if isinstance(profiles, Mapping):
            named = cast(Mapping[str, Any], profiles)
            kept = {**whole, "profiles": {name: each for name, each in named.items() if not _ignorable(each)}}
    return _text(kept) or "{}"


def _ignorable(profile: object) -> bool:
    return isinstance(profile, Mapping) and cast(Mapping[str, Any], profile).get("requirement") == "ignorable"


def _text(value: object) -> str:
    """A value's canonical text, "" for one that says nothing."""
    match value:
        case None:
            return ""
        case bool() | str():
            return json.dumps(value, ensure_ascii=False)
        case int() | float():
            return _number(float(value))
        case Mapping():
            members = cast(Mapping[str, Any], value)
            texts = ((name, _text(members[name])) for name in sorted(members))
            body = ",".join(f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in texts if text)
            return f"{{{body}}}" if body else ""
        case list() | tuple():
            body = ",".join(text for each in cast(list[Any], value) if (text := _text(each)))
            return f"[{body}]" if body else ""
        case _:
            raise TypeError(f"{type(value).__name__} is no plain data")


def _number(number: float) -> str:
    """By value, not by spelling: whole numbers without a point, others as their shortest digits; no exponent."""
    if not math.isfinite(number):
        return ""  # JSON has no such number
    if number.is_integer() and abs(number) < _INTEGERS_BELOW:
        return str(int(number))
    return format(Decimal(repr(number)), "f")
