"""An image processor file -> its operations in order, each with all of its attributes.

Two dialects, told apart by content, whatever the file is called: `processor.transforms` (operations of
onnxruntime-extensions), and the flat keys of a Hugging Face image processor, which become operations of the same kind.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genai_compiler.problem import CompileError, Place, Problem, Severity, errors
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.config_json import ConfigText, Json, parse_config
from genai_compiler.read.hf_image_processor import hf_image, hf_operations
from genai_compiler.read.image_operations import OPERATIONS, Attributes, Form, attribute_fault
from genai_compiler.read.places import DocPath, format_path
from genai_compiler.read.suggest import did_you_mean
from genai_compiler.read.wording import shown

TRANSFORMS: DocPath = ("processor", "transforms")


@dataclass(frozen=True)
class Operation:
    """One operation. name: the file's; does: our word for it; path: where the file has it."""

    name: str
    does: str
    attributes: Attributes
    path: DocPath


@dataclass(frozen=True)
class ImageProcessor:
    """A processor file. name: package-relative."""

    name: str
    text: ConfigText
    operations: tuple[Operation, ...]

    def problem(self, path: DocPath, what: str, help: str = "", warning: bool = False) -> Problem:
        """A problem of the file, `bad-processor`."""
        severity = Severity.WARNING if warning else Severity.ERROR
        return Problem("bad-processor", self.text.place(path), format_path(path), what, help, severity)


def read_image_processor(root: Path, name: str) -> ImageProcessor:
    """The file `name` of the package at `root`.

    Raises CompileError with every fault of the file: missing-file and the like, malformed-json, bad-processor.
    """
    try:
        file = find_artifact(root, name)
    except ArtifactFault as fault:
        raise CompileError([fault.problem(Place(name), "")]) from fault
    text = parse_config(file.file.read_bytes(), file.name)
    reading = _Reading(ImageProcessor(file.name, text, ()))
    operations = tuple(reading.operations())
    if errors(reading.problems):
        raise CompileError([*text.problems, *reading.problems])
    return ImageProcessor(file.name, text, operations)


def describes_images(text: ConfigText) -> bool:
    """Whether a file says how images are processed, in either dialect."""
    return _listed(text.root) is not None or hf_image(text.root) is not None


def _listed(root: Json) -> list[Json] | None:
    processor = root.get("processor") if isinstance(root, dict) else None
    transforms = processor.get("transforms") if isinstance(processor, dict) else None
    return transforms if isinstance(transforms, list) else None


@dataclass
class _Reading:
    file: ImageProcessor
    problems: list[Problem] = field(default_factory=list[Problem])

    def refuse(self, path: DocPath, what: str, help: str = "") -> None:
        self.problems.append(self.file.problem(path, what, help))

    def operations(self) -> Iterator[Operation]:
        root = self.file.text.root
        listed = _listed(root)
        flat = hf_image(root) if listed is None else None
        if flat is not None:
            members, inner = flat

            def refuse(path: DocPath, what: str, help: str) -> None:
                self.refuse((*inner, *path), what, help)

            for does, attributes, key in hf_operations(members, refuse):
                yield Operation(key or does, does, attributes, (*inner, key) if key else inner)
            return
        if listed is None:
            what = "the file describes no image processor: it has neither processor.transforms nor image_processor_type"
            self.refuse((), what, "name the file that does")
            return
        for at, each in enumerate(listed):
            path: DocPath = (*TRANSFORMS, at, "operation")
            operation = each.get("operation") if isinstance(each, dict) else None
            if not isinstance(operation, dict):
                self.refuse((*TRANSFORMS, at), "a transform is an object with the member 'operation'")
                continue
            name = operation.get("type")
            if not isinstance(name, str) or name not in OPERATIONS:
                help = did_you_mean(str(name), OPERATIONS) or f"offered are {', '.join(OPERATIONS)}"
                fault = f"there is no image operation {shown(name)}"
                self.refuse((*path, "type"), fault if "type" in operation else "the operation has no type", help)
                continue
            self._wiring(operation, path, at)
            form = OPERATIONS[name]
            attributes = self._attributes(name, form, operation.get("attrs"), (*path, "attrs"))
            yield Operation(name, form.does, attributes, path)

    def _wiring(self, operation: Mapping[str, Json], path: DocPath, at: int) -> None:
        """Operations follow each other; an operation may say so by naming outputs of those before it."""
        stated = operation.get("inputs")
        if stated is None:
            return
        entries = stated if isinstance(stated, list) else [stated]
        if not entries or not all(isinstance(each, str) and ":" in each for each in entries):
            self.refuse((*path, "inputs"), "inputs are a list of ':*', ':N' or 'operation:N'")
        elif at == 0:
            self.refuse((*path, "inputs"), "the first operation takes the file, and names no inputs")

    def _attributes(self, operation: str, form: Form, stated: Json, path: DocPath) -> Attributes:
        """All attributes; `swaps` says whether one of them exchanges channels."""
        found: dict[str, Any] = dict(form.defaults)
        if stated is not None and not isinstance(stated, dict):
            self.refuse(path, f"the attributes of {operation} are no object")
        for name, value in stated.items() if isinstance(stated, dict) else ():
            if name not in form.defaults:
                if not form.any_attributes:
                    help = did_you_mean(name, form.defaults)
                    self.refuse((*path, name), f"{operation} has no attribute {name!r}", help)
            elif fault := attribute_fault(form, name, value):
                self.refuse((*path, name), f"{name!r} of {operation} {fault}")
            else:
                found[name] = tuple(value) if isinstance(value, list) else value
        return {**found, "swaps": any(found[each] for each in form.swapping)}
