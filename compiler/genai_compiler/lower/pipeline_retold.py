"""Problems of a decoder's stages, which speak of version 1's keys, in the words of version 2.

What a block of version 1 in the same file states itself keeps its name.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from genai_compiler.lower.pipeline_ports import PATTERNS
from genai_compiler.lower.pipeline_request import generation_paths
from genai_compiler.lower.pipeline_windows import CACHE, WINDOW
from genai_compiler.problem import Problem
from genai_compiler.read.pipeline_form import FLOW, SESSIONS, PipelineForm
from genai_compiler.read.pipeline_rules import STATE
from genai_compiler.read.places import DocPath, format_path

_DECODER = "model.decoder"
_PATHS: dict[str, DocPath] = {
    f"{_DECODER}.sliding_window.window_size": (*WINDOW, "window_size"),
    f"{_DECODER}.sliding_window.layers": (*WINDOW, "layers"),
    f"{_DECODER}.sliding_window": WINDOW,
    f"{_DECODER}.pipeline": FLOW,
    **{f"{_DECODER}.inputs.{key}": (*CACHE, pattern) for key, (pattern, _) in PATTERNS.items() if "past" in key},
    **{f"{_DECODER}.outputs.{key}": (*CACHE, pattern) for key, (pattern, _) in PATTERNS.items() if "present" in key},
    f"{_DECODER}.inputs.position_ids": (*STATE, "position_ids", "input_name"),
    f"{_DECODER}.inputs": SESSIONS,
    f"{_DECODER}.outputs": SESSIONS,
    _DECODER: SESSIONS,
    "model.decoder_start_token_id": ("tokens", "decoder_start"),
    "model.context_length": ("generation", "max_length"),
}
"""Where version 2 states, or would state, what version 1 has at a path; the nearest one counts."""
_OF_A_STAGE = re.compile(r"(?P<step>pipeline\.(?:flow\[\d+\]|extends|sessions))\.(?:inputs|outputs)")
"""A stage of version 1 lists its ports, a step of a flow does not."""
_WORDS: dict[str, str] = {
    **{key: pattern for key, (pattern, _) in PATTERNS.items()},
    "name it in model.decoder.inputs, or export without it": "join it in pipeline.dataflow, name caches in "
    "pipeline.state.kv_cache, or export without it",
    "rename one with output_names_forwarder": "join it in pipeline.dataflow",
    "set run_on_prompt or run_on_token_gen": 'give one "when": "step"',
    "name it in the outputs of a stage": "name it in model.decoder.outputs.logits, or export a session with its head",
    "name it in model.embedding": "join it in pipeline.dataflow",
    "or set slide_inputs to false": 'or leave out "windowed"',
    "or set slide_key_value_cache to false": "or let the graphs give back whole caches",
    "state context_length": "state generation.max_length",
    "model.decoder_start_token_id": "tokens.decoder_start",
}


def as_version_2(problems: Iterable[Problem], form: PipelineForm) -> Iterator[Problem]:
    """The problems, each at its place in a version 2 file."""
    stated = {format_path(each) for each in form.text.text.spots}
    paths = _PATHS | {f"search.{key}": path for key, path in generation_paths(form.text).items()}
    for each in problems:
        path = _moved(each.path, paths) if each.path not in stated else None
        what, help = (_reworded(text) for text in (each.what, each.help))
        if path is None:
            step = _OF_A_STAGE.fullmatch(each.path)
            yield replace(each, path=step["step"] if step is not None else each.path, what=what, help=help)
        else:
            yield replace(each, where=form.text.places.find(path), path=format_path(path), what=what, help=help)


def _moved(path: str, paths: dict[str, DocPath]) -> DocPath | None:
    """The path in version 2, None where it is one already, or version 1's alone."""
    for old in sorted(paths, key=len, reverse=True):
        if path == old or path.startswith((f"{old}.", f"{old}[")):
            return paths[old]
    return None


def _reworded(text: str) -> str:
    for old, new in _WORDS.items():
        text = text.replace(old, new)
    return text
