"""A draft model beside a decoder -> the standard's `speculative` block: a proposer that drafts one token a run.

A draft never changes a token (docs/decisions/0010), so one that can't be driven refuses nothing: the package runs
without it, and the reason is said. Both versions of `genai_config.json` come here; the draft's ports are found as a
decoder's are, by the names of version 1 and by its graph.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from genai_compiler.lower.config_decoder import config_decoder
from genai_compiler.lower.decoder_facts import PROMPT, DecoderFacts
from genai_compiler.lower.decoder_workflow import decoder_document
from genai_compiler.problem import CompileError, errors
from genai_compiler.read.genai_config import DecoderConfig, GenaiConfig

Data = dict[str, Any]
DRAFT = "draft"
_CONTRACT = "genai-compile.draft-model"
_DECODER, _SEED = "decoder", "package.state_seed"
_KEPT = "distribution_preserving"
_ALONE = frozenset({_DECODER, "token_policy"})
_NAMES = ("initializer", "service_group")
"""Fields of a cell that name something of the workflow."""


@dataclass(frozen=True)
class DraftModel:
    """What a file says of a draft model. component: its name in the workflow; width: tokens drafted at once."""

    component: str
    artifact: str
    config: DecoderConfig
    width: int


class Undrivable(Exception):
    """Why a draft model is not used, in words that follow its name."""


def with_draft(document: Data, target: DecoderFacts, config: GenaiConfig, root: Path, draft: DraftModel) -> Data:
    """The document of a decoder alone with the draft model as its proposer.

    config: of the package, for what the draft shares with the decoder. Raises Undrivable.
    """
    if why := _target_lacks(target, document["pipeline"]["workflow"]):
        raise Undrivable(why)
    facts = _facts(root, config, target, draft)
    if why := _draft_lacks(facts, target):
        raise Undrivable(why)
    return _joined(document, facts, draft)


def _facts(root: Path, config: GenaiConfig, target: DecoderFacts, draft: DraftModel) -> DecoderFacts:
    """The draft read as a decoder of the target's context and vocabulary. Raises Undrivable."""
    alone = replace(
        config,
        decoder=draft.config,
        context_length=target.max_sequence_length,
        vocab_size=None,
        search={},
        state_groups=(),
    )
    try:
        return config_decoder(root, alone, draft.artifact).facts
    except CompileError as error:
        said = errors(error.problems)
        raise Undrivable(f"its graph is no decoder that can be driven: {said[0].what}") from error


def _target_lacks(facts: DecoderFacts, workflow: Data) -> str:
    """Why nothing can draft for a decoder; "" where something can."""
    if facts.front is not None or facts.prompt != PROMPT or facts.crossed or {*workflow["components"]} != _ALONE:
        return "other models stand beside the decoder"
    if facts.last_token_only or len(facts.logits.shape or (0, 0, 0)) != 3:
        return "the decoder gives logits of the last position only, and a run has to verify several"
    if facts.one_token or facts.window is not None:
        return "the decoder takes a fixed number of tokens a run"
    if facts.length_switches or facts.flag is not None:
        return "the decoder changes its tables or its network within a text"
    if facts.paged is not None or facts.static_cache is not None or facts.shifted or facts.lengths:
        return "the decoder's caches can't be taken back"
    return ""


def _draft_lacks(facts: DecoderFacts, target: DecoderFacts) -> str:
    """Why a decoder can't draft for another; "" where it can."""
    taken = [*facts.extras, *facts.lengths, *facts.zero_inputs, *facts.unread]
    if facts.front is not None or facts.flag is not None or facts.paged is not None or taken:
        return "its graph takes more than tokens, a mask, positions and state"
    grown = [each for each in facts.states if each.capacity is None]
    if facts.combined or facts.static_cache or facts.windows or facts.shifted or len(grown) < len(facts.states):
        return "its caches are none that grow, with keys and values apart"
    if facts.aliasing == "required":
        return "its graph declares past and present of a cache with one length"
    if not facts.states and not facts.fixed_states:
        return "its graph keeps no state from token to token"
    if facts.position_ids is not None and len(facts.position_ids.shape or (0, 0)) != 2:
        return "its positions have several axes"
    if facts.one_token and (facts.token_ids.shape or (0, 0))[-1] != 1:
        return "its graph takes one token a run"
    if facts.vocab_size != target.vocab_size:
        return f"it has {facts.vocab_size} token ids and the decoder {target.vocab_size}"
    if facts.max_sequence_length < target.max_sequence_length:
        return f"it holds {facts.max_sequence_length} positions and the decoder {target.max_sequence_length}"
    return ""


def _joined(document: Data, facts: DecoderFacts, draft: DraftModel) -> Data:
    """The document with a component, cells and groups for the draft, and the block that says who proposes."""
    workflow, own = (each["pipeline"]["workflow"] for each in (document, decoder_document(facts, (), {})))
    components = {**workflow["components"], draft.component: own["components"][_DECODER]}
    components[draft.component]["contract"] = {"id": _CONTRACT, "version": "1"}
    components = {
        name: {**each, "contract": {**each["contract"], "equivalence": _KEPT}} for name, each in components.items()
    }
    seeds = {_renamed(name): each for name, each in own["inputs"].items() if name.startswith(_SEED)}
    cells = {
        _renamed(name): {key: _renamed(each) if key in _NAMES else each for key, each in cell.items()}
        for name, cell in own["state"].items()
        if "service_group" in cell
    }
    target = [name for name, cell in workflow["state"].items() if "service_group" in cell]
    service = workflow["serving"]["state_service"]
    groups = dict(service["groups"])
    for name, group in own["serving"]["state_service"]["groups"].items():
        ports = {_renamed(cell): alias for cell, alias in group["ports"][_DECODER].items()}
        groups[_renamed(name)] = {**group, "aliasing": "forbidden", "ports": {draft.component: ports}}
    for name, group in groups.items():
        groups[name] = {**group, "capabilities": {**group["capabilities"], "rollback_positions": draft.width}}
    joined = {
        **workflow,
        "inputs": workflow["inputs"] | seeds,
        "components": components,
        "state": workflow["state"] | cells,
        "serving": {**workflow["serving"], "state_service": {**service, "groups": groups}},
    }
    block = _speculative(facts, draft, [*target, *cells], groups)
    return {**document, "pipeline": {"workflow": joined}, "speculative": block}


def _speculative(facts: DecoderFacts, draft: DraftModel, rolled_back: list[str], groups: Data) -> Data:
    ports = {
        cell: alias for group in groups.values() for cell, alias in group["ports"].get(draft.component, {}).items()
    }
    chain = {
        "kind": "chained",
        "token_embedding_input": facts.token_ids.name,
        "logits_output": facts.logits.name,
        "recurrent": [
            {"state": cell, "input": alias["input"], "output": alias["output"]} for cell, alias in ports.items()
        ],
    }
    return {
        "proposer": draft.component,
        "target": _DECODER,
        "proposal_execution": chain,
        "vocabulary": {"kind": "identical"},
        "max_proposal_width": draft.width,
        "rollback_state": rolled_back,
        "distribution_preserving": True,
    }


def _renamed(name: str) -> str:
    """A cell, a group or a seed of the canonical decoder, as the draft's."""
    seed = name.startswith(_SEED)
    return name.replace(_SEED, "package.draft_seed", 1) if seed else name.replace("decoder_", "draft_", 1)
