"""`genai_config.json` v1 -> typed facts of a package: its decoder, and the graphs around it.

Only what the file says; nothing here has looked at a graph. Problems are collected on the way, never raised, except for
text that is no JSON at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from genai_compiler.problem import CompileError, Place, Problem
from genai_compiler.read.artifacts import BY_HASH, HASHED, WITHOUT_HASH, ArtifactFault, find_artifact
from genai_compiler.read.config_json import ConfigText, parse_config
from genai_compiler.read.config_keys import (
    DECODER,
    DECODER_INPUTS,
    DECODER_OUTPUTS,
    DRAFTERS,
    MODEL,
    OTHER_CLASSES,
    ROOT,
    SEARCH,
    SLIDING_WINDOW,
    Form,
)
from genai_compiler.read.config_pipeline import StageConfig, read_pipeline, read_vision_pipeline
from genai_compiler.read.config_section import Section, section_of
from genai_compiler.read.genai_components import (
    ComponentConfig,
    is_component,
    read_components,
    says_files_only,
    vision_component,
)
from genai_compiler.read.genai_draft import draft_width, has_draft
from genai_compiler.read.places import DocPath, format_path
from genai_compiler.read.port_names import PortNames, port_names
from genai_compiler.read.session_options import SessionOptions, read_session_options

CONFIG_NAME = "genai_config.json"
MOST_GROUPS = 64
"""Entries of `state_groups` that are looked at."""
_OPTIONAL = ("vision", "speech", "embedding")
"""Components without a default graph: one that names none is none (an encoder's default belongs to transducers)."""


@dataclass(frozen=True)
class SlidingWindow:
    """`model.decoder.sliding_window`. `layers`: the bounded layers, () for all; `cache_slack`: 0 for the default."""

    window_size: int
    slide_key_value_cache: bool
    slide_inputs: bool
    layers: tuple[int, ...]
    cache_slack: int = 0
    pad_value: int = 0
    alignment: str = "right"


@dataclass(frozen=True)
class DecoderConfig:
    """`model.decoder`. Numbers are None when the file does not state them (or states 0, the reference's "unset").

    stages: the graphs it is cut into, () where it is one.
    """

    filename: str
    hidden_size: int | None
    num_attention_heads: int | None
    num_key_value_heads: int | None
    head_size: int | None
    num_hidden_layers: int | None
    inputs: PortNames
    outputs: PortNames
    sliding_window: SlidingWindow | None
    session: SessionOptions
    stages: tuple[StageConfig, ...] = ()


@dataclass(frozen=True)
class StagedVision:
    """`model.vision` with stages. vision: its own entries; window: pixels of a window's edge, None: not stated."""

    vision: ComponentConfig
    stages: tuple[StageConfig, ...]
    window: int | None


@dataclass(frozen=True)
class DraftConfig:
    """`model.draft`: another decoder, and how many tokens it drafts at once."""

    decoder: DecoderConfig
    width: int


@dataclass(frozen=True)
class StateGroupConfig:
    """An entry of `model.decoder.state_groups`: what the state of some layers is. path: of the entry."""

    kind: str
    layers: tuple[int, ...]
    path: DocPath


@dataclass(frozen=True)
class GenaiConfig:
    """A v1 configuration. `search` holds the keys that the file states.

    components: graphs beside the decoder, by name, in the order in which they run. other_classes: filled sections by
    path that are none of these. eos_path, pad_path, bos_path, start_path: where these ids stand, or would.
    media_tokens: medium -> the token that stands for an entry of it; visual_tokens: how many entries a picture has,
    sound_frames: how many frames of a sound have one together, None where nobody says; processor_files: medium -> the
    file that is named for it; vision_numbers: sizes that `vision` states. staged_vision: its graphs, where it is cut.
    state_groups: what the decoder's state is said to be. block_size: positions a page of a paged cache, where `engine`
    says so. draft: a smaller decoder that drafts tokens, where the package is one decoder.
    """

    text: ConfigText
    model_type: str | None
    tokenizer_dir: str
    vocab_size: int | None
    context_length: int | None
    eos: tuple[int, ...]
    bos: int | None
    pad: int | None
    decoder: DecoderConfig
    search: Mapping[str, int | float | bool]
    other_classes: tuple[DocPath, ...]
    eos_path: DocPath = ("model", "eos_token_id")
    pad_path: DocPath = ("model", "pad_token_id")
    bos_path: DocPath = ("model", "bos_token_id")
    start_path: DocPath = ("model", "decoder_start_token_id")
    components: Mapping[str, ComponentConfig] = field(default_factory=dict[str, ComponentConfig])
    decoder_start: int | None = None
    media_tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    visual_tokens: int | None = None
    sound_frames: int | None = None
    processor_files: Mapping[str, str] = field(default_factory=dict[str, str])
    vision_numbers: Mapping[str, int] = field(default_factory=dict[str, int])
    staged_vision: StagedVision | None = None
    state_groups: tuple[StateGroupConfig, ...] = ()
    block_size: int | None = None
    draft: DraftConfig | None = None

    def place(self, path: DocPath) -> Place:
        """Where the value at `path` (or the nearest one around it) stands in the file."""
        return self.text.place(path)


def read_genai_config(root: Path) -> tuple[GenaiConfig, tuple[Problem, ...]]:
    """The configuration of the package at `root`, and every problem of its text: errors and warnings.

    Raises CompileError missing-file, outside-package, not-a-file or malformed-json when there is nothing to read.
    """
    try:
        file = find_artifact(root, CONFIG_NAME).file
    except ArtifactFault as fault:
        raise CompileError([fault.problem(Place(CONFIG_NAME), "")]) from fault
    return genai_config_of(parse_config(file.read_bytes(), CONFIG_NAME))


def genai_config_of(text: ConfigText) -> tuple[GenaiConfig, tuple[Problem, ...]]:
    """Typed facts of parsed text, and its problems."""
    problems = list(text.problems)
    root = section_of(text, (), text.root, problems)
    if not isinstance(text.root, dict):
        root.problem("wrong-type", "", "the file must hold one object")
    _check_root(root)
    model = root.section("model")
    model.check_keys(MODEL)
    components = read_components(model)
    for key in ("sep_token_id", "decoder_start_token_id"):
        if key in model.members and (key == "sep_token_id" or "encoder" not in components):
            model.warn("ignored-key", key, f"{key!r} has no effect on a decoder without an encoder", "remove it")
    if "model" not in root.members and isinstance(text.root, dict):
        root.problem(
            "missing-key", "", "the file has no 'model' object", "write it with the exporter that made the graph"
        )
    config = GenaiConfig(
        text=text,
        model_type=model.string("type"),
        tokenizer_dir=_tokenizer_dir(model),
        vocab_size=_positive(model, "vocab_size"),
        context_length=_positive(model, "context_length"),
        eos=model.tokens("eos_token_id"),
        bos=_one_token(model, "bos_token_id"),
        pad=_one_token(model, "pad_token_id"),
        decoder=_decoder(model.section("decoder")),
        search=_search(root.section("search")),
        other_classes=_other_classes(model),
        components=components,
        decoder_start=_one_token(model, "decoder_start_token_id"),
        media_tokens=_media_tokens(model),
        processor_files=_processor_files(model),
        visual_tokens=_positive(model.section("vision"), "num_visual_tokens"),
        sound_frames=_positive(model, "subsampling_factor"),
        vision_numbers=_vision_numbers(model.section("vision")),
        staged_vision=_staged_vision(model),
        state_groups=_state_groups(model.section("decoder")),
        block_size=_block_size(root),
        draft=_draft(root, model),
    )
    return config, tuple(problems)


def _tokenizer_dir(model: Section) -> str:
    stated = model.string("tokenizer_dir") or ""
    if not stated.startswith(HASHED):
        return stated
    model.problem("unsupported-package-class", "tokenizer_dir", f"{stated!r} {BY_HASH}", WITHOUT_HASH)
    return ""


def _processor_files(model: Section) -> dict[str, str]:
    found: dict[str, str] = {}
    for medium, name in (("image", "vision"), ("audio", "speech")):
        stated = model.section(name).string("config_filename") if model.members.get(name) else None
        if stated:
            found[medium] = stated
    return found


def _vision_numbers(vision: Section) -> dict[str, int]:
    stated = {key: _positive(vision, key) for key in ("patch_size", "spatial_merge_size") if key in vision.members}
    return {key: value for key, value in stated.items() if value is not None}


def _staged_vision(model: Section) -> StagedVision | None:
    """The vision model's stages, None where it is one graph: beside a decoder in one graph, that is what runs."""
    vision = model.section("vision")
    if not vision.members.get("pipeline"):
        return None
    if vision.members.get("filename"):
        what = "the vision model names a graph (filename) and stages (pipeline)"
        if _in_stages(model.section("decoder")):
            vision.problem("bad-value", "pipeline", f"{what}: either could be meant", "leave out the one that is not")
        else:
            help = "leave out the one that is not meant"
            vision.warn("ignored-key", "pipeline", f"{what}; the graph is taken", help)
        return None
    stages = read_vision_pipeline(vision)
    return StagedVision(vision_component(vision), stages, _positive(vision, "window_size")) if stages else None


def _in_stages(decoder: Section) -> bool:
    return bool(decoder.members.get("pipeline")) and not decoder.members.get("filename")


def _media_tokens(model: Section) -> dict[str, int]:
    found = {"image": _one_token(model, "image_token_id"), "audio": _one_token(model, "audio_token_id")}
    return {medium: token for medium, token in found.items() if token is not None}


def _check_root(root: Section) -> None:
    root.check_keys(ROOT)
    for key in ("model", "search"):
        root.value(key, Form.OBJECT)
    heeded = {"engine"} if "dynamic_batching" in root.section("engine").members else set[str]()
    heeded |= {"speculative"} if has_draft(root.section("model")) else set[str]()
    for key in ("speculative", "runtime_profiles", "engine"):
        if root.members.get(key) and key not in heeded:
            root.warn("ignored-key", key, f"{key!r} configures another runtime and has no effect here")


def _block_size(root: Section) -> int | None:
    """`engine.dynamic_batching.block_size`; what else the engine's block tunes is another runtime's."""
    return _positive(root.section("engine").section("dynamic_batching"), "block_size")


def _state_groups(decoder: Section) -> tuple[StateGroupConfig, ...]:
    listed = decoder.value("state_groups", Form.LIST)
    path = (*decoder.path, "state_groups")
    found: list[StateGroupConfig] = []
    for at, each in enumerate(listed[:MOST_GROUPS] if isinstance(listed, list) else ()):
        if not isinstance(each, dict):
            decoder.warn("wrong-type", "state_groups", f"entry {at} of 'state_groups' is no object and has no effect")
            continue
        group = section_of(decoder.text, (*path, at), each, decoder.problems)
        found.append(StateGroupConfig(group.string("kind") or "", group.integers("layer_ids"), group.path))
    return tuple(found)


def _positive(section: Section, key: str) -> int | None:
    """An integer above 0; 0 is how the reference writes "not set", and templates of exporters write -1."""
    value = section.integer(key)
    if value is not None and value < 0:
        section.warn("ignored-key", key, f"{key!r} is {value}, which stands for nothing; it counts as not stated")
    return value if value is not None and value > 0 else None


def _one_token(model: Section, key: str) -> int | None:
    ids = model.tokens(key)
    if len(ids) > 1:
        model.warn("several-token-ids", key, f"{key!r} lists {list(ids)}; the first, {ids[0]}, is used", "keep one id")
    return ids[0] if ids else None


def _decoder(section: Section) -> DecoderConfig:
    section.check_keys(DECODER)
    for key in ("run_options", "shared_initializers"):
        if section.members.get(key):
            section.warn("ignored-key", key, f"{key!r} tunes another runtime's sessions and has no effect here")
    window = section.section("sliding_window") if section.value("sliding_window", Form.OBJECT) is not None else None
    return DecoderConfig(
        filename=section.string("filename") or "",
        hidden_size=_positive(section, "hidden_size"),
        num_attention_heads=_positive(section, "num_attention_heads"),
        num_key_value_heads=_positive(section, "num_key_value_heads"),
        head_size=_positive(section, "head_size"),
        num_hidden_layers=_positive(section, "num_hidden_layers"),
        inputs=port_names(section, "inputs", DECODER_INPUTS),
        outputs=port_names(section, "outputs", DECODER_OUTPUTS),
        sliding_window=_sliding_window(window) if window is not None else None,
        session=read_session_options(section.section("session_options")),
        stages=_stages(section),
    )


def _stages(decoder: Section) -> tuple[StageConfig, ...]:
    """The pipeline's, where the file names no graph of the whole decoder: one of the two is what runs."""
    if decoder.members.get("pipeline") and decoder.members.get("filename"):
        what = "the decoder names a graph (filename) and stages (pipeline); the graph is taken"
        decoder.warn("ignored-key", "pipeline", what, "leave out the one that is not meant")
        return ()
    return read_pipeline(decoder)


def _sliding_window(section: Section) -> SlidingWindow:
    section.check_keys(SLIDING_WINDOW)
    return SlidingWindow(
        window_size=section.integer("window_size") or 0,
        slide_key_value_cache=section.boolean("slide_key_value_cache", True),
        slide_inputs=section.boolean("slide_inputs", True),
        layers=section.integers("layers"),
        cache_slack=section.integer("cache_slack") or 0,
        pad_value=section.integer("pad_value") or 0,
        alignment=section.string("alignment") or "right",
    )


def _search(section: Section) -> dict[str, int | float | bool]:
    section.check_keys(SEARCH)
    values = {key: section.value(key, form) for key, form in SEARCH.items() if key in section.members}
    whole = {key for key, form in SEARCH.items() if form is Form.INT}
    return {
        key: int(value) if key in whole else value for key, value in values.items() if isinstance(value, int | float)
    }


def _other_classes(model: Section) -> tuple[DocPath, ...]:
    """Filled sections that only other package classes have: the known ones, and any that names a graph of its own."""
    filled: list[DocPath] = [
        (*model.path, name)
        for name in OTHER_CLASSES
        if model.members.get(name)
        and not is_component(model, name)
        and not says_files_only(model, name)
        and not (name == "vision" and model.section(name).members.get("pipeline"))
        and not _without_graph(model, name)
    ]
    for name, member in model.members.items():
        if member and _without_graph(model, name) and not says_files_only(model, name):
            model.warn("ignored-key", name, f"{name!r} names no graph, so that there is nothing to run")
        if name not in MODEL and isinstance(member, dict) and any(key.endswith("filename") for key in member):
            filled.append((*model.path, name))
        elif name in DRAFTERS and member and not (name == "draft" and has_draft(model)):
            what = f"{name!r} speeds up decoding without changing a token; it is not used"
            model.warn("ignored-key", name, what)
    return tuple(filled)


def _draft(root: Section, model: Section) -> DraftConfig | None:
    return DraftConfig(_decoder(model.section("draft")), draft_width(root)) if has_draft(model) else None


def _without_graph(model: Section, name: str) -> bool:
    """Whether a section that has no graph of its own by default names none either."""
    member = model.members.get(name)
    return name in _OPTIONAL and isinstance(member, dict) and not member.get("filename") and not member.get("pipeline")


def named(config: GenaiConfig, path: DocPath) -> tuple[Place, str]:
    """(place, spelled path) of a value, the two things a Problem starts with."""
    return config.place(path), format_path(path)
