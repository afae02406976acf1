"""Execution providers: one the user names is strict, one the package names is a preference with a notice."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from genai_runtime import binding
from genai_runtime.problem import LoadError

CPU = "CPUExecutionProvider"
_NAMES = [
    "ACL", "AMDGPU", "ArmNN", "Azure", "CANN", "CPU", "CUDA", "CoreML", "Dml", "Dnnl", "Js", "MIGraphX", "Nnapi",
    "NvTensorRTRTX", "OpenVINO", "QNN", "ROCM", "RyzenAI", "Tensorrt", "VitisAI", "WebGpu", "WebNN", "Xnnpack",
]  # fmt: skip
_OTHER_SPELLINGS = {"directml": "Dml", "web": "WebGpu", "trt": "Tensorrt"}
SPELLINGS = {
    short.lower(): f"{name}ExecutionProvider"
    for short, name in [*zip(_NAMES, _NAMES, strict=True), *_OTHER_SPELLINGS.items()]
}
"""Short, lower-case names and ONNX Runtime's own."""

Providers = tuple[tuple[str, dict[str, str]], ...]


def provider_name(spelling: str) -> str:
    """ONNX Runtime's name for any spelling of a provider. Raises LoadError `unknown-provider`."""
    short = re.sub("executionprovider$", "", spelling.strip().lower())
    if short not in SPELLINGS:
        from difflib import get_close_matches

        near = get_close_matches(short, SPELLINGS, 1)
        help = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(sorted(SPELLINGS))}"
        raise LoadError("unknown-provider", f"there is no execution provider '{spelling}'", help=help)
    return SPELLINGS[short]


def wanted_by_user(names: str | Sequence[str]) -> Providers:
    """The providers a user asked for, one or several in order, all present in this build.

    Raises LoadError `unknown-provider`, `provider-unavailable`.
    """
    names = [names] if isinstance(names, str) else names
    odd: list[Any] = (
        [each for each in names if not isinstance(each, str)] if isinstance(names, list | tuple) else [names]
    )
    if odd:
        help = f"write providers=['cpu']; known: {', '.join(sorted(SPELLINGS))}"
        raise LoadError("unknown-provider", f"an execution provider is named by text, got {odd[0]!r}", help=help)
    chosen = [provider_name(each) for each in names]
    missing = [each for each in chosen if each not in binding.available_providers()]
    if missing:
        here = ", ".join(binding.available_providers())
        raise LoadError(
            "provider-unavailable",
            f"{', '.join(missing)} was asked for, but this build of ONNX Runtime has {here}",
            help="install the build that has it (genai-compile[gpu] for CUDA), or ask for cpu",
        )
    return tuple((each, {}) for each in chosen)


def preferred_by_package(stated: Sequence[Mapping[str, Any]]) -> tuple[Providers, tuple[str, ...]]:
    """What a package prefers as far as this build has it, CPU last, and a notice for each one that is absent."""
    available = binding.available_providers()
    here = [(each["name"], dict(each["options"])) for each in stated if each["name"] in available]
    notices = tuple(
        f"the package prefers {each['name']}, which this ONNX Runtime lacks; running on {here[0][0] if here else CPU}"
        for each in stated
        if each["name"] not in available
    )
    rest = [] if any(name == CPU for name, _ in here) else [(CPU, dict[str, str]())]
    return (*here, *rest), notices


def check_active(active: Mapping[str, Sequence[str]], wanted: Providers) -> None:
    """After sessions are open: every provider the user named must really run them. Raises LoadError."""
    for component, names in active.items():
        lost = [name for name, _ in wanted if name not in names]
        if lost:
            what = f"{', '.join(lost)} was asked for, but the session of '{component}' runs on {', '.join(names)}"
            raise LoadError("provider-unavailable", what, help="see ONNX Runtime's message above; or ask for cpu")
