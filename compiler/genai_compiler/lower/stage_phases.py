"""A decoder of stages: those of the prompt held against those of later tokens, which must be one decoder."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from genai_compiler.lower.decoder_facts import DecoderFacts
from genai_compiler.lower.decoder_state import state_cells
from genai_compiler.lower.match_ports import MatchedPorts, match_ports
from genai_compiler.lower.matching import Joined, Surroundings, listed, spell_port
from genai_compiler.lower.placed_features import PlacedFeatures, placed_document
from genai_compiler.lower.plain_state import plain_state
from genai_compiler.lower.prompt_window import WINDOW, window_faults
from genai_compiler.lower.stage_chain import Chain, StageGraph
from genai_compiler.lower.staged_workflow import staged_document
from genai_compiler.problem import Problem
from genai_compiler.read.genai_config import GenaiConfig, named
from genai_compiler.read.places import DocPath
from genai_compiler.read.signature import Signature

_PIPELINE: DocPath = ("model", "decoder", "pipeline")


@dataclass(frozen=True)
class StagedDecoder:
    """prompt: the stages that run with it, None where they are those of later tokens; joined: the latter as a graph.

    placed: what features of pictures are written over, a stage before all of these; None where there is none.
    """

    stages: tuple[StageGraph, ...]
    prompt: Chain | None
    step: Chain
    joined: Joined
    placed: PlacedFeatures | None = None

    def document(self, document: dict[str, Any], facts: DecoderFacts) -> dict[str, Any]:
        """A decoder's document with its stages in the place of one component."""
        made = staged_document(document, self.stages, self.prompt, self.step)
        return made if self.placed is None else placed_document(made, facts)


def phase_faults(
    config: GenaiConfig, staged: StagedDecoder, facts: DecoderFacts, around: Surroundings
) -> list[Problem]:
    """What the two phases differ in and must not: inputs, state, lengths. around: what feeds the decoder."""
    if facts.flat:
        port = facts.token_ids
        what = f"the stages take {port.name!r} as {spell_port(port)}, one token of each row a run; such a decoder is "
        what += "compiled as one graph, with prompts that go in whole"
        help = "export the decoder as one graph, or with token ids [batch, sequence]"
        return [Problem("unsupported-package-class", *named(config, _PIPELINE), what, help)]
    first = staged.prompt or staged.step
    faults = [*window_faults(config, facts, first.signature), *_streams(config, facts, first.signature, staged.step)]
    if staged.prompt is None:
        return faults
    joined = replace(staged.joined, model=first.model, signature=first.signature)
    told = partial(plain_state, first.model.graph, first.signature)
    ports, found = match_ports(config, first.signature, replace(around, joined=joined), told)
    faults += [each for each in found if each not in faults]
    pairs = (*ports.keys, *ports.values, *ports.fixed, *ports.combined)
    mine = {(each.past.name, each.present.name) for each in pairs}
    theirs = {(each.input, each.output) for each in state_cells(facts).values()}
    if mine != theirs:
        names = ", ".join(sorted(name for name, _ in mine ^ theirs)[:4])
        what = f"the stages of the prompt and those of later tokens keep different state: {names}"
        faults.append(Problem("unpaired-state", *named(config, _PIPELINE), what, "list the same caches in both"))
    known = {each.name for each in staged.step.signature.inputs} | {past for past, _ in mine}
    alone = [each.name for each in first.signature.inputs if each.name not in known]
    if alone and not found:
        what = f"the stages of the prompt take {listed(alone)}, and no stage of later tokens does"
        help = "a stage that runs in both phases takes it, or none"
        faults.append(Problem("unsupported-package-class", *named(config, _PIPELINE), what, help))
    return [*faults, *_columns(config, facts, ports)]


def _streams(config: GenaiConfig, facts: DecoderFacts, prompt: Signature, step: Chain) -> Iterator[Problem]:
    """What comes out of a graph of embeddings has as many rows as a run takes tokens: a window's, or one."""
    names = {taken.name for _, taken in facts.front.streams} if facts.front is not None else set[str]()
    size = facts.window.size if facts.window is not None else 0
    sides = (("the prompt", prompt, size), ("later tokens", step.signature, 1))
    for when, port, fits in ((when, each, fits) for when, side, fits in sides for each in side.inputs):
        extent = port.shape[1] if port.shape is not None and len(port.shape) > 1 else None
        if port.name in names and isinstance(extent, int) and extent != fits:
            runs = f"runs of {fits}" if fits else "one run of any length"
            what = f"the stages of {when} take {port.name!r} as {spell_port(port)}, and {when} come in {runs}"
            help = "export them with a symbolic sequence axis, or with the size of a window"
            yield Problem("wrong-port", *named(config, _PIPELINE), what, help)


def _columns(config: GenaiConfig, facts: DecoderFacts, ports: MatchedPorts) -> Iterator[Problem]:
    """Caches that move have as many columns with the prompt as later: past and the window's together."""
    if facts.shift is None or facts.window is None:
        return
    axes = {each.input: each.axis for each in facts.shifted}
    wanted = facts.shift.columns - facts.window.size
    wrong = [
        each.past
        for each in (*ports.keys, *ports.values)
        if each.past.shape is not None
        and each.past.name in axes
        and isinstance(extent := each.past.shape[axes[each.past.name]], int)
        and extent != wanted
    ]
    if wrong and wanted >= 0:
        left = f"with a window of {facts.window.size} the {facts.shift.columns} columns leave {wanted}"
        what = f"{wrong[0].name!r} is {spell_port(wrong[0])}: {left}"
        yield Problem("wrong-port", *named(config, WINDOW), what, "export both phases for one number of columns")
