"""Preprocessing programs as expressions of an executor."""

from genai_compiler.emit.names import literal
from genai_compiler.plan.programs import AudioSteps


def program_text(program: AudioSteps) -> str:
    """The expression that makes the runtime's form of a program."""
    steps, outputs = literal(program.steps), literal(program.outputs)
    return f"AudioProgram(steps={steps}, window={program.window}, mels={program.mels}, outputs={outputs})"


def program_names(program: AudioSteps) -> tuple[str, ...]:
    """Names of the runtime interface that the expression uses."""
    return ("AudioProgram",)
