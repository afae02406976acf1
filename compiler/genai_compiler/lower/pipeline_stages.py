"""Which session of a version 2 pipeline decodes, which makes embeddings of tokens, and what runs before them.

Told by the flow, the wires and the graphs. A stage that needs only what the request gives runs once, however often the
flow would run it: its output would be the same; one that every token needs runs at every step.
"""

from dataclasses import dataclass

from genai_compiler.lower.dataflow import Edge, in_order
from genai_compiler.lower.decoder_facts import FrontFacts
from genai_compiler.lower.front_model import FrontModel, front_media, media_models
from genai_compiler.lower.matching import rank_of, spell_port
from genai_compiler.lower.pipeline_edges import SessionGraphs
from genai_compiler.lower.pipeline_places import Placed, placed_over
from genai_compiler.lower.stages import REQUEST_TOKENS, Stage, StageInput
from genai_compiler.problem import CompileError, Problem
from genai_compiler.read.pipeline_drafts import ROLES
from genai_compiler.read.pipeline_form import FLOW, SESSIONS, PipelineForm, Resolving
from genai_compiler.read.places import DocPath, format_path
from genai_compiler.read.signature import Port, Signature

_INTEGERS = ("int64", "int32")
_NO_LOOP = 'where nothing is generated, write "generation_loop": "single_pass"'


@dataclass(frozen=True)
class Around:
    """What runs beside the decoder. edges: all; placed: the one of features over rows. notes: for the summary."""

    front: FrontModel | None
    stages: tuple[Stage, ...]
    edges: tuple[Edge, ...]
    placed: Placed | None
    notes: tuple[str, ...]


def decoder_session(form: PipelineForm, resolving: Resolving) -> str | None:
    """The session that decodes: of that role, else the last step of the loop that feeds no other one."""
    running = form.running
    said = [name for name in running if form.sessions[name].role == "decoder"]
    if form.target and (form.target not in running or {*said} - {form.target}):
        what = f"the role target is that of {form.target!r}, "
        what += f"and {said[0]!r} has the role decoder" if form.target in running else "which no flow step runs"
        resolving.report("bad-value", (*ROLES, "target"), what, "name one session that decodes")
        return None
    said = [form.target] if form.target else said
    if len(said) == 1 or len(running) == 1:
        return (said or list(running))[0]
    if len(said) > 1:
        path = (*SESSIONS, said[1], "role")
        what = f"several sessions have the role decoder: {' and '.join(said)}"
        resolving.report("unsupported-package-class", path, what, "one session decodes; compile the others apart")
        return None
    feeding = {each.source for each in form.wires if each.target in running}
    steps = [each.session for each in form.flow if each.phase == "step" and each.session not in feeding]
    if not steps:
        what = "no step of the flow runs at every token and feeds no other session: nothing could decode"
        help = 'give the decoder "when": "step", or the session "role": "decoder"'
        resolving.report("missing-key", FLOW, what, f"{help}; {_NO_LOOP}")
        return None
    return steps[-1]


def around(
    form: PipelineForm,
    graphs: SessionGraphs,
    edges: tuple[Edge, ...],
    decoder: str,
    logits: Port | None,
    named: str | None = None,
    kept: frozenset[str] = frozenset(),
) -> Around:
    """The sessions beside the decoder. logits: its output. named: what makes the embeddings, "" for none, None where
    that is to be told. kept: sessions that are read behind the loop. Raises CompileError for what can't be run.
    """
    front, notes = _front(form, graphs, edges, decoder, logits, named)
    placed = placed_over(form, graphs, edges, decoder, front, kept)
    if front is not None and placed is not None:
        front, edges = placed.beside(front), (*edges, placed.edge)
    per_token = {decoder} if front is None else {decoder, front.facts.name}
    media = media_models(edges, front)
    taken: set[str] = set()
    stages: list[Stage] = []
    for name in in_order(form.running, edges):
        if name in per_token:
            continue
        path = form.step(name).path
        if name not in kept and not any(each.source == name for each in edges):
            what = f"nothing takes what the session {name!r} gives"
            raise _refused(form, "unsupported-package-class", path, what, f"join it in pipeline.dataflow; {_NO_LOOP}")
        if late := next((each for each in edges if each.source in per_token and each.target == name), None):
            what = f"the session {name!r} takes {late.output.name!r} of {late.source!r}, made at every step, and gives "
            what += "the decoder nothing that it takes once a token"
            help = "join it to the decoder in pipeline.dataflow, or export both as one graph"
            raise _refused(form, "unsupported-package-class", path, what, help)
        stages.append(_stage(name, graphs, edges, taken, name in media))
        if form.step(name).phase == "step":
            notes.append(f"{name} takes only what the request gives: it runs once, not at every step")
    merged = next((each for each in edges if each.merges and (front is None or each.target != front.facts.name)), None)
    if merged is not None:
        what = f"'{merged.value}' is {spell_port(merged.output)}, "
        what += f"'{merged.target}' takes {spell_port(merged.input)}"
        raise _refused(form, "wrong-port", FLOW, what, "join ports of one rank")
    return Around(front, tuple(stages), edges, placed, tuple(notes))


def _front(
    form: PipelineForm,
    graphs: SessionGraphs,
    edges: tuple[Edge, ...],
    decoder: str,
    logits: Port | None,
    named: str | None,
) -> tuple[FrontModel | None, list[str]]:
    """The session whose output is the decoder's embeddings: one entry a token, as logits are; else the one `named`."""
    into = [each for each in edges if each.target == decoder and named in (None, each.source)]
    stream = next(
        (each for each in into if a_token_each(each.input, logits, form)), into[0] if named and into else None
    )
    if stream is None:
        return None, []
    name, path = stream.source, (*SESSIONS, stream.source)
    signature = graphs.signatures[name]
    tokens = token_port(signature, edges, name)
    if tokens is None:
        what = f"the decoder takes {stream.input.name!r} from {name!r}, which takes no token ids"
        raise _refused(form, "no-embedding-stage", path, what, "export an embedding graph that takes token ids")
    streams = sorted(((each.output, each.input) for each in into if each.source == name), key=lambda each: (
        each[1] != stream.input))  # fmt: skip
    media = tuple(front_media(name, tokens, signature, edges, path, form.text.places))
    positions = next((each for each in graphs.signatures[decoder].inputs if _three_axes(each)), None)
    entries = signature.traits.entries
    facts = FrontFacts(name, graphs.artifacts[name], tuple(streams), media, positions is not None, entries)
    notes = []
    if form.step(name).phase == "init":
        notes = [f"{name} is said to run before the first token; every token needs it, so it runs at every step"]
    return FrontModel(tokens, facts, ()), notes


def a_token_each(port: Port, logits: Port | None, form: PipelineForm) -> bool:
    """Whether an input of the decoder has one entry a new token: by its symbol, else by the form's own name for it."""
    if "float" not in port.dtype or rank_of(port) != 3 or port.shape is None:
        return False
    sequence = logits.shape[1] if logits is not None and logits.shape and len(logits.shape) == 3 else None
    if isinstance(sequence, str) and isinstance(port.shape[1], str):
        return port.shape[1] == sequence
    return port.name == form.text.base.decoder.inputs["inputs_embeds"]


def _three_axes(port: Port) -> bool:
    return port.dtype in _INTEGERS and port.shape is not None and len(port.shape) == 3 and port.shape[0] == 3


def token_port(signature: Signature, edges: tuple[Edge, ...], name: str) -> Port | None:
    """The input for token ids: the only open integer [rows, tokens] that nothing feeds, else the form's own name."""
    fed = {each.input.name for each in edges if each.target == name}
    fits = [
        each
        for each in signature.inputs
        if each.name not in fed and each.dtype in _INTEGERS and rank_of(each) == 2 and _open_end(each)
    ]
    return fits[0] if len(fits) == 1 else next((each for each in fits if each.name == "input_ids"), None)


def _open_end(port: Port) -> bool:
    return port.shape is not None and not isinstance(port.shape[-1], int)


def _stage(name: str, graphs: SessionGraphs, edges: tuple[Edge, ...], taken: set[str], optional: bool) -> Stage:
    signature = graphs.signatures[name]
    fed = {each.input.name: each.value for each in edges if each.target == name}
    tokens = None if optional else token_port(signature, edges, name)
    inputs: list[StageInput] = []
    for port in signature.inputs:
        if port.name in fed:
            inputs.append(StageInput(port, fed[port.name]))
        elif port == tokens:
            inputs.append(StageInput(port, REQUEST_TOKENS, asked=True, tokens=True))
        else:
            value = f"application.{port.name}" if port.name not in taken else f"application.{name}.{port.name}"
            taken.add(port.name)
            inputs.append(StageInput(port, value, asked=True, optional=optional))
    return Stage(name, graphs.artifacts[name], signature, tuple(inputs), "")


def source_mask(
    form: PipelineForm, stages: tuple[Stage, ...], signature: Signature, fed: frozenset[str]
) -> dict[str, str]:
    """The decoder's input for the mask of the source -> the value that the encoder takes as such, {} without one.

    The encoder's is its only other input with one entry a source token; the decoder's has the form's own name.
    """
    name = form.text.base.decoder.inputs["encoder_attention_mask"]
    port = next((each for each in signature.inputs if each.name == name and name not in fed), None)
    for stage in stages if port is not None else ():
        tokens = next((each.port for each in stage.inputs if each.tokens), None)
        masks = [
            each
            for each in stage.inputs
            if tokens is not None and each.asked and not each.tokens and each.port.shape == tokens.shape
        ]
        if len(masks) == 1 and port is not None and masks[0].port.dtype == port.dtype:
            return {port.name: masks[0].value}
    return {}


def _refused(form: PipelineForm, code: str, path: DocPath, what: str, help: str) -> CompileError:
    return CompileError([Problem(code, form.text.places.find(path), format_path(path), what, help)])
