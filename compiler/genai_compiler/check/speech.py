"""Text-assembly artifacts of a package (standard, 5.4 and section 11): each must be one that can be carried out."""

from genai_compiler.check.fault import COMPONENTS
from genai_compiler.problem import CompileError, Problem
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.document import AdapterImplementation, Workflow
from genai_compiler.read.package import Package
from genai_compiler.read.places import format_path
from genai_compiler.read.text_assembly import CONTRACT, read_text_assembly


def assemblies(workflow: Workflow) -> dict[str, str | None]:
    """Components with the text-assembly contract -> their artifacts."""
    return {
        name: each.implementation.artifact if isinstance(each.implementation, AdapterImplementation) else None
        for name, each in workflow.components.items()
        if each.contract is not None and each.contract.id == CONTRACT
    }


def check_speech(package: Package) -> tuple[Problem, ...]:
    """Every fault of these artifacts. A file that is missing is reported with the other files."""
    problems: list[Problem] = []
    seen: set[str] = set()
    for name, artifact in assemblies(package.workflow).items():
        path = (*COMPONENTS, name)
        if artifact is None:
            what = f"component '{name}' has the contract {CONTRACT} and names no file with a prompt's parts"
            help = "write implementation.artifact, a JSON file with segments and limits"
            problems.append(Problem("no-text-assembly", package.places.find(path), format_path(path), what, help))
        elif artifact not in seen:
            seen.add(artifact)
            try:
                read_text_assembly(find_artifact(package.root, artifact).file, package.root)
            except ArtifactFault:
                continue
            except CompileError as refused:
                problems.extend(refused.problems)
    return tuple(problems)
