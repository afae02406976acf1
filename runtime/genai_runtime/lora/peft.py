"""An adapter as PEFT saves it: adapter_config.json, and factors under the names of the model's own modules.

Names end in `<module>.lora_A.weight` [rank, inputs] and `<module>.lora_B.weight` [outputs, rank], also where the layer
itself keeps its weight transposed. PEFT multiplies by lora_alpha / r, by lora_alpha / sqrt(r) when `use_rslora`.
"""

import math
import sys
from collections.abc import Mapping
from typing import Any

from genai_runtime.lora.fault import AdapterFault
from genai_runtime.lora.safetensors_file import SafetensorsFile
from genai_runtime.lora.spec import Binding

MAX_CONFIG = 1 << 20
PREFIXES = ("", "base_model.", "base_model.model.")
CHANGING = (
    "use_dora", "lora_bias", "modules_to_save", "layer_replication", "trainable_token_indices", "use_qalora",
    "alora_invocation_tokens", "arrow_config",
)  # fmt: skip
"""Entries that, when set, make the delta another one than B A, or one that comes and goes."""
REBASING = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Beginnings of `init_lora_weights` with which PEFT takes the initial factors out of the base weights, at load too."""


def check_config(config: Mapping[str, Any], name: str) -> None:
    """Refuse what is no plain LoRA. Raises AdapterFault `adapter-config`."""
    kind = config.get("peft_type", "LORA")
    if kind != "LORA":
        raise AdapterFault("adapter-config", f"{name} describes an adapter of type {kind!r}, not LORA")
    if config.get("bias", "none") != "none":
        raise AdapterFault(
            "adapter-config", f"{name} trains biases ({config['bias']!r}), which a delta has no place for"
        )
    for each in CHANGING:
        if config.get(each):
            raise AdapterFault("adapter-config", f"{name} sets {each}, so that its delta is not B A")
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(REBASING):
        what = f"{name} says init_lora_weights {start!r}: its factors belong to other base weights than the model's"
        help = "save it with path_initial_model_for_weight_conversion, which turns it into a plain LoRA"
        raise AdapterFault("adapter-config", what, help=help)


def module_of(file: SafetensorsFile, key: str, name: str) -> str:
    """The module that a weight key names: exactly, behind PEFT's own prefix, or as the only one that ends in it.

    Raises AdapterFault `adapter-weights`.
    """
    modules = {each.removesuffix(".lora_A.weight") for each in file.names if each.endswith(".lora_A.weight")}
    for prefix in PREFIXES:
        if prefix + key in modules:
            return prefix + key
    ending = sorted(each for each in modules if each.endswith("." + key))
    if len(ending) == 1:
        return ending[0]
    found = (
        f"{len(ending)} modules that end in it" if ending else f"modules: {', '.join(sorted(modules)[:6]) or 'none'}"
    )
    raise AdapterFault("adapter-weights", f"{name} has no factors for '{key}' ({found})")


def check_scale(config: Mapping[str, Any], name: str, module: str, binding: Binding) -> None:
    """Rank and scale that the configuration gives a module are the document's. Raises AdapterFault `adapter-config`."""
    rank = _of_module(config, name, "rank_pattern", "r", module)
    alpha = _of_module(config, name, "alpha_pattern", "lora_alpha", module)
    if rank != binding.rank:
        raise AdapterFault("adapter-config", f"{name} gives '{binding.key}' rank {rank:g}, the document {binding.rank}")
    root = bool(config.get("use_rslora"))
    factor = alpha / (math.sqrt(rank) if root else rank)
    if not math.isclose(factor, binding.factor, rel_tol=1e-6):
        what = f"{name} scales '{binding.key}' by {factor:g}, the document by {binding.factor:g}"
        raise AdapterFault("adapter-config", what, help=f"write alpha: {factor * rank:g}")


def _of_module(config: Mapping[str, Any], name: str, pattern: str, entry: str, module: str) -> float:
    """A number that the configuration gives a module: by its pattern, else for all."""
    special = config.get(pattern) or {}
    if not isinstance(special, dict):
        raise AdapterFault("adapter-config", f"{pattern} of {name} is no object")
    value: Any = config.get(entry)
    for ending, given in special.items():
        if not all(part.replace("_", "").isalnum() for part in str(ending).split(".")):
            raise AdapterFault("adapter-config", f"{pattern} of {name} has {ending!r}, which is no module's name")
        if module == ending or module.endswith(f".{ending}"):
            value = given
            break
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        raise AdapterFault("adapter-config", f"{name} has no usable {entry}: {value!r}")
    return float(value)
