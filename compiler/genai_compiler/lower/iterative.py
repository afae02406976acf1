"""Models around a denoiser that runs in a loop (`strategy.kind: iterative`) -> the one Workflow.

What runs before the loop, once, and what after it, follows from the edges between the graphs; `phases` of the document
is its word on the same matter and decides nothing.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from genai_compiler.lower.bare_decoder import bare_text_facts
from genai_compiler.lower.dataflow import Edge, in_order
from genai_compiler.lower.decoder_facts import component_of
from genai_compiler.lower.denoising_loop import Guidance, Loop, is_picture
from genai_compiler.lower.front_model import upstream
from genai_compiler.lower.iterative_document import iterative_document
from genai_compiler.lower.iterative_ports import STRATEGY, Finding, LoopPorts, find_ports
from genai_compiler.lower.lowered import LoweredGraph
from genai_compiler.lower.matching import listed, rank_of
from genai_compiler.lower.media_capabilities import media_capabilities
from genai_compiler.lower.model_graphs import MODELS, read_graphs
from genai_compiler.lower.scheduler import schedule_parameters, spoken
from genai_compiler.lower.stages import REQUEST_TOKENS, Stage, StageInput
from genai_compiler.lower.unrunnable import check_graph
from genai_compiler.problem import CompileError, errors, ordered
from genai_compiler.read.composite import CompositeDocument, CompositePipeline
from genai_compiler.read.pixel_factor import pixel_factors
from genai_compiler.read.places import Places, format_path
from genai_compiler.read.session_options import SessionOptions
from genai_compiler.read.signature import Port

_KINDS = frozenset({"iterative", "diffusion_steps", "diffusion-steps"})
_OF_GENERATION = frozenset({"no-end-token"})
_MOST_GUIDANCE = 1e6
"""Beyond any scale that leaves a picture, and within every type of numbers."""


def is_iterative(pipeline: CompositePipeline) -> bool:
    """Whether the strategy is a denoising loop."""
    return pipeline.strategy.kind in _KINDS


def lower_iterative(root: Path, document: CompositeDocument, places: Places) -> LoweredGraph:
    """Lower the document of the package in `root`. Raises CompileError with every problem, warnings included."""
    finding = Finding(document, read_graphs(root, document, places), places)
    _check_names(finding)
    ports = find_ports(finding)
    _check_start(finding)
    whole = ports is not None and ports.timestep.dtype.startswith("int")
    schedule = schedule_parameters(finding.strategy, whole, finding.of_strategy)
    loop = _loop(finding, ports, schedule) if ports is not None and schedule else None
    for name, model in finding.graphs.models.items():
        finding.problems.extend(check_graph(model, finding.graphs.artifacts[name], True))
    text, doubts = bare_text_facts(root, None, places)
    asked, unoffered = media_capabilities(document, places)
    problems = ordered((*finding.problems, *(each for each in doubts if each.code not in _OF_GENERATION), *unoffered))
    if loop is None or ports is None or errors(problems):
        raise CompileError(problems)
    return LoweredGraph(
        document=iterative_document(loop) | {"required_capabilities": list(asked)},
        problems=problems,
        notes=_notes(loop),
        text=replace(text, end_ids=()),
        providers=(),
        session_options=SessionOptions(),
        signature=finding.graphs.signatures[ports.denoiser],
    )


def _check_names(finding: Finding) -> None:
    names = list(finding.graphs.signatures)
    if len({component_of(each) for each in names}) < len(names) or any("." in each for each in names):
        what = f"the models are called {listed(names)}: two would share a name, or one has a dot in it"
        finding.report("value-defined-twice", MODELS, what, "call them by plain, different words")
        raise CompileError(finding.problems)


def _check_start(finding: Finding) -> None:
    start, steps = finding.strategy.start_step, finding.strategy.num_steps
    if start and steps is None:
        what = f"the loop starts at step {start}, and 'num_steps' is missing: of how many?"
        finding.of_strategy("missing-field", (), what, "state how many steps a whole run has")
    elif start and steps is not None and start >= steps:
        what = f"the loop starts at step {start} of {steps}: none is left"
        finding.of_strategy("out-of-range", ("start_step",), what, f"it is within 1..{steps - 1}")
    elif start and finding.strategy.timesteps is not None:
        what = "the timesteps are listed, and the loop starts behind some of them"
        finding.of_strategy("out-of-range", ("start_step",), what, "list those that are visited, or none")


# ---- the models around the loop --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Around:
    """Models by when they run, each behind those that feed it."""

    before: tuple[str, ...]
    after: tuple[str, ...]


def _loop(finding: Finding, ports: LoopPorts, schedule: dict[str, object]) -> Loop | None:
    around = _around(finding, ports)
    rows = _rows(finding, ports)
    stages = {name: _stage(finding, ports, name, rows) for name in (*around.before, ports.denoiser, *around.after)}
    before = tuple(stages[name] for name in around.before)
    final = tuple(stages[name] for name in around.after)
    guidance = _guidance(finding, ports, before, stages[ports.denoiser])
    scaling = _scaling(finding, ports)
    images = [(stage, port) for stage in final for port in _unused(stage, ports.edges) if is_picture(port)]
    if errors(finding.problems):
        return None
    size = None
    if len(images) == 1 and images[0][0].name in ports.latents and isinstance((ports.sample.shape or (0, 0))[1], int):
        stage, port = images[0]
        size = pixel_factors(finding.graphs.models[stage.name], ports.latents[stage.name], port)
    return Loop(
        denoiser=stages[ports.denoiser],
        sample=ports.sample,
        estimate=ports.estimate,
        timestep=ports.timestep,
        before=before,
        final=final,
        results=tuple((stage, port) for stage in final for port in _unused(stage, ports.edges)),
        latents=ports.latents,
        schedule=schedule,
        steps=finding.strategy.num_steps,
        strength=_strength(finding),
        guidance=guidance,
        size=size,
        scaling=scaling,
    )


def _around(finding: Finding, ports: LoopPorts) -> _Around:
    models = in_order(tuple(finding.graphs.signatures), ports.edges)
    after = {name for name in models if {name, *upstream(name, ports.edges)} & set(ports.latents)}
    before = {name for name in upstream(ports.denoiser, ports.edges) if name != ports.denoiser}
    before |= {each for name in after for each in upstream(name, ports.edges)} - after
    for name in models:
        if name in before & after:
            what = f"'{name}' takes the latents that the loop ends with, and feeds the loop"
            finding.report("cyclic-dataflow", (*MODELS, name), what, "leave one edge out")
        elif name not in (*before, *after, ports.denoiser):
            what = f"nothing takes what the model '{name}' gives"
            help = "join one of its outputs in pipeline.dataflow, or leave the model out"
            finding.report("unsupported-package-class", (*MODELS, name), what, help)
    ordered_models = [name for name in models if name != ports.denoiser]
    return _Around(
        tuple(name for name in ordered_models if name in before - after),
        tuple(name for name in ordered_models if name in after),
    )


def _rows(finding: Finding, ports: LoopPorts) -> dict[str, str]:
    """Model -> the symbol of its first axes that stands for rows, as its graph spells it."""
    rows = {ports.denoiser: _first(ports.sample)}
    rows |= {name: _first(port) for name, port in ports.latents.items()}
    for _ in finding.graphs.signatures:  # as long as the longest chain of models
        for each in ports.edges:
            for known, port, other, far in (
                (each.target, each.input, each.source, each.output),
                (each.source, each.output, each.target, each.input),
            ):
                if rows.get(known) and _first(port) == rows[known]:
                    rows.setdefault(other, _first(far))
    return rows


def _first(port: Port) -> str:
    extent = port.shape[0] if port.shape else None
    return extent if isinstance(extent, str) else ""


def _stage(finding: Finding, ports: LoopPorts, name: str, rows: dict[str, str]) -> Stage:
    """A model with each input fed: by an edge, by the loop, by the request's tokens, or by the caller."""
    signature = finding.graphs.signatures[name]
    fed = {each.input.name: each.value for each in ports.edges if each.target == name}
    tokens = _tokens(finding, ports, name, fed)
    inputs: list[StageInput] = []
    for port in signature.inputs:
        own = port.name in (ports.sample.name, ports.timestep.name) if name == ports.denoiser else False
        if port.name in fed:
            inputs.append(StageInput(port, fed[port.name]))
        elif own or (name in ports.latents and port == ports.latents[name]):
            inputs.append(StageInput(port, ""))
        elif port == tokens:
            inputs.append(StageInput(port, REQUEST_TOKENS, asked=True, tokens=True))
        else:
            inputs.append(StageInput(port, f"application.{component_of(name)}.{port.name}", asked=True))
    return Stage(name, finding.graphs.artifacts[name], signature, tuple(inputs), rows.get(name, ""))


def _tokens(finding: Finding, ports: LoopPorts, name: str, fed: dict[str, str]) -> Port | None:
    """The input for the prompt's tokens of a model before the loop: named in `io`, else its only integers [rows, n]."""
    if name == ports.denoiser or name in ports.latents:
        return None
    io = finding.document.pipeline.models[name].io
    inputs = [each for each in finding.graphs.signatures[name].inputs if each.name not in fed]
    if io is not None and io.token_input is not None:
        found = [each for each in inputs if each.name == io.token_input]
        path = (*MODELS, name, "io", "token_input")
        if not found:
            help = f"its inputs are {listed(each.name for each in inputs)}"
            finding.report("missing-input", path, f"the graph of '{name}' has no input '{io.token_input}'", help)
        return found[0] if found else None
    found = [each for each in inputs if each.dtype in ("int64", "int32") and rank_of(each) == 2]
    if len(found) > 1:
        what = f"{listed(each.name for each in found)} of '{name}' could each take the prompt's tokens"
        help = f"name one: pipeline.models.{name}.io.token_input"
        finding.report("ambiguous-port", (*MODELS, name), what, help)
    return found[0] if len(found) == 1 else None


# ---- guidance, scaling, results --------------------------------------------------------------------------------------


def _guidance(finding: Finding, ports: LoopPorts, before: tuple[Stage, ...], denoiser: Stage) -> Guidance | None:
    """What the second, unconditional pass takes instead; None where there is none."""
    strategy, scale = finding.strategy, finding.strategy.guidance_scale
    name = strategy.cfg_conditioning_input
    if scale is not None and scale != 1 and name is None:
        what = f"guidance_scale is {scale}, and 'cfg_conditioning_input' is missing: which input does guidance vary?"
        finding.of_strategy("missing-field", (), what, "name the denoiser's input for the prompt")
        return None
    if name is None:
        return None
    if scale is not None and scale > _MOST_GUIDANCE:
        what, help = f"guidance_scale is {scale}", "7.5 is usual; 1.0 is none"
        finding.of_strategy("out-of-range", ("guidance_scale",), what, help)
        return None
    if scale is None:
        what = f"guidance varies '{name}', and 'guidance_scale' is missing: how far?"
        finding.of_strategy("missing-field", (), what, "7.5 is usual; 1.0 is none")
        return None
    varied = next((each for each in denoiser.inputs if each.port.name == name), None)
    if varied is None or not varied.value:
        what = f"the denoiser '{ports.denoiser}' has no input '{name}' for a prompt"
        known = [each.port.name for each in denoiser.inputs if each.value]
        finding.of_strategy("missing-input", ("cfg_conditioning_input",), what, f"such inputs are {listed(known)}")
        return None
    prompted = {stage.name for stage in before if any(each.tokens for each in stage.inputs)}
    for stage in before:
        if upstream(stage.name, ports.edges) & prompted:
            prompted.add(stage.name)
    values = {each.value for each in ports.edges if each.source in prompted}
    if varied.asked:
        values.add(varied.value)
    elif varied.value not in values:
        what = f"guidance varies '{name}', and nothing of the prompt's tokens reaches it"
        help = "name the input that the text model feeds, or its tokens: io.token_input"
        finding.of_strategy("missing-input", ("cfg_conditioning_input",), what, help)
    return Guidance(float(scale), name, tuple(each for each in before if each.name in prompted), frozenset(values))


def _strength(finding: Finding) -> float | None:
    """The part of the steps that is run from a picture's latents; None for a loop that starts from noise."""
    start, steps = finding.strategy.start_step, finding.strategy.num_steps
    return (steps - start) / steps if start and steps else None


def _scaling(finding: Finding, ports: LoopPorts) -> float | None:
    """What latents are divided by before they are decoded, as far as the document says; the graph can't tell."""
    found = {name: finding.document.pipeline.models[name].scaling_factor for name in ports.latents}
    for name, factor in found.items():
        path = (*MODELS, name, "scaling_factor") if factor is not None else (*MODELS, name)
        if factor is None:
            what = f"nothing says how latents are scaled before '{name}' decodes them; they are not"
            help = "if its graph does not do it itself, state scaling_factor there (0.18215 is common)"
            finding.report("unscaled-latents", path, what, help, True)
        elif not 0 < factor < float("inf"):
            finding.report("out-of-range", path, f"scaling_factor is {factor}", "it is above 0")
    if len(set(found.values())) > 1:
        finding.report("out-of-range", MODELS, "two models take latents of different scales", "state one for both")
    return next(iter(found.values()), None)


def _unused(stage: Stage, edges: tuple[Edge, ...]) -> tuple[Port, ...]:
    """Outputs that no other model takes: results of the run."""
    taken = {each.output.name for each in edges if each.source == stage.name}
    return tuple(each for each in stage.signature.outputs if each.name not in taken)


def _notes(loop: Loop) -> tuple[str, ...]:
    said = [f"{format_path(STRATEGY)}: {spoken(loop.schedule)}"]
    if loop.guidance is not None:
        said.append(f"guidance: {loop.guidance.scale} over a second pass without the prompt ({loop.guidance.port})")
    if loop.strength is not None:
        said.append("the loop starts from latents that the caller gives, under noise")
    if any(is_picture(port) for _, port in loop.results):
        said.append("levels of the picture: from -1 to 1, as decoders of latents give them; the document does not say")
    if loop.size is None:
        said.append("noise is the caller's: the graphs do not tell how large a picture latents make")
    return tuple(said)
