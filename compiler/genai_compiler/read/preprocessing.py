"""Image and audio programs (sections 5.5-5.7 of the metadata standard)."""

from typing import Annotated

from pydantic import Discriminator, Tag

from genai_compiler.read.contracts import TensorContract
from genai_compiler.read.fields import Count, Count32, Items, Name, Open, Positive, Positive32, SomeItems
from genai_compiler.read.vocabularies import (
    AudioContent,
    AudioOp,
    ImageContent,
    ImageOp,
    TensorDType,
    ThumbnailOrder,
)


class ImageSize(Open):
    """A size in pixels."""

    width: Count32
    height: Count32


def _size_form(value: object) -> str | None:
    if isinstance(value, dict | ImageSize):
        return "pair"
    return "edge" if isinstance(value, int | float) and not isinstance(value, bool) else None


SizeSpec = Annotated[Annotated[Count32, Tag("edge")] | Annotated[ImageSize, Tag("pair")], Discriminator(_size_form)]


class ImageTransform(Open):
    """One operation; only the fields its `op` reads are set. Sizes in pixels."""

    op: ImageOp
    inputs: SomeItems[Name] | None = None
    outputs: SomeItems[Name] | None = None
    size: SizeSpec | None = None
    mode: Name | None = None
    interpolation: Name | None = None
    min_pixels: Positive | None = None
    max_pixels: Positive | None = None
    size_multiple: Positive | None = None
    max_patches: Positive | None = None
    pooling_kernel_size: Positive | None = None
    scale: float | None = None
    mean: Items[float] | None = None
    std: Items[float] | None = None
    tile_size: Positive | None = None
    max_tiles: Positive | None = None
    include_thumbnail: bool | None = None
    thumbnail_order: ThumbnailOrder | None = None
    thumbnail_interpolation: Name | None = None
    canvas_pad_value: float | None = None
    mask_patch_size: Positive | None = None
    patch_size: Positive | None = None
    temporal_patch_size: Positive | None = None
    merge_size: Positive | None = None
    channel_order: Name | None = None
    temporal_order: Name | None = None
    patch_order: Name | None = None
    coordinate_order: Name | None = None
    flatten: bool | None = None
    pad_value: float | None = None
    target_length: Positive | None = None


class ImageOutput(Open):
    """A program-local value `source` bound to the SSA value `name`."""

    source: Name
    name: Name
    content: ImageContent
    dtype: TensorDType
    contract: TensorContract | None = None
    pad_value: float | None = None
    optional: bool | None = None


class ImageProgram(Open):
    """From encoded image bytes to tensors."""

    transforms: Items[ImageTransform] = ()
    outputs: SomeItems[ImageOutput]


class AudioTransform(Open):
    """One operation; rates in Hz, lengths in samples or frames."""

    op: AudioOp
    inputs: SomeItems[Name] | None = None
    outputs: SomeItems[Name] | None = None
    sample_rate: Positive32 | None = None
    channels: Positive | None = None
    epsilon: float | None = None
    scale: float | None = None
    mode: Name | None = None
    pad_value: float | None = None
    target_length: Positive | None = None
    num_mel_bins: Positive | None = None
    n_fft: Positive | None = None
    hop_length: Positive | None = None
    win_length: Positive | None = None
    window: Name | None = None
    mel_scale: Name | None = None


class AudioOutput(Open):
    """A program-local value `source` bound to the SSA value `name`."""

    source: Name
    name: Name
    content: AudioContent
    dtype: TensorDType
    contract: TensorContract | None = None
    pad_value: float | None = None
    optional: bool | None = None
    rank: Count | None = None


class AudioProgram(Open):
    """From encoded audio bytes to tensors."""

    transforms: Items[AudioTransform] = ()
    outputs: SomeItems[AudioOutput]


class Preprocessing(Open):
    """`preprocessing`: at most one program each."""

    image: ImageProgram | None = None
    audio: AudioProgram | None = None
