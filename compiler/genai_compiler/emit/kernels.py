"""Operators that not every execution provider can run: what a compiled folder needs, so that loading it can say so.

ONNX Runtime itself says it too, but only once a session reads the weights, and without a way out.
"""

from collections.abc import Mapping
from typing import Any

from genai_compiler.read.nodes import CONTRIB, all_nodes, operator_of
from genai_compiler.read.package import Package

WITHOUT_KERNEL: Mapping[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    (CONTRIB, "PagedAttention"): (("CPUExecutionProvider",), ("CUDAExecutionProvider",)),
}
"""Operator -> providers that have no kernel of it, and those known to have one (ONNX Runtime 1.32, OperatorKernels.md).
A provider that stands in neither list is left to try."""


def kernels(package: Package) -> list[dict[str, Any]]:
    """One entry for every operator of a component's graph that some provider can't run, in the order of components."""
    found: list[dict[str, Any]] = []
    for component, graph in sorted(package.graphs.items()):
        used = {operator_of(node) for node in all_nodes(graph.model)}
        for operator in sorted(used & WITHOUT_KERNEL.keys()):
            lacking, having = WITHOUT_KERNEL[operator]
            found.append(
                {
                    "component": component,
                    "artifact": graph.artifact,
                    "operator": ".".join(filter(None, operator)),
                    "lacking": list(lacking),
                    "having": list(having),
                }
            )
    return found
