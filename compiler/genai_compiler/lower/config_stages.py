"""A v1 package whose decoder is cut into stages (`model.decoder.pipeline`) -> the one Workflow."""

from pathlib import Path

from genai_compiler.lower.config_decoder import config_decoder
from genai_compiler.lower.config_models import lower_models
from genai_compiler.lower.decoder_workflow import decoder_document
from genai_compiler.lower.lowered import Lowered
from genai_compiler.lower.matching import Joined, Surroundings
from genai_compiler.lower.placed_features import placed_features, places_features
from genai_compiler.lower.prompt_window import prompt_window
from genai_compiler.lower.stage_chain import join_stages, stage_graphs
from genai_compiler.lower.stage_phases import StagedDecoder, phase_faults
from genai_compiler.problem import CompileError, Problem, errors
from genai_compiler.read.genai_config import GenaiConfig, named
from genai_compiler.read.places import DocPath

_PIPELINE: DocPath = ("model", "decoder", "pipeline")


def lower_stages(root: Path, config: GenaiConfig, found: list[Problem]) -> Lowered:
    """Lower the package in `root`. found: problems of the text, to go with the result.

    Raises CompileError with every problem beside these.
    """
    staged, faults = _staged(root, config)
    if config.components or config.staged_vision is not None:
        try:
            return lower_models(root, config, "", [*found, *faults], staged)
        except CompileError as error:
            raise CompileError([*error.problems, *faults]) from error
    around = Surroundings(joined=staged.joined)
    try:
        decoder = config_decoder(root, config, "", around)
    except CompileError as error:
        raise CompileError([*error.problems, *faults]) from error
    faults += phase_faults(config, staged, decoder.facts, around)
    if errors(faults):
        raise CompileError([*decoder.problems, *faults])
    document = staged.document(decoder_document(decoder.facts, decoder.text.eos, decoder.defaults), decoder.facts)
    return decoder.lowered(config, document, [*found, *faults])


def _staged(root: Path, config: GenaiConfig) -> tuple[StagedDecoder, list[Problem]]:
    """The stages as one decoder, and problems of how prompts are cut, which leave it what it is."""
    stages = stage_graphs(root, config)
    placed = placed_features(config, stages[0]) if places_features(config) else None
    given = () if placed is None else (placed.stream,)
    stages = stages if placed is None else stages[1:]
    (prompt, first), (step, later) = (join_stages(config, stages, phase, given) for phase in (True, False))
    problems = list(dict.fromkeys((*first, *later)))
    if placed is not None and step is not None and placed.stream not in {each.name for each in step.signature.inputs}:
        what = f"no stage behind {placed.stage.config.name!r} takes {placed.stream!r}, which it gives"
        problems.append(Problem("missing-input", *named(config, _PIPELINE), what, "list it in the inputs of one"))
    if not problems and (step is None or prompt is None):
        when = "later tokens" if step is None else "the prompt"
        what = f"no stage runs with {when}"
        problems.append(Problem("no-logits", *named(config, _PIPELINE), what, "set run_on_prompt or run_on_token_gen"))
    if problems or step is None or prompt is None:
        raise CompileError(problems)
    own = None if prompt.members == step.members else prompt
    window, shifts, faults = prompt_window(config)
    with_prompt = (own.model, own.signature) if own is not None else None
    joined = Joined(step.model, step.signature, with_prompt, window, shifts)
    return StagedDecoder(stages, own, step, joined, placed), faults
