"""The session of a version 2 pipeline that drafts -> the proposer of the decoder's document."""

from dataclasses import replace
from typing import Any

from genai_compiler.lower.decoder_facts import DecoderFacts, component_of
from genai_compiler.lower.draft_model import DraftModel, Undrivable, with_draft
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.config_json import parse_config
from genai_compiler.read.genai_config import CONFIG_NAME, GenaiConfig, genai_config_of
from genai_compiler.read.pipeline_form import SESSIONS, PipelineForm, Resolving
from genai_compiler.read.places import DocPath, format_path


def check_drafter(form: PipelineForm, resolving: Resolving) -> None:
    """Report a file of the session that drafts that can't be used."""
    if form.drafting is None or form.drafter is None or form.drafter.file is None:
        return
    path: DocPath = (*SESSIONS, form.drafting.session, "file")
    try:
        find_artifact(form.text.root, form.drafter.file)
    except ArtifactFault as fault:
        resolving.problems.append(fault.problem(form.text.places.find(path), format_path(path)))


def drafted(
    form: PipelineForm,
    config: GenaiConfig,
    document: dict[str, Any],
    facts: DecoderFacts,
    against: str,
    resolving: Resolving,
) -> dict[str, Any]:
    """The document, with the session that drafts as its proposer where it can be driven; else that is said.

    against: why nothing can draft whatever the draft model is, "" for nothing of that kind.
    """
    drafting, entry = form.drafting, form.drafter
    if drafting is None or entry is None or not drafting.width:
        return document
    for key in ("execution_provider", "session_options"):
        if key in entry.model_fields_set:
            what = f"{key} of {drafting.session!r} has no effect: drafts run as the decoder does"
            resolving.report("ignored-key", (*SESSIONS, drafting.session, key), what, "state them of the target", True)
    names, _ = genai_config_of(parse_config(b'{"model": {}}', CONFIG_NAME))
    artifact = find_artifact(form.text.root, entry.file or "").name
    model = DraftModel(component_of(drafting.session), artifact, names.decoder, drafting.width)
    try:
        if against:
            raise Undrivable(against)
        return with_draft(document, facts, replace(config, draft=None), form.text.root, model)
    except Undrivable as why:
        what = f"{drafting.session!r} is not used, and nothing is drafted: {why}"
        resolving.report("ignored-key", drafting.path, what, "the tokens are the same without drafts", True)
    return document
