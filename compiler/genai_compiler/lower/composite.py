"""Several models joined by dataflow around one decoder -> the one Workflow.

What runs before the decoder, and with what, follows from the graphs and the edges between them; stages and phases of
the document are its word on the same matter and are held against it.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from genai_compiler.lower.bare_decoder import DecoderSource
from genai_compiler.lower.dataflow import DATAFLOW, Edge, in_order, resolve_dataflow
from genai_compiler.lower.decoder_facts import PROMPT, DecoderFacts, component_of
from genai_compiler.lower.decoder_workflow import decoder_document
from genai_compiler.lower.front_model import FrontModel, find_front, media_models, upstream
from genai_compiler.lower.lowered import Lowered
from genai_compiler.lower.matching import listed, rank_of, spell_port
from genai_compiler.lower.media_capabilities import media_capabilities
from genai_compiler.lower.media_notes import AREA, AUDIO, IMAGE, MediaNotes, Said, SaidNumber
from genai_compiler.lower.model_graphs import MODELS, read_graphs
from genai_compiler.lower.stages import REQUEST_TOKENS, Medium, Stage, StageInput
from genai_compiler.lower.with_media import made_of_files, with_media
from genai_compiler.problem import CompileError, Place, Problem, errors, ordered
from genai_compiler.read.bare import BareIo
from genai_compiler.read.composite import CompositeDocument, Programs, Vision
from genai_compiler.read.places import DocPath, Places, format_path
from genai_compiler.read.signature import Port, Signature

_PLACEHOLDER = "image_placeholder_token_id"
_STRATEGY: DocPath = ("pipeline", "strategy")
OUTPUT_START = "request.decoder_input_ids"
"""The workflow input of the tokens that start the output, where the request's own go to an encoder."""


@dataclass(frozen=True)
class _Package:
    root: Path
    document: CompositeDocument
    places: Places
    artifacts: dict[str, str]
    signatures: dict[str, Signature]

    def refuse(self, code: str, path: DocPath, what: str, help: str) -> CompileError:
        return CompileError([Problem(code, self.places.find(path), format_path(path), what, help)])

    def io(self, model: str) -> BareIo:
        """What the document says of a model's ports: nothing, for one without `io`."""
        return self.document.pipeline.models[model].io or BareIo()


def lower_composite(root: Path, document: CompositeDocument, places: Places) -> Lowered:
    """Lower the document of the package in `root`. Raises CompileError with every problem, warnings included."""
    graphs = read_graphs(root, document, places)
    artifacts, signatures = graphs.artifacts, graphs.signatures
    package = _Package(root, document, places, artifacts, signatures)
    if len({component_of(each) for each in signatures}) < len(signatures) or any("." in each for each in signatures):
        what = f"the models are called {listed(signatures)}: two would share a name, or one has a dot in it"
        raise package.refuse("value-defined-twice", MODELS, what, "call them by plain, different words")
    decoder = _decoder(package)
    edges, found = resolve_dataflow(document.pipeline, signatures, places)
    if errors(found):
        raise CompileError(found)
    try:
        front = _front(package, decoder, edges)
        stages = _stages(package, decoder, edges, front)
        to_encoder = any(each.tokens for stage in stages for each in stage.inputs)
        source = DecoderSource(
            root, artifacts[decoder], document, package.io(decoder), (*MODELS, decoder, "io"), places
        )
        streams = {taken.name for _, taken in front.facts.streams} if front is not None else set[str]()
        fed = {each.input.name: each.value for each in edges if each.target == decoder}
        fed = {port: value for port, value in fed.items() if port not in streams}
        taken = (front.facts, front.tokens) if front is not None else (None, None)
        facts, text, doubts = source.facts(fed, OUTPUT_START if to_encoder else PROMPT, *taken)
    except CompileError as error:
        raise CompileError([*found, *error.problems]) from error
    stages = with_rows(stages, edges, decoder, facts)
    media, once = media_stages(stages, edges, front)
    plain = decoder_document(facts, text.eos, source.defaults())
    tokenizer = root / text.tokenizer if text.tokenizer else None
    whole, of_media = with_media(plain, once, media, _notes(package), facts, tokenizer)
    asked, unoffered = media_capabilities(document, places, made_of_files(whole))
    found = (*found, *(front.doubts if front is not None else ()), *unoffered, *of_media)
    if errors(found):
        raise CompileError((*found, *doubts))
    lowered = source.lowered(facts, whole, text, ordered((*found, *doubts)))
    return replace(lowered, document=lowered.document | {"required_capabilities": list(asked)})


def _notes(package: _Package) -> MediaNotes:
    """What the document says of its media: programs of its own, and the token that stands for a picture."""
    vision, programs = package.document.pipeline.vision or Vision(), package.document.preprocessing or Programs()
    token = vision.image_token_id if vision.image_token_id is not None else vision.image_placeholder_token_id
    said = {}
    for kind, program in ((IMAGE, programs.image), (AUDIO, programs.audio)):
        path: DocPath = ("preprocessing", kind)
        said[kind] = Said(
            spot=(package.places.find(path), format_path(path)),
            program=program,
            token=token if kind == IMAGE else None,
            plain=bool(vision.placeholder_per_image),
            token_spot=_spot(package, "image_token_id" if vision.image_token_id is not None else _PLACEHOLDER),
            numbers=_numbers(package, vision) if kind == IMAGE else (),
        )
    return MediaNotes(package.root, said)


def _numbers(package: _Package, vision: Vision) -> tuple[SaidNumber, ...]:
    """How many patches an entry is said to be made of."""
    factor = vision.token_pooling_factor
    return (SaidNumber(AREA, "token_pooling_factor", factor, _spot(package, "token_pooling_factor")),) if factor else ()


def _spot(package: _Package, key: str) -> tuple[Place, str]:
    path: DocPath = ("pipeline", "vision", key)
    return package.places.find(path), format_path(path)


def _front(package: _Package, decoder: str, edges: tuple[Edge, ...]) -> FrontModel | None:
    """The model that makes embeddings of tokens, None where the decoder takes tokens itself."""
    io = package.io(decoder)
    if io.inputs_embeds_input is None:
        return None
    found = find_front(package.document.pipeline, package.signatures, package.artifacts, package.places, edges, decoder)
    if found is None:
        what = f"no model makes '{io.inputs_embeds_input}', which the decoder takes, of tokens"
        help = "join the embedding model to it in pipeline.dataflow, and name its token_input"
        raise package.refuse("no-embedding-stage", (*MODELS, decoder, "io", "inputs_embeds_input"), what, help)
    return found


def _decoder(package: _Package) -> str:
    """The one model that the strategy decodes with."""
    strategy = package.document.pipeline.strategy
    stages = [each.strategy for each in strategy.stages or ()] if strategy.kind == "composite" else [strategy]
    found = [each.decoder or each.model or "" for each in stages if each.kind == "autoregressive"]
    other = next((each.kind for each in stages if each.kind not in ("autoregressive", "single_pass")), "")
    if other or len(found) != 1:
        what = f"the strategy decodes {len(found)} times"
        if other:
            what = f"a strategy of kind '{other}' is not compiled yet"
        help = "one autoregressive stage beside single_pass stages is; or write the whole as pipeline.workflow"
        raise package.refuse("unsupported-package-class", _STRATEGY, what, help)
    if found[0] not in package.signatures:
        what = f"the strategy decodes with '{found[0]}', which is no model of pipeline.models"
        raise package.refuse("unknown-component", _STRATEGY, what, "name one of pipeline.models")
    return found[0]


def _stages(package: _Package, decoder: str, edges: tuple[Edge, ...], front: FrontModel | None) -> tuple[Stage, ...]:
    """The other models in the order in which they run, each input fed by an edge or by the caller."""
    models = tuple(package.document.pipeline.models)
    per_token = {decoder, front.facts.name} if front is not None else {decoder}
    made = [name for name in in_order(models, edges) if name not in per_token]
    for name in made:
        if not any(each.source == name for each in edges):
            what = f"nothing takes what the model '{name}' gives"
            help = "join one of its outputs in pipeline.dataflow, or leave the model out"
            raise package.refuse("unsupported-package-class", (*MODELS, name), what, help)
        if any(each.source in per_token and each.target == name for each in edges):
            what = f"the model '{name}' takes what is made at every step, which is not compiled yet"
            raise package.refuse("unsupported-package-class", (*MODELS, name), what, "write it as pipeline.workflow")
    for each in edges:
        if each.merges and (front is None or each.target != front.facts.name):
            what = f"'{each.value}' is {spell_port(each.output)}, '{each.target}' takes {spell_port(each.input)}"
            raise package.refuse("wrong-port", DATAFLOW, what, "join ports of one rank")
    taken: set[str] = set()
    media = media_models(edges, front)
    return tuple(_stage(package, name, edges, taken, name in media) for name in made)


def media_stages(
    stages: tuple[Stage, ...], edges: tuple[Edge, ...], front: FrontModel | None
) -> tuple[list[Medium], list[Stage]]:
    """The stages that run for media only, by the front's input that they lead to; and those that always run."""
    if front is None:
        return [], list(stages)
    found: list[Medium] = []
    for port, value in front.facts.media:
        edge = next((each for each in edges if each.target == front.facts.name and each.input == port), None)
        if edge is not None:
            names = upstream(edge.source, edges)
            needed = tuple(each for each in stages if each.name in names)
            last = next(each for each in needed if each.name == edge.source)
            merges = (last, edge.output) if edge.merges else None
            nothing, entry = f"package.no_{port.name}", dict(front.facts.entries).get(port.name)
            found.append(Medium(needed, port, edge.value, value, nothing, merges, entry))
    used = {each.name for medium in found for each in medium.stages}
    return found, [each for each in stages if each.name not in used]


def _stage(package: _Package, name: str, edges: tuple[Edge, ...], taken: set[str], optional: bool) -> Stage:
    signature, io = package.signatures[name], package.io(name)
    fed = {each.input.name: each.value for each in edges if each.target == name}
    inputs: list[StageInput] = []
    for port in signature.inputs:
        if port.name in fed:
            inputs.append(StageInput(port, fed[port.name]))
        elif port.name == io.token_input and not optional:
            inputs.append(StageInput(port, REQUEST_TOKENS, asked=True, tokens=True))
        else:
            value = f"application.{port.name}" if port.name not in taken else f"application.{name}.{port.name}"
            taken.add(port.name)
            inputs.append(StageInput(port, value, asked=True, optional=optional))
    return Stage(name, package.artifacts[name], signature, tuple(inputs), "")


def with_rows(
    stages: tuple[Stage, ...], edges: tuple[Edge, ...], decoder: str, facts: DecoderFacts
) -> tuple[Stage, ...]:
    """The stages with the symbol for their rows: what feeds an axis of rows has rows, as its graph spells them."""
    rows = {decoder: _first(facts.token_ids)}
    for stage in reversed(stages):
        for each in edges:
            if each.source == stage.name and rows.get(each.target) and _first(each.input) == rows[each.target]:
                rows[stage.name] = _first(each.output)
    return tuple(replace(each, rows=rows.get(each.name, "")) for each in stages)


def _first(port: Port) -> str:
    extent = port.shape[0] if port.shape and rank_of(port) else None
    return extent if isinstance(extent, str) else ""
