"""The inputs of a graph whose attention keeps its caches in pages: com.microsoft PagedAttention (ContribOperators.md).

All rows' tokens stand in one axis; tables tell which tokens and which pages of the caches belong to which row.
"""

from dataclasses import dataclass

from onnx import GraphProto

from genai_compiler.read.nodes import CONTRIB, input_at, operator_of

_CUMULATIVE, _PAST, _TABLE, _METADATA = 5, 6, 7, 16
"""Where the operator takes them."""


@dataclass(frozen=True)
class PagedInputs:
    """Names of graph inputs. cumulative: where rows begin and end; past: each row's length before; table: its pages.

    metadata: bounds of the longest row, "" where the graph does without.
    """

    cumulative: str
    past: str
    table: str
    metadata: str


def is_paged(graph: GraphProto) -> bool:
    """Whether some attention of the graph keeps its caches in pages."""
    return any(operator_of(node) == (CONTRIB, "PagedAttention") for node in graph.node)


def paged_inputs(graph: GraphProto) -> PagedInputs | None:
    """What all its paged operators take, None where they differ, or take values that are no inputs of the graph."""
    given = {each.name for each in graph.input}
    found = {
        PagedInputs(*(input_at(node, index) for index in (_CUMULATIVE, _PAST, _TABLE, _METADATA)))
        for node in graph.node
        if operator_of(node) == (CONTRIB, "PagedAttention")
    }
    if len(found) != 1:
        return None
    only = found.pop()
    names = {only.cumulative, only.past, only.table, only.metadata or only.table}
    return only if names <= given else None
