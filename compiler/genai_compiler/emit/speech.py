"""What the manifest says of speech: the candidates that section 11 of the standard binds when it is asked for."""

from collections.abc import Iterator
from typing import Any

from genai_compiler.check.speech import assemblies
from genai_compiler.read.artifacts import find_artifact
from genai_compiler.read.document import WorkflowOutput
from genai_compiler.read.package import Package
from genai_compiler.read.text_assembly import read_text_assembly


def speech(package: Package) -> dict[str, Any]:
    """Every component that puts prompts together, with its program, and every output that could be the speech."""
    return {
        "assemblies": [
            {"component": name, "program": _program(package, artifact)}
            for name, artifact in assemblies(package.workflow).items()
            if artifact is not None
        ],
        "outputs": [name for name, each in package.workflow.outputs.items() if _deliverable(each)],
    }


def speech_files(package: Package) -> Iterator[str]:
    """The artifacts, by their names in the package."""
    yield from (find_artifact(package.root, each).name for each in assemblies(package.workflow).values() if each)


def _program(package: Package, artifact: str) -> dict[str, Any]:
    made = read_text_assembly(find_artifact(package.root, artifact).file, package.root)
    program: dict[str, Any] = made.model_dump(by_alias=True, exclude_none=True)
    return program


def _deliverable(output: WorkflowOutput) -> bool:
    """role audio; a buffered WAV file of 16-bit integers; a rate and channels."""
    media = output.media
    return (
        output.role == "audio"
        and media is not None
        and (media.container, media.encoding, media.delivery) == ("wav", "pcm_s16_le", "buffered")
        and bool(media.sample_rate_hz)
        and bool(media.channels)
    )
