"""Steps that a runtime supplies by contract (standard, 4.3), and how often one run executed each.

A step that the package declares a graph for is never supplied: a package whose sampling and termination are graphs
counts none.
"""

DECODE = "onnx-genai.autoregressive-decode"
POLICY = "onnx-genai.token-policy"
BLOCK = "onnx-genai.speculative-block"
BATCH = "onnx-genai.continuous-batch"


def executed(decode: int = 0, policy: int = 0, block: int = 0) -> dict[str, int]:
    """Executions by contract; continuous-batch is never one: rows of different requests don't share a run here."""
    return {DECODE: decode, POLICY: policy, BLOCK: block, BATCH: 0}
