"""What a package's own document says of each step of the workflow that was made of it, for messages of a run.

    pipeline.workflow.steps[0].steps[0]  ->  genai_config.json:16 model.decoder.filename

A step that runs a graph stands where the document names the graph's file; one of which the document says nothing (the
runtime's own, a graph that was found by itself) is told as that file, or as the document.
"""

from collections.abc import Callable, Iterator, Mapping

from genai_compiler.plan.edits import Linked
from genai_compiler.plan.ir import Decode, Invoke, Op, Plan, SpeculativeBlock
from genai_compiler.plan.uses import walk
from genai_compiler.problem import CompileError, Place
from genai_compiler.read.config_json import parse_config
from genai_compiler.read.files import read_document
from genai_compiler.read.package import Package
from genai_compiler.read.places import DocPath, format_path


def origins(plan: Plan, package: Package) -> dict[str, str]:
    """Path of a step -> its place in the package's own document; {} where that holds the workflow itself."""
    if not package.lowered:
        return {}
    data, place = _document(package)
    stated = dict(reversed([*_strings(data, ())]))  # of two that say the same the first counts
    found: dict[str, str] = {}
    for op in walk(plan.body):
        artifact = _artifact(op, plan)
        if op.origin and (artifact or op.origin not in found):
            found[op.origin] = _told(artifact, stated, place, package)
    return dict(sorted(found.items()))


def _document(package: Package) -> tuple[object, Callable[[DocPath], Place]]:
    """The document that was lowered, and where a value of it stands; a configuration is read as leniently as before."""
    file = package.root / package.document_file
    if file.suffix == ".json":
        try:
            text = parse_config(file.read_bytes(), package.document_file)
        except CompileError:  # of a plain folder, in the JSON that only Python reads: its values have no places
            return None, lambda path: Place(package.document_file)
        return text.root, text.place
    data, places = read_document(file, package.root)
    return data, places.find


def _artifact(op: Op, plan: Plan) -> str:
    """The file of the graph that an op runs, "" for none; of linked ones the first."""
    decode = op.decode if isinstance(op, SpeculativeBlock) else op
    if not isinstance(decode, Invoke | Decode):
        return ""
    component = plan.component(decode.component)
    if isinstance(component.edit, Linked) and component.edit.members:
        return plan.component(component.edit.members[0].component).artifact
    return component.artifact


def _told(artifact: str, stated: Mapping[str, DocPath], place: Callable[[DocPath], Place], package: Package) -> str:
    if artifact not in stated:
        return artifact or package.document_file
    path = stated[artifact]
    return f"{place(path)} {format_path(path)}"


def _strings(value: object, path: DocPath) -> Iterator[tuple[str, DocPath]]:
    """Texts of a document and where they stand, in its order."""
    if isinstance(value, str):
        yield value, path
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _strings(each, (*path, key))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from _strings(each, (*path, at))
