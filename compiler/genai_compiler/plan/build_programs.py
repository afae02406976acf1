"""The document's programs -> what their adapters run. The document has passed its checks."""

from genai_compiler.check.audio_program import ABI as AUDIO
from genai_compiler.check.audio_program import audio_chain
from genai_compiler.check.walk import invokes
from genai_compiler.plan.programs import AudioSteps
from genai_compiler.read.document import AdapterImplementation, Component
from genai_compiler.read.package import Package


def program_of(name: str, declared: Component, package: Package) -> AudioSteps | None:
    """The program that an adapter component runs, None for one that runs none."""
    how, programs = declared.implementation, package.metadata.preprocessing
    if not isinstance(how, AdapterImplementation) or programs is None:
        return None
    if how.abi == AUDIO and programs.audio is not None:
        ports = next((step.outputs for _, step in invokes(package.workflow) if step.component == name), {})
        contents = {each.name: each.content for each in programs.audio.outputs}
        chain = audio_chain(programs.audio)
        return AudioSteps(
            tuple(chain.steps), chain.window, chain.mels, tuple((port, contents[to]) for port, to in ports.items())
        )
    return None
