"""Write the JSON Schemas of the input documents: `python -m tools.make_schema` (`--check` only compares).

The models in genai_compiler.read are the source; the same models give the same bytes everywhere.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from genai_compiler.costs import Costs
from genai_compiler.read.document import Metadata
from genai_compiler.read.fields import U64
from genai_compiler.read.hints import ExecutionHints
from pydantic import BaseModel

FOLDER = Path(__file__).resolve().parent.parent / "schema"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NULL = {"type": "null"}


def schema_texts() -> dict[str, str]:
    """The text of every schema file by its name under schema/."""
    return {
        "inference_metadata.schema.json": schema_text(Metadata, "ONNX inference metadata", nulls=True),
        "execution_hints.schema.json": schema_text(ExecutionHints, "Execution hints", nulls=False),
        "costs.schema.json": schema_text(Costs, "Costs of the forms that a policy can have", nulls=False),
    }


def schema_text(model: type[BaseModel], title: str, *, nulls: bool) -> str:
    """The schema of one document; without `nulls` a field that may be absent may still not be null."""
    schema = {**_tidy(model.model_json_schema(by_alias=True), nulls), "$schema": _DIALECT, "title": title}
    return json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _tidy(node: object, nulls: bool) -> Any:
    """Without what says nothing to a reader (generated titles, 64-bit maxima, mappings only code generators read).

    Integral floats become integers, since pydantic writes a minimum as 0 or 0.0 by its version.
    """
    if isinstance(node, list):
        return [_tidy(each, nulls) for each in cast("list[object]", node)]
    if not isinstance(node, dict):
        return int(node) if isinstance(node, float) and node.is_integer() else node
    items = cast("dict[str, Any]", node).items()
    kept: dict[str, Any] = {key: _tidy(value, nulls) for key, value in items if not _is_noise(key, value)}
    if not nulls and _NULL in kept.get("anyOf", ()):
        kept |= {key: value for each in kept.pop("anyOf") if each != _NULL for key, value in each.items()}
        kept.pop("default", None)
    return kept


def _is_noise(key: str, value: object) -> bool:
    if key == "title":
        return isinstance(value, str)
    return (key, value) == ("maximum", U64) or (key == "discriminator" and isinstance(value, Mapping))


def main(arguments: list[str]) -> int:
    """0 when every file is written (or fresh, with --check), 1 when one is stale."""
    stale = False
    for name, text in schema_texts().items():
        path = FOLDER / name
        if "--check" in arguments:
            fresh = path.is_file() and path.read_bytes() == text.encode()
            print(f"{name}: {'fresh' if fresh else 'stale, run python -m tools.make_schema'}")
            stale = stale or not fresh
        else:
            path.write_bytes(text.encode())
    return int(stale)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
