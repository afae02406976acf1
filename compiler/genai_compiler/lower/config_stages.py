"""A v1 package whose decoder is cut into stages (`model.decoder.pipeline`) -> the one Workflow."""

from functools import partial
from pathlib import Path

from genai_compiler.lower.config_decoder import config_decoder
from genai_compiler.lower.decoder_facts import DecoderFacts, PromptWindow
from genai_compiler.lower.decoder_state import state_cells
from genai_compiler.lower.decoder_workflow import decoder_document
from genai_compiler.lower.lowered import Lowered
from genai_compiler.lower.match_ports import match_ports
from genai_compiler.lower.matching import Joined, Surroundings
from genai_compiler.lower.plain_state import plain_state
from genai_compiler.lower.stage_chain import Chain, join_stages, stage_graphs
from genai_compiler.lower.staged_workflow import staged_document
from genai_compiler.problem import CompileError, Problem, errors
from genai_compiler.read.genai_config import GenaiConfig, named
from genai_compiler.read.places import DocPath

_PIPELINE: DocPath = ("model", "decoder", "pipeline")
_WINDOW: DocPath = ("model", "decoder", "sliding_window")


def lower_stages(root: Path, config: GenaiConfig, found: list[Problem]) -> Lowered:
    """Lower the package in `root`. found: problems of the text, to go with the result.

    Raises CompileError with every problem beside these.
    """
    if config.components:
        names = ", ".join(config.components)
        what = f"a decoder of stages beside {names}: what the stages take of the media is not compiled yet"
        help = "a text-only export of the same model has no stage for media"
        raise CompileError([Problem("unsupported-package-class", *named(config, _PIPELINE), what, help)])
    stages = stage_graphs(root, config)
    (prompt, first), (step, later) = (join_stages(config, stages, phase) for phase in (True, False))
    problems = list(dict.fromkeys((*first, *later)))
    if not problems and (step is None or prompt is None):
        when = "later tokens" if step is None else "the prompt"
        what = f"no stage runs with {when}"
        problems.append(Problem("no-logits", *named(config, _PIPELINE), what, "set run_on_prompt or run_on_token_gen"))
    if problems or step is None or prompt is None:
        raise CompileError(problems)
    own = None if prompt.members == step.members else prompt
    window, faults = _window(config)
    joined = Joined(step.model, step.signature, own is not None, window)
    try:
        decoder = config_decoder(root, config, "", Surroundings(joined=joined))
    except CompileError as error:
        raise CompileError([*error.problems, *faults]) from error
    faults += _differences(config, own, decoder.facts, window)
    if errors(faults):
        raise CompileError([*decoder.problems, *faults])
    document = staged_document(decoder_document(decoder.facts, decoder.text.eos, decoder.defaults), stages, own, step)
    return decoder.lowered(config, document, [*found, *faults])


def _window(config: GenaiConfig) -> tuple[PromptWindow | None, list[Problem]]:
    """How prompts are cut, None where they go in whole."""
    stated = config.decoder.sliding_window
    if stated is None or not stated.slide_inputs:
        return None, []
    faults: list[Problem] = []
    if stated.slide_key_value_cache:
        what = "a cache that is shifted by a window (slide_key_value_cache, true by default) is not compiled yet"
        help = "set it to false if the caches keep every position"
        faults.append(Problem("unsupported-package-class", *named(config, _WINDOW), what, help))
    if stated.window_size < 2:
        what = f"window_size is {stated.window_size}; prompts are cut into windows of two tokens or more"
        faults.append(Problem("bad-value", *named(config, (*_WINDOW, "window_size")), what))
    if stated.alignment != "left":
        what = f"alignment is {stated.alignment!r}: with padding before the prompt its lengths count the padding too"
        help = "export with alignment left, which current exporters write"
        faults.append(Problem("unsupported-package-class", *named(config, (*_WINDOW, "alignment")), what, help))
    return PromptWindow(stated.window_size, config.pad or 0), faults


def _differences(
    config: GenaiConfig, prompt: Chain | None, facts: DecoderFacts, window: PromptWindow | None
) -> list[Problem]:
    """Stages of the prompt that do not fit those of later tokens: other state, or a length that nothing gives."""
    faults: list[Problem] = []
    if window is not None and (facts.attention_mask is not None or facts.position_ids is not None or not facts.lengths):
        what = "prompts are cut into windows, and the graphs take a mask or positions, not lengths"
        help = "export with past_sequence_length and total_sequence_length, or set slide_inputs to false"
        faults.append(Problem("unsupported-package-class", *named(config, _WINDOW), what, help))
    if window is not None and facts.aliasing == "forbidden":
        what = "prompts are cut into windows, and the graphs append to their caches: a run would not find its place"
        help = "export with GroupQueryAttention, which writes in place, or set slide_inputs to false"
        faults.append(Problem("unsupported-package-class", *named(config, _WINDOW), what, help))
    if prompt is None:
        return faults
    joined = Joined(prompt.model, prompt.signature, True, window)
    told = partial(plain_state, prompt.model.graph, prompt.signature)
    ports, found = match_ports(config, prompt.signature, Surroundings(joined=joined), told)
    faults += [each for each in found if each not in faults]
    pairs = (*ports.keys, *ports.values, *ports.fixed, *ports.combined)
    mine = {(each.past.name, each.present.name) for each in pairs}
    theirs = {(each.input, each.output) for each in state_cells(facts).values()}
    if mine != theirs:
        names = ", ".join(sorted(name for name, _ in mine ^ theirs)[:4])
        what = f"the stages of the prompt and those of later tokens keep different state: {names}"
        faults.append(Problem("unpaired-state", *named(config, _PIPELINE), what, "list the same caches in both"))
    return faults
