"""A v1 package with a joiner: a transducer, which emits tokens by frames of sound, run by an adapter (reference, 2.14).

Encoder, prediction network (`model.decoder`) and joiner are its graphs; blank, symbols a frame, durations and names of
ports are its parameters, as the file states them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from genai_compiler.lower.config_decoder import graph_file
from genai_compiler.lower.lowered import LoweredGraph
from genai_compiler.lower.plugin_workflow import PluginGraph, Scalar, asked_of, is_installed, plugin_document, way_out
from genai_compiler.problem import CompileError, Problem, errors, ordered
from genai_compiler.read.config_json import Json
from genai_compiler.read.config_section import Section, section_of
from genai_compiler.read.genai_config import CONFIG_NAME, GenaiConfig, named, read_genai_config
from genai_compiler.read.places import DocPath
from genai_compiler.read.signature import load_graph, signature_of
from genai_compiler.read.text_facts import read_text_facts

ABI = "genai-compile.transducer"
_GRAPHS = ("encoder", "decoder", "joiner")
_NUMBERS = """
    num_mels fft_size hop_length win_length preemph log_eps norm_eps subsampling_factor left_context conv_context
    pre_encode_cache_size sample_rate chunk_samples blank_id max_symbols_per_step left_context_samples
    right_context_samples
"""
NUMBERS = tuple(_NUMBERS.split())
_DURATIONS = "tdt_durations"
_OF_GENERATION = frozenset({"no-end-token", "missing-context-length"})


def lower_transducer(root: Path) -> LoweredGraph | None:
    """The package in `root` if it has a joiner, else None. Raises CompileError with every problem."""
    if not (root / CONFIG_NAME).is_file():
        return None
    config, problems = read_genai_config(root)
    model = _model(config)
    joiner = model.section("joiner")
    if not joiner.members:
        return None
    found = [*problems, *_beside(config)]
    if not is_installed(ABI):
        what = "'joiner' makes this a transducer, which emits by frames of sound; that is an adapter's to run, and none"
        found.append(
            Problem("unsupported-package-class", *named(config, joiner.path), f"{what} is installed", way_out(ABI))
        )
    graphs, faults = _graphs(root, config, model)
    text, doubts = read_text_facts(root, config, None)
    found += [*faults, *(each for each in doubts if each.code not in _OF_GENERATION)]
    if errors(found):
        raise CompileError(found)
    encoder = graphs[0].signature
    return LoweredGraph(
        document=plugin_document(ABI, graphs, asked_of(encoder), dict(_parameters(model))),
        problems=ordered(found),
        notes=(f"a transducer: the adapter {ABI}@1 runs {', '.join(each.artifact for each in graphs)}",),
        text=replace(text, end_ids=()),
        providers=config.decoder.session.providers,
        session_options=config.decoder.session,
        signature=encoder,
    )


def _model(config: GenaiConfig) -> Section:
    """`model`, its problems noted already."""
    root = config.text.root
    value = root.get("model") if isinstance(root, dict) else None
    return section_of(config.text, ("model",), value, [])


def _beside(config: GenaiConfig) -> Iterator[Problem]:
    """Sections that make it more than a transducer."""
    staged = (config.staged_vision.vision.path,) if config.staged_vision is not None else ()
    for path in (*config.other_classes, *staged):
        if path[-1] not in ("joiner", "vad"):
            what = f"{path[-1]!r} beside a joiner is not compiled yet"
            yield Problem("unsupported-package-class", *named(config, path), what, "leave it out")


def _graphs(root: Path, config: GenaiConfig, model: Section) -> tuple[tuple[PluginGraph, ...], list[Problem]]:
    """The three graphs; a file that is not stated has the part's own name, as in the reference."""
    found, faults = list[PluginGraph](), list[Problem]()
    for name in _GRAPHS:
        path: DocPath = ("model", name, "filename")
        stated = model.section(name).members.get("filename")
        artifact, fault = graph_file(root, config, path, stated if isinstance(stated, str) else f"{name}.onnx")
        try:
            if fault is not None:
                raise CompileError([fault])
            found.append(PluginGraph(name, artifact, signature_of(load_graph(root / artifact, root), artifact, root)))
        except CompileError as unreadable:
            faults.extend(unreadable.problems)
    return tuple(found), faults


def _parameters(model: Section) -> Iterator[tuple[str, Scalar]]:
    """What the file states: numbers of the model, and names of ports as `part.side.key`."""
    for key in NUMBERS:
        value = model.members.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield key, value
    durations = model.members.get(_DURATIONS)
    if isinstance(durations, list):
        yield _DURATIONS, ",".join(str(_whole(each)) for each in durations)
    for name in _GRAPHS:
        for side in ("inputs", "outputs"):
            ports: Mapping[str, Json] = model.section(name).section(side).members
            yield from ((f"{name}.{side}.{key}", port) for key, port in ports.items() if isinstance(port, str))


def _whole(value: Json) -> Json:
    return int(value) if isinstance(value, float) and value.is_integer() else value
