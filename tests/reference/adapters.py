"""Native adapters of the standard that are plain arithmetic (5.1, 5.2, 5.3, 5.6, 5.7)."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.reference import sounds
from tests.reference.images import preprocess
from tests.reference.values import Array, Document, ReferenceError, numpy_dtype


@dataclass(frozen=True)
class AdapterCall:
    """One invocation of an adapter component: its inputs by port, the values its ports define, and the rest."""

    component: Document
    inputs: Mapping[str, Array]
    package: Path
    document: Document
    env: Mapping[str, Array]
    defines: Mapping[str, str]

    def role(self, name: str) -> Array:
        """The value bound to the port that the component's contract binds to a role."""
        return self.inputs[self.component["contract"]["bindings"][name]]

    def publish(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Values by role, renamed to the ports the contract binds."""
        bindings = self.component["contract"]["bindings"]
        return {bindings[role]: value for role, value in values.items() if role in bindings}


def run_adapter(call: AdapterCall) -> dict[str, Array]:
    """The output ports of an adapter. Raises ReferenceError of kind adapter."""
    implementation = call.component["implementation"]
    known = ADAPTERS.get(implementation["abi"])
    if known is None or str(implementation["version"]) != "1":
        raise ReferenceError("adapter", f"no adapter {implementation['abi']}@{implementation['version']}")
    return known(call)


def _grammar(call: AdapterCall) -> dict[str, Array]:
    action = call.component["contract"]["parameters"]["action"]
    table = call.role("transition_table")
    if ((table < -1) | (table >= len(table))).any():  # every transition, taken or not (5.1)
        raise ReferenceError("adapter", "grammar table has a transition to a state out of range")
    if (call.role("tokens") < 0).any():
        raise ReferenceError("adapter", "a grammar token is negative")
    ends, consumed = [], []
    for row, state in enumerate(call.role("state")):
        length = 0 if action == "clone" else int(call.role("valid_length")[row])
        end, count = _advance(row, int(state), call.role("tokens")[row], length, table)
        if action == "commit" and count != length:
            raise ReferenceError("adapter", f"grammar row {row} rejects token {count} on commit")
        ends.append(end)
        consumed.append(count)
    mask = table[np.array(ends, np.int64)] != -1
    forced = mask.sum(axis=1) == 1
    return call.publish(
        {
            "next_state": np.array(ends, np.int64),
            "consumed_length": np.array(consumed, np.int64),
            "logits_mask": mask,
            "forced_tokens": np.where(forced, mask.argmax(axis=1), 0).astype(np.int64)[:, None],
            "forced_length": forced.astype(np.int64),
        }
    )


def _advance(row: int, state: int, tokens: Array, length: int, table: Array) -> tuple[int, int]:
    _name_a_row(row, state, table)
    if not 0 <= length <= len(tokens):
        raise ReferenceError("adapter", f"grammar row {row} has valid length {length} of {len(tokens)}")
    for count in range(length):
        token = int(tokens[count])
        if token < 0:
            raise ReferenceError("adapter", f"grammar row {row} has the negative token {token}")
        if token >= table.shape[1] or table[state, token] == -1:
            return state, count
        state = int(table[state, token])
        _name_a_row(row, state, table)
    return state, length


def _name_a_row(row: int, state: int, table: Array) -> None:
    if not 0 <= state < len(table):
        raise ReferenceError("adapter", f"grammar row {row} state {state} out of range")


def _image(call: AdapterCall) -> dict[str, Array]:
    made = preprocess(call.inputs["encoded"].tobytes(), call.document["preprocessing"]["image"])
    return {port: made[value] for port, value in call.defines.items()}


def _audio(call: AdapterCall) -> dict[str, Array]:
    made = sounds.preprocess(call.inputs["encoded"].tobytes(), call.document["preprocessing"]["audio"])
    return {port: made[value] for port, value in call.defines.items()}


def _telemetry(call: AdapterCall) -> dict[str, Array]:
    now = time.perf_counter_ns()
    if call.component["contract"]["parameters"]["action"] == "start":
        return call.publish({"timestamp": np.array(now, np.int64)})
    elapsed = (now - int(call.role("timestamp").reshape(()))) / 1e6
    return call.publish({"duration_ms": np.array(elapsed, np.float32)})


def _overlay(call: AdapterCall) -> dict[str, Array]:
    service = call.document["adapters"]
    parameters = call.component["contract"]["parameters"]
    target = next(
        target
        for target in service["target_manifest"]["targets"]
        if (target["component"], target["initializer"]) == (parameters["component"], parameters["parameter"])
    )
    rows = selected(service, call.env)
    source = call.role("input")
    if len(rows) != len(source):
        raise ReferenceError("adapter", f"{len(rows)} adapter rows for a batch of {len(source)}")
    out = [
        _overlay_row(call, target, row, adapters, source[row].astype(np.float32)) for row, adapters in enumerate(rows)
    ]
    return call.publish({"output": np.stack(out).astype(np.float32)})


def _overlay_row(call: AdapterCall, target: Document, row: int, adapters: list[tuple[str, float]], x: Array) -> Array:
    width = target["output_features"]
    if width == len(x):
        y = x.copy()
    elif not adapters:
        raise ReferenceError("adapter", f"row {row} has no adapter for a target of another width")
    else:
        y = np.zeros(width, np.float32)
    for alias, scale in adapters:
        if not call.document["adapters"].get("portable_fallback"):
            raise ReferenceError("adapter", f"adapter {alias!r} may only be applied inside graphs")
        a, b, factor = factors(call.package, call.document, target, alias)
        part = slice(0, width)
        if target.get("output_slice"):
            start = target["output_slice"]["offset"]
            part = slice(start, start + target["output_slice"]["width"])
        y[part] += np.float32(scale * factor) * (b @ (a @ x))
    return y


def factors(package: Path, document: Document, target: Document, alias: str) -> tuple[Array, Array, float]:
    """A [rank, inputs], B [width, rank] and alpha over rank of one adapter's JSON file for a target."""
    artifact = document["adapters"]["artifacts"][alias]
    bound = [binding for binding in artifact["bindings"] if binding["target"] == target["id"]]
    if not bound:
        raise ReferenceError("adapter", f"adapter {alias!r} has no binding for target {target['id']!r}")
    weight = next((w for w in artifact["weights"] if w.get("format", "json") == "json"), None)
    if weight is None:
        raise ReferenceError("adapter", f"adapter {alias!r} has no portable weights")
    loaded = json.loads((package / weight["location"]).read_text("utf-8"))
    held = loaded["targets"][bound[0]["weight_key"]]
    rank = int(bound[0].get("rank", artifact["rank"]))
    a = np.array(held["a"], np.float32).reshape(rank, target["input_features"])
    b = np.array(held["b"], np.float32).reshape(-1, rank)
    alpha = float(bound[0].get("alpha", artifact["alpha"]))
    return a, b, (1.0 if weight["scale_encoding"] == "baked" else alpha / rank)


def selected(service: Document, env: Mapping[str, Array]) -> list[list[tuple[str, float]]]:
    """The (alias, scale) pairs of each row; standard 6.3's checks on counts, padding, ids and scales."""
    names = service["selection"]
    segments, counts, scales = env[names["segments"]], env[names["adapter_counts"]], env[names["scales"]]
    active = env[names["active"]] if names.get("active") else np.ones(len(counts), numpy_dtype("bool"))
    aliases = {artifact["index"]: alias for alias, artifact in service["artifacts"].items()}
    rows: list[list[tuple[str, float]]] = []
    for row, count in enumerate(int(count) for count in counts):
        if not 0 <= count <= names["max_adapters"]:
            raise ReferenceError("adapter", f"adapter count {count} for row {row} is out of range")
        for slot in range(count, names["max_adapters"]):
            if segments[row, slot] != -1 or scales[row, slot] != 0:
                raise ReferenceError("adapter", f"unused adapter slot {slot} of row {row} must be padded")
        chosen = [_alias(aliases, int(segments[row, slot]), row) for slot in range(count)]
        rows.append(_active_row(row, chosen, scales[row]) if active[row] else [])
    if len({alias for row_ in rows for alias, _ in row_}) > service.get("cache", {}).get("max_entries", 16):
        raise ReferenceError("adapter", "more distinct adapters than the cache holds")
    return rows


def _alias(aliases: Mapping[int, str], index: int, row: int) -> str:
    if index not in aliases:
        raise ReferenceError("adapter", f"adapter ID {index} for row {row} is undeclared")
    return aliases[index]


def _active_row(row: int, chosen: list[str], scales: Array) -> list[tuple[str, float]]:
    for slot, alias in enumerate(chosen):
        if alias in chosen[:slot]:
            raise ReferenceError("adapter", f"row {row} selects adapter {alias!r} twice")
        if not np.isfinite(scales[slot]) or abs(scales[slot]) > 16:
            raise ReferenceError("adapter", f"adapter {alias!r} scale {scales[slot]} out of range")
    return [(alias, float(scales[slot])) for slot, alias in enumerate(chosen)]


ADAPTERS: dict[str, Callable[[AdapterCall], dict[str, Array]]] = {
    "onnx-genai.grammar-guidance": _grammar,
    "onnx-genai.audio-preprocess": _audio,
    "onnx-genai.image-preprocess": _image,
    "onnx-genai.telemetry": _telemetry,
    "onnx-genai.parameter-overlay": _overlay,
}
