"""The graphs that a decoder is cut into, joined by the names of their tensors, as the reference runs them.

A stage takes what the runtime forms (ids, mask, positions, lengths, state) by its name, else what an earlier stage of
the same phase has left under that name. There are two phases: with the prompt, and with each later token.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onnx import ModelProto

from genai_compiler.lower.config_decoder import graph_file
from genai_compiler.lower.dataflow import contradict
from genai_compiler.lower.decoder_facts import component_of
from genai_compiler.lower.match_state import state_layers
from genai_compiler.lower.matching import listed, spell_port, template_layers
from genai_compiler.problem import CompileError, Problem
from genai_compiler.read.attention import cache_ops
from genai_compiler.read.config_pipeline import StageConfig
from genai_compiler.read.genai_config import GenaiConfig, named
from genai_compiler.read.link_graphs import Member, linked_model
from genai_compiler.read.linkable import unlinkable
from genai_compiler.read.places import DocPath
from genai_compiler.read.signature import Port, Signature, load_graph, signature_of

_KINDS = ("key", "value", "conv", "recurrent")
_STATE_IN = ("past_names", *(f"past_{kind}_names" for kind in _KINDS))
_STATE_OUT = ("present_names", *(f"present_{kind}_names" for kind in _KINDS))
_LENGTHS = (*(f"{kind}_sequence_length" for kind in ("past", "current", "total")), "past_key_values_length")
_FORMED = ("input_ids", "attention_mask", "position_ids", "rnn_states_prev", *_LENGTHS)
_FROM = {
    "embedding": ("inputs_embeds", "per_layer_inputs"),
    "encoder": ("encoder_hidden_states", "encoder_attention_mask", "cross_past_key_names", "cross_past_value_names"),
}
"""What a model beside the decoder gives it, by the keys of the decoder's inputs."""


@dataclass(frozen=True)
class StageGraph:
    """A stage with its graph. component: its name in the workflow."""

    config: StageConfig
    component: str
    artifact: str
    model: ModelProto
    signature: Signature


@dataclass(frozen=True)
class Chain:
    """The stages of one phase as one graph. members: by (port, value); values that come from outside and leave it have
    the names of ports.
    """

    members: tuple[Member, ...]
    model: ModelProto
    signature: Signature


@dataclass
class _Joining:
    """The joining of one phase under way. given: tensors of a graph before; store: tensor name -> value; made: (stage,
    output) -> value; inputs, outputs: ports of values from outside and to outside.
    """

    config: GenaiConfig
    given: Collection[str]
    when: str
    store: dict[str, str] = field(default_factory=dict[str, str])
    made: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    inputs: dict[str, Port] = field(default_factory=dict[str, Port])
    outputs: dict[str, Port] = field(default_factory=dict[str, Port])
    members: list[Member] = field(default_factory=list[Member])
    problems: list[Problem] = field(default_factory=list[Problem])

    def problem(self, code: str, path: DocPath, what: str, help: str = "") -> None:
        self.problems.append(Problem(code, *named(self.config, path), what, help))


def stage_graphs(root: Path, config: GenaiConfig) -> tuple[StageGraph, ...]:
    """The stages with their graphs. Raises CompileError with every problem of their files and names."""
    found: list[StageGraph] = []
    problems: list[Problem] = []
    read: dict[str, tuple[ModelProto, Signature]] = {}
    for each in config.decoder.stages:
        artifact, fault = graph_file(root, config, (*each.path, "filename"), each.filename)
        try:
            if fault is not None:
                raise CompileError([fault])
            if artifact not in read:
                loaded = load_graph(root / artifact, root)
                read[artifact] = loaded, signature_of(loaded, artifact, root)
            model, signature = read[artifact]
            if why := unlinkable(model):
                what = f"the graph of stage {each.name!r} can't be linked with the others: {why}"
                raise CompileError([Problem("unreadable-graph", *named(config, each.path), what, "export it again")])
            beside = {component_of(name) for name in config.components}
            component = stage_component(each.name, {one.component for one in found} | beside)
            found.append(StageGraph(each, component, artifact, model, signature))
        except CompileError as unreadable:
            problems.extend(unreadable.problems)
    doubled = sorted({each.name for each in config.decoder.stages if _count(config, each.name) > 1})
    for name in doubled:
        path = next(each.path for each in config.decoder.stages if each.name == name)
        what = f"two stages are called {name!r}"
        problems.append(Problem("duplicate-key", *named(config, path), what, "give each a name of its own"))
    if problems:
        raise CompileError(problems)
    return tuple(found)


def stage_component(name: str, taken: Collection[str]) -> str:
    """A component's name for a stage: its own without dots, at which names of the workflow are cut."""
    made = component_of(name.replace(".", "_").strip() or "stage")
    while made in taken:
        made += "_"
    return made


def _count(config: GenaiConfig, name: str) -> int:
    return sum(each.name == name for each in config.decoder.stages)


def join_stages(
    config: GenaiConfig, stages: Iterable[StageGraph], with_prompt: bool, given: Collection[str] = ()
) -> tuple[Chain | None, tuple[Problem, ...]]:
    """The stages of one phase as one graph, None where none runs or something is wrong. given: tensors that a graph
    before them gives, by the names that they have for the stages.

    Problems: missing-input, missing-output, unclaimed-input, wrong-port, no-logits.
    """
    when = "with the prompt" if with_prompt else "with later tokens"
    joining = _Joining(config, given, when)
    used = [each for each in stages if (each.config.on_prompt if with_prompt else each.config.on_step)]
    for each in used:
        _take(joining, each)
    if used and config.decoder.outputs["logits"] not in joining.outputs:
        what = f"no stage that runs {when} gives {config.decoder.outputs['logits']!r}"
        joining.problem("no-logits", ("model", "decoder", "pipeline"), what, "name it in the outputs of a stage")
    if joining.problems or not used:
        return None, tuple(joining.problems)
    models = {each.component: each.model for each in used}
    model = linked_model(tuple(joining.members), models, tuple(joining.outputs))
    return Chain(tuple(joining.members), model, _signature(joining, used, model)), ()


def _take(joining: _Joining, stage: StageGraph) -> None:
    """Join one stage to those before it."""
    inputs, outputs = list[tuple[str, str]](), list[tuple[str, str]]()
    for port in stage.signature.inputs:
        if port.name not in stage.config.inputs:
            what = f"stage {stage.config.name!r} does not list the input {port.name!r} of its graph: nothing feeds it"
            joining.problem("unclaimed-input", (*stage.config.path, "inputs"), what, "list it")
        elif port.name in stage.config.wired:
            inputs += _wired(joining, stage, port)
        elif port.name in stage.config.own or is_formed(joining.config, port.name):
            _agree(joining, joining.inputs, stage, port)
            inputs.append((port.name, port.name))
        elif port.name in joining.store:
            inputs.append((port.name, joining.store[port.name]))
        elif port.name in joining.given:
            _agree(joining, joining.inputs, stage, port)
            inputs.append((port.name, port.name))
        else:
            what = f"no stage before {stage.config.name!r} gives {port.name!r}, and it is nothing that is formed"
            before = listed([*joining.given, *joining.store])
            help = f"earlier stages give {before or 'nothing'}; rename one with output_names_forwarder"
            joining.problem("missing-input", (*stage.config.path, "inputs"), what, help)
    given = {each.name: each for each in stage.signature.outputs}
    for name in stage.config.outputs:
        if name not in given:
            what = f"the graph of stage {stage.config.name!r} has no output {name!r}"
            joining.problem("missing-output", (*stage.config.path, "outputs"), what, f"it has {listed(given)}")
        elif name in stage.config.own or is_result(joining.config, name):
            _agree(joining, joining.outputs, stage, given[name])
            outputs.append((name, name))
            joining.made[stage.config.name, name] = name
        else:
            value = f"{stage.component}.{name}"
            joining.store[stage.config.renames.get(name, name)] = value
            joining.made[stage.config.name, name] = value
            outputs.append((name, value))
    joining.members.append(Member(stage.component, tuple(inputs), tuple(outputs)))


def _wired(joining: _Joining, stage: StageGraph, port: Port) -> list[tuple[str, str]]:
    """What a wire feeds an input with: of the sources that run in this phase the last."""
    sources = stage.config.wired[port.name]
    found = [joining.made[each] for each in sources if each in joining.made]
    if not found:
        names = " and ".join(f"'{source}.{output}'" for source, output in sources)
        what = f"{stage.config.name!r} takes {port.name!r} from {names}, and no stage that runs {joining.when} gives it"
        joining.problem("missing-input", stage.config.path, what, "join it to a stage that runs then, too")
    return [(port.name, each) for each in found[-1:]]


def is_formed(config: GenaiConfig, name: str) -> bool:
    """Whether an input of that name is fed by no stage: what the runtime forms, state, what other models give."""
    given = (key for each, keys in _FROM.items() if each in config.components for key in keys)
    return _matches(config.decoder.inputs.names, (*_FORMED, *_STATE_IN, *given), name)


def is_result(config: GenaiConfig, name: str) -> bool:
    """Whether an output of that name leaves the stages: logits, and state."""
    return _matches(config.decoder.outputs.names, ("logits", "rnn_states", *_STATE_OUT), name)


def _matches(names: Mapping[str, str], keys: Iterable[str], name: str) -> bool:
    states = (*_STATE_IN, *_STATE_OUT)
    return any((state_layers if key in states else _is_named)(names[key], name) for key in keys if names[key])


def _is_named(template: str, name: str) -> bool:
    return bool(template_layers(template, [name]))


def _agree(joining: _Joining, ports: dict[str, Port], stage: StageGraph, port: Port) -> None:
    """One tensor has one type, rank and fixed extents in all stages, and one stage gives it."""
    known = ports.setdefault(port.name, port)
    differs = known.dtype != port.dtype or contradict(known, port)
    if known is not port and (ports is joining.outputs or differs):
        what = f"stage {stage.config.name!r} has {port.name!r} as {spell_port(port)}, "
        what += f"an earlier stage {'gives it too' if ports is joining.outputs else f'as {spell_port(known)}'}"
        joining.problem("wrong-port", stage.config.path, what, "a tensor of one name has one type, shape and source")


def _signature(joining: _Joining, stages: list[StageGraph], model: ModelProto) -> Signature:
    """Of the whole: ports as their stages have them."""
    opsets: dict[str, int] = {}
    for each in stages:
        for domain, number in each.signature.opsets:
            opsets[domain] = max(number, opsets.get(domain, 0))
    return Signature(
        inputs=tuple(joining.inputs.values()),
        outputs=tuple(joining.outputs.values()),
        opsets=tuple(sorted(opsets.items())),
        metadata=(),
        external_data=tuple(dict.fromkeys(name for each in stages for name in each.signature.external_data)),
        cache_ops=cache_ops(model.graph),
    )
