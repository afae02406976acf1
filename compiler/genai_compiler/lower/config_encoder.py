"""A v1 configuration whose one graph keeps no state and gives no logits -> a workflow of one call.

Exporters write an encoder as if it were a decoder. What goes in and what comes out are the graph's own ports.
"""

import difflib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from genai_compiler.lower.config_decoder import graph_file
from genai_compiler.lower.lowered import LoweredGraph
from genai_compiler.lower.match_state import match_layers
from genai_compiler.lower.matching import Matching, listed
from genai_compiler.lower.stages import Stage, StageInput, with_stages
from genai_compiler.lower.unrunnable import check_graph
from genai_compiler.problem import CompileError, Place, Problem, Severity, errors, ordered
from genai_compiler.read.genai_config import CONFIG_NAME, GenaiConfig, read_genai_config
from genai_compiler.read.mask_matrix import taken_as_a_matrix
from genai_compiler.read.signature import Port, Signature, load_graph, signature_of
from genai_compiler.read.text_facts import read_text_facts

_NAME = "encoder"
_OF_GENERATION = frozenset({"no-end-token", "bad-token-id", "missing-file"})
"""Problems of text files that matter to what generates tokens only."""


def lower_encoder(root: Path) -> LoweredGraph | None:
    """The package in `root` if its graph is no decoder, else None.

    Raises CompileError where it is none and can't run for other reasons.
    """
    if not (root / CONFIG_NAME).is_file():
        return None
    config, problems = read_genai_config(root)
    artifact, fault = graph_file(root, config, ("model", "decoder", "filename"), config.decoder.filename)
    if fault is not None or errors(problems) or config.components or config.other_classes:
        return None
    model = load_graph(root / artifact, root)
    signature = signature_of(model, artifact, root)
    if not _keeps_nothing(config, signature):
        return None
    single = [each.name for each in signature.inputs if taken_as_a_matrix(model, each.name)]
    text, doubts = read_text_facts(root, config, None)
    found = [*(each for each in problems if not _of_ports(each)), *check_graph(model, artifact, True)]
    found += [each for each in doubts if each.code not in _OF_GENERATION]
    if errors(found):
        raise CompileError(found)
    names = f"takes {listed(each.name for each in signature.inputs)}, gives {listed(_outputs(signature))}"
    return LoweredGraph(
        document=_document(artifact, _of_one_row(signature) if single else signature),
        problems=ordered([*found, *_one_row(artifact, single)]),
        notes=(f"the graph keeps no state and gives no logits: one call a run; it {names}",),
        text=replace(text, end_ids=()),
        providers=config.decoder.session.providers,
        session_options=config.decoder.session,
        signature=signature,
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


def _outputs(signature: Signature) -> list[str]:
    return [each.name for each in signature.outputs]


def _one_row(artifact: str, masks: list[str]) -> Iterator[Problem]:
    """The warning that only one row a run is right."""
    if masks:
        what = (
            f"{listed(masks)} goes into an attention operator as it is, which takes its first axis for positions, not "
            "for rows: a run takes one row"
        )
        help = "export a graph that forms the operator's mask from [batch, positions]"
        yield Problem("wrong-port", Place(artifact), "", what, help, Severity.WARNING)


def _of_one_row(signature: Signature) -> Signature:
    """The signature with 1 for the rows."""
    rows = _rows(signature)

    def narrow(ports: tuple[Port, ...]) -> tuple[Port, ...]:
        return tuple(
            replace(each, shape=(1, *each.shape[1:])) if each.shape and each.shape[0] == rows else each
            for each in ports
        )

    return replace(signature, inputs=narrow(signature.inputs), outputs=narrow(signature.outputs))


def _rows(signature: Signature) -> str:
    """The symbol that is the first axis of every input, "" when there is none."""
    firsts = {each.shape[0] if each.shape else None for each in signature.inputs}
    rows = next(iter(firsts)) if len(firsts) == 1 else None
    return rows if isinstance(rows, str) else ""


def _document(artifact: str, signature: Signature) -> dict[str, Any]:
    inputs = tuple(StageInput(each, f"application.{each.name}", asked=True) for each in signature.inputs)
    stage = Stage(_NAME, artifact, signature, inputs, _rows(signature))
    workflow: dict[str, Any] = {
        "manifest": {"adapter_abis": {}, "capabilities": ["workflow_ssa", "typed_emit"]},
        "inputs": {},
        "outputs": {
            each.name: {"contract": stage.result(each), "role": "tensor", "stage": "pre_adapter"}
            for each in signature.outputs
        },
        "components": {},
        "state": {},
        "steps": [
            {"kind": "emit", "value": f"{_NAME}.{each}", "output": each, "mode": "replace"}
            for each in _outputs(signature)
        ],
    }
    return with_stages({"schema_version": "1.0", "pipeline": {"workflow": workflow}}, [stage])
