"""The graphs of a document that names several models."""

from dataclasses import dataclass
from pathlib import Path

from onnx import ModelProto

from genai_compiler.problem import CompileError, Problem
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.composite import CompositeDocument
from genai_compiler.read.places import DocPath, Places, format_path
from genai_compiler.read.signature import Signature, load_graph, signature_of

MODELS: DocPath = ("pipeline", "models")


@dataclass(frozen=True)
class ModelGraphs:
    """By model: its package-relative file, the graph without bulk weights, and what the graph says of itself."""

    artifacts: dict[str, str]
    models: dict[str, ModelProto]
    signatures: dict[str, Signature]


def read_graphs(root: Path, document: CompositeDocument, places: Places) -> ModelGraphs:
    """All of them. Raises CompileError with every one that is absent or can't be read."""
    found = ModelGraphs({}, {}, {})
    problems: list[Problem] = []
    for name, model in document.pipeline.models.items():
        path = (*MODELS, name, "filename")
        try:
            artifact = find_artifact(root, model.filename).name
            graph = load_graph(root / artifact, root)
            found.artifacts[name], found.models[name] = artifact, graph
            found.signatures[name] = signature_of(graph, artifact, root)
        except ArtifactFault as fault:
            problems.append(fault.problem(places.find(path), format_path(path)))
        except CompileError as error:
            problems.extend(error.problems)
    if problems:
        raise CompileError(problems)
    return found
