"""The adapter service as plain data for the runtime: what selects, what is changed, which file has which factors."""

from typing import Any

from genai_compiler.plan.dtypes import canonical
from genai_compiler.read.document import AdapterArtifact, AdapterTarget, AdapterWeights
from genai_compiler.read.lora_seam import SeamFault, seams_of
from genai_compiler.read.package import Package

PREFERRED = ("json", "safetensors", "hf_peft", "ort_genai")
"""Of an adapter in several formats the first of these is used; `json` is what a portable runtime reads (6.3)."""


def lora_data(package: Package) -> dict[str, Any]:
    """The manifest's `adapters`, {} for a package without them."""
    service = package.metadata.adapters
    if service is None:
        return {}
    seams = {at: seam for at, seam in seams_of(package) if not isinstance(seam, SeamFault)}
    selection = service.selection
    return {
        "selection": {
            "segments": selection.segments,
            "counts": selection.adapter_counts,
            "scales": selection.scales,
            "active": selection.active or "",
            "slots": selection.max_adapters,
        },
        "cache": service.cache.max_entries,
        "portable_fallback": service.portable_fallback,
        "targets": [_target(each, seams.get(at)) for at, each in enumerate(service.target_manifest.targets)],
        "artifacts": [artifact_data(alias, each, preferred(each.weights)) for alias, each in service.artifacts.items()],
    }


def preferred(weights: tuple[AdapterWeights, ...]) -> AdapterWeights:
    """The weights that a run reads."""
    return min(weights, key=lambda each: PREFERRED.index(each.format))


def artifact_data(alias: str, artifact: AdapterArtifact, weights: AdapterWeights) -> dict[str, Any]:
    """One adapter with one of its weight files. factor: alpha over rank, 1 where it is baked into the weights."""
    bindings: list[dict[str, Any]] = []
    for each in artifact.bindings:
        rank, alpha = each.rank or artifact.rank, each.alpha if each.alpha is not None else artifact.alpha
        factor = 1.0 if weights.scale_encoding == "baked" else alpha / rank
        bindings.append({"target": each.target, "key": each.weight_key, "rank": rank, "factor": factor})
    return {
        "alias": alias,
        "index": artifact.index,
        "format": weights.format,
        "file": _relative(weights.location),
        "config": _relative(weights.config_location or ""),
        "dtype": canonical(artifact.dtype),
        "bindings": bindings,
    }


def lora_files(package: Package) -> tuple[str, ...]:
    """Package-relative names of the files that adapters are read from."""
    return tuple(
        each[field] for each in lora_data(package).get("artifacts", ()) for field in ("file", "config") if each[field]
    )


def _relative(location: str) -> str:
    return location.replace("\\", "/")


def _target(target: AdapterTarget, seam: dict[str, Any] | None) -> dict[str, Any]:
    piece, ports = target.output_slice, target.graph_inputs
    return {
        "id": target.id,
        "component": target.component,
        "parameter": target.initializer,
        "inputs": target.input_features,
        "outputs": target.output_features,
        "offset": piece.offset if piece is not None else 0,
        "width": piece.width if piece is not None else target.output_features,
        "ports": [ports.a, ports.b, ports.scale or ""] if ports is not None else ["", "", ""],
        "seam": seam,
    }
