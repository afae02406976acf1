"""Files that a document names beside its graphs: adapters, artifact inputs, LoRA weights (standard, 12.2)."""

from collections.abc import Iterator
from pathlib import Path as FilePath

from genai_compiler.check.fault import COMPONENTS, WORKFLOW, Path, Rule, Rules
from genai_compiler.problem import Problem
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.document import AdapterImplementation, ArtifactSource, Metadata
from genai_compiler.read.places import Places, format_path

RULES: Rules = {
    "V026": Rule("missing-file", "A file that the document names is in the package."),
    "V027": Rule("not-a-file", "A file that the document names is a regular file."),
    "V028": Rule("outside-package", "A file that the document names lies inside the package, links resolved."),
}


def check_artifacts(metadata: Metadata, places: Places, root: FilePath) -> tuple[Problem, ...]:
    """Every named file that is not there; those of ONNX components are found when their graphs are read."""
    problems: list[Problem] = []
    for path, name in _named(metadata):
        try:
            find_artifact(root, name)
        except ArtifactFault as fault:
            problems.append(fault.problem(places.find(path), format_path(path)))
    return tuple(problems)


def _named(metadata: Metadata) -> Iterator[tuple[Path, str]]:
    workflow = metadata.pipeline.workflow if metadata.pipeline is not None else None
    for name, component in workflow.components.items() if workflow is not None else ():
        how = component.implementation
        if isinstance(how, AdapterImplementation) and how.artifact is not None:
            yield (*COMPONENTS, name, "implementation", "artifact"), how.artifact
    for name, declared in workflow.inputs.items() if workflow is not None else ():
        if isinstance(declared.source, ArtifactSource):
            yield (*WORKFLOW, "inputs", name, "source", "path"), declared.source.path
    for alias, adapter in metadata.adapters.artifacts.items() if metadata.adapters is not None else ():
        for at, weights in enumerate(adapter.weights):
            path = ("adapters", "artifacts", alias, "weights", at)
            yield (*path, "location"), weights.location
            if weights.config_location is not None:
                yield (*path, "config_location"), weights.config_location
