"""Sound files for a package whose graphs take samples: which input, and what is made for it."""

from typing import Any

from genai_compiler.problem import Place, Problem, Severity
from genai_compiler.read.document import ApplicationSource, RuntimeRole, WorkflowInput
from genai_compiler.read.package import Package
from genai_compiler.read.sound_processor import FILE, read_sound_processor


def sound_side(package: Package) -> tuple[dict[str, Any] | None, tuple[Problem, ...]]:
    """What the manifest says of it, None where sound files can't be given; warnings.

    input: its name. sample_rate, normalized: of read.sound_processor. start: the token that begins an output when no
    prompt is given, None where nobody says.
    """
    processor, problems = read_sound_processor(package.root)
    if processor is None:
        return None, problems
    fits = [name for name, each in package.workflow.inputs.items() if _takes_samples(each)]
    if len(fits) != 1:
        what = f"{len(fits) or 'no'} inputs of the package are float32 [rows, samples]: sound files can't be given"
        help = "give tensors; or declare a sound program in preprocessing.audio"
        return None, (*problems, Problem("sound-processor", Place(FILE), "", what, help, Severity.WARNING))
    facts = {"input": fits[0], "sample_rate": processor.rate, "normalized": processor.normalized}
    return {**facts, "start": _start(package)}, problems


def _takes_samples(given: WorkflowInput) -> bool:
    shape = given.contract.shape or ()
    of_caller = isinstance(given.source, ApplicationSource) and given.contract.dtype == "float32"
    return of_caller and len(shape) == 2 and not isinstance(shape[1], int)


def _start(package: Package) -> int | None:
    """The default of the input for prompt tokens."""
    for each in package.workflow.inputs.values():
        if isinstance(each.role, RuntimeRole) and each.role.role == "prompt_tokens":
            return each.default if isinstance(each.default, int) else None
    return None
