"""Libraries that a version 2 package would hand itself, or its loop, over to: none is ever loaded, each is refused."""

from genai_compiler.lower.plugin_workflow import way_out
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.pipeline_config import Plugin
from genai_compiler.read.pipeline_extensions import ControllerEntry
from genai_compiler.read.pipeline_form import PIPELINE, PipelineForm, Resolving
from genai_compiler.read.places import DocPath, format_path

_REFUSED = "unsupported-package-class"


def refuse_native_code(form: PipelineForm, resolving: Resolving) -> None:
    """Refuse a plugin, for which no adapter is installed, and a controller of the loop."""
    plugin = form.text.document.pipeline.plugin
    if plugin is not None:
        path = (*PIPELINE, "plugin")
        _check(plugin, "plugin", path, resolving)
        what = f"{_named('plugin', plugin)} would take over the whole package; a compiler loads no code of a package"
        help = "describe the sessions, their flow and wires instead, or write inference_metadata.yaml"
        help += f"; or {way_out(plugin.entry_point)}" if plugin.entry_point else ""
        resolving.report(_REFUSED, path, what, help)
    refuse_controller(form, resolving)


def refuse_controller(form: PipelineForm, resolving: Resolving) -> None:
    """Refuse a library that would own the loop of decoding: no adapter takes its place."""
    controller = form.text.document.pipeline.controller
    if controller is not None:
        path = (*PIPELINE, "controller")
        _check(controller, "controller", path, resolving)
        what = f"{_named('controller', controller)} would own the loop; a compiler loads no code of a package"
        help = "leave it out: drafts are stated in pipeline.strategy, the choice of tokens in generation; "
        resolving.report(_REFUSED, path, what, help + "or write the loop as inference_metadata.yaml")


def _check(stated: Plugin | ControllerEntry, word: str, path: DocPath, resolving: Resolving) -> None:
    """Hold against the package what is stated of a library: both names, and a file inside the folder."""
    for key in ("library", "entry_point"):
        if not getattr(stated, key):
            resolving.report("missing-key", (*path, key), f"the {word} states no {key}", f'add "{key}"')
    if not stated.library:
        return
    try:
        find_artifact(resolving.text.root, stated.library)
    except ArtifactFault as fault:
        where = (*path, "library")
        resolving.problems.append(fault.problem(resolving.text.places.find(where), format_path(where)))


def _named(word: str, stated: Plugin | ControllerEntry) -> str:
    return f"the {word} {stated.library!r}" if stated.library else f"the {word}"
