"""The adapters of a LoRA service: identities, weight files and bindings (standard, 12.6)."""

from genai_compiler.check.fault import Fault, Faults, Path, Rule, Rules, blank
from genai_compiler.check.lora_targets import rank_and_alpha
from genai_compiler.plan.dtypes import FLOATS, canonical
from genai_compiler.read.document import (
    AdapterArtifact,
    AdapterBinding,
    AdapterService,
    AdapterTarget,
    AdapterWeights,
    Provenance,
)
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V090": Rule("blank-name", "An adapter has an identity and a version."),
    "V091": Rule("blank-name", "An adapter's provenance is not blank."),
    "V092": Rule("duplicate-adapter", "Adapters have indices of their own."),
    "V093": Rule("duplicate-adapter", "No two adapters have the same identity and version."),
    "V094": Rule("adapter-indices", "Adapter indices count from 0 without gaps."),
    "V095": Rule("zero-size", "An adapter's rank is not 0."),
    "V096": Rule("adapter-alpha", "An adapter's alpha is a finite number above 0."),
    "V097": Rule("adapter-dtype", "An adapter's factors are floats."),
    "V098": Rule("no-weights", "An adapter has weights."),
    "V099": Rule("duplicate-weights", "An adapter lists each weight format once."),
    "V100": Rule("adapter-path", "An adapter's weights lie below `adapters/<alias>/`."),
    "V101": Rule("blank-name", "Weights name their loader."),
    "V102": Rule("weight-loader", "Weights name the loader of their format."),
    "V103": Rule("scale-encoding", "PEFT weights are scaled by alpha over rank."),
    "V104": Rule("scale-encoding", "ONNX Runtime adapter files have their scale baked in."),
    "V105": Rule("weight-config", "PEFT weights have a configuration file, others have none."),
    "V106": Rule("adapter-path", "An adapter's configuration lies below `adapters/<alias>/`."),
    "V107": Rule("no-bindings", "An adapter binds at least one target."),
    "V108": Rule("blank-name", "A binding names its target and its weights."),
    "V109": Rule("duplicate-binding", "An adapter uses each weight key once."),
    "V110": Rule("unknown-target", "A binding names a target of the manifest."),
    "V111": Rule("target-graph-inputs", "A target bound to an ONNX Runtime adapter file has graph inputs."),
    "V112": Rule("zero-size", "A binding's rank is not 0."),
    "V113": Rule("adapter-alpha", "A binding's alpha is a finite number above 0."),
    "V114": Rule("adapter-geometry", "A binding has the rank that its target demands."),
    "V115": Rule("adapter-geometry", "A binding has the alpha that its target demands."),
    "V116": Rule("adapter-geometry", "A binding has the rank that its target's slice demands."),
    "V117": Rule("adapter-geometry", "A binding has the alpha that its target's slice demands."),
    "V118": Rule("duplicate-binding", "An adapter binds each target once."),
}

LOADERS = {
    "json": "onnx-genai.adapters.json@1",
    "safetensors": "onnx-genai.adapters.safetensors@1",
    "hf_peft": "onnx-genai.adapters.hf-peft@1",
    "ort_genai": "onnxruntime.lora-adapter@1",
}
"""Weight format -> the loader that reads it (standard, 6.1)."""


def check_adapters(service: AdapterService) -> Faults:
    """Every adapter by itself and beside the others."""
    path, indices, identities = ("adapters", "artifacts"), dict[int, str](), dict[tuple[str, str], str]()
    targets = {each.id: each for each in reversed(service.target_manifest.targets)}
    for alias, adapter in service.artifacts.items():
        place, identity = (*path, alias), (adapter.identity, adapter.version)
        yield from _adapter(alias, adapter, targets, place)
        if adapter.index in indices:
            what = f"adapter '{indices[adapter.index]}' already has index {adapter.index}"
            yield Fault("V092", (*place, "index"), what, "give each adapter an index of its own")
        if identity in identities:
            what = f"adapter '{identities[identity]}' already is {adapter.identity} {adapter.version}"
            yield Fault("V093", (*place, "identity"), what, "remove one of them, or give it another version")
        indices.setdefault(adapter.index, alias)
        identities.setdefault(identity, alias)
    if sorted(indices) != list(range(len(indices))):
        what = f"adapter indices {', '.join(str(each) for each in sorted(indices))} do not count from 0 without gaps"
        yield Fault("V094", path, what, f"number them 0 to {len(indices) - 1}")


def _adapter(alias: str, adapter: AdapterArtifact, targets: dict[str, AdapterTarget], path: Path) -> Faults:
    for field in ("identity", "version"):
        if blank(getattr(adapter, field)):
            yield Fault("V090", (*path, field), f"the adapter's {field} is blank", "name it")
    if adapter.provenance is not None:
        yield from _provenance(adapter.provenance, (*path, "provenance"))
    yield from rank_and_alpha(adapter.rank, adapter.alpha, ("V095", "V096"), path)
    if canonical(adapter.dtype) not in FLOATS:
        what = f"factors of type {adapter.dtype} are no floats"
        yield Fault("V097", (*path, "dtype"), what, "write float32, float16 or bfloat16")
    if not adapter.weights:
        yield Fault("V098", path, f"adapter '{alias}' has no weights", "add a weight file")
    if not adapter.bindings:
        yield Fault("V107", path, f"adapter '{alias}' binds no target", "add bindings")
    yield from _weights(alias, adapter, path)
    yield from _bindings(adapter, targets, path)


def _provenance(provenance: Provenance, path: Path) -> Faults:
    for field in ("producer", "source", "revision"):
        value = getattr(provenance, field)
        if value is not None and blank(value):
            yield Fault("V091", (*path, field), f"the provenance's {field} is blank", "name it, or remove it")


def _weights(alias: str, adapter: AdapterArtifact, path: Path) -> Faults:
    formats: set[str] = set()
    for at, weights in enumerate(adapter.weights):
        place = (*path, "weights", at)
        if weights.format in formats:
            what = f"the adapter has weights of format {weights.format} already"
            yield Fault("V099", (*place, "format"), what, "keep one of them")
        formats.add(weights.format)
        if not _in_folder(alias, weights.location):
            what = f"'{weights.location}' does not lie below adapters/{alias}/"
            yield Fault("V100", (*place, "location"), what, f"move the file below adapters/{alias}/")
        yield from _loader(weights, place)
        yield from _config(alias, weights, place)


def _in_folder(alias: str, location: str) -> bool:
    """Whether a file lies below `adapters/<alias>/`; an alias may hold slashes, and no part may lead upwards."""
    home, path = f"adapters/{alias}/", location.replace("\\", "/")
    return path.startswith(home) and ".." not in path.split("/") and not blank(path[len(home) :].strip("/"))


def _loader(weights: AdapterWeights, path: Path) -> Faults:
    place, wanted = (*path, "loader_capability"), LOADERS[weights.format]
    if blank(weights.loader_capability):
        yield Fault("V101", place, "the weights name no loader", f"write {wanted}")
    elif weights.loader_capability != wanted:
        what = f"format {weights.format} is not read by '{weights.loader_capability}'"
        yield Fault("V102", place, what, f"write {wanted}")
    for rule, form, scale in (("V103", "hf_peft", "alpha_over_rank"), ("V104", "ort_genai", "baked")):
        if weights.format == form and weights.scale_encoding != scale:
            what = f"weights of format {form} are scaled '{scale}', not '{weights.scale_encoding}'"
            yield Fault(rule, (*path, "scale_encoding"), what, f"write scale_encoding: {scale}")


def _config(alias: str, weights: AdapterWeights, path: Path) -> Faults:
    place, config = (*path, "config_location"), weights.config_location
    if weights.format == "hf_peft" and config is None:
        yield Fault("V105", path, "PEFT weights come with adapter_config.json", "add config_location")
    elif weights.format != "hf_peft" and config is not None:
        what = f"weights of format {weights.format} have no configuration file"
        yield Fault("V105", place, what, "remove config_location")
    elif config is not None and not _in_folder(alias, config):
        what = f"'{config}' does not lie below adapters/{alias}/"
        yield Fault("V106", place, what, f"move the file below adapters/{alias}/")


def _bindings(adapter: AdapterArtifact, targets: dict[str, AdapterTarget], path: Path) -> Faults:
    keys, bound = set[str](), set[str]()
    baked = any(each.format == "ort_genai" for each in adapter.weights)
    for at, binding in enumerate(adapter.bindings):
        place = (*path, "bindings", at)
        for field in ("target", "weight_key"):
            if blank(getattr(binding, field)):
                yield Fault("V108", (*place, field), f"the binding's {field} is blank", "name it")
        if binding.weight_key in keys:
            what = f"another binding uses the weights '{binding.weight_key}'"
            yield Fault("V109", (*place, "weight_key"), what, "use each key once")
        if binding.target in bound:
            what = f"another binding adapts target '{binding.target}'"
            yield Fault("V118", (*place, "target"), what, "bind each target once")
        keys.add(binding.weight_key)
        bound.add(binding.target)
        yield from rank_and_alpha(binding.rank, binding.alpha, ("V112", "V113"), place)
        target = targets.get(binding.target)
        if target is not None:
            yield from _bound(adapter, binding, target, baked, place)
        elif not blank(binding.target):
            what = f"no target '{binding.target}' is in the manifest"
            yield Fault("V110", (*place, "target"), what, did_you_mean(binding.target, targets))


def _bound(adapter: AdapterArtifact, binding: AdapterBinding, target: AdapterTarget, baked: bool, path: Path) -> Faults:
    if baked and target.graph_inputs is None:
        what = f"target '{target.id}' takes no factors from outside, which an ONNX Runtime adapter file needs"
        yield Fault("V111", (*path, "target"), what, "give the target graph_inputs, or use another format")
    rank = adapter.rank if binding.rank is None else binding.rank
    alpha = adapter.alpha if binding.alpha is None else binding.alpha
    holders = [("target", target.rank, target.alpha, "V114", "V115")]
    if target.output_slice is not None:
        piece = target.output_slice
        holders.append(("target's slice", piece.rank, piece.alpha, "V116", "V117"))
    for holder, wanted_rank, wanted_alpha, rank_rule, alpha_rule in holders:
        if wanted_rank not in (None, rank):
            what = f"the {holder} demands rank {wanted_rank} and the binding has {rank}"
            yield Fault(rank_rule, path, what, "make the ranks agree")
        if wanted_alpha not in (None, alpha):
            what = f"the {holder} demands alpha {wanted_alpha:g} and the binding has {alpha:g}"
            yield Fault(alpha_rule, path, what, "make the alphas agree")
