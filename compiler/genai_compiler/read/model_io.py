"""The retired bare-decoder block `model.io`: which port of one graph plays which part (section 10.1)."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from genai_compiler.read.fields import Closed, Count, Dimension, Items, Name, Open, SomeItems
from genai_compiler.read.vocabularies import StateInit, StatePairUpdate

StrideDim = Literal["kv_heads", "seq_capacity", "head_dim"]


class KvStrides(Open):
    """Each stride is the product of the listed extents."""

    batch: Items[StrideDim] = ()
    head: Items[StrideDim] = ()
    seq: Items[StrideDim] = ()
    head_dim: Items[StrideDim] = ()


class KvStrideLayout(Open):
    """A cache layout by strides, in elements."""

    strides: KvStrides
    reservation_offset_elements: Count = 0
    reservation_seq_slots: Count | None = None


def _layout_form(value: object) -> str | None:
    if isinstance(value, str):
        return "name"
    return "strides" if isinstance(value, dict | KvStrideLayout) else None


KvLayout = Annotated[
    Annotated[Literal["head_major_bnsh", "seq_major_bsnh"], Tag("name")] | Annotated[KvStrideLayout, Tag("strides")],
    Discriminator(_layout_form),
]


class StatePair(Open):
    """A fixed-size recurrent carry from `output` back to `input`."""

    input: Name
    output: Name
    init: StateInit
    update: StatePairUpdate


class AbsentInput(Open):
    """The tensor bound when the request says nothing."""

    kind: Literal["zeros"]
    shape: Items[Dimension]


class OptionalInput(Open):
    """A port bound to `absent` unless the request carries the key `presence`."""

    presence: Name
    absent: AbsentInput


class StaticCacheIo(Open):
    """Ports of a fixed-capacity scatter cache, one list entry per layer."""

    write_indices_input: Name
    kv_sequence_length_input: Name
    key_cache_inputs: SomeItems[Name]
    value_cache_inputs: SomeItems[Name]
    key_cache_outputs: SomeItems[Name]
    value_cache_outputs: SomeItems[Name]


class ModelIo(Closed):
    """Ports by role; a missing one is resolved from the graph when exactly one fits."""

    sequence_source: Literal["token_ids", "inputs_embeds"] | None = None
    kv_ownership: Literal["owned", "shared"] | None = None
    kv_layout: KvLayout | None = None
    token_input: Name | None = None
    inputs_embeds_input: Name | None = None
    attention_mask_input: Name | None = None
    position_ids_input: Name | None = None
    logits_output: Name | None = None
    hidden_output: Name | None = None
    kv_inputs: Items[Name] | None = None
    kv_outputs: Items[Name] | None = None
    aliasing: Literal["permitted", "required", "forbidden"] | None = None
    encoder_hidden_states_input: Name | None = None
    audio_features_input: Name | None = None
    cross_kv_inputs: Items[Name] | None = None
    cross_kv_outputs: Items[Name] | None = None
    state_pairs: SomeItems[StatePair] | None = None
    optional_inputs: dict[str, OptionalInput] = Field(default_factory=dict)
    static_cache: StaticCacheIo | None = None
