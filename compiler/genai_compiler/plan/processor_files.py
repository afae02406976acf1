"""An adapter that runs a processor file of the package -> the program that the file says."""

from collections.abc import Mapping
from dataclasses import replace

from genai_compiler.plan.audio_program import AudioProgram
from genai_compiler.plan.dtypes import canonical
from genai_compiler.plan.image_processor import CONTENTS, processor_program
from genai_compiler.plan.image_program import ImagePatches, ImageProgram
from genai_compiler.plan.report import WORKFLOW
from genai_compiler.problem import CompileError, Problem
from genai_compiler.read.audio_processor import laid_out, read_audio_processor
from genai_compiler.read.document import AdapterImplementation, Component
from genai_compiler.read.image_processor import read_image_processor
from genai_compiler.read.package import Package
from genai_compiler.read.places import format_path

PROCESSORS = frozenset({"genai-compile.image-processor@1", "genai-compile.audio-processor@1"})
"""Adapters whose artifact is a processor file."""
HEARD, ENTRIES = "audio_features", "entries"
SOUNDS: Mapping[str, str] = {HEARD: "float32", "frame_mask": "bool", "valid_frames": "int64", ENTRIES: "int64"}
"""Port of a sound processor's adapter, which is also what it gives -> its usual type."""


def processor_faults(package: Package) -> tuple[Problem, ...]:
    """What is wrong with the processor files that the document's adapters run, and with how it names them."""
    found: list[Problem] = []
    for name, declared in package.workflow.components.items():
        how = declared.implementation
        if isinstance(how, AdapterImplementation) and f"{how.abi}@{how.version}" in PROCESSORS:
            try:
                file_program(name, declared, package)
            except CompileError as fault:
                found += fault.problems
    return tuple(found)


def file_program(name: str, declared: Component, package: Package) -> AudioProgram | ImageProgram:
    """The program of the file of the component `name`. Raises CompileError with what is wrong with either.

    Parameters `patch`, `frames`, `merge` say how pictures are cut where the file leaves that open; `filled`, that there
    are always as many tiles as there may be; `one_size`, that pictures of several sizes are refused.
    """
    how, contract = declared.implementation, declared.contract
    assert isinstance(how, AdapterImplementation)
    if how.abi == "genai-compile.audio-processor":
        return _of_sound(name, declared, package)
    unknown = sorted(set(declared.ports.outputs) - set(CONTENTS))
    if unknown:
        known = ", ".join(CONTENTS)
        raise _refused(package, name, "unknown-port", f"a picture has no {', '.join(unknown)}", f"ports are {known}")
    outputs = [(port, canonical(each.dtype)) for port, each in declared.ports.outputs.items()]
    given = contract.parameters if contract is not None else {}
    cut = None
    if "patch" in given:
        sizes = [given.get(each) for each in ("patch", "frames", "merge")]
        if not all(isinstance(each, int) and 0 < each <= 1 << 14 for each in sizes):
            what = f"pictures are cut by the whole numbers patch, frames and merge, not {sizes}"
            raise _refused(package, name, "bad-processor", what, "write three whole numbers above 0")
        size, frames, merge = (int(str(each)) for each in sizes)
        cut = ImagePatches(size, frames, merge, raster=True, temporal_major=True)
    file = read_image_processor(package.root, how.artifact or "")
    made = processor_program(file, outputs, cut, bool(given.get("filled")))
    return replace(made, stacks=made.stacks and not given.get("one_size"))


def _refused(package: Package, name: str, code: str, what: str, help: str) -> CompileError:
    path = (*WORKFLOW, "components", name)
    return CompileError([Problem(code, package.places.find(path), format_path(path), what, help)])


def _of_sound(name: str, declared: Component, package: Package) -> AudioProgram:
    how = declared.implementation
    assert isinstance(how, AdapterImplementation)
    ports = declared.ports.outputs
    file = read_audio_processor(package.root, how.artifact or "")
    file = laid_out(file, ports[HEARD].shape) if HEARD in ports else file
    offered = [each for each in SOUNDS if each != ENTRIES or file.strides is not None] if file.variants else [HEARD]
    unknown = sorted(set(ports) - set(offered))
    if unknown:
        what = f"{file.name} gives no {', '.join(unknown)}"
        raise _refused(package, name, "unknown-port", what, f"ports are {', '.join(offered)}")
    outputs = tuple((port, port) for port in ports)
    if not file.variants:
        steps: tuple[tuple[str, int | float], ...] = (("resample", file.rate),)
        return AudioProgram(steps, file.window, file.mels, outputs, file.most, file.frames, file.zeros)
    stated = ((port, canonical(each.dtype)) for port, each in ports.items())
    types = tuple((port, dtype) for port, dtype in stated if dtype != SOUNDS[port])
    strides = file.strides or ()
    return AudioProgram((), 0, 0, outputs, file.most, variants=file.variants, strides=strides, types=types)
