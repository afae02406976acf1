"""`genai-compile convert FILE.ort -o FILE.onnx`: a graph in ONNX Runtime's own format as ONNX, nothing optimised.

ONNX Runtime itself opens the file, as it does when a package is run.
"""

import tempfile
from pathlib import Path

import onnx

from genai_compiler.convert import place_file
from genai_compiler.problem import CompileError, Place, Problem
from genai_compiler.read.nodes import all_nodes, graphs_of
from genai_compiler.writable import hold_file


def convert_ort(source: Path, target: Path, force: bool = False) -> None:
    """Write the graph at `source` to the file `target`; force: over one that is there.

    Raises CompileError: output-exists, bad-output, disk-failed, unreadable-graph; ModuleNotFoundError without ONNX
    Runtime; OSError.
    """
    hold_file(target, force)
    with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=".convert-") as part:
        made = Path(part) / target.name
        _saved_by_onnxruntime(source, made)
        model = onnx.load(made)
        _name_graphs(model, target.stem)
        onnx.save(model, made)
        place_file(made, target, force)


def _saved_by_onnxruntime(source: Path, target: Path) -> None:
    import onnxruntime  # not of the `compile` extra: only this command opens a graph

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what it has to say comes as the failure's text
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.load_model_format", "ORT")
    options.add_session_config_entry("session.save_model_format", "ONNX")
    try:
        onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    except Exception as failure:  # its exceptions have no common base but this one
        what = f"ONNX Runtime can't open {source.name!r} and write it as ONNX: {failure}"
        help = "take the file of a release that this ONNX Runtime reads, or the model's ONNX files"
        raise CompileError([Problem("unreadable-graph", Place(source.name), "", what, help)]) from failure


def _name_graphs(model: onnx.ModelProto, name: str) -> None:
    """Give every graph a name: ONNX wants one, and the other format drops them."""
    model.graph.name = model.graph.name or name
    for node in all_nodes(model):
        for attribute in node.attribute:
            for inner in graphs_of(attribute):
                inner.name = inner.name or attribute.name
