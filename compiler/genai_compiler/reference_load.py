"""Would the reference runtime load this package? Every reason why not, whatever this compiler makes of it.

The reference is the release that `reference_types.json` names. Its parser is narrower than ours, and it goes by
`model.type`, which decides nothing here: the table of types is data for this answer alone.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from genai_compiler.lower.match_ports import match_ports
from genai_compiler.lower.matching import Surroundings, has_slot, listed
from genai_compiler.problem import CompileError, Place, Problem, Severity
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.attention import writes_in_place
from genai_compiler.read.config_json import ConfigText, Json, parse_config
from genai_compiler.read.genai_config import CONFIG_NAME, GenaiConfig, genai_config_of
from genai_compiler.read.places import DocPath, format_path
from genai_compiler.read.session_options import provider_name
from genai_compiler.read.signature import Signature, read_signature
from genai_compiler.reference_classes import (
    class_of,
    graph_reasons,
    is_one_graph,
    is_unknown_inside,
    reference_table,
)
from genai_compiler.reference_numbers import number_reasons
from genai_compiler.reference_rows import row_reasons, state_layers

REFUSES, NEEDS = "reference-refuses", "reference-needs"
_PARSER = frozenset(
    {
        "unknown-key",
        "renamed-key",
        "wrong-type",
        "not-a-string",
        "several-token-ids",
        "unknown-provider",
        "malformed-json",
    }
)
_PORTS = frozenset(
    {"missing-input", "no-logits", "no-embedding-stage", "unclaimed-input", "unpaired-state", "missing-output"}
)
_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*\\u")
_LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
_NO_EFFECT, _STOPS = (
    "is no key of this object and has no effect",
    "is no key of this object, and its parser stops there",
)
_OF_VERSION_2 = ("pipeline", "tokens", "generation", "metadata")
_SLACK = 16
"""Slots beyond a window that it allocates on a CPU."""


def reference_name() -> str:
    """The runtime and release that is spoken of."""
    return str(reference_table()["runtime"])


@dataclass
class _Judgement:
    """The reasons found so far, for the configuration `text`."""

    text: ConfigText | None
    found: list[Problem] = field(default_factory=list)

    def refuse(self, path: DocPath, why: str, help: str = "", code: str = REFUSES) -> None:
        where = self.text.place(path) if self.text is not None else Place(CONFIG_NAME)
        severity = Severity.ERROR if code == REFUSES else Severity.WARNING
        self.found.append(Problem(code, where, format_path(path), f"{reference_name()}: {why}", help, severity))

    def repeat(self, problem: Problem) -> None:
        """A problem that this compiler has found, too, and that the reference does not forgive."""
        what = f"{reference_name()}: {problem.what.replace(_NO_EFFECT, _STOPS)}"
        self.found.append(Problem(REFUSES, problem.where, problem.path, what, problem.help))


def reference_refusals(root: Path) -> tuple[Problem, ...]:
    """Why the reference runtime would not load or run the package in `root`: errors; and what it needs: warnings."""
    judged = _Judgement(None)
    try:
        data = find_artifact(root, CONFIG_NAME).file.read_bytes()
    except ArtifactFault as fault:
        judged.refuse((), f"it reads nothing but {CONFIG_NAME}: {fault}", "export in its form")
        return tuple(judged.found)
    try:
        text = parse_config(data, CONFIG_NAME)
    except CompileError as broken:
        for each in broken.problems:
            judged.repeat(each)
        return tuple(judged.found)
    judged.text = text
    config, problems = genai_config_of(text)
    _judge_text(data, text, judged)
    newer = _judge_version(text, judged)
    for each in problems:
        if each.code in _PARSER and not _root_scalar(each, text) and each.path not in newer:
            judged.repeat(each)
    if newer and not isinstance(_at(text.root, ("model",)), dict):
        return tuple(judged.found)  # there is nothing that it would get to
    kind = config.model_type or ""
    for path, why, help in number_reasons(config, text.root):
        judged.refuse(path, why, help)
    _judge_sessions(text, judged)
    if kind in reference_table()["speech_in_pairs"]:
        _judge_speech(text, judged)
    missing = list(graph_reasons(root, text.root, kind))
    for path, why, help in missing:
        judged.refuse(path, why, help)
    if not missing and (is_one_graph(kind) or not class_of(kind)):
        _judge_graph(root, config, kind, judged)
    if not missing and state_layers(kind):
        _judge_rows(root, config, kind, judged)
    if is_unknown_inside(kind):
        why = f"it knows model.type {kind!r}; what that wants of a package is not known here, and was not looked at"
        judged.refuse(("model", "type"), why, code=NEEDS)
    if not class_of(kind):
        judged.refuse(("model", "type"), f"it knows no model.type {kind!r}", "'decoder' stands for any decoder graph")
    return tuple(judged.found)


# ---- the text --------------------------------------------------------------------------------------------------------


def _judge_text(data: bytes, text: ConfigText, judged: _Judgement) -> None:
    if data.startswith(b"\xef\xbb\xbf"):
        judged.refuse((), "its parser stops at the byte order mark", "save without one")
    if _ESCAPE.search(data):
        judged.refuse((), "its parser reads no \\u escapes", "write the characters themselves, as UTF-8")
    for path in _nulls(text.root, ()):
        judged.refuse(path, f"{path[-1]!r} is null, which it takes for a value of the wrong kind", "leave it out")


def _judge_version(text: ConfigText, judged: _Judgement) -> tuple[str, ...]:
    """The blocks of version 2, in the order of the text: it stops at the first one."""
    root = text.root if isinstance(text.root, dict) else {}
    found = tuple(key for key, value in root.items() if key in _OF_VERSION_2 and isinstance(value, dict | list))
    if found:
        why = f"it reads version 1 only: its parser stops at {found[0]!r}"
        why += f", and would at {listed(found[1:])}" if found[1:] else ""
        help = "no release reads version 2; describe the package by model and search, as version 1 does, for it"
        judged.refuse((found[0],), why, help)
    return found


def _nulls(value: Json, path: DocPath) -> Iterator[DocPath]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in members:
        if each is None and len(path) > 0:
            yield (*path, key)
        yield from _nulls(each, (*path, key))


def _root_scalar(problem: Problem, text: ConfigText) -> bool:
    """A key beside `model` that holds no object or list: it is not looked at."""
    root = text.root if isinstance(text.root, dict) else {}
    return problem.path in root and not isinstance(root[problem.path], dict | list)


# ---- sound -----------------------------------------------------------------------------------------------------------


def _judge_speech(text: ConfigText, judged: _Judgement) -> None:
    model = text.root.get("model") if isinstance(text.root, dict) else None
    speech = model.get("speech") if isinstance(model, dict) else None
    stated = speech if isinstance(speech, dict) else {}
    if bool(stated.get("filename")) != bool(stated.get("config_filename", "by default")):
        why = "for this model.type it wants speech.filename and speech.config_filename both, or the latter as ''"
        judged.refuse(("model", "speech"), why)


# ---- sessions --------------------------------------------------------------------------------------------------------


def _judge_sessions(text: ConfigText, judged: _Judgement) -> None:
    path: DocPath = ("model", "decoder", "session_options")
    options = _at(text.root, path)
    for key, value in options.items() if isinstance(options, dict) else ():
        if isinstance(value, dict):
            judged.refuse((*path, key), f"{key!r} is an object; session options are single values")
        elif key == "graph_optimization_level" and value not in _LEVELS:
            judged.refuse((*path, key), f"it knows no level {value!r}", f"one of {', '.join(_LEVELS)}")
    listed = options.get("provider_options") if isinstance(options, dict) else None
    names: list[str] = []
    for at, element in enumerate(listed if isinstance(listed, list) else []):
        for key, value in element.items() if isinstance(element, dict) else ():
            place = (*path, "provider_options", at, key)
            if value is not None and not isinstance(value, dict):
                judged.refuse(place, f"{key!r} stands beside a provider and is no object")
            elif provider_name(key) == "CPUExecutionProvider" and value:
                judged.refuse(place, "the CPU provider takes no options")
            elif provider_name(key) not in (None, "CPUExecutionProvider"):
                names.append(key)
    if len(names) > 1:
        judged.refuse((*path, "provider_options"), f"one accelerator at most: {', '.join(names)}")
    for each in names[:1]:
        why = f"it loads this only where its build for {each!r} is installed; it never falls back to the CPU"
        judged.refuse((*path, "provider_options"), why, code=NEEDS)


def _at(value: Json, path: DocPath) -> Json:
    for key in path:
        value = value.get(key) if isinstance(value, dict) and isinstance(key, str) else None
    return value


# ---- the graph -------------------------------------------------------------------------------------------------------


def _judge_rows(root: Path, config: GenaiConfig, kind: str, judged: _Judgement) -> None:
    assert judged.text is not None
    try:
        signature = read_signature(root / find_artifact(root, config.decoder.filename).name, root)
    except CompileError as unreadable:
        for each in unreadable.problems:
            judged.repeat(each)
        return
    for path, why, help in row_reasons(config, judged.text.root, kind, signature):
        judged.refuse(path, why, help)


def _judge_graph(root: Path, config: GenaiConfig, kind: str, judged: _Judgement) -> None:
    try:
        artifact = find_artifact(root, config.decoder.filename).name
        signature = read_signature(root / artifact, root)
    except ArtifactFault as fault:
        judged.refuse(("model", "decoder", "filename"), f"{fault}")
        return
    except CompileError as unreadable:
        for each in unreadable.problems:
            judged.repeat(each)
        return
    inputs: DocPath = ("model", "decoder", "inputs")
    if kind in reference_table()["combined"] and not config.decoder.inputs["past_names"]:
        why = "for this model.type keys and values are one tensor a layer: 'Model input was not found' (past_names)"
        judged.refuse((*inputs, "past_names"), why, "'decoder' as model.type takes separate ones")
    if any(op.op_type == "PagedAttention" for op in signature.cache_ops) or _packed(config, signature):
        judged.refuse(("model", "decoder"), "it runs paged caches on CUDA only", code=NEEDS)
    else:
        _, problems = match_ports(config, signature, Surroundings())
        for each in problems:
            if each.code in _PORTS and not (
                each.code == "no-embedding-stage" and (config.other_classes or config.components)
            ):
                judged.repeat(each)
        _judge_cache(config, signature, judged)
        for path, why, help in row_reasons(
            config, judged.text.root if judged.text is not None else None, kind, signature
        ):
            judged.refuse(path, why, help)
        _judge_places(config, signature, kind, judged)
    _judge_templates(config, judged)
    logits = next((each for each in signature.outputs if each.name == config.decoder.outputs["logits"]), None)
    width = logits.shape[-1] if logits is not None and logits.shape else None
    if isinstance(width, int) and config.vocab_size is not None and width != config.vocab_size:
        why = f"vocab_size is {config.vocab_size}, but the graph gives {width} scores: an error at the first run"
        judged.refuse(("model", "vocab_size"), why)


def _judge_places(config: GenaiConfig, signature: Signature, kind: str, judged: _Judgement) -> None:
    """Positions have two axes but for types of its own, and the type of numbers that the mask has."""
    ports = {each.name: each for each in signature.inputs}
    places, mask = (ports.get(config.decoder.inputs[name]) for name in ("position_ids", "attention_mask"))
    path: DocPath = ("model", "decoder", "inputs", "position_ids")
    if places is not None and len(places.shape or ()) == 3 and kind not in reference_table()["three_axes"]:
        why = f"it feeds positions of two axes for model.type {kind!r}, and the graph takes three: an error at a run"
        judged.refuse(path, why, "a type with three is one of " + ", ".join(reference_table()["three_axes"]))
    if places is not None and mask is not None and places.dtype != mask.dtype:
        judged.refuse(path, f"positions are {places.dtype} and the mask is {mask.dtype}: it wants one type for both")


def _judge_templates(config: GenaiConfig, judged: _Judgement) -> None:
    """Names of layers: it splits at the first `%` and skips two characters, so that only `%d` and `%i` find ports."""
    for side, names in (("inputs", config.decoder.inputs), ("outputs", config.decoder.outputs)):
        for key in sorted(names.stated):
            if has_slot(names[key]) and not re.search("%[di]", names[key]):
                why = f"{key} is {names[key]!r}: it knows no place for a layer's number but %d, and feeds no cache"
                judged.refuse(("model", "decoder", side, key), why, "write %d")


def _packed(config: GenaiConfig, signature: Signature) -> bool:
    """Whether the graph takes rows packed into one axis and a table of blocks."""
    return any(each.name == config.decoder.inputs["block_table"] for each in signature.inputs)


def _judge_cache(config: GenaiConfig, signature: Signature, judged: _Judgement) -> None:
    ops, window = signature.cache_ops, config.decoder.sliding_window
    shared = bool(config.search.get("past_present_share_buffer"))
    in_place = bool(ops) and all(writes_in_place(op) for op in ops)
    share: DocPath = ("search", "past_present_share_buffer")
    if shared and not in_place:
        judged.refuse(
            share, "past_present_share_buffer is true, but the graph appends to its cache: an error at the first run"
        )
    shapes = {each.name: each.shape for each in signature.inputs}
    fixed = [op for op in ops if (shape := shapes.get(op.past_key)) and len(shape) == 4 and isinstance(shape[2], int)]
    if fixed and not shared:
        judged.refuse(share, "past_present_share_buffer is false, but the graph fixes the length of its cache")
    if window is None:
        return
    path: DocPath = ("model", "decoder", "sliding_window")
    if window.slide_inputs or window.slide_key_value_cache:
        judged.refuse(path, "slide_inputs or slide_key_value_cache asks for 8-bit caches that are shifted")
    elif not any(op.bounded for op in ops):
        slots = window.window_size + _SLACK
        why = (
            f"it gives these caches {slots} slots, but the graph keeps every position: it fails at position {slots + 1}"
        )
        judged.refuse(path, why, "delete sliding_window")
