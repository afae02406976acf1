"""The manifest of a compiled folder, and whether the folder and its package are still what was compiled."""

import hashlib
import json
import os
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from genai_runtime.problem import LoadError
from genai_runtime.values import NUMPY

if TYPE_CHECKING:
    from genai_runtime.lora.spec import LoraSpec

FORMAT = 3
MAX_BYTES = 64 << 20
SMALL_FILE = 4 << 20
"""Up to this size a file is checked by content at every load; larger ones by size and time stamp, fully with verify."""

COMPILE_AGAIN = "compile the package again with genai-compile"

_FILE = {"path": str, "size": int, "mtime_ns": int, "sha256": str}
_PORT = {"name": str, "type": str, "role": str}
_MEDIA = {"container": str, "encoding": str, "delivery": str, "sample_rate_hz": int, "channels": int}
_ASSEMBLY = {"max_input_tokens": int, "max_output_units": int, "state_advance_units": int, "segments": [dict]}
_PROFILE = {
    **dict.fromkeys(("name", "kind", "version", "batch_invariance", "source", "lengths", "mask"), str),
    "outputs": dict,
    "rows": int,
    "pooling": dict | None,
    "decoding": dict | None,
}
_KERNEL = {"component": str, "artifact": str, "operator": str, "lacking": [str], "having": [str]}
_CONTINUATION = ("cell", "prompt_input", "tokens_output", "bound", "bound_default")
_SHAPE: dict[str, Any] = {
    "compiler": str,
    "name": str,
    "dialect": str,
    "executor_sha256": str,
    "package": {"path": str},
    "files": [_FILE],
    "graphs": dict,
    "tables": dict,
    "speculation": dict | None,
    "policy_graphs": dict | None,
    "text": dict,
    "generation": {
        "policy": str,
        "sampler_mode": str,
        "ragged": bool,
        "alone": bool,
        "prompt_decoded": bool,
        "tokens_output": str,
        "tokens_replace": bool,
        "end_ids": [int],
        "pad_id": int | None,
        "context_length": int,
        "vocab_size": int,
        "valid_ids": int,
        "holes": [int],
        "contract": bool,
        "defaults": dict,
        "overrides": dict,
    },
    "session": {"options": dict, "providers": [{"name": str, "options": dict}]},
    "kernels": [_KERNEL],
    "placement": dict,
    "inputs": [{**_PORT, "dtype": str, "rank": int, "source": str, "application": str}],
    "outputs": [{**_PORT, "stage": str, "media": dict}],
    "media": [
        {
            "kind": str,
            "input": str,
            "prompt": dict,
            "resize": dict | None,
            "crop": list | None,
            "tiled": bool,
            "views": dict | None,
            "tensors": [str],
            "required": bool,
        }
    ],
    "sound": dict | None,
    "speech": {"assemblies": [{"component": str, "program": _ASSEMBLY}], "outputs": [str]},
    "state_groups": [dict],
    "owned_inputs": [str],
    "adapters": dict,
    "overridable": [{"component": str, "replacements": [str]}],
    "identity": str,
    "cache_dependencies": dict,
    "profiles": [_PROFILE],
    "session_cells": [{"name": str, "dtype": str, "shape": list}],
    "continuation": dict | None,
}
"""What this runtime reads of a manifest of FORMAT: a type, keys of an object, or the items of a list."""
_GRAPH = {"in": str, "file": str, "weights": str, "lengths_vary": bool}
_PLACED = {"device": str, "index": int | None, "memory": int, "cpu_arena": bool}
_TABLE = {"in": str, "file": str, "offset": int, "dtype": str, "dims": [int], "sha256": str}
_BY_COMPONENT = {"graphs": _GRAPH, "placement": _PLACED, "tables": _TABLE}
_PARTS = {"graphs": [str], "crossing": [str]}
_SOUND = {
    "input": str,
    "sample_rate": int,
    "normalized": bool,
    "start": int | None,
}
_POLICY = {
    "graphs": {kind: {"file": str, "sha256": str} for kind in ("top_k", "top_p", "min_p", "temperature")},
    "by_graph": [str],
    "most": int,
}
_HELD = {"length": int, "input": str}
_STORED = {"made": {"onnxruntime": str, "system": str, "processor": str}, "graphs": dict}
_STORED_GRAPH = {"file": str, "weights": str, "sha256": str}
_SPECULATION = {"width": int, "by_itself": bool, "driven": bool, "reason": str}


@dataclass(frozen=True)
class Manifest:
    """A read manifest. folder: the compiled folder. package: the folder of the package it was made from."""

    folder: Path
    package: Path
    data: Mapping[str, Any]

    @property
    def executor(self) -> Path:
        """The generated module."""
        return self.folder / "executor.py"

    def weights(self, name: str) -> Path:
        """A folder of weights, by its name from the package's, which climbs with `..` where links led out of that."""
        return (self.package.resolve() / name).resolve() if name.startswith("..") else self.package / name

    @property
    def lora(self) -> "LoraSpec | None":
        """The package's adapters, None when it has none."""
        if not self.data["adapters"]:
            return None
        from genai_runtime.lora.spec import spec_of

        return spec_of(self.data["adapters"])


def read_manifest(folder: Path, abi: int) -> Manifest:
    """Read and check `manifest.json`. Raises LoadError: not-compiled, damaged-folder, abi-mismatch, package-moved."""
    file = folder / "manifest.json"
    if not file.is_file():
        what = f"'{folder}' is no compiled folder: it " + (
            "has no manifest.json" if folder.exists() else "does not exist"
        )
        is_package = (folder / "inference_metadata.yaml").is_file() or (folder / "genai_config.json").is_file()
        help = (
            f"this is a package: run genai-compile {folder} first"
            if is_package
            else "name a folder that genai-compile wrote"
        )
        raise LoadError("not-compiled", what, help=help)
    data = _parsed(file)
    if data.get("format") != FORMAT or data.get("abi") != abi:
        made_for = f"format {data.get('format')}, ABI {data.get('abi')}"
        what = f"'{folder}' was compiled for {made_for}; this runtime has {FORMAT}, {abi}"
        raise LoadError("abi-mismatch", what, help=COMPILE_AGAIN)
    faults = [*_shape_faults(data, _SHAPE, ""), *_entry_faults(data)]
    media = [each["media"] for each in data["outputs"] if each["media"]] if not faults else []
    faults += _shape_faults(media, [_MEDIA], "outputs.media")
    faults = faults or list(_value_faults(data)) or list(_adapter_faults(data["adapters"]))
    if faults:
        what = f"manifest.json of '{folder}' is damaged: {', '.join(faults[:5])}"
        raise LoadError("damaged-folder", what, help=COMPILE_AGAIN)
    stated = data["package"]["path"]
    package = Path(stated) if Path(stated).is_absolute() else (folder / stated).resolve()
    if not package.is_dir():
        what = f"the package of '{folder}' is not at '{stated}' any more"
        help = "move it back, compile again, or compile with --bundle to make a folder that stands alone"
        raise LoadError("package-moved", what, help=help)
    return Manifest(folder, package, data)


def check_files(manifest: Manifest, verify: bool = False) -> None:
    """Hold all files against the manifest. Raises LoadError: damaged-folder, package-changed (with all differences)."""
    data = manifest.data
    if not manifest.executor.is_file() or file_hash(manifest.executor) != data["executor_sha256"]:
        what = f"executor.py in '{manifest.folder}' is missing or was changed after it was compiled"
        raise LoadError("damaged-folder", what, help=COMPILE_AGAIN)
    for each in data["graphs"].values():
        if each["in"] == "compiled":
            _check_made(manifest.folder / each["file"], each)
    for each in data["tables"].values():
        if each["in"] == "compiled":
            _check_made(manifest.folder / each["file"], each)
    for each in (data["policy_graphs"] or {"graphs": {}})["graphs"].values():
        _check_made(manifest.folder / each["file"], each)
    hold_package(manifest, verify)


def hold_package(manifest: Manifest, verify: bool = False, only: Container[str] | None = None) -> None:
    """The package's files, or those of these names, are what they were. Raises LoadError `package-changed`."""
    files = [each for each in manifest.data["files"] if only is None or each["path"] in only]
    faults = [fault for each in files if (fault := _difference(manifest.package, each, verify))]
    if faults:
        raise LoadError("package-changed", "; ".join(faults), help=f"restore the files, or {COMPILE_AGAIN}")


def unreadable(failure: OSError) -> LoadError:
    """The refusal of a file that the operating system does not give."""
    what = f"'{failure.filename}' can't be read: {failure.strerror}"
    return LoadError("unreadable-file", what, help="give yourself permission to read it")


def _entry_faults(data: Mapping[str, Any]) -> Iterator[str]:
    """Faults of what stands under a component's name, and of what a manifest need not have."""
    for key, entry in _BY_COMPONENT.items():
        if isinstance(data.get(key), dict):
            yield from _shape_faults(list(data[key].values()), [entry], key)
    if isinstance(data.get("sound"), dict):
        yield from _shape_faults(data["sound"], _SOUND, "sound")
    if isinstance(data.get("speculation"), dict):
        yield from _shape_faults(data["speculation"], _SPECULATION, "speculation")
    if isinstance(data.get("policy_graphs"), dict):
        yield from _shape_faults(data["policy_graphs"], _POLICY, "policy_graphs")
    held = data["generation"].get("held") if isinstance(data.get("generation"), dict) else None
    if held is not None:
        yield from _shape_faults(held, _HELD, "generation.held")
    if data.get("origins") is not None:
        yield from _shape_faults(data["origins"], dict, "origins")
        if isinstance(data["origins"], dict):
            yield from _shape_faults(list(data["origins"].values()), [str], "origins")
    if data.get("text_origin") is not None:
        yield from _shape_faults(data["text_origin"], str, "text_origin")
    if "parts" in data:
        faults = list(_shape_faults(data["parts"], dict, "parts"))
        yield from faults or _shape_faults(list(data["parts"].values()), [_PARTS], "parts")
    for key in ("opens", "on_demand"):
        yield from _shape_faults(data.get(key, []), [str], key)
    generation = data.get("generation")
    if isinstance(generation, dict) and "prefill_chunk" in generation:
        yield from _shape_faults(generation["prefill_chunk"], int, "generation.prefill_chunk")
    if data.get("stored") is not None:
        faults = list(_shape_faults(data["stored"], _STORED, "stored"))
        yield from faults or _shape_faults(list(data["stored"]["graphs"].values()), [_STORED_GRAPH], "stored.graphs")


def _check_made(file: Path, entry: Mapping[str, Any]) -> None:
    """A graph that the compiler wrote must be there, as it was written."""
    if not file.is_file() or file_hash(file) != entry.get("sha256"):
        raise LoadError(
            "damaged-folder", f"'{file}' is missing or was changed after it was compiled", help=COMPILE_AGAIN
        )


def _parsed(file: Path) -> Mapping[str, Any]:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise ValueError("it is too large")
        data = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError("it holds no object")
    except PermissionError:
        raise
    except (ValueError, OSError, RecursionError) as failure:
        what = f"manifest.json of '{file.parent}' can't be read: {failure}"
        raise LoadError("damaged-folder", what, help=COMPILE_AGAIN) from failure
    return data


_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    dict: "an object",
    list: "a list",
    type(None): "null",
}
"""What JSON calls a type."""


def _shape_faults(value: object, shape: Any, path: str) -> Iterator[str]:
    """Where a value is not what `shape` says, in words."""
    kind = type(shape) if isinstance(shape, dict | list) else shape
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        yield f"{path} must be {' or '.join(_WORDS.get(each, each.__name__) for each in get_args(kind) or (kind,))}"
    elif isinstance(value, dict):
        for key, each in shape.items() if isinstance(shape, dict) else ():
            inner = f"{path}.{key}".lstrip(".")
            yield from _shape_faults(value[key], each, inner) if key in value else (f"{inner} is missing",)
    elif isinstance(value, list):
        for at, each in enumerate(value if isinstance(shape, list) else ()):
            yield from _shape_faults(each, shape[0], f"{path}[{at}]")


def _value_faults(data: Mapping[str, Any]) -> Iterator[str]:
    """Values of the right type that no compiler writes, in words."""
    named = [("package.path", data["package"]["path"]), *((f"text.{key}", name) for key, name in data["text"].items())]
    named += [(f"graphs.{key}.{field}", each[field]) for key, each in data["graphs"].items() for field in _GRAPH]
    drawn = (data["policy_graphs"] or {"graphs": {}})["graphs"]
    named += [(f"policy_graphs.{key}.file", each["file"]) for key, each in drawn.items()]
    kept = (data.get("stored") or {"graphs": {}})["graphs"]
    named += [(f"stored.{key}.{field}", each[field]) for key, each in kept.items() for field in ("file", "weights")]
    named += [(f"files[{at}].path", each["path"]) for at, each in enumerate(data["files"])]
    homes = ("package", "compiled")
    yield from (f"graphs: in '{each['in']}'" for each in data["graphs"].values() if each["in"] not in homes)
    yield from (f"{place} is no file name" for place, name in named if isinstance(name, str) and not _is_name(name))
    for key, each in data.get("parts", {}).items():
        if len(each["graphs"]) != 2 or not set(each["graphs"]) <= set(data["graphs"]) or key in data["graphs"]:
            yield f"parts.{key} are not two of the graphs"
    for key, each in data["tables"].items():
        if each["in"] not in homes or not _is_name(each["file"]) or each["dtype"] not in NUMPY:
            yield f"tables.{key} is no table"
        elif each["offset"] < 0 or len(each["dims"]) != 2 or min(each["dims"]) < 0:
            yield f"tables.{key} has no place"
    for at, each in enumerate(data["inputs"]):
        if each["dtype"] not in NUMPY:
            yield f"inputs[{at}].dtype is no type"
        if type(each.get("entries", 0)) is not int:
            yield f"inputs[{at}].entries is no number"
    lacking = set(_CONTINUATION) - set(data["continuation"] or _CONTINUATION)
    yield from (f"continuation.{each} is missing" for each in sorted(lacking))
    generation = data["generation"]
    if any(each < 0 for each in generation["holes"]):
        yield "generation.holes has a negative id"
    if not -(1 << 31) <= (generation["pad_id"] or 0) < 1 << 31:
        yield "generation.pad_id is out of range"
    if generation.get("prefill_chunk", 1) < 1:
        yield "generation.prefill_chunk is below 1"


def _adapter_faults(data: Mapping[str, Any]) -> Iterator[str]:
    if not data:
        return
    from genai_runtime.lora.spec import spec_of

    try:
        spec = spec_of(data)
    except (KeyError, TypeError, ValueError) as fault:
        yield f"adapters: {type(fault).__name__}: {fault}"
        return
    for each in spec.artifacts if spec is not None else ():
        yield from (f"adapters.{each.alias} names no file" for name in (each.file, each.config) if not _is_name(name))


def _is_name(name: str) -> bool:
    """Whether the operating system could have a file of this name."""
    try:
        return b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        return False


def _difference(package: Path, entry: Mapping[str, Any], verify: bool) -> str:
    """How a file differs from what was compiled, in words; "" when it does not."""
    file, name = package / entry["path"], entry["path"]
    if not file.is_file():
        return f"'{name}' is missing"
    state = file.stat()
    if state.st_size != entry["size"]:
        return f"'{name}' has {state.st_size} bytes, it had {entry['size']}"
    if not os.access(file, os.R_OK):
        return f"'{name}' can't be read: the operating system refuses it"
    known = state.st_size > SMALL_FILE and state.st_mtime_ns == entry["mtime_ns"] and not verify
    return "" if known or file_hash(file) == entry["sha256"] else f"the content of '{name}' has changed"


def file_hash(file: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
