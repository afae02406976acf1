"""The blocks that extend version 2 of `genai_config.json` (v2.1) as typed data: who drafts, who owns the loop, what is
done to scores.

Only their forms; `pipeline_drafts` and `pipeline_logits` say what of them is compiled.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from genai_compiler.read.fields import Closed, Count, Items, Name, Positive, Words

STRATEGIES = ("speculative",)
PRODUCERS = ("draft_model", "self_speculative", "ngram", "extra_heads")
ACCEPTANCES = ("greedy", "rejection_sampling", "typical")
OPERATIONS = (
    "repetition_penalty", "min_length", "logit_bias", "grammar", "combine", "temperature", "top_k", "top_p", "sample",
)  # fmt: skip
TAKES: Mapping[str, str] = {
    "logit_bias": "map",
    **dict.fromkeys(("repetition_penalty", "min_length", "temperature", "top_k", "top_p"), "value"),
}
"""Operation on scores -> the field that it takes beside `op`."""


class Roles(Closed):
    """Which session plays which part in decoding."""

    target: Name | None = None
    draft: Name | None = None
    amateur: Name | None = None
    expert: Name | None = None
    unconditional: Name | None = None


class NgramEntry(Closed):
    """How drafts are looked up in the text so far."""

    min_match: Positive = 2
    max_draft: Positive = 8
    window: Positive = 256


class DraftEntry(Closed):
    """Who drafts."""

    producer: Annotated[Name, Words(PRODUCERS)] = "draft_model"
    session: Name | None = None
    depth: Positive | None = None
    heads: Positive | None = None
    ngram: NgramEntry | None = None


class VerifyEntry(Closed):
    """Who verifies."""

    session: Name | None = None


class TreeEntry(Closed):
    """Drafts that branch."""

    topology: Name | None = None
    max_nodes: Count | None = None
    max_depth: Count | None = None
    medusa_choices: Items[Items[int]] = ()


class StrategyEntry(Closed):
    """`pipeline.strategy`: decoding by drafts."""

    kind: Annotated[Name, Words(STRATEGIES)]
    draft: DraftEntry = Field(default_factory=DraftEntry)
    verify: VerifyEntry = Field(default_factory=VerifyEntry)
    num_speculative_tokens: Positive = 5
    acceptance: Annotated[Name, Words(ACCEPTANCES)] = "greedy"
    typical_threshold: float | None = None
    tree: TreeEntry | None = None


class ControllerEntry(Closed):
    """A native library that owns the loop of decoding. config: its own text."""

    library: str | None = None
    entry_point: str | None = None
    config: str | None = None


class LogitsEntry(Closed):
    """One change of the scores, or one step of the choice. map: token id -> what is added to its score."""

    op: Annotated[Name, Words(OPERATIONS)]
    value: float | None = None
    map: dict[str, float] | None = None
    backend: Name | None = None
    mode: Name | None = None
    alpha: float | None = None
    expert: Name | None = None
    amateur: Name | None = None
    grammar: Any = None
    stateful: bool | None = None

    @classmethod
    def fields_beside(cls, stated: Mapping[str, object]) -> Iterable[str]:
        """The fields that mean something to the operation that is stated."""
        op = stated.get("op")
        if not isinstance(op, str) or op not in OPERATIONS or op in ("combine", "grammar"):
            return cls.model_fields
        return ("op", TAKES[op]) if op in TAKES else ("op",)


class KvCacheWish(Closed):
    """What keys and values would be kept in."""

    dtype: Literal["fp32", "fp16", "bf16", "fp8", "int8", "int4"] | None = None
    quant: Literal["none", "per_token", "per_channel", "per_tensor"] | None = None


class PagingWish(Closed):
    """Caches in pages."""

    enabled: bool | None = None
    block_size: Positive | None = None


class PrefixWish(Closed):
    """Caches that requests share."""

    enabled: bool | None = None


class WindowWish(Closed):
    """Caches that keep so many positions."""

    size: Positive | None = None
    sink_tokens: Count | None = None


class PrefillWish(Closed):
    """Prompts in pieces."""

    max_batched_tokens: Positive | None = None


class RuntimeWishes(Closed):
    """`session_options.runtime`: what a runtime might do with a session."""

    kv_cache: KvCacheWish | None = None
    paging: PagingWish | None = None
    prefix_cache: PrefixWish | None = None
    sliding_window: WindowWish | None = None
    chunked_prefill: PrefillWish | None = None
    precision: Literal["fp32", "fp16", "bf16", "fp8"] | None = None


class BuildRequires(Closed):
    """`session_options.build_requires`: what the graph is said to be built with."""

    attention: Literal["mha", "mqa", "gqa"] | None = None
    quantization: Literal["none", "awq", "gptq", "int8", "int4", "fp8"] | None = None
    extra_heads: Literal["none", "medusa", "mtp", "eagle", "eagle3", "hydra"] | None = None


class WishedOptions(Closed):
    """The two blocks of a session's options that no runtime heeds."""

    runtime: RuntimeWishes | None = None
    build_requires: BuildRequires | None = None


class WishedSession(Closed):
    """A session with nothing but these."""

    session_options: WishedOptions


class WishedPipeline(Closed):
    """The sessions that have them."""

    sessions: dict[str, WishedSession]


class WishedDocument(Closed):
    """A whole document with nothing else in it, so that faults stand at their own places."""

    pipeline: WishedPipeline
