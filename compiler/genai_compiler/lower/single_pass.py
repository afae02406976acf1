"""One graph without state as a workflow of one call: encoders of text, pictures, sound; classifiers.

What goes in and what comes out are the graph's own ports. Every floating output can be asked for as it is (profile
`features`); with a pooling that the package states also as one vector a row (profile `embedding`).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from onnx import ModelProto

from genai_compiler.lower.matching import listed, rank_of
from genai_compiler.lower.media_notes import MediaNotes
from genai_compiler.lower.plain_encoder import encoder_inputs
from genai_compiler.lower.single_front import with_files
from genai_compiler.lower.stages import Stage
from genai_compiler.problem import CompileError, Place, Problem, Severity, errors
from genai_compiler.read.mask_matrix import taken_as_a_matrix
from genai_compiler.read.sentence_modules import SentencePooling
from genai_compiler.read.signature import Port, Signature

_NAME = "encoder"
Given = tuple[Stage, Port]
"""An output that the package gives, and the stage that makes it."""
OF_GENERATION = frozenset({"no-end-token", "bad-token-id", "missing-file"})
"""Problems of text files that matter to what generates tokens only."""


def single_pass(
    artifact: str,
    model: ModelProto,
    signature: Signature,
    pooling: SentencePooling | None,
    vocabulary: int | None,
    notes: MediaNotes,
) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    """The document; problems: wrong-port for a graph that takes one row, sentence-modules for a pooling of nothing, and
    those of a processor file. vocabulary: how many token ids there are, where a configuration says so.

    Raises CompileError where a processor file can't be followed.
    """
    signature, warned = of_rows(artifact, model, signature)
    inputs = encoder_inputs(model.graph, signature, vocabulary, alone=True)
    stage = Stage(_NAME, artifact, signature, inputs, common_rows(signature))
    problems = list(warned)
    plain = given_document([(stage, each) for each in signature.outputs], pooling, problems)
    document, found = with_files(plain, stage, notes)
    if errors(found):
        raise CompileError([*problems, *found])
    return document, (*problems, *found)


def note(signature: Signature) -> str:
    """What the package is, in words."""
    names = f"takes {listed(each.name for each in signature.inputs)}, gives {listed(_names(signature.outputs))}"
    return f"the graph keeps no state and gives no logits: one call a run; it {names}"


def of_rows(artifact: str, model: ModelProto, signature: Signature) -> tuple[Signature, tuple[Problem, ...]]:
    """(the signature, with 1 for the rows where the graph is right for one row only; the warning of that)."""
    masks = [each.name for each in signature.inputs if taken_as_a_matrix(model, each.name)]
    return (_of_one_row(signature) if masks else signature), tuple(_one_row(artifact, masks))


def pooled_output(given: Sequence[Given]) -> Given | None:
    """The only output of floats with rows, positions and a width."""
    found = [(stage, each) for stage, each in given if "float" in each.dtype and rank_of(each) == 3]
    return found[0] if len(found) == 1 else None


def _names(ports: Sequence[Port]) -> list[str]:
    return [each.name for each in ports]


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
    rows = common_rows(signature)

    def narrow(ports: tuple[Port, ...]) -> tuple[Port, ...]:
        return tuple(
            replace(each, shape=(1, *each.shape[1:])) if each.shape and each.shape[0] == rows else each
            for each in ports
        )

    return replace(signature, inputs=narrow(signature.inputs), outputs=narrow(signature.outputs))


def common_rows(signature: Signature) -> str:
    """The symbol that is the first axis of every input, "" when there is none."""
    firsts = {each.shape[0] if each.shape else None for each in signature.inputs}
    rows = next(iter(firsts)) if len(firsts) == 1 else None
    return rows if isinstance(rows, str) else ""


def given_document(given: Sequence[Given], pooling: SentencePooling | None, problems: list[Problem]) -> dict[str, Any]:
    """The document that gives these outputs of stages, without the stages themselves; a name that two have gets its
    stage's before it. Adds sentence-modules to the problems where nothing says what is pooled.
    """
    names = Counter(port.name for _, port in given)
    keys = {id(port): port.name if names[port.name] == 1 else f"{stage.name}.{port.name}" for stage, port in given}
    made = {keys[id(port)]: (f"{stage.component}.{port.name}", stage.result(port)) for stage, port in given}
    profiles: dict[str, Any] = {}
    features = {keys[id(port)]: keys[id(port)] for _, port in given if "float" in port.dtype}
    if features:
        profiles["features"] = {"kind": "embedding", "version": "1.0", "outputs": features}
    source = pooled_output(given)
    if pooling is not None and source is None:
        what = "the graph gives several outputs [rows, positions, width], or none: nothing says what is pooled"
        where = Place(given[-1][0].artifact)
        problems.append(Problem("sentence-modules", where, "", what, "pool yourself", Severity.WARNING))
    if pooling is not None and source is not None:
        stage, port = source
        outputs = {"embedding": keys[id(port)]}
        mask = next((each for each in stage.inputs if each.filled == 1), None)
        if mask is not None:
            name = mask.port.name + "_" * (mask.port.name in made)
            made[name] = (mask.value, stage.result(mask.port))
            outputs["mask"] = name
        how = {"kind": pooling.kind, "axis": 1, "normalize": pooling.normalize}
        profiles["embedding"] = {"kind": "embedding", "version": "1.0", "outputs": outputs, "pooling": how}
    document = {"schema_version": "1.0", "pipeline": {"workflow": _workflow(made)}}
    return document | ({"profiles": profiles} if profiles else {})


def _workflow(made: dict[str, tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """made: output -> (the value there, its contract)."""
    return {
        "manifest": {"adapter_abis": {}, "capabilities": ["workflow_ssa", "typed_emit"]},
        "inputs": {},
        "outputs": {
            name: {"contract": contract, "role": "tensor", "stage": "pre_adapter"}
            for name, (_, contract) in made.items()
        },
        "components": {},
        "state": {},
        "steps": [
            {"kind": "emit", "value": value, "output": name, "mode": "replace"} for name, (value, _) in made.items()
        ],
    }
