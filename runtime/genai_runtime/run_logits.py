"""What a run gave as logits, held against what its graph declares.

ONNX Runtime only warns where a graph gives another shape than it says, and numpy would repeat a single score over the
whole vocabulary.
"""

from genai_runtime.problem import ExecutionError
from genai_runtime.sample import FloatRow, to_float32
from genai_runtime.values import Array


def by_position(found: Array) -> Array:
    """Logits of any shape, one row a position: [positions, vocab]."""
    width = found.shape[-1] if found.ndim else 1
    return found.reshape(found.size // (width or 1), width)


def run_logits(found: Array, shape: tuple[int, ...], origin: str) -> FloatRow:
    """float32 of that shape, [rows, vocab]. Raises ExecutionError `step-failed` for another one, `logits-dtype`."""
    if found.shape != shape:
        what = f"the graph gave logits {list(found.shape)} where it declares {list(shape)}"
        help = "export the graph again: its outputs have other extents than it says"
        raise ExecutionError("step-failed", what, help=help, origin=origin)
    return to_float32(found)
