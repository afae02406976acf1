"""`session_options` and `provider_options`: what a package would like its sessions to be made with.

A package states preferences, and it is only data: what is not in the lists of `ort_options` is left out with a warning.
"""

import difflib
import re
from dataclasses import dataclass

from genai_compiler.read.config_json import Json
from genai_compiler.read.config_keys import OPTIMIZATION_LEVELS, SESSION_BOOLS, SESSION_INTS, Form
from genai_compiler.read.config_section import Section, section_of
from genai_compiler.read.ort_options import ATTRIBUTES, CAPTURE, ENTRIES, TUNING

# ONNX Runtime's names by their short, lower-case form: the spellings that onnxruntime-genai normalises, and ORT's own.
_KNOWN = """
    CPU CUDA Tensorrt NvTensorRTRTX Dml QNN WebGpu WebNN Js OpenVINO VitisAI RyzenAI CoreML ROCM MIGraphX AMDGPU Xnnpack
    Dnnl Nnapi ACL ArmNN CANN Azure
"""
PROVIDERS = {each.lower(): f"{each}ExecutionProvider" for each in _KNOWN.split()}
PROVIDERS |= {"web": "WebGpuExecutionProvider", "directml": "DmlExecutionProvider", "trt": "TensorrtExecutionProvider"}

MAX_THREADS = 1024
_ANY = (-(2**31), 2**31 - 1)
_BOUNDS = {  # 0 threads: as many as ONNX Runtime thinks fit
    "intra_op_num_threads": (0, MAX_THREADS),
    "inter_op_num_threads": (0, MAX_THREADS),
    "log_severity_level": (0, 4),
}


@dataclass(frozen=True)
class ProviderPreference:
    """An execution provider that the package names: ONNX Runtime's spelling, and its string options."""

    name: str
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class SessionOptions:
    """Session options of one component. Fields that are None, and an empty list of providers, leave ORT's defaults.

    entries: session configuration entries (`session.disable_prepacking` ...), in the file's order.
    """

    intra_op_num_threads: int | None = None
    inter_op_num_threads: int | None = None
    log_severity_level: int | None = None
    log_verbosity_level: int | None = None
    enable_cpu_mem_arena: bool | None = None
    enable_mem_pattern: bool | None = None
    log_id: str | None = None
    graph_optimization_level: str | None = None
    entries: tuple[tuple[str, str], ...] = ()
    providers: tuple[ProviderPreference, ...] = ()


def provider_name(spelling: str) -> str | None:
    """ONNX Runtime's name of an execution provider, any case, with or without the suffix; None when unknown."""
    return PROVIDERS.get(re.sub("executionprovider$", "", spelling.strip().lower()))


def near_providers(spelling: str) -> str:
    """Known provider names for a help text, the nearest first."""
    near = difflib.get_close_matches(spelling.lower(), PROVIDERS, 3, 0.5)
    return ", ".join(PROVIDERS[each] for each in near) or ", ".join(sorted(set(PROVIDERS.values())))


def read_session_options(section: Section) -> SessionOptions:
    """The options of one `session_options` object; problems go to the section's list."""
    level = section.string("graph_optimization_level")
    if level is not None and level not in OPTIMIZATION_LEVELS:
        help = f"one of {', '.join(OPTIMIZATION_LEVELS)}"
        section.problem("bad-value", "graph_optimization_level", f"there is no level {level!r}", help)
    numbers = {key: _bounded(section, key) for key in SESSION_INTS}
    flags = {key: section.value(key, Form.BOOL) for key in SESSION_BOOLS}
    return SessionOptions(
        intra_op_num_threads=numbers["intra_op_num_threads"],
        inter_op_num_threads=numbers["inter_op_num_threads"],
        log_severity_level=numbers["log_severity_level"],
        log_verbosity_level=numbers["log_verbosity_level"],
        enable_cpu_mem_arena=_flag(flags["enable_cpu_mem_arena"]),
        enable_mem_pattern=_flag(flags["enable_mem_pattern"]),
        log_id=section.string("log_id"),
        graph_optimization_level=level,
        entries=_entries(section),
        providers=_providers(section),
    )


def _bounded(section: Section, key: str) -> int | None:
    """An integer; one that ONNX Runtime would refuse, or that would exhaust the machine, counts as not stated."""
    value, (low, high) = section.integer(key), _BOUNDS.get(key, _ANY)
    if value is None or low <= value <= high:
        return value
    section.warn("ignored-key", key, f"{key} is {value}, not within {low}..{high}; it has no effect", "correct it")
    return None


def _entries(section: Section) -> tuple[tuple[str, str], ...]:
    entries: dict[str, str] = {}
    for key, value in section.members.items():
        if key in ATTRIBUTES or key == "provider_options":
            continue
        if key == "config_entries" and isinstance(value, dict):
            entries |= _strings(section.section(key), ENTRIES)
        else:
            entries |= _strings(section_of(section.text, section.path, {key: value}, section.problems), ENTRIES)
    return tuple(entries.items())


def _providers(section: Section) -> tuple[ProviderPreference, ...]:
    listed = section.value("provider_options", Form.LIST)
    merged: dict[str, ProviderPreference] = {}
    for index, element in enumerate(listed if isinstance(listed, list) else []):
        path = (*section.path, "provider_options", index)
        holder = section_of(section.text, path, element, section.problems)
        if not isinstance(element, dict):
            holder.problem("wrong-type", "", "an element of provider_options must be an object {provider: {options}}")
        for key in holder.members:
            _add_provider(holder, key, merged)
    return tuple(merged.values())


def _add_provider(holder: Section, key: str, merged: dict[str, ProviderPreference]) -> None:
    if not isinstance(holder.members[key], dict):
        holder.warn("ignored-key", key, f"{key!r} stands beside a provider but holds no options; it has no effect")
        return
    name = provider_name(key)
    if name is None:
        what = f"there is no execution provider {key!r}"
        holder.problem("unknown-provider", key, what, f"known: {near_providers(key)}")
        return
    before = dict(merged[name].options) if name in merged else {}
    stated = _strings(holder.section(key), TUNING.get(name, frozenset()))
    merged[name] = ProviderPreference(name, tuple({**before, **stated}.items()))


def _strings(section: Section, allowed: frozenset[str]) -> dict[str, str]:
    """The allowed members as the strings that ORT wants: booleans as 1 and 0, numbers literally, with a warning."""
    found: dict[str, str] = {}
    for key, value in section.members.items():
        if key in CAPTURE and _string(value).lower() in ("0", "false"):
            continue
        if key not in allowed:
            near = difflib.get_close_matches(key, sorted(allowed), 1)
            what = f"{key!r} is not among the options that a package may set here, and is left out"
            section.warn("ignored-key", key, what, f"did you mean {near[0]!r}?" if near else "remove it")
        elif isinstance(value, dict | list):
            section.warn("ignored-key", key, f"{key!r} must be a string and has no effect")
        else:
            found[key] = _string(value)
            if not isinstance(value, str):
                section.warn("not-a-string", key, f"{key!r} should be the string {found[key]!r}; it is read as that")
    return found


def _flag(value: Json) -> bool | None:
    return None if value is None else bool(value)


def _string(value: Json) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)
