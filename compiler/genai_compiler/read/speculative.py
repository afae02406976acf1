"""The proposer/target contract (section 7.1 of the metadata standard)."""

from typing import Annotated, Literal

from pydantic import Field

from genai_compiler.read.fields import Closed, Count, Items, Name, Positive, Tagged, UniqueNames


class BlockProposal(Tagged):
    """One proposer invoke yields the whole block."""

    kind: Literal["block"] = "block"


class ProposalRecurrence(Closed):
    """A proposer output that becomes its input for the next draft."""

    state: Name
    input: Name
    output: Name


class ComponentOutput(Closed):
    """An output port of a component."""

    component: Name
    output: Name


class TokenEmbedding(Closed):
    """An initializer of a component whose rows embed tokens."""

    component: Name
    table: Name


class ChainedProposal(Tagged):
    """One draft token per proposer invoke."""

    kind: Literal["chained"] = "chained"
    token_embedding_input: Name
    logits_output: Name
    recurrent: Items[ProposalRecurrence] = ()
    folded_carry_output: str | None = None
    folded_carry_seed: ComponentOutput | None = None
    token_embedding: TokenEmbedding | None = None


class IdenticalVocabulary(Tagged):
    """Proposer ids are target ids."""

    kind: Literal["identical"] = "identical"


class SubsetVocabulary(Tagged):
    """The proposer knows the first `proposer_vocab_size` ids."""

    kind: Literal["subset"] = "subset"
    proposer_vocab_size: Count


class MappedVocabulary(Tagged):
    """A file maps proposer ids to target ids."""

    kind: Literal["mapped"] = "mapped"
    artifact: str


ProposalExecution = Annotated[BlockProposal | ChainedProposal, Field(discriminator="kind")]
ProposerVocabulary = Annotated[IdenticalVocabulary | SubsetVocabulary | MappedVocabulary, Field(discriminator="kind")]


class Speculative(Closed):
    """`speculative`: who proposes, who verifies, what is shared and rolled back."""

    proposer: Name
    target: Name
    proposal_execution: ProposalExecution = BlockProposal()
    port_bindings: dict[str, str] = Field(default_factory=dict)
    shared_state: UniqueNames = ()
    shared_weights: UniqueNames = ()
    vocabulary: ProposerVocabulary
    max_proposal_width: Positive
    distribution_preserving: bool = False
    rollback_state: UniqueNames = ()
