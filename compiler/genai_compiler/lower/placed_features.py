"""Features of pictures in a v1 package without an embedding component: they are written over rows of the decoder's
first stage, where a token stands for an entry of a picture (onnxruntime-genai, its stage pipeline for vision models).

The first stage is then the model that makes embeddings of tokens, and a binding behind it puts the features in:

    loop { invoke embeddings(tokens); place_entries(tokens, its rows, features <- a cell); invoke layers; head; ... }
"""

from collections.abc import Mapping
from dataclasses import dataclass

from genai_compiler.lower.dataflow import Edge, contradict
from genai_compiler.lower.decoder_components import Data, media_contract, stream_contract, token_contract
from genai_compiler.lower.decoder_facts import DecoderFacts, FrontFacts
from genai_compiler.lower.entry_check import ENTRY_TOKEN, count_entries
from genai_compiler.lower.front_model import FrontModel
from genai_compiler.lower.matching import listed, rank_of, spell_port
from genai_compiler.lower.stage_chain import StageGraph
from genai_compiler.problem import CompileError, Problem
from genai_compiler.read.genai_components import ComponentConfig
from genai_compiler.read.genai_config import GenaiConfig, named
from genai_compiler.read.places import DocPath
from genai_compiler.read.signature import Port, Signature

PLACE = "genai-compile.place-entries"
"""Contract of a binding: `placed` is `rows`, but where `tokens` have the id `entry_token`: there, `entries`."""
_IMAGE_TOKEN = 151655
"""The id that the reference looks for, whatever the file says (onnxruntime-genai); here where the file says none."""
SINCE = 11
"""The version of ONNX's operators since which there is CumSum, with which entries are counted."""
FLOATS = ("float32", "float16", "bfloat16")
_VISION, _FEATURES = "vision", "image_features"


@dataclass(frozen=True)
class PlacedFeatures:
    """stage: the one whose rows the features are written over. tokens: its input; rows: its output; stream: what later
    stages call that; token: the id that stands for an entry.
    """

    stage: StageGraph
    tokens: Port
    rows: Port
    stream: str
    token: int

    def edge(self, signatures: Mapping[str, Signature], vision: ComponentConfig) -> Edge:
        """From the vision model's features to the rows; the rows' own width counts, else that of the features."""
        outputs = {each.name: each for each in signatures[_VISION].outputs}
        made = outputs.get(vision.outputs[_FEATURES]) or next(iter(outputs.values()))
        widths = [(each.shape or (None,))[-1] for each in (self.rows, made)]
        width = next((each for each in widths if isinstance(each, int)), None)
        return Edge(_VISION, made, self.stage.component, Port(_FEATURES, self.rows.dtype, ("entries", width)))

    def front(self, edge: Edge, three: bool) -> FrontModel:
        """The stage as what the decoder's tokens go through first. three: positions have three axes."""
        shape = ("batch", "sequence", (edge.input.shape or ())[-1])
        taken = Port(self.stream, self.rows.dtype, shape)
        media = ((edge.input, f"media.{edge.input.name}.given"),)
        entries = ((edge.input.name, self.token),)
        facts = FrontFacts(self.stage.component, self.stage.artifact, ((self.rows, taken),), media, three, entries)
        return FrontModel(self.tokens, facts, ())


def places_features(config: GenaiConfig) -> bool:
    """Whether features have no place to go but rows of a stage."""
    seen = config.staged_vision is not None or _VISION in config.components
    return seen and bool(config.decoder.stages) and "embedding" not in config.components


def placed_features(config: GenaiConfig, stage: StageGraph) -> PlacedFeatures:
    """What the features are written over. stage: the decoder's first.

    Raises CompileError: unsupported-package-class, missing-input, missing-output, wrong-port, bad-value.
    """
    problems: list[Problem] = []

    def fault(code: str, path: DocPath, what: str, help: str) -> None:
        problems.append(Problem(code, *named(config, path), what, help))

    name, path = stage.config.name, stage.config.path
    inputs = {each.name: each for each in stage.signature.inputs}
    outputs = {each.name: each for each in stage.signature.outputs}
    tokens = inputs.get(config.decoder.inputs["input_ids"])
    rows = next((outputs[each] for each in stage.config.outputs if each in outputs), None)
    over = f"features are written over rows that the decoder's first stage gives, {name!r}"
    if tokens is None or len(inputs) > 1 or tokens.name not in stage.config.inputs:
        help = "make the first stage one that takes token ids alone; or name an embedding graph in model.embedding"
        fault("unsupported-package-class", path, f"{over}, and its graph takes {listed(inputs)}", help)
    elif tokens.dtype not in ("int64", "int32") or rank_of(tokens) != 2 or isinstance((tokens.shape or ())[1], int):
        what = f"{over}: {tokens.name!r} is {spell_port(tokens)}; token ids are int64 or int32 [batch, sequence]"
        fault("wrong-port", (*path, "inputs"), what, "export it with an open sequence axis")
    if not (stage.config.on_prompt and stage.config.on_step):
        fault("unsupported-package-class", path, f"{over}, and it runs in one phase only", "let it run in both")
    if rows is None or len(stage.config.outputs) != 1:
        what = f"{over}, and it lists {len(stage.config.outputs)} outputs: which of them has the rows is not told"
        fault("unsupported-package-class", (*path, "outputs"), what, f"list one of {listed(outputs)}")
    elif rank_of(rows) != 3 or rows.dtype not in FLOATS:
        kinds = " or ".join(FLOATS)
        what = f"{over}: {rows.name!r} is {spell_port(rows)}, which is not {kinds} [batch, sequence, features]"
        fault("wrong-port", (*path, "outputs"), what, "export it with rows of features")
    version = next((number for domain, number in stage.signature.opsets if domain in ("", "ai.onnx")), 0)
    if version < SINCE:
        what = f"{over}, and its graph is of version {version} of ONNX's operators: entries are counted by CumSum"
        fault("unsupported-package-class", path, what, f"export it with version {SINCE} or later")
    token = config.media_tokens.get("image", _IMAGE_TOKEN)
    if token < 0 or (config.vocab_size is not None and token >= config.vocab_size):
        limit = f"the vocabulary has {config.vocab_size}" if token >= 0 else "ids count from 0"
        what = f"{over}, where the token {token} stands, and {limit}"
        fault("bad-value", ("model", "image_token_id"), what, "state image_token_id")
    if problems or tokens is None or rows is None:
        raise CompileError(problems)
    return PlacedFeatures(stage, tokens, rows, stage.config.renames.get(rows.name, rows.name), token)


def check_features(config: GenaiConfig, edge: Edge) -> list[Problem]:
    """Whether the features are rows of that kind."""
    width = (edge.input.shape or (None,))[-1]
    path: DocPath = ("model", _VISION)
    if not isinstance(width, int):
        what = "neither the vision model nor the first stage says how wide a row is"
        return [Problem("wrong-port", *named(config, path), what, "export one of them with a number there")]
    if contradict(edge.output, edge.input) and not edge.merges:
        what = f"{edge.output.name!r} of '{_VISION}' is {spell_port(edge.output)}, and the rows that it goes over "
        what += f"are {edge.input.dtype} of {width} features"
        return [Problem("wrong-port", *named(config, path), what, "export them with one type and width")]
    return []


def placed_document(document: Data, facts: DecoderFacts) -> Data:
    """The document of a decoder behind such a stage, with the binding that puts features in."""
    front = facts.front
    assert front is not None
    (port, _), (rows, taken) = front.media[0], front.streams[0]
    workflow = document["pipeline"]["workflow"]
    loop, component = workflow["steps"][0], workflow["components"][front.component]
    del component["ports"]["inputs"][port.name]
    first = loop["steps"][0]
    entries, placed = first["inputs"].pop(port.name), first["outputs"][rows.name]
    plain = f"{placed}.plain"
    first["outputs"][rows.name] = plain
    name = "place_entries"
    while name in workflow["components"]:
        name += "_"
    stream = stream_contract(taken)
    inputs = {"tokens": token_contract(facts), "rows": stream, "entries": media_contract(port)}
    workflow["components"][name] = {
        "implementation": {"kind": "binding"},
        "ports": {"inputs": inputs, "outputs": {"placed": stream}},
        "contract": {"id": PLACE, "version": "1.0", "parameters": {ENTRY_TOKEN: dict(front.entries)[port.name]}},
    }
    workflow["steps"].insert(0, count_entries(workflow, facts, front.media[0], dict(front.entries)[port.name]))
    fed = {"tokens": first["inputs"][facts.token_ids.name], "rows": plain, "entries": entries}
    step = {"kind": "invoke", "component": name, "inputs": fed, "outputs": {"placed": placed}}
    loop["steps"].insert(1, step)
    return document
