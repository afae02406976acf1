"""A v1 configuration of several graphs around one decoder -> the one Workflow.

`encoder` runs once, before the loop; `embedding` before every pass of the decoder, since every token needs it; `vision`
and `speech` once, where the caller gives what they take.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from genai_compiler.lower.composite import OUTPUT_START, media_stages, with_rows
from genai_compiler.lower.config_decoder import Start, config_decoder, graph_file
from genai_compiler.lower.config_joins import DECODER, join_components
from genai_compiler.lower.dataflow import Edge
from genai_compiler.lower.decoder_facts import PROMPT, FrontFacts, component_of
from genai_compiler.lower.decoder_workflow import decoder_document
from genai_compiler.lower.front_model import FrontModel, media_models
from genai_compiler.lower.lowered import Lowered
from genai_compiler.lower.match_ports import match_ports
from genai_compiler.lower.matching import Surroundings, listed, rank_of, spell_port
from genai_compiler.lower.media_notes import AUDIO, IMAGE, MERGE, PATCH, MediaNotes, Said, SaidNumber
from genai_compiler.lower.placed_features import check_features
from genai_compiler.lower.source_end import with_end
from genai_compiler.lower.stage_phases import StagedDecoder, phase_faults
from genai_compiler.lower.stages import REQUEST_TOKENS, Stage, StageInput
from genai_compiler.lower.vision_stages import VisionStages, vision_stages
from genai_compiler.lower.with_media import with_media
from genai_compiler.problem import CompileError, Problem, Severity, errors
from genai_compiler.read.genai_config import GenaiConfig, named
from genai_compiler.read.places import DocPath
from genai_compiler.read.signature import Port, Signature, load_graph, signature_of

_FRONT = "embedding"


@dataclass(frozen=True)
class _Graphs:
    """The graphs of a package by component, the decoder's too."""

    config: GenaiConfig
    artifacts: dict[str, str]
    signatures: dict[str, Signature]

    def problem(self, code: str, path: DocPath, what: str, help: str) -> Problem:
        return Problem(code, *named(self.config, path), what, help)


def lower_models(
    root: Path, config: GenaiConfig, decoder: str, found: list[Problem], staged: StagedDecoder | None = None
) -> Lowered:
    """Lower the package in `root`. decoder: its graph, or `staged`, what it is cut into; found: problems of the text.

    Raises CompileError with every further problem.
    """
    placed = staged.placed if staged is not None else None
    seen = vision_stages(root, config, _taken(config, staged))
    config = seen.config if seen is not None else config
    graphs = _graphs(root, config, decoder, staged)
    edges, problems = join_components(config, graphs.signatures)
    edges = (*edges, *(seen.edges if seen is not None else ()))
    if placed is not None:
        edges = (*edges, placed.edge(graphs.signatures, config.components["vision"]))
        problems = (*problems, *check_features(config, edges[-1]))
    else:
        problems = (*problems, *_no_embedding(graphs))
    problems = (*problems, *_unused(graphs, edges), *_sessions(config))
    if errors(problems):
        raise CompileError(problems)
    try:
        one_row = staged is not None and staged.joined.window is not None
        three = _axes(graphs) == 3
        front = _front(graphs, edges, one_row) if placed is None else placed.front(edges[-1], three)
        stages = tuple(_stages(graphs, edges, front, seen))
        from_encoder = any(each.tokens for stage in stages for each in stage.inputs)
        start = Start(OUTPUT_START if from_encoder else PROMPT, front.facts if front is not None else None)
        around = replace(_around(graphs, edges, front, stages), joined=staged.joined if staged is not None else None)
        made = config_decoder(root, config, decoder, around, start)
    except CompileError as error:
        raise CompileError([*problems, *error.problems]) from error
    if staged is not None:
        problems = (*problems, *phase_faults(config, staged, made.facts, around))
        if errors(problems):
            raise CompileError([*problems, *made.problems])
    stages = with_rows(stages, edges, DECODER, made.facts)
    media, once = media_stages(stages, edges, front)
    plain = decoder_document(made.facts, made.text.eos, made.defaults)
    plain = plain if staged is None else staged.document(plain, made.facts)
    tokenizer = root / made.text.tokenizer if made.text.tokenizer else None
    document, of_media = with_media(plain, once, media, media_notes(root, config), made.facts, tokenizer)
    mask = config.components["encoder"].inputs["attention_mask"] if "encoder" in config.components else ""
    document, of_source = with_end(document, once, made.facts, config, made.text.eos, mask)
    of_media = (*of_media, *of_source)
    if errors(of_media):
        raise CompileError([*problems, *made.problems, *of_media])
    return made.lowered(config, document, [*found, *problems, *of_media])


def media_notes(root: Path, config: GenaiConfig) -> MediaNotes:
    """What the configuration says of its media: processor files, and the tokens that stand for an entry of each."""
    said = {}
    for kind, section in ((IMAGE, "vision"), (AUDIO, "speech")):
        path: DocPath = ("model", section, "config_filename")
        token = config.media_tokens.get(kind)
        stated = config.processor_files.get(kind)
        said[kind] = Said(
            stated,
            named(config, path),
            token=token,
            count=config.visual_tokens if kind == IMAGE else None,
            frames=config.sound_frames if kind == AUDIO else None,
            token_spot=named(config, ("model", f"{kind}_token_id")),
            numbers=tuple(_numbers(config)) if kind == IMAGE else (),
        )
    return MediaNotes(root, said)


def _numbers(config: GenaiConfig) -> Iterator[SaidNumber]:
    """Patches and what is made of them, as `vision` states them."""
    for of, key in ((PATCH, "patch_size"), (MERGE, "spatial_merge_size")):
        if key in config.vision_numbers:
            yield SaidNumber(of, key, config.vision_numbers[key], named(config, ("model", "vision", key)))


def _taken(config: GenaiConfig, staged: StagedDecoder | None) -> set[str]:
    """Names of components beside the vision model's stages."""
    own = {each.component for each in staged.stages} if staged is not None else set[str]()
    placed = {staged.placed.stage.component} if staged is not None and staged.placed is not None else set[str]()
    return {component_of(each) for each in config.components} | own | placed


def _graphs(root: Path, config: GenaiConfig, decoder: str, staged: StagedDecoder | None) -> _Graphs:
    artifacts = {DECODER: decoder}
    problems: list[Problem] = []
    for name, component in config.components.items():
        artifacts[name], fault = graph_file(root, config, (*component.path, "filename"), component.filename)
        problems += [fault] if fault is not None else []
    signatures = {DECODER: staged.joined.signature} if staged is not None else dict[str, Signature]()
    for name, artifact in artifacts.items():
        try:
            if artifact:
                signatures[name] = signature_of(load_graph(root / artifact, root), artifact, root)
        except CompileError as error:
            problems.extend(error.problems)
    if problems:
        raise CompileError(problems)
    return _Graphs(config, artifacts, signatures)


def _no_embedding(graphs: _Graphs) -> Iterator[Problem]:
    """The decoder's own problem, which one of an unused model would hide."""
    if _FRONT not in graphs.config.components:
        _, found = match_ports(graphs.config, graphs.signatures[DECODER], Surroundings())
        yield from (each for each in found if each.code == "no-embedding-stage")


def _unused(graphs: _Graphs, edges: tuple[Edge, ...]) -> Iterator[Problem]:
    for name, component in graphs.config.components.items():
        if not any(each.source == name for each in edges):
            what = f"nothing takes what the graph of '{name}' gives: {listed(_outputs(graphs, name))}"
            help = (
                f"name the ports in {'.'.join(map(str, component.path))}.outputs and in the inputs of what takes them"
            )
            yield graphs.problem("unsupported-package-class", component.path, what, help)


def _outputs(graphs: _Graphs, name: str) -> list[str]:
    return [each.name for each in graphs.signatures[name].outputs]


def _sessions(config: GenaiConfig) -> Iterator[Problem]:
    """Options of its own that a component states: all sessions take the decoder's."""
    for component in config.components.values():
        if component.session is not None and component.session != config.decoder.session:
            path = (*component.path, "session_options")
            what = "these session options differ from the decoder's, which all sessions of the package take"
            yield Problem("ignored-key", *named(config, path), what, "state them at load()", Severity.WARNING)


# ---- the graph that makes embeddings ---------------------------------------------------------------------------------


def _front(graphs: _Graphs, edges: tuple[Edge, ...], one_row: bool) -> FrontModel | None:
    """The `embedding` component; None where there is none, so that the decoder takes tokens itself."""
    component = graphs.config.components.get(_FRONT)
    if component is None:
        return None
    inputs = {each.name: each for each in graphs.signatures[_FRONT].inputs}
    name = component.inputs["input_ids"]
    if name not in inputs:
        path = (*component.path, "inputs", "input_ids")
        help = f"its inputs are {listed(inputs)}; name the one for token ids"
        what = f"the graph of '{_FRONT}' has no input {name!r}"
        raise CompileError([graphs.problem("missing-input", path, what, help)])
    _check_tokens(graphs, _FRONT, inputs[name], one_row)
    streams = [(each.output, each.input) for each in edges if each.source == _FRONT]
    media = tuple(_media(graphs, inputs[name], edges))
    entries = graphs.signatures[_FRONT].traits.entries
    three = bool(media) and _axes(graphs) == 3
    facts = FrontFacts(_FRONT, graphs.artifacts[_FRONT], tuple(streams), media, three, entries)
    return FrontModel(inputs[name], facts, ())


def _axes(graphs: _Graphs) -> int | None:
    """The rank of the decoder's positions: three axes are [3, batch, sequence]; None without any."""
    positions = graphs.config.decoder.inputs["position_ids"]
    return next((rank_of(each) for each in graphs.signatures[DECODER].inputs if each.name == positions), None)


def _check_tokens(graphs: _Graphs, name: str, port: Port, one_row: bool = False) -> None:
    """Raises CompileError wrong-port unless the port takes token ids of any length. one_row: a run has one row."""
    shape = port.shape or ()
    fixed = any(isinstance(each, int) for each in (shape[1:] if one_row and shape[:1] == (1,) else shape))
    if port.dtype not in ("int64", "int32") or rank_of(port) not in (2, None) or fixed:
        path = (*graphs.config.components[name].path, "inputs", "input_ids")
        what = f"input {port.name!r} of '{name}' is {spell_port(port)}; token ids are int64 or int32 [batch, sequence]"
        raise CompileError([graphs.problem("wrong-port", path, what, "export it with open axes")])


def _media(graphs: _Graphs, tokens: Port, edges: tuple[Edge, ...]) -> Iterator[tuple[Port, str]]:
    """(input, the value there with the prompt) of every input beside the tokens: empty where no graph feeds it."""
    path: DocPath = (*graphs.config.components[_FRONT].path, "inputs")
    problems: list[Problem] = []
    for port in graphs.signatures[_FRONT].inputs:
        inner = (port.shape or (0, None))[1:]
        if port == tokens:
            continue
        if not port.shape or isinstance(port.shape[0], int) or not all(isinstance(each, int) for each in inner):
            what = f"the input {port.name!r} of '{_FRONT}' is {spell_port(port)}; it can't be empty for a token alone"
            help = "export it with an open first axis and numbers for the others"
            problems.append(graphs.problem("unsupported-package-class", path, what, help))
            continue
        fed = any(each.target == _FRONT and each.input == port for each in edges)
        yield port, f"media.{port.name}.given" if fed else f"package.no_{port.name}"
    if problems:
        raise CompileError(problems)


# ---- graphs that run once --------------------------------------------------------------------------------------------


def _stages(
    graphs: _Graphs, edges: tuple[Edge, ...], front: FrontModel | None, seen: VisionStages | None
) -> Iterator[Stage]:
    """Encoders, each input fed by the request's tokens or by the caller. seen: what the vision model is cut into."""
    optional = media_models(edges, front)
    taken = {each.name for each in graphs.signatures[DECODER].inputs}
    for name, component in graphs.config.components.items():
        if name == "vision" and seen is not None:
            yield from seen.stages
        if name == _FRONT or (name == "vision" and seen is not None):
            continue
        signature, inputs = graphs.signatures[name], list[StageInput]()
        for port in signature.inputs:
            if name == "encoder" and port.name == component.inputs["input_ids"]:
                _check_tokens(graphs, name, port)
                inputs.append(StageInput(port, REQUEST_TOKENS, asked=True, tokens=True))
                continue
            value = f"application.{port.name}" if port.name not in taken else f"application.{name}.{port.name}"
            taken.add(port.name)
            inputs.append(StageInput(port, value, asked=True, optional=name in optional))
        yield Stage(name, graphs.artifacts[name], signature, tuple(inputs), "")


def _around(
    graphs: _Graphs, edges: tuple[Edge, ...], front: FrontModel | None, stages: tuple[Stage, ...]
) -> Surroundings:
    """What feeds the decoder: results of the encoder, and the mask over them that the encoder takes too."""
    streams = frozenset(taken.name for _, taken in front.facts.streams) if front is not None else frozenset[str]()
    fed = {each.input.name: each.value for each in edges if each.target == DECODER and each.input.name not in streams}
    mask = graphs.config.decoder.inputs["encoder_attention_mask"]
    encoder = graphs.config.components.get("encoder")
    for each in (given for stage in stages if stage.name == "encoder" for given in stage.inputs):
        if encoder is not None and each.port.name == encoder.inputs["attention_mask"]:
            fed[mask] = each.value
    return Surroundings(front.tokens if front is not None else None, streams, fed)
