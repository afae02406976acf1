"""Names that version 2 of `genai_config.json` has elsewhere, or calls differently than version 1."""

from collections.abc import Iterator, Mapping
from typing import get_args, get_origin

from pydantic import BaseModel

from genai_compiler.read.locate import as_model, bare, fields_of
from genai_compiler.read.pipeline_config import PipelineDocument
from genai_compiler.read.places import DocPath

_RENAMED: Mapping[str, Mapping[str, str]] = {
    "tokens": {
        "eos_token_id": "eos",
        "pad_token_id": "pad",
        "bos_token_id": "bos",
        "sep_token_id": "sep",
        "decoder_start_token_id": "decoder_start",
        "image_token_id": "image_token",
        "audio_token_id": "audio_token",
        "video_token_id": "video_token",
    },
    "pipeline.sessions.*": {"filename": "file", "provider": "execution_provider", "providers": "execution_provider"},
    "pipeline.flow[]": {"session": "run", "phase": "when", "run_on": "when"},
    "pipeline.dataflow[]": {"source": "from", "target": "to"},
    "pipeline.state.kv_cache": {
        "past_key_names": "past_key_pattern",
        "past_value_names": "past_value_pattern",
        "present_key_names": "present_key_pattern",
        "present_value_names": "present_value_pattern",
        "past_names": "past_key_pattern",
        "present_names": "present_key_pattern",
    },
    "pipeline": {"stages": "flow", "models": "sessions", "phases": "flow"},
}
"""Struct -> another word for a field of it -> the field."""
_BLOCKS: Mapping[str, str] = {
    "context_length": "model",
    "vocab_size": "model",
    "provider_options": "pipeline.sessions.NAME.session_options",
    "num_key_value_heads": "model.decoder",
    "head_size": "model.decoder",
    "num_hidden_layers": "model.decoder",
}
"""What only blocks of version 1 beside the pipeline can say, and where they say it."""


def in_place_of(root: type[BaseModel], where: DocPath, name: str) -> str:
    """The help for a field that a struct of version 2 does not have, "" where it is known nowhere."""
    if root is not PipelineDocument:
        return ""
    own = _spelled(where)
    if (renamed := _RENAMED.get(own, {}).get(name)) is not None:
        return f"version 2 calls it {renamed}"
    if (block := _BLOCKS.get(name)) is not None:
        return f"it stands in {block}"
    homes = [path for path, fields in _structs(PipelineDocument, ()) if name in fields]
    return f"it stands in {homes[0]}" if len(homes) == 1 and homes[0] else ""


def _structs(model: type[BaseModel], path: DocPath) -> Iterator[tuple[str, frozenset[str]]]:
    """(where a struct stands, its fields) of the whole document; `*` and `[]` for names and entries."""
    yield _spelled(path), frozenset(fields_of(model))
    for name, info in fields_of(model).items():
        core = bare(info.annotation)
        steps: DocPath = (*path, name)
        if get_origin(core) is dict:
            core, steps = bare(get_args(core)[1]), (*steps, "*")
        elif get_origin(core) is tuple:
            core, steps = bare(get_args(core)[0]), (*steps, 0)
        inner = as_model(core)
        if inner is not None:
            yield from _structs(inner, steps)


def _spelled(path: DocPath) -> str:
    """A path with `[]` for the entries of lists and `*` for the names of sessions and tensors."""
    named = ("sessions", "expected_outputs")
    free = ["*" if at and path[at - 1] in named else each for at, each in enumerate(path)]
    return "".join("[]" if isinstance(each, int) else f".{each}" for each in free).removeprefix(".")
