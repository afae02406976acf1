"""Which output of a v1 configuration's components is which input of the next: by the names it gives both ends.

An end that a graph lacks is found where exactly one port fits; the false name is reported. What an embedding gives
beside the embeddings goes where the decoder calls it the same and takes the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from genai_compiler.lower.dataflow import Edge, contradict
from genai_compiler.lower.matching import filled, has_slot, listed, rank_of, spell_port, template_layers
from genai_compiler.problem import Problem, Severity
from genai_compiler.read.genai_config import GenaiConfig, named
from genai_compiler.read.places import DocPath
from genai_compiler.read.port_names import PortNames
from genai_compiler.read.signature import Port, Signature
from genai_compiler.read.suggest import did_you_mean

DECODER, _FRONT = "decoder", "embedding"
# (component, key of its outputs, component, key of its inputs)
_JOINS = (
    ("vision", "image_features", "embedding", "image_features"),
    ("speech", "audio_features", "embedding", "audio_features"),
    ("embedding", "inputs_embeds", DECODER, "inputs_embeds"),
    ("embedding", "per_layer_inputs", DECODER, "per_layer_inputs"),
    ("encoder", "encoder_hidden_states", DECODER, "encoder_hidden_states"),
    ("encoder", "cross_present_key_names", DECODER, "cross_past_key_names"),
    ("encoder", "cross_present_value_names", DECODER, "cross_past_value_names"),
)


@dataclass
class _Joining:
    config: GenaiConfig
    signatures: dict[str, Signature]
    problems: list[Problem] = field(default_factory=list)

    def names(self, component: str, side: str) -> PortNames:
        """The names that the configuration gives to a component's `inputs` or `outputs`."""
        section = self.config.decoder if component == DECODER else self.config.components[component]
        return section.inputs if side == "inputs" else section.outputs

    def path(self, component: str, side: str, key: str) -> DocPath:
        """Where it names, or would name, a port."""
        return ("model", component, side, key)

    def report(self, code: str, path: DocPath, what: str, help: str, warning: bool = False) -> None:
        severity = Severity.WARNING if warning else Severity.ERROR
        self.problems.append(Problem(code, *named(self.config, path), what, help, severity))


def join_components(
    config: GenaiConfig, signatures: dict[str, Signature]
) -> tuple[tuple[Edge, ...], tuple[Problem, ...]]:
    """The edges between the graphs. signatures: of the decoder and of the components beside it.

    Problems: missing-output, wrong-port, config-contradicts-graph (a warning).
    """
    joining = _Joining(config, signatures)
    edges = [
        edge
        for source, made, target, taken in _JOINS
        if source in signatures and target in signatures
        for edge in _edges(joining, source, made, target, taken)
    ]
    return (*edges, *_unnamed_streams(joining, edges)), tuple(joining.problems)


def _unnamed_streams(joining: _Joining, edges: list[Edge]) -> Iterator[Edge]:
    """Further outputs of the embedding that the decoder takes by their own names, which the text leaves out.

    A name alone says little: both graphs have to say one dtype and rank, and no other extents.
    """
    taken = {each.input.name for each in edges if each.target == DECODER}
    made = {each.name: each for each in joining.signatures[_FRONT].outputs} if _FRONT in joining.signatures else {}
    for port in joining.signatures[DECODER].inputs if made else ():
        if port.name in made and port.name not in taken and _same_form(made[port.name], port):
            yield Edge(_FRONT, made[port.name], DECODER, port)


def _same_form(output: Port, input: Port) -> bool:
    """Whether both say dtype and rank and agree, and behind rows and positions every extent is the same number."""
    if rank_of(output) is None or output.dtype != input.dtype or contradict(output, input):
        return False
    pairs = zip((output.shape or ())[2:], (input.shape or ())[2:], strict=False)
    return rank_of(input) is not None and all(made == taken for made, taken in pairs if int in map(type, (made, taken)))


def _edges(joining: _Joining, source: str, made: str, target: str, taken: str) -> Iterator[Edge]:
    """One edge, or one a layer where the names are templates."""
    inputs = {each.name: each for each in joining.signatures[target].inputs}
    template = joining.names(source, "outputs")[made]
    for layer, name in template_layers(joining.names(target, "inputs")[taken], inputs).items():
        output = _output(joining, source, made, filled(template, layer), inputs[name])
        if output is None:
            continue
        edge = Edge(source, output, target, inputs[name])
        if contradict(output, inputs[name]) and not (edge.merges and target == "embedding"):
            what = f"{output.name!r} of '{source}' is {spell_port(output)}, '{target}' takes {spell_port(inputs[name])}"
            joining.report("wrong-port", joining.path(target, "inputs", taken), what, "join ports of one form")
        else:
            yield edge


def _output(joining: _Joining, source: str, key: str, name: str, target: Port) -> Port | None:
    """The output by its name; else the only one that fits what takes it."""
    outputs = {each.name: each for each in joining.signatures[source].outputs}
    if name in outputs:
        return outputs[name]
    path = joining.path(source, "outputs", key)
    fits = [each for each in outputs.values() if not contradict(each, target)]
    if len(fits) == 1 and not has_slot(joining.names(source, "outputs")[key]):
        what = f"the graph of '{source}' has no output {name!r}; its only output that fits, {fits[0].name!r}, is taken"
        joining.report("config-contradicts-graph", path, what, "correct the configuration", True)
        return fits[0]
    what = f"the graph of '{source}' has no output {name!r}, which '{target.name}' of the next graph takes"
    joining.report("missing-output", path, what, did_you_mean(name, outputs) or f"its outputs are {listed(outputs)}")
    return None
