"""Placements that hints gave single components: a kind of device -> the execution providers that this build has for it.

All of it is preference. A kind that no provider here serves leaves the component where the package would run it, with a
notice; providers that the user names count alone.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from genai_runtime import binding
from genai_runtime.providers import CPU
from genai_runtime.sessions import Settings

PROVIDERS: Mapping[str, tuple[str, ...]] = {
    "gpu": ("CUDA", "ROCM", "MIGraphX", "Dml", "WebGpu"),
    "npu": ("QNN", "VitisAI", "CANN"),
    "cpu": ("CPU",),
}
"""Which providers serve a kind of device, by preference. One that may compute in lower precision than the graph says
(CoreML), or builds engines for minutes (TensorRT), is left to who names it."""
NUMBERED = frozenset({"CUDA", "ROCM", "MIGraphX", "Dml", "CANN"})
"""Providers that take the device's number as `device_id`."""
LIMITED = frozenset({"CUDA", "ROCM"})
"""Providers whose arena takes a limit, `gpu_mem_limit`."""


def placed(
    stated: Mapping[str, Mapping[str, Any]], common: Settings, strict: bool
) -> tuple[dict[str, Settings], tuple[str, ...]]:
    """(settings of single components, notices). stated: the manifest's placements; common: settings of all others.

    strict: the user has named providers; then only what is said of memory is followed.
    """
    own: dict[str, Settings] = {}
    notices: list[str] = []
    for component, each in stated.items():
        providers, notice = (common.providers, "") if strict else _providers(component, each, common)
        notices += [notice] if notice else []
        providers = tuple((name, _with_limit(name, options, each["memory"])) for name, options in providers)
        options = common.options if each["cpu_arena"] else {**common.options, "enable_cpu_mem_arena": False}
        settings = replace(common, providers=providers, options=options)
        if settings != common:
            own[component] = settings
    return own, tuple(notices)


def _providers(
    component: str, each: Mapping[str, Any], common: Settings
) -> tuple[tuple[tuple[str, dict[str, str]], ...], str]:
    """(providers of a component, what to say when none serves the device that it is to have)."""
    kind = each["device"]
    if not kind:
        return common.providers, ""
    here = binding.available_providers()
    name = next((short for short in PROVIDERS.get(kind, ()) if f"{short}ExecutionProvider" in here), "")
    if not name:
        runs = common.providers[0][0]
        article = "an" if kind == "npu" else "a"
        what = f"hints place '{component}' on {article} {kind}, for which this ONNX Runtime has no execution provider"
        return common.providers, f"{what}; running on {runs}"
    full = f"{name}ExecutionProvider"
    stated = next((dict(options) for provider, options in common.providers if provider == full), {})
    if each["index"] is not None and name in NUMBERED:
        stated["device_id"] = str(each["index"])
    return ((full, stated),) if full == CPU else ((full, stated), (CPU, {})), ""


def _with_limit(name: str, options: dict[str, str], memory: int) -> dict[str, str]:
    limited = memory and name.removesuffix("ExecutionProvider") in LIMITED
    return {**options, "gpu_mem_limit": str(memory)} if limited else options
