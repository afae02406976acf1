"""Execution providers and session options of a version 2 pipeline: one preference for all, or one hint a session."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

from genai_compiler.lower.decoder_facts import component_of
from genai_compiler.read.config_section import section_of
from genai_compiler.read.hint_sources import DOCUMENT, Hint
from genai_compiler.read.hints import DeviceTarget
from genai_compiler.read.pipeline_form import SESSIONS, PipelineForm, Resolving
from genai_compiler.read.pipeline_text import UNHEEDED
from genai_compiler.read.places import format_path
from genai_compiler.read.session_options import (
    ProviderPreference,
    SessionOptions,
    near_providers,
    provider_name,
    read_session_options,
)

_CPU = frozenset({"CPU", "Dnnl", "Xnnpack", "OpenVINO", "ACL", "ArmNN"})
_NPU = frozenset({"QNN", "VitisAI", "RyzenAI", "CoreML", "Nnapi", "CANN"})


def session_options(
    form: PipelineForm, decoder: str | None, resolving: Resolving
) -> tuple[SessionOptions, tuple[Hint, ...]]:
    """(options of every session, where each would rather run). Reports unknown-provider and what has no effect."""
    options = {name: _options(form, name, resolving) for name in form.running}
    providers = {name: _provider(form, name, resolving) for name in form.running}
    mine = options.get(decoder or "", SessionOptions())
    for name, each in options.items():
        if each not in (mine, SessionOptions()):
            what = f"all sessions have one set of options, the decoder's; those of {name!r} have no effect"
            resolving.report("ignored-key", (*SESSIONS, name, "session_options"), what, "state them alike", True)
    named = set(providers.values())
    only = next(iter(named), None)
    if len(named) == 1 and only is not None:
        others = tuple(each for each in mine.providers if each.name != only)
        kept = tuple(each for each in mine.providers if each.name == only) or (ProviderPreference(only, ()),)
        return replace(mine, providers=(*kept, *others)), ()
    return mine, tuple(_hints(form, decoder, providers))


def _options(form: PipelineForm, name: str, resolving: Resolving) -> SessionOptions:
    stated = form.sessions[name].session_options
    path = (*SESSIONS, name, "session_options")
    for key in UNHEEDED:
        if key in stated:
            resolving.report("ignored-key", (*path, key), f"{key!r} has no effect", "remove it", True)
    kept = {key: value for key, value in stated.items() if key not in UNHEEDED}
    return read_session_options(section_of(form.text.text, path, kept, resolving.problems))


def _provider(form: PipelineForm, name: str, resolving: Resolving) -> str | None:
    stated = form.sessions[name].execution_provider
    if stated is None:
        return None
    found = provider_name(stated)
    if found is None:
        path = (*SESSIONS, name, "execution_provider")
        what = f"there is no execution provider {stated!r}"
        resolving.report("unknown-provider", path, what, f"known: {near_providers(stated)}")
    return found


def _hints(form: PipelineForm, decoder: str | None, providers: Mapping[str, str | None]) -> Iterator[Hint]:
    """One preference for each session that names a provider, by the kind of device that it stands for."""
    for name, provider in providers.items():
        if provider is not None:
            path = (*SESSIONS, name, "execution_provider")
            component = "decoder" if name == decoder else component_of(name)
            device = DeviceTarget(type=_kind(provider))
            where = form.text.places.find(path)
            yield Hint("placement", where, format_path(path), DOCUMENT, device=device, component=component)


def _kind(provider: str) -> Literal["cpu", "npu", "gpu"]:
    short = provider.removesuffix("ExecutionProvider")
    return "cpu" if short in _CPU else "npu" if short in _NPU else "gpu"
