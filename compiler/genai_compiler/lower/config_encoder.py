"""A v1 configuration whose one graph keeps no state and gives no logits -> a workflow of one call.

Exporters write an encoder as if it were a decoder. What goes in and what comes out are the graph's own ports.
"""

import difflib
from dataclasses import replace
from pathlib import Path

from genai_compiler.lower.config_decoder import graph_file
from genai_compiler.lower.config_models import media_notes
from genai_compiler.lower.lowered import LoweredGraph
from genai_compiler.lower.match_state import match_layers
from genai_compiler.lower.matching import Matching
from genai_compiler.lower.search_defaults import prompt_chunk
from genai_compiler.lower.single_pass import OF_GENERATION, note, single_pass
from genai_compiler.lower.unrunnable import check_graph
from genai_compiler.problem import CompileError, Problem, errors, ordered
from genai_compiler.read.genai_config import CONFIG_NAME, GenaiConfig, named, read_genai_config
from genai_compiler.read.sentence_modules import read_sentence_modules
from genai_compiler.read.signature import Signature, load_graph, signature_of
from genai_compiler.read.text_facts import read_text_facts


def lower_encoder(root: Path) -> LoweredGraph | None:
    """The package in `root` if its graph is no decoder, else None.

    Raises CompileError where it is none and can't run for other reasons.
    """
    if not (root / CONFIG_NAME).is_file():
        return None
    config, problems = read_genai_config(root)
    artifact, fault = graph_file(root, config, ("model", "decoder", "filename"), config.decoder.filename)
    if fault is not None or errors(problems) or config.components or config.other_classes or config.staged_vision:
        return None
    model = load_graph(root / artifact, root)
    signature = signature_of(model, artifact, root)
    if not _keeps_nothing(config, signature):
        return None
    text, doubts = read_text_facts(root, config, None)
    pooling, unclear = read_sentence_modules(root)
    found = [*(each for each in problems if not _of_ports(each)), *check_graph(model, artifact, True)]
    found += [each for each in doubts if each.code not in OF_GENERATION]
    if errors(found):
        raise CompileError(found)
    notes = media_notes(root, config)
    document, warned = single_pass(artifact, model, signature, pooling, config.vocab_size, notes)
    return LoweredGraph(
        document=document,
        problems=ordered([*found, *unclear, *warned]),
        notes=(note(signature),),
        text=replace(text, end_ids=()),
        providers=config.decoder.session.providers,
        session_options=config.decoder.session,
        signature=signature,
        chunk=prompt_chunk(config.search, lambda key: named(config, ("search", key))),
    )


def _keeps_nothing(config: GenaiConfig, signature: Signature) -> bool:
    """Whether nothing in the graph is a cache or logits, under the configured names or names like them."""
    inputs, outputs = ({each.name: each for each in side} for side in (signature.inputs, signature.outputs))
    matching = Matching(config, inputs, outputs, dict(inputs))
    names = (("past_key_names", "present_key_names"), ("past_value_names", "present_value_names"))
    states = [each for pair in names for each in match_layers(matching, *pair)]
    logits = difflib.get_close_matches(config.decoder.outputs["logits"], outputs, 1, 0.6)
    wide = [each for each in signature.outputs if each.shape and each.shape[-1] == config.vocab_size]
    embedded = config.decoder.inputs["inputs_embeds"] in inputs
    return not (states or matching.unpaired or matching.problems or signature.cache_ops or logits or wide or embedded)


def _of_ports(problem: Problem) -> bool:
    """Whether it is of a decoder's port names, which say nothing here."""
    return problem.code == "unknown-key" and problem.path.startswith("model.decoder.inputs.")
