"""Packages that can't run as they stand, told apart by what is missing and by what their graph does."""

from pathlib import Path

from onnx import ModelProto

from genai_compiler.problem import CompileError, Place, Problem, Severity
from genai_compiler.read.attention import ATTENTION_OPS
from genai_compiler.read.genai_config import CONFIG_NAME
from genai_compiler.read.graph_facts import length_switches, op_types, random_ops
from genai_compiler.read.mask_matrix import taken_as_a_matrix
from genai_compiler.read.signature import read_signature

_KNOWN_DOMAINS = ("", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc")
_MIXING = ATTENTION_OPS | {"Softmax", "Conv", "LSTM", "GRU", "RNN", "Scan", "CumSum", "LinearAttention"}


def check_graph(model: ModelProto, artifact: str, has_state: bool, mask: str = "") -> tuple[Problem, ...]:
    """What a decoder graph does that its user must know, and what it does that can't be run. mask: its mask input."""
    where, found = Place(artifact), list[Problem]()
    for switch in length_switches(model):
        what = (
            f"the graph changes its tables by length: where {' and '.join(switch.inputs)} gives a length compared "
            f"({switch.comparison}) with {switch.threshold}; keys cached before are not computed again"
        )
        help = (
            f"expect a break in quality when prompt and output together pass {switch.threshold} positions; load with "
            "length_switch='recompute' to compute them again there, or 'refuse' to stay on one side"
        )
        found.append(Problem("length-switch", where, "", what, help, Severity.WARNING))
    if drawn := random_ops(model):
        what = (
            f"nodes draw random numbers inside the graph ({', '.join(drawn[:4])}); a request's seed does not reach them"
        )
        help = "export with the noise as an input"
        found.append(Problem("random-in-graph", where, "", what, help, Severity.WARNING))
    used = op_types(model)
    local = {function.domain for function in model.functions}
    custom = sorted({domain for domain, _ in used if domain not in _KNOWN_DOMAINS and domain not in local})
    if custom:
        what = f"the graph needs operators of {', '.join(map(repr, custom))}, which ONNX Runtime does not bring along"
        found.append(Problem("custom-operators", where, "", what, "export with standard operators", Severity.ERROR))
    if ("com.microsoft", "EPContext") in used:
        what = "the graph is compiled for one device (EPContext) and runs nowhere else"
        found.append(Problem("device-graph", where, "", what, "take the package's portable variant", Severity.ERROR))
    if not has_state and any(op in _MIXING for _, op in used):
        what = "the graph attends over its sequence but has no cache: after the prompt it would see one token at a time"
        help = "export the decoder with past and present (use_cache)"
        found.append(Problem("no-state", where, "", what, help, Severity.ERROR))
    if mask and taken_as_a_matrix(model, mask):
        what = (
            f"{mask!r} goes into an attention operator as it is, which takes its two axes for new tokens and "
            "positions; there is no such mask for a prompt of several tokens"
        )
        help = "export a graph that forms the operator's mask from [batch, positions]"
        found.append(Problem("wrong-port", where, "", what, help, Severity.ERROR))
    return tuple(found)


def missing_files(root: Path) -> tuple[Problem, ...]:
    """Everything that a folder that declares nothing lacks at once, and what its graph alone would tell."""
    what = f"there is no {CONFIG_NAME} in the package, nor the model's own config.json"
    help = "copy config.json from the model, or write one of the two with the exporter" + _derivable(root)
    found = [Problem("missing-file", Place(CONFIG_NAME), "", what, help)]
    for name, use in (
        ("tokenizer.json", "text can't be read or written"),
        ("tokenizer_config.json", "no chat template"),
    ):
        if not (root / name).is_file():
            text = f"there is no {name} in the package: {use}"
            found.append(Problem("missing-file", Place(name), "", text, "copy it from the model", Severity.WARNING))
    return tuple(found)


def _derivable(root: Path) -> str:
    told = [text for each in sorted(root.glob("*.onnx"))[:4] if (text := _told_by(each, root))]
    return "; what the graph tells: " + "; ".join(told) if told else ""


def _told_by(graph: Path, root: Path) -> str:
    try:
        signature = read_signature(graph, root)
    except CompileError:
        return f"{graph.name} can't be read"
    widths = [each.shape[-1] for each in signature.outputs if each.shape and len(each.shape) == 3]
    caches = len(signature.cache_ops)
    inputs = ", ".join(repr(each.name) for each in signature.inputs[:4])
    text = f"{graph.name} takes {inputs}" + (f", keeps {caches} attention caches" if caches else "")
    return text + (f", gives {widths[0]} logits" if widths and isinstance(widths[0], int) else "")
