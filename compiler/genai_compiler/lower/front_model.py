"""The model of a composite that makes embeddings of tokens, and what it takes beside them.

It is told by the edges: what feeds the decoder's embeddings and takes tokens itself. Since every token needs one, it
runs before every pass, whatever the document's phases say of it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from genai_compiler.lower.dataflow import Edge
from genai_compiler.lower.decoder_facts import FrontFacts
from genai_compiler.lower.matching import spell_port
from genai_compiler.problem import CompileError, Problem, Severity
from genai_compiler.read.composite import CompositePipeline
from genai_compiler.read.places import DocPath, Places, format_path
from genai_compiler.read.signature import Port, Signature

_PIPELINE: DocPath = ("pipeline",)


@dataclass(frozen=True)
class FrontModel:
    """tokens: its port for token ids. doubts: what the document says falsely of it, warnings."""

    tokens: Port
    facts: FrontFacts
    doubts: tuple[Problem, ...]


def find_front(
    pipeline: CompositePipeline,
    signatures: Mapping[str, Signature],
    artifacts: Mapping[str, str],
    places: Places,
    edges: tuple[Edge, ...],
    decoder: str,
) -> FrontModel | None:
    """The model behind the decoder's `inputs_embeds_input`; None when no model with tokens feeds it.

    Raises CompileError where an input of it is neither tokens nor fed with entries of their own axis.
    """
    io = pipeline.models[decoder].io
    embeds = io.inputs_embeds_input if io is not None else None
    name = next((each.source for each in edges if each.target == decoder and each.input.name == embeds), None)
    front = pipeline.models[name].io if name is not None else None
    if name is None or front is None:
        return None
    tokens = next((each for each in signatures[name].inputs if each.name == front.token_input), None)
    if tokens is None:
        return None
    of_it = [each for each in edges if each.source == name and each.target == decoder]
    streams = sorted(((each.output, each.input) for each in of_it), key=lambda pair: pair[1].name != embeds)
    path = (*_PIPELINE, "models", name, "io")
    media = tuple(front_media(name, tokens, signatures[name], edges, path, places))
    doubts = tuple(_doubts(name, pipeline, places))
    entries = signatures[name].traits.entries
    facts = FrontFacts(name, artifacts[name], tuple(streams), media, _places_media(pipeline), entries)
    return FrontModel(tokens, facts, doubts)


def front_media(
    name: str, tokens: Port, signature: Signature, edges: tuple[Edge, ...], path: DocPath, places: Places
) -> Iterator[tuple[Port, str]]:
    """(input, the value there with the prompt) of every input beside the tokens. path: where the model is described."""
    fed = {each.input.name for each in edges if each.target == name}
    for port in signature.inputs:
        if port == tokens:
            continue
        inner = (port.shape or (0, None))[1:]
        if port.name not in fed:
            what = f"nothing feeds the input {port.name!r} of '{name}': {spell_port(port)}"
            raise _refused("unclaimed-input", path, what, "join it in pipeline.dataflow", places)
        if not port.shape or isinstance(port.shape[0], int) or not all(isinstance(each, int) for each in inner):
            what = f"the input {port.name!r} of '{name}' is {spell_port(port)}; it can't be empty for a token alone"
            help = "export it with an open first axis and numbers for the others"
            raise _refused("unsupported-package-class", path, what, help, places)
        yield port, f"media.{port.name}.given"


def _places_media(pipeline: CompositePipeline) -> bool:
    """Whether a processor is said to tell the positions beside media."""
    return pipeline.positions is not None and pipeline.positions.generation != "linear"


def _doubts(name: str, pipeline: CompositePipeline, places: Places) -> Iterator[Problem]:
    """Phases and stages that let it run with the prompt only."""
    said: list[DocPath] = []
    if name in pipeline.phases and pipeline.phases[name].run_on != "every_step":
        said.append((*_PIPELINE, "phases", name, "run_on"))
    for at, stage in enumerate(pipeline.strategy.stages or ()):
        if stage.strategy.model == name and stage.run_on not in (None, "every_step"):
            said.append((*_PIPELINE, "strategy", "stages", at, "run_on"))
    for path in said:
        what = f"'{name}' is said to run with the prompt only, but every token needs its output; it runs at every step"
        place, text = places.find(path), format_path(path)
        yield Problem("config-contradicts-graph", place, text, what, "write every_step", Severity.WARNING)


def _refused(code: str, path: DocPath, what: str, help: str, places: Places) -> CompileError:
    return CompileError([Problem(code, places.find(path), format_path(path), what, help)])


def media_models(edges: tuple[Edge, ...], front: FrontModel | None) -> frozenset[str]:
    """The models that lead to the front: they run only where the caller gives what they take."""
    if front is None:
        return frozenset()
    name = front.facts.name
    return frozenset(each for edge in edges if edge.target == name for each in upstream(edge.source, edges))


def upstream(model: str, edges: tuple[Edge, ...]) -> frozenset[str]:
    """A model and all that feed it."""
    found, pending = set[str](), [model]
    while pending:
        each = pending.pop()
        if each not in found:
            found.add(each)
            pending.extend(edge.source for edge in edges if edge.target == each)
    return frozenset(found)
