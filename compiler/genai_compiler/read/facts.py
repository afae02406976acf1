"""Package facts, generation defaults and task profiles (sections 1.7-1.9 of the metadata standard)."""

from typing import Literal

from pydantic import ConfigDict, Field

from genai_compiler.read.fields import Closed, Count, Count32, Items, Name, Open, Positive, SomeItems
from genai_compiler.read.vocabularies import BatchInvariance, DecodingKind, VocabularySource


class TokenizerArtifact(Closed):
    """A tokenizer file, relative to the package root."""

    location: Name


class SpecialToken(Closed):
    """One special token."""

    id: Count32
    content: Name


class Tokenizer(Closed):
    """Facts about the tokenizer."""

    algorithm: Name
    vocab_size: Positive
    byte_level: bool = False
    artifacts: SomeItems[TokenizerArtifact] = ()
    special_tokens: dict[str, SpecialToken] = Field(default_factory=dict)


class ConstraintLanguage(Closed):
    """A constraint dialect that a component understands."""

    dialect: Name
    version: Name
    component: Name


class PackageFacts(Closed):
    """`package`."""

    tokenizer: Tokenizer | None = None
    constraint_languages: Items[ConstraintLanguage] = ()


class GenerationDefaults(Open):
    """Package defaults of generation options; fields that the standard does not have are kept, to be spoken of."""

    model_config = ConfigDict(extra="allow")

    do_sample: bool | None = None
    temperature: float | None = None
    top_k: Count | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    num_beams: Count | None = None
    num_return_sequences: Count | None = None
    min_length: Count | None = None
    max_length: Count | None = None
    length_penalty: float | None = None
    no_repeat_ngram_size: Count | None = None
    diversity_penalty: float | None = None
    early_stopping: bool | None = None


class GenerationConstraint(Closed):
    """Inclusive bounds of a caller's value."""

    minimum: float | None = None
    maximum: float | None = None


class GenerationOverride(Closed):
    """A caller may set this field through the workflow input `input`."""

    input: Name
    constraint: GenerationConstraint | None = None


class Generation(Closed):
    """`generation`: defaults and permitted overrides."""

    defaults: GenerationDefaults | None = None
    overrides: dict[str, GenerationOverride] = Field(default_factory=dict)


class Pooling(Closed):
    """Reduce `axis`, then normalise (L2) when asked."""

    kind: Literal["mean", "max", "cls", "last_token"]
    axis: Count
    normalize: bool = False


class DecodingVocabulary(Closed):
    """Where decoded class ids become text."""

    source: VocabularySource
    size: Count | None = None
    word_delimiter: str | None = None
    ignored_tokens: Items[str] = ()
    tokens: Items[str] = ()


class SequenceDecoding(Closed):
    """How frame scores become a transcription; `lengths` is a role of the profile's outputs."""

    kind: DecodingKind
    blank_id: Count32 | None = None
    collapse_repeats: bool = False
    time_axis: Count
    class_axis: Count
    lengths: str | None = None
    vocabulary: DecodingVocabulary | None = None


class TaskProfile(Closed):
    """A task view over workflow outputs: `outputs` maps role -> output name."""

    kind: Name
    version: Name
    requirement: Literal["required", "ignorable"] = "required"
    outputs: dict[str, str] = Field(default_factory=dict)
    pooling: Pooling | None = None
    decoding: SequenceDecoding | None = None
    batch_invariance: BatchInvariance | None = None
    generation_affecting: bool = False
