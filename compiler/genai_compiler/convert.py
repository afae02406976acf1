"""A package of another dialect -> its workflow as a document: what the compiler understood, to be read and edited.

The document holds all that decides what runs. What the format has no field for is said: it does not count any more once
the document stands beside the file that says it, because that file is not asked then.
"""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genai_compiler.document_text import document_text
from genai_compiler.driver import compiler_version, plan_package
from genai_compiler.own_faults import within
from genai_compiler.problem import CompileError, InternalError, Place, Problem
from genai_compiler.read.document import AdapterImplementation, Component, OnnxImplementation, RuntimeRole
from genai_compiler.read.files import LIMITS
from genai_compiler.read.load import WORKFLOW, load_package
from genai_compiler.read.ort_options import ATTRIBUTES
from genai_compiler.read.package import Package
from genai_compiler.read.places import DocPath
from genai_compiler.read.yaml_text import read_yaml
from genai_compiler.writable import hold_file

_FLOW: DocPath = ("pipeline", "workflow")


@dataclass(frozen=True)
class Converted:
    """The document's text; unsaid: what it cannot say, and what else can; problems: warnings."""

    text: str
    unsaid: tuple[str, ...]
    problems: tuple[Problem, ...]


def convert_package(package: str | Path, graph: str | Sequence[str] | None = None) -> Converted:
    """The workflow of a package of any other dialect, as text. graph: as for compiling.

    Raises CompileError with every problem of the package, and where its document is a workflow already.
    """
    with within("read"):
        loaded = load_package(Path(package), graph=graph)
    if loaded.dialect == WORKFLOW:
        what = "the document holds a workflow already: there is nothing to convert"
        raise CompileError([Problem("already-workflow", Place(loaded.document_file), "", what, "edit it as it is")])
    plan_package(loaded, "build", lambda _stage, _text: None)
    with within("convert"):
        unsaid = tuple(_unsaid(loaded))
        text = document_text(loaded.lowered, (*_head(loaded), *_listed(unsaid)), _comments(loaded))
    read, _ = read_yaml(text, "", LIMITS)
    if read != loaded.lowered:
        raise InternalError("convert", "the written document does not read back as it was", text)
    return Converted(text, unsaid, loaded.warnings)


def write_document(converted: Converted, target: Path, force: bool = False) -> None:
    """Write the text whole or not at all; force: over a file that is there.

    Raises CompileError output-exists, bad-output, disk-failed.
    """
    hold_file(target, force)
    handle, name = tempfile.mkstemp(dir=target.absolute().parent, prefix=".convert-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(converted.text)
        Path(name).chmod(0o644)
        place_file(Path(name), target, force)
    finally:
        with contextlib.suppress(OSError):
            Path(name).unlink()


def place_file(made: Path, target: Path, force: bool) -> None:
    """Give the finished file its name; without `force` a file that came there meanwhile stays. A link stays one."""
    try:
        if force:
            made.replace(target.resolve())
        else:
            os.link(made, target)
    except FileExistsError as there:
        what, help = f"'{target}' is there already", "name another file, or add --force to replace it"
        raise CompileError([Problem("output-exists", Place(str(target)), "", what, help)]) from there
    except OSError:  # a file system without links
        if force:
            raise
        made.replace(target)


# ---- comments --------------------------------------------------------------------------------------------------------

_OWN: Mapping[str, str] = {
    "onnx-genai.token-policy": "it picks the next token and sees when to stop",
    "genai-compile.diffusion": "the scheduler's step, see docs/diffusion.md",
    "genai-compile.image-processor": "it makes tensors of pictures, see docs/pictures.md",
    "genai-compile.audio-processor": "it makes tensors of sounds, see docs/audio.md",
    "genai-compile.grid-positions": "it makes positions of three axes from the pictures' grids",
    "genai-compile.one-picture": "it takes one picture of several out",
    "genai-compile.one-sound": "it takes one sound of several out, without what fills it up",
    "genai-compile.join-pictures": "it puts what pictures, or sounds, give together, in order",
    "genai-compile.window-rows": "it puts a picture's rows in the order of windows, or back",
    "genai-compile.end-source": "it puts the end id behind each row of the encoder's source",
    "genai-compile.entry-count": "it holds the prompt's placeholders against what stands for them",
    "genai-compile.place-entries": "it writes the nth entry over the row of the nth placeholder",
    "genai-compile.merge-leading-axes": "it takes the first two axes together",
}
"""Adapters and bindings that lowering writes -> what they do."""


def _head(package: Package) -> Iterator[str]:
    yield f"The workflow of {package.root.resolve().name}, read from {package.document_file} ({package.dialect})"
    yield f"and written by genai-compile {compiler_version()}. Edit it and compile again: as inference_metadata.yaml it"
    yield "stands beside the graphs that it names, and counts more than what it was read from."
    yield ""
    yield from (each[:1].upper() + each[1:] + "." for each in package.notes)


def _listed(unsaid: tuple[str, ...]) -> Iterator[str]:
    if unsaid:
        yield ""
        yield "What this document has no field for. It does not count any more once the document stands beside the file"
        yield "that says it, which is not asked then; what gives it otherwise stands with each:"
        yield from (f"- {each}" for each in unsaid)


def _comments(package: Package) -> dict[DocPath, list[str]]:
    """Where facts came from, at the values that hold them."""
    found: dict[DocPath, list[str]] = {}
    lowered = package.lowered
    if "model" in lowered:
        found["model",] = [f"Numbers of the model: {package.document_file}, corrected by the graph."]
    if "generation" in lowered:
        found["generation",] = ["What a request gets that says nothing else, and which inputs it may set."]
    for name, component in package.workflow.components.items():
        if isinstance(component.implementation, OnnxImplementation):
            artifact = component.implementation.artifact
            found[*_FLOW, "components", name] = [f"Ports, dtypes and extents are those of {artifact}."]
        elif what := _OWN.get(_own_name(component)):
            found[*_FLOW, "components", name] = [f"The runtime's own: {what}."]
    for name, given in package.workflow.inputs.items():
        if isinstance(given.role, RuntimeRole) and given.role.role == "eos_token_ids":
            who = [f"{each.id}: {', '.join(each.said_by)}" for each in package.text.end_ids]
            found[*_FLOW, "inputs", name] = [f"End tokens. {each}." for each in who]
    if package.workflow.serving is not None:
        found[*_FLOW, "serving"] = ["Which ports hold state, and whether past and present may be one buffer."]
    return found


def _own_name(component: Component) -> str:
    """What says which step an adapter or a binding stands for."""
    how, contract = component.implementation, component.contract
    return how.abi if isinstance(how, AdapterImplementation) else contract.id if contract is not None else ""


def _unsaid(package: Package) -> Iterator[str]:
    file, text, session = package.document_file, package.text, package.session
    options: dict[str, Any] = {name: getattr(session, name) for name in ATTRIBUTES}
    options = {name: value for name, value in options.items() if value is not None} | dict(session.entries)
    threads = options.pop("intra_op_num_threads", None)
    if threads is not None:
        yield f"session option intra_op_num_threads {threads}: {file}; load(threads=...), genai-run --threads"
    if options:
        yield f"session options ({_spelled(options)}): {file}; nothing else gives them"
    if session.providers:
        names = ", ".join(each.name for each in session.providers)
        yield f"preferred providers ({names}): {file}; load(providers=[...]), genai-run --provider"
    for hint in package.hints:
        kind = f" {hint.device.type}" if hint.device is not None else ""
        yield f"{hint.action}{kind}: {hint.name}; an execution_hints.json can say it"
    for word, number in (("start token", text.bos), ("padding token", text.pad)):
        if number is not None:
            yield f"{word} {number}: {file}; the text files, which are read as before"
    if package.sampled_ids is not None and _width(package.lowered) not in (None, package.sampled_ids):
        yield f"only ids below {package.sampled_ids} may be sampled, of {_width(package.lowered)} scores: {file}"


def _spelled(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {json.dumps(value)}" for name, value in options.items())


def _width(document: Mapping[str, Any]) -> int | None:
    model = document.get("model") or {}
    width = model.get("vocab_size")
    return width if isinstance(width, int) else None
