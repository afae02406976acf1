"""What a version 2 pipeline says of its media, and the document of its decoder with what runs beside it."""

from collections.abc import Iterator
from dataclasses import replace

from genai_compiler.lower.composite import media_stages, with_rows
from genai_compiler.lower.decoder_components import Data
from genai_compiler.lower.decoder_facts import DecoderFacts
from genai_compiler.lower.media_notes import AUDIO, IMAGE, MediaNotes, Said
from genai_compiler.lower.pipeline_stages import Around
from genai_compiler.lower.placed_features import placed_document
from genai_compiler.lower.single_pass import common_rows
from genai_compiler.lower.source_end import with_end
from genai_compiler.lower.with_media import with_media
from genai_compiler.problem import Problem, Severity
from genai_compiler.read.genai_config import GenaiConfig
from genai_compiler.read.pipeline_form import PIPELINE, PipelineForm
from genai_compiler.read.places import DocPath, format_path
from genai_compiler.read.text_facts import TextFacts


def media_notes(form: PipelineForm) -> MediaNotes:
    """What the file says of its media: a processor file each, and the token that stands for an entry."""
    stated, tokens = form.text.document.pipeline.preprocessing, form.text.document.tokens
    said = {}
    for kind, processor, token in (
        (IMAGE, stated.image, tokens.image_token),
        (AUDIO, stated.audio, tokens.audio_token),
    ):
        path = (*PIPELINE, "preprocessing", kind, "config")
        spot = (form.text.places.find(path), format_path(path))
        at: DocPath = ("tokens", f"{kind}_token")
        token_spot = (form.text.places.find(at), format_path(at))
        config = processor.config if processor is not None else None
        frames = form.text.base.sound_frames if kind == AUDIO else None
        said[kind] = Said(config, spot, token=token, frames=frames, token_spot=token_spot)
    return MediaNotes(form.text.root, said)


def beside(
    form: PipelineForm,
    plain: Data,
    around: Around,
    decoder: str,
    facts: DecoderFacts,
    text: TextFacts,
    config: GenaiConfig,
) -> tuple[Data, tuple[Problem, ...]]:
    """The decoder's document with the models beside it, and problems of their media. plain: the decoder's alone."""
    feeding = {each.source for each in around.edges}
    stages = tuple(
        each if each.name in feeding else replace(each, rows=common_rows(each.signature))  # read behind the loop
        for each in with_rows(around.stages, around.edges, decoder, facts)
    )
    media, once = media_stages(stages, around.edges, around.front)
    tokenizer = form.text.root / text.tokenizer if text.tokenizer else None
    plain = plain if around.placed is None else placed_document(plain, facts)
    document, of_media = with_media(plain, once, media, media_notes(form), facts, tokenizer)
    document, of_source = with_end(document, once, facts, config, text.eos)
    alone = around.front is None and around.placed is None and not around.stages
    return document, (*of_media, *of_source, *(_without_media(form) if alone else ()))


def _without_media(form: PipelineForm) -> Iterator[Problem]:
    """Tokens that stand for entries of media, where no session takes any: such a decoder looks all ids up."""
    for key in ("image_token", "audio_token", "video_token"):
        if getattr(form.text.document.tokens, key, None) is not None:
            path: DocPath = ("tokens", key)
            what = f"{key!r} has no effect: no session takes media, and the decoder takes token ids alone"
            spot = form.text.places.find(path), format_path(path)
            yield Problem("ignored-key", *spot, what, "remove it", Severity.WARNING)
