"""`pipeline` of a v1 configuration's decoder or vision model, cut into graphs that run one behind another.

Two shapes are read, a list of objects with one or several stages each, and one object; stages run in the order of the
text (onnxruntime-genai, config.cpp). A stage's name means nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from genai_compiler.problem import Problem
from genai_compiler.read.config_json import Json
from genai_compiler.read.config_keys import Form
from genai_compiler.read.config_section import Section, section_of
from genai_compiler.read.places import DocPath, format_path

_KEYS: Mapping[str, Form] = {
    "filename": Form.STR,
    "inputs": Form.STRS,
    "outputs": Form.STRS,
    "output_names_forwarder": Form.OBJECT,
    "run_on_prompt": Form.BOOL,
    "run_on_token_gen": Form.BOOL,
    "is_lm_head": Form.BOOL,
    "inherit_session_options": Form.BOOL,
    "reset_session_idx": Form.INT,
    "session_options": Form.OBJECT,
    "run_options": Form.OBJECT,
}
_VISION_KEYS: Mapping[str, Form] = {
    **{key: _KEYS[key] for key in ("filename", "inputs", "outputs", "session_options", "run_options")},
    "run_on_cpu": Form.BOOL,
}
_OLD = {"run_on_first_token_generation": "run_on_prompt", "run_on_nth_token_generation": "run_on_token_gen"}
"""Spellings of releases before 0.4."""
MOST = 64
"""Stages that are read."""
_TUNING = ("session_options", "run_options", "reset_session_idx", "run_on_cpu")


@dataclass(frozen=True)
class StageConfig:
    """One stage. inputs, outputs: the graph's ports that are fed and taken. renames: output -> its name for later ones.

    on_prompt, on_step: whether it runs with the prompt, and with every later token. path: of its object.

    What only version 2 says: wired: input -> (stage, output) that feed it, whatever their names, of which one runs in a
    phase; own: ports that no stage feeds and none takes, the decoder's own.
    """

    name: str
    path: DocPath
    filename: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    renames: Mapping[str, str]
    on_prompt: bool = True
    on_step: bool = True
    wired: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict[str, tuple[tuple[str, str], ...]])
    own: frozenset[str] = frozenset()


def read_pipeline(decoder: Section) -> tuple[StageConfig, ...]:
    """A decoder's stages in order, () without any. Notes unknown and ignored keys, and values of another form."""
    return _pipeline(decoder, _stage)


def read_vision_pipeline(vision: Section) -> tuple[StageConfig, ...]:
    """A vision model's stages in order, () without any. Notes the same."""
    return _pipeline(vision, _vision_stage)


def _pipeline(decoder: Section, read: "_Read") -> tuple[StageConfig, ...]:
    value = decoder.members.get("pipeline")
    path: DocPath = (*decoder.path, "pipeline")
    if isinstance(value, dict):
        return _bounded(decoder, list(_stages(section_of(decoder.text, path, value, decoder.problems), read)))
    if value is not None and not isinstance(value, list):
        decoder.problem("wrong-type", "pipeline", "'pipeline' must be an object of stages, or a list of such objects")
        return ()
    parts = value if isinstance(value, list) else []
    found: list[StageConfig] = []
    for at, each in enumerate(parts[: MOST + 1]):
        if isinstance(each, dict):
            found += _stages(section_of(decoder.text, (*path, at), each, decoder.problems), read)
        else:
            what = f"entry {at} of 'pipeline' must be an object of stages"
            where = (*path, at)
            decoder.problems.append(Problem("wrong-type", decoder.text.place(where), format_path(where), what))
    return _bounded(decoder, found)


def _bounded(decoder: Section, stages: list[StageConfig]) -> tuple[StageConfig, ...]:
    if len(stages) > MOST:
        what = f"'pipeline' has more than {MOST} stages, and no model is cut into so many"
        decoder.problem("bad-value", "pipeline", what)
    return tuple(stages[:MOST])


_Read = Callable[[str, Section], StageConfig]


def _stages(section: Section, read: _Read) -> Iterator[StageConfig]:
    for name in list(section.members)[: MOST + 1]:
        if section.value(name, Form.OBJECT) is not None:
            yield read(name, section.section(name))


def _vision_stage(name: str, stage: Section) -> StageConfig:
    stage.check_keys(_VISION_KEYS)
    for key in _TUNING:
        if stage.members.get(key):
            stage.warn("ignored-key", key, f"{key!r} tunes another runtime's sessions; all take the decoder's options")
    filename = stage.string("filename") or ""
    return StageConfig(name, stage.path, filename, _names(stage, "inputs"), _names(stage, "outputs"), {})


def _stage(name: str, section: Section) -> StageConfig:
    members: dict[str, Json] = {}
    for key, value in section.members.items():
        if key in _OLD:
            section.warn("config-read-as", key, f"{key!r} is read as {_OLD[key]!r}, its newer name", "rename it")
        members[_OLD.get(key, key)] = value
    stage = Section(section.text, section.path, members, section.problems)
    stage.check_keys(_KEYS)
    for key in _TUNING:
        if members.get(key):
            stage.warn("ignored-key", key, f"{key!r} tunes another runtime's sessions; stages are linked into one here")
    return StageConfig(
        name=name,
        path=section.path,
        filename=stage.string("filename") or "",
        inputs=_names(stage, "inputs"),
        outputs=_names(stage, "outputs"),
        renames=_renames(stage),
        on_prompt=stage.boolean("run_on_prompt", True),
        on_step=stage.boolean("run_on_token_gen", True),
    )


def _names(stage: Section, key: str) -> tuple[str, ...]:
    value = stage.value(key, Form.STRS)
    return tuple(str(each) for each in value) if isinstance(value, list) else ()


def _renames(stage: Section) -> dict[str, str]:
    stage.value("output_names_forwarder", Form.OBJECT)
    section = stage.section("output_names_forwarder")
    return {key: name for key in section.members if (name := section.string(key)) is not None}
