"""A version 2 package with a plugin: an adapter of that name, installed as any other, runs its sessions' graphs."""

from dataclasses import replace
from pathlib import Path

from genai_compiler.lower.lowered import LoweredGraph
from genai_compiler.lower.native_code import refuse_controller
from genai_compiler.lower.pipeline_edges import read_graphs
from genai_compiler.lower.plugin_workflow import PluginGraph, asked_of, is_installed, plugin_document
from genai_compiler.problem import CompileError, errors, ordered
from genai_compiler.read.config_json import parse_config
from genai_compiler.read.genai_config import CONFIG_NAME, genai_config_of
from genai_compiler.read.pipeline_form import SESSIONS, Resolving, expand
from genai_compiler.read.pipeline_text import read_pipeline
from genai_compiler.read.session_options import SessionOptions
from genai_compiler.read.text_facts import read_text_facts


def lower_plugin(root: Path) -> LoweredGraph | None:
    """The package in `root` if an installed adapter takes the place of its plugin, else None.

    Raises CompileError with every problem.
    """
    text = read_pipeline(root)
    plugin = text.document.pipeline.plugin
    if plugin is None or not plugin.entry_point or not is_installed(plugin.entry_point):
        return None
    resolving = Resolving(text)
    form = expand(resolving)
    refuse_controller(form, resolving)
    graphs = read_graphs(replace(form, flow=()), resolving)
    if not form.sessions:
        what = "the plugin's package names no session, and the adapter runs its graphs by session"
        resolving.report("missing-key", SESSIONS, what, 'add "sessions": {"encoder": {"file": "encoder.onnx"}}')
    config, _ = genai_config_of(parse_config(b'{"model": {}}', CONFIG_NAME))
    facts, doubts = read_text_facts(root, config, None)
    found = [*text.problems, *resolving.problems]
    found += [each for each in doubts if each.where.file != CONFIG_NAME]
    if errors(found):
        raise CompileError(found)
    order = [*form.running, *(each for each in graphs.signatures if each not in form.running)]
    members = tuple(PluginGraph(each, graphs.artifacts[each], graphs.signatures[each]) for each in order)
    told = {"library": plugin.library or "", "entry_point": plugin.entry_point}
    first = graphs.signatures[order[0]]
    return LoweredGraph(
        document=plugin_document(plugin.entry_point, members, asked_of(first), told),
        problems=ordered(found),
        notes=(f"the adapter {plugin.entry_point}@1 takes the place of the package's plugin",),
        text=facts,
        providers=(),
        session_options=SessionOptions(),
        signature=first,
    )
