"""JSON of an adapter: an object without duplicate keys, without NaN, within bounds."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from genai_runtime.lora.fault import AdapterFault


def parse_json(text: bytes, name: str) -> dict[str, Any]:
    """The object that `text` holds. name: the file, for messages. Raises AdapterFault `adapter-file`."""
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError) as fault:
        what = "it is nested too deep" if isinstance(fault, RecursionError) else str(fault)
        raise AdapterFault("adapter-file", f"the JSON in {name} can't be read: {what}") from fault
    if not isinstance(value, dict):
        raise AdapterFault("adapter-file", f"the JSON in {name} is no object")
    return value


def read_json(file: Path, limit: int) -> dict[str, Any]:
    """The object in a file of at most `limit` bytes. Raises AdapterFault `adapter-file`."""
    size = file.stat().st_size
    if size > limit:
        raise AdapterFault("adapter-file", f"{file.name} has {size} bytes; {limit} are read at most")
    return parse_json(file.read_bytes(), file.name)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {name!r} stands there twice")
    return made


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")
