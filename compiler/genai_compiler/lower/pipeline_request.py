"""`tokens` and `generation` of a version 2 file as version 1 has them, over the blocks of version 1 beside them.

Version 2 wins where both speak and differ, with a warning.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from genai_compiler.problem import Place
from genai_compiler.read.genai_config import GenaiConfig, named
from genai_compiler.read.pipeline_form import PipelineForm, Resolving
from genai_compiler.read.pipeline_logits import check_logits, logits_order
from genai_compiler.read.pipeline_text import PipelineText
from genai_compiler.read.places import DocPath, as_written, format_path
from genai_compiler.read.text_facts import TextFacts

_LENGTHS = ("max_length", "min_length", "num_beams")


def merged_config(resolving: Resolving) -> GenaiConfig:
    """The blocks of version 1 with this file's tokens and generation in them; reports where they differ."""
    text = resolving.text
    base, tokens = text.base, text.document.tokens
    eos = tuple(dict.fromkeys(tokens.eos))
    for key, old_key, own, old in (
        ("eos", "eos_token_id", eos, base.eos),
        ("pad", "pad_token_id", tokens.pad, base.pad),
        ("bos", "bos_token_id", tokens.bos, base.bos),
        ("decoder_start", "decoder_start_token_id", tokens.decoder_start, base.decoder_start),
    ):
        if own not in (None, ()) and old not in (None, (), own):
            _differ(("tokens", key), own, f"model.{old_key}", old, resolving)
    if base.draft is not None:
        what = "a draft model stands beside a pipeline; it is not used"
        resolving.report("ignored-key", ("model", "draft"), what, "make it a session and name it in strategy", True)
    search = dict(base.search)
    for key, path, value in _generation(text):
        if key in search and search[key] != value:
            _differ(path, value, f"search.{key}", search[key], resolving)
        search[key] = value
    order = check_logits(resolving)
    for key, value in order.search.items():
        if search.get(key, value) != value:
            what = f"{key} is {_spell(value)} by these operations, but {_spell(search[key])} elsewhere; they are taken"
            resolving.report("config-read-as", order.places[key], what, "say it once", True)
    search |= order.search
    temperature, stated = search.get("temperature"), text.document.generation.sampling.temperature is not None
    if (stated or "temperature" in order.search) and temperature != 0 and "do_sample" not in search:
        what = f"temperature is {temperature}, but do_sample is not set: tokens are chosen greedily"
        path = order.places.get("temperature", ("generation", "sampling", "temperature"))
        resolving.report("config-read-as", path, what, 'write "do_sample": true to sample', True)
    return replace(
        base,
        eos=eos or base.eos,
        pad=tokens.pad if tokens.pad is not None else base.pad,
        bos=tokens.bos if tokens.bos is not None else base.bos,
        decoder_start=tokens.decoder_start if tokens.decoder_start is not None else base.decoder_start,
        search=search,
        eos_path=base.eos_path if base.eos and not eos else ("tokens", "eos"),
        pad_path=base.pad_path if base.pad is not None and tokens.pad is None else ("tokens", "pad"),
        bos_path=base.bos_path if base.bos is not None and tokens.bos is None else ("tokens", "bos"),
        start_path=_start_path(base, tokens.decoder_start),
    )


def _start_path(base: GenaiConfig, own: int | None) -> DocPath:
    return base.start_path if base.decoder_start is not None and own is None else ("tokens", "decoder_start")


def _differ(path: DocPath, own: object, where: str, old: object, resolving: Resolving) -> None:
    what = f"{path[-1]} is {_spell(own)} here, but {where} says {_spell(old)}; version 2 is taken"
    resolving.report("config-read-as", path, what, "say it once", True)


def _spell(value: object) -> str:
    return ", ".join(map(as_written, value)) if isinstance(value, tuple) else as_written(value)


def _generation(text: PipelineText) -> Iterator[tuple[str, DocPath, Any]]:
    """(version 1's key, path here, value) of what the file states."""
    generation = text.document.generation
    for key in _LENGTHS:
        if (value := getattr(generation, key)) is not None:
            yield key, ("generation", key), value
    for key, value in generation.sampling.model_dump(exclude_none=True).items():
        yield key, ("generation", "sampling", key), value


def spots_of_search(form: PipelineForm, config: GenaiConfig) -> Callable[[str], tuple[Place, str]]:
    """Where the file states a key of `search`: in words of version 2, else of version 1."""
    text = form.text
    paths = {key: path for key, path, _ in _generation(text)} | logits_order(text).places
    where = {key: (text.places.find(path), format_path(path)) for key, path in paths.items()}
    return lambda key: where[key] if key in where else named(config, ("search", key))


def generation_paths(text: PipelineText) -> Mapping[str, DocPath]:
    """Where version 2 states a key of `search`, as a path."""
    return {key: path for key, path, _ in _generation(text)}


def context_length(config: GenaiConfig) -> tuple[int | None, DocPath]:
    """(positions that prompt and output may have, where that is said): version 2 has no word but `max_length`."""
    if config.context_length is not None:
        return config.context_length, ("model", "context_length")
    length = int(config.search.get("max_length", 0))
    return (length if length > 0 else None), ("generation", "max_length")


def output_start(
    form: PipelineForm, front: bool, beside: bool, to_encoder: bool, text: TextFacts, resolving: Resolving
) -> int | None:
    """The token that starts an output when nobody gives one: beside an encoder, whatever that one takes.

    front: whether a session makes embeddings before the decoder; beside: whether sessions run before its loop.
    """
    stated, path = form.text.document.tokens.decoder_start, ("tokens", "decoder_start")
    if to_encoder:
        return text.decoder_start
    if stated is not None and (front or not beside):
        what = "decoder_start has no effect on a decoder without an encoder: its output follows the prompt"
        resolving.report("ignored-key", path, what, "remove it", True)
        return None
    return text.decoder_start if stated is not None else None
