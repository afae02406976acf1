"""A package that its own code would run -> a workflow of one step: an adapter of another package runs its graphs.

No code of a package is ever loaded. What stands in for it is installed like any adapter, by entry point; it gets the
package's graphs as callables, the numbers and names that the configuration states, and gives token ids.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from genai_compiler.lower.matching import rank_of
from genai_compiler.read.negotiate import ENTRY_POINTS, GRAPHS
from genai_compiler.read.signature import Port, Signature

Data = dict[str, Any]
Scalar = bool | int | float | str
VERSION = "1"
TOKENS = "tokens"
_OPAQUE = {"kind": "opaque"}
_TAIL = re.compile(r"(?<![0-9])(?:0|[1-9][0-9]{0,5})(?![0-9]).*", re.DOTALL)
"""A name from its first number on."""


@dataclass(frozen=True)
class PluginGraph:
    """A graph that the adapter runs, under its component's name."""

    component: str
    artifact: str
    signature: Signature


def is_installed(abi: str) -> bool:
    """Whether some package provides the adapter."""
    return bool(entry_points(group=ENTRY_POINTS, name=f"{abi}@{VERSION}"))


def way_out(abi: str) -> str:
    """What to do where none does."""
    return f"install a package that provides the adapter '{abi}@{VERSION}' (entry-point group '{ENTRY_POINTS}')"


def plugin_document(
    abi: str, graphs: tuple[PluginGraph, ...], asked: Iterable[Port], parameters: Mapping[str, Scalar]
) -> Data:
    """The whole document. asked: what the caller gives; parameters: what the adapter is told beside its graphs."""
    step = "plugin"
    while any(each.component == step for each in graphs):
        step += "_"
    ports = {each.name: _contract(each) for each in asked}
    tokens: Data = {"dtype": "int64", "rank": 2, "shape": ["rows", "produced"]}
    told = {**parameters, GRAPHS: ", ".join(each.component for each in graphs)}
    adapter: Data = {
        "implementation": {"kind": "adapter", "abi": abi, "version": VERSION},
        "ports": {"inputs": ports, "outputs": {TOKENS: tokens}},
        "contract": {"id": abi, "version": VERSION, "parameters": told},
    }
    workflow: Data = {
        "manifest": {"adapter_abis": {abi: VERSION}, "capabilities": ["workflow_ssa", "typed_emit"]},
        "inputs": {
            f"application.{name}": {
                "contract": contract,
                "role": _OPAQUE,
                "source": {"kind": "application", "name": name},
                "required": True,
            }
            for name, contract in ports.items()
        },
        "outputs": {TOKENS: {"contract": tokens, "role": "tokens", "stage": "pre_adapter"}},
        "components": {step: adapter, **{each.component: _graph(each) for each in graphs}},
        "state": {},
        "steps": [
            {
                "kind": "invoke",
                "component": step,
                "inputs": {name: f"application.{name}" for name in ports},
                "outputs": {TOKENS: f"{step}.{TOKENS}"},
            },
            {"kind": "emit", "value": f"{step}.{TOKENS}", "output": TOKENS, "mode": "replace"},
        ],
    }
    return {"schema_version": "1.0", "pipeline": {"workflow": workflow}}


def asked_of(signature: Signature) -> tuple[Port, ...]:
    """Inputs that the caller gives: all but state, whose next value is an output.

    That is what an attention operator keeps, or what an output is named after: whole, or from its layer's number on.
    """
    kept = {name for op in signature.cache_ops for name in (op.past_key, op.past_value)}
    return tuple(
        each for each in signature.inputs if each.name not in kept and not _is_carried(each, signature.outputs)
    )


def _is_carried(port: Port, outputs: tuple[Port, ...]) -> bool:
    tail = _TAIL.search(port.name)
    return any(
        port.name != each.name
        and port.dtype == each.dtype
        and (port.name in each.name or (tail is not None and _is_next(port, each, tail[0])))
        for each in outputs
    )


def _is_next(port: Port, output: Port, tail: str) -> bool:
    end = _TAIL.search(output.name)
    return end is not None and end[0] == tail and rank_of(port) == rank_of(output)


def _graph(each: PluginGraph) -> Data:
    inputs = {port.name: _contract(port) for port in each.signature.inputs}
    outputs = {port.name: _contract(port) for port in each.signature.outputs}
    return {
        "implementation": {"kind": "onnx", "artifact": each.artifact},
        "ports": {"inputs": inputs, "outputs": outputs},
    }


def _contract(port: Port) -> Data:
    if port.shape is None:
        return {"dtype": port.dtype, "rank": 1}
    shape = [f"{port.name}.{axis}" if not isinstance(each, int) else each for axis, each in enumerate(port.shape)]
    return {"dtype": port.dtype, "rank": len(shape), "shape": shape}
