"""The components of `genai_config.json` v1 beside its decoder: encoders, and what makes embeddings of tokens and media.

Names and defaults are the reference's (onnxruntime-genai, config.h). A component counts when it names a graph.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from genai_compiler.read.config_keys import Form
from genai_compiler.read.config_section import Section
from genai_compiler.read.places import DocPath
from genai_compiler.read.port_names import PortNames, port_names
from genai_compiler.read.session_options import SessionOptions, read_session_options

COMPONENTS = ("encoder", "vision", "speech", "embedding")
"""In the order in which they run."""


def _same(names: str) -> dict[str, str]:
    return {name: name for name in names.split()}


_INPUTS: Mapping[str, Mapping[str, str]] = {
    "encoder": {
        **_same("input_ids inputs_embeds attention_mask position_ids audio_features lang_id"),
        **_same("cache_last_channel cache_last_time cache_last_channel_len"),
        "input_lengths": "length",
    },
    "vision": {
        **_same("pixel_values pixel_position_ids image_sizes"),
        "image_grid_thw": "image_sizes",
        "attention_mask": "image_attention_mask",
    },
    "speech": {
        **_same("audio_embeds audio_sizes audio_projection_mode audio_lengths"),
        "attention_mask": "audio_attention_mask",
    },
    "embedding": _same("input_ids image_features audio_features"),
}
_OUTPUTS: Mapping[str, Mapping[str, str]] = {
    "encoder": {
        **_same("encoder_hidden_states encoder_outputs"),
        **_same("cache_last_channel_next cache_last_time_next cache_last_channel_len_next"),
        "output_lengths": "encoded_lengths",
        "cross_present_key_names": "present_key_cross_%d",
        "cross_present_value_names": "present_value_cross_%d",
    },
    "vision": _same("image_features"),
    "speech": _same("audio_features"),
    "embedding": {"inputs_embeds": "inputs_embeds", "per_layer_inputs": ""},
}
_OLDER = {"visual_features": "image_features"}
"""Names that keys had before onnxruntime-genai 0.5."""
_KEYS = {
    name: frozenset(f"filename inputs outputs session_options run_options {more}".split())
    for name, more in {
        "encoder": "hidden_size num_attention_heads num_hidden_layers num_key_value_heads head_size",
        "vision": "config_filename adapter_filename spatial_merge_size tokens_per_second patch_size num_visual_tokens "
        "window_size pipeline max_num_patches",
        "speech": "config_filename adapter_filename",
        "embedding": "",
    }.items()
}


@dataclass(frozen=True)
class ComponentConfig:
    """One component. path: of its object."""

    path: DocPath
    filename: str
    inputs: PortNames
    outputs: PortNames
    session: SessionOptions | None


def read_components(model: Section) -> dict[str, ComponentConfig]:
    """The components that name a graph, in the order in which they run. Notes unknown and ignored keys."""
    return {name: _component(name, model.section(name)) for name in COMPONENTS if _names_a_graph(model, name)}


def is_component(model: Section, name: str) -> bool:
    """Whether a section of the model is one of these components."""
    return name in COMPONENTS and _names_a_graph(model, name)


def vision_component(section: Section) -> ComponentConfig:
    """A vision model without a graph of its own, which its stages are. Notes unknown and ignored keys."""
    return _component("vision", section)


def says_files_only(model: Section, name: str) -> bool:
    """Whether a section names no graph, only how sound becomes the tensors of the encoder beside it."""
    members = model.section(name).members
    return name == "speech" and set(members) == {"config_filename"} and _names_a_graph(model, "encoder")


def _names_a_graph(model: Section, name: str) -> bool:
    return bool(model.section(name).members.get("filename"))


def _component(name: str, section: Section) -> ComponentConfig:
    section.check_keys(dict.fromkeys(_KEYS[name]))
    if section.members.get("run_options"):
        section.warn("ignored-key", "run_options", "'run_options' tunes another runtime's sessions; it has no effect")
    if section.members.get("adapter_filename"):
        what = "'adapter_filename' names weights that the decoder was trained with for such media; they are not applied"
        section.warn("ignored-key", "adapter_filename", what, "expect worse answers about media, or merge them in")
    stated = "session_options" in section.members and section.value("session_options", Form.OBJECT) is not None
    return ComponentConfig(
        path=section.path,
        filename=section.string("filename") or "",
        inputs=port_names(section, "inputs", _INPUTS[name], _OLDER),
        outputs=port_names(section, "outputs", _OUTPUTS[name], _OLDER),
        session=read_session_options(section.section("session_options")) if stated else None,
    )
