"""A `genai_config.json` v1 package -> the one Workflow, with what the standard has no place for beside it.

Names come from the configuration, facts from the graph. `model.type` decides nothing.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from genai_compiler.lower.config_decoder import config_decoder, graph_file
from genai_compiler.lower.config_models import lower_models
from genai_compiler.lower.config_stages import lower_stages
from genai_compiler.lower.decoder_facts import DecoderFacts
from genai_compiler.lower.decoder_workflow import decoder_document
from genai_compiler.lower.draft_model import DraftModel, Undrivable, with_draft
from genai_compiler.lower.lowered import Lowered
from genai_compiler.lower.search_defaults import search_defaults
from genai_compiler.lower.unrunnable import missing_files
from genai_compiler.problem import CompileError, Problem, Severity
from genai_compiler.read.genai_config import CONFIG_NAME, DraftConfig, GenaiConfig, named, read_genai_config
from genai_compiler.read.places import DocPath
from genai_compiler.read.session_options import SessionOptions

UNKNOWN_LENGTH = 1 << 31
"""Stands for a context length that nobody states, where only the text of a configuration is judged."""


def lower_genai_config(root: Path) -> Lowered:
    """Lower the v1 package in the folder `root`. Raises CompileError with every problem, warnings included."""
    if not (root / CONFIG_NAME).is_file():
        raise CompileError(missing_files(root))
    config, problems = read_genai_config(root)
    found = [*problems, *_other_classes(config)]
    artifact, fault = "", None
    if not config.decoder.stages:
        artifact, fault = graph_file(root, config, ("model", "decoder", "filename"), config.decoder.filename)
    found += [fault] if fault is not None else []
    if fault is not None or any(each.code == "unsupported-package-class" for each in found):
        _, searched = search_defaults(config, config.context_length or UNKNOWN_LENGTH, config.vocab_size)
        raise CompileError([*found, *searched])
    try:
        if config.decoder.stages:
            return lower_stages(root, config, found)
        if config.components or config.staged_vision is not None:
            return lower_models(root, config, artifact, found)
        decoder = config_decoder(root, config, artifact)
        document = decoder_document(decoder.facts, decoder.text.eos, decoder.defaults)
        document, doubts = _drafted(root, config, document, decoder.facts)
        doubts += _media_tokens(config)
        return decoder.lowered(config, document, [*found, *doubts])
    except CompileError as error:
        raise CompileError([*found, *error.problems]) from error


def _drafted(
    root: Path, config: GenaiConfig, document: dict[str, Any], facts: DecoderFacts
) -> tuple[dict[str, Any], list[Problem]]:
    """The document with `model.draft` as its proposer where it can be driven, else as it is and why not."""
    if config.draft is None:
        return document, []
    path: DocPath = ("model", "draft")
    artifact, fault = graph_file(root, config, (*path, "filename"), config.draft.decoder.filename)
    try:
        if fault is not None:
            raise Undrivable(fault.what)
        model = DraftModel("draft", artifact, config.draft.decoder, config.draft.width)
        return with_draft(document, facts, config, root, model), list(_own_options(config, config.draft))
    except Undrivable as why:
        what = f"'draft' speeds up decoding without changing a token; it is not used: {why}"
        return document, [Problem("ignored-key", *named(config, path), what, "", Severity.WARNING)]


def _media_tokens(config: GenaiConfig) -> Iterator[Problem]:
    """Tokens that stand for entries of media, where no model takes any: such a decoder looks all ids up."""
    model = config.text.root.get("model") if isinstance(config.text.root, dict) else None
    for key in ("image_token_id", "audio_token_id", "video_token_id", "vision_start_token_id", "boa_token_id"):
        if isinstance(model, dict) and model.get(key) is not None:
            what = f"{key!r} has no effect: the package has no model for media, and its decoder takes token ids alone"
            yield Problem("ignored-key", *named(config, ("model", key)), what, "remove it", Severity.WARNING)


def _own_options(config: GenaiConfig, draft: DraftConfig) -> Iterator[Problem]:
    """Options of its own session that the draft model states: it runs as the decoder does."""
    if draft.decoder.session not in (SessionOptions(), config.decoder.session):
        what = "these session options differ from the decoder's, which all sessions of the package take"
        path = ("model", "draft", "session_options")
        yield Problem("ignored-key", *named(config, path), what, "state them at load()", Severity.WARNING)


_HELP = "a text-only export of the same model has one decoder graph"


def _other_classes(config: GenaiConfig) -> list[Problem]:
    """Refuse sections that make the package more than graphs around one decoder graph."""
    found: list[Problem] = []
    for path in config.other_classes:
        what = (
            f"{path[-1]!r} makes this a package of several stages that are not compiled yet: model.decoder with one "
            "graph is, beside encoder, vision, speech and embedding with one each"
        )
        found.append(Problem("unsupported-package-class", *named(config, path), what, _HELP))
    return found
