"""Graphs that draw a row's next token from its scores: which a folder has, which it prefers, and their sessions.

They are small and of the host's memory: each session has one thread, on the CPU, whatever the decoder runs on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genai_runtime import binding
from genai_runtime.problem import LoadError
from genai_runtime.providers import CPU

if TYPE_CHECKING:
    from genai_runtime.sample import SamplingOptions

SIDES = ("host", "graph")
"""Who draws, where a caller of `load` says so."""
SETTINGS: Mapping[str, str | int | bool] = {
    "intra_op_num_threads": 1,
    "inter_op_num_threads": 1,
    "log_severity_level": 3,
}


@dataclass
class PolicyGraphs:
    """files: kind -> graph. preferred: ways of drawing that a graph takes, by name; None: all. most: of these, at most
    so many tokens that top_k keeps. Sessions are opened by the first request that draws by them.
    """

    files: Mapping[str, Path]
    preferred: frozenset[str] | None
    most: int
    _open: dict[str, Any] = field(default_factory=dict[str, Any])

    def session(self, options: "SamplingOptions") -> Any | None:
        """The session that draws with such options; None where the host does. Raises LoadError `session-failed`."""
        kind = graph_of(options)
        if self.preferred is not None and (way_of(options) not in self.preferred or options.top_k > self.most):
            return None
        if kind not in self._open:
            self._open[kind] = _opened(self.files[kind])
        return self._open[kind]

    def close(self) -> None:
        """Drop the sessions."""
        self._open.clear()


def graph_of(options: "SamplingOptions") -> str:
    """The kind of graph that draws with such options: named after the first cut."""
    cuts = (("top_k", options.top_k > 0), ("top_p", options.top_p < 1), ("min_p", options.min_p > 0))
    return next((name for name, asked in cuts if asked), "temperature")


def way_of(options: "SamplingOptions") -> str:
    """The way of drawing whose costs are compared when compiling: the kind, and what the host takes longer for."""
    return "top_k+top_p" if options.top_k > 0 and options.top_p < 1 else graph_of(options)


def policy_graphs(stated: Mapping[str, Any] | None, folder: Path, side: str | None) -> PolicyGraphs | None:
    """The graphs of a folder; None where only the host draws.

    stated: of the manifest. side: what the caller of `load` wants, None for what the folder prefers.
    Raises LoadError `bad-policy` for a side that is none, `no-policy-graphs`.
    """
    if side is not None and side not in SIDES:
        raise LoadError("bad-policy", f"policy is 'host' or 'graph', got {side!r}", help="leave it out for the cheaper")
    if stated is None:
        if side == "graph":
            what = f"'{folder}' has no graphs that draw tokens"
            help = "its package has a sampler of its own, or it was compiled --without place_policy"
            raise LoadError("no-policy-graphs", what, help=help)
        return None
    if side == "host":
        return None
    files = {kind: folder / each["file"] for kind, each in stated["graphs"].items()}
    return PolicyGraphs(files, None if side == "graph" else frozenset(stated["by_graph"]), stated["most"])


def _opened(file: Path) -> Any:
    try:
        return binding.open_session(file, dict(SETTINGS), [(CPU, {})])
    except binding.RUN_FAILURES as failure:
        what = f"ONNX Runtime can't open {file.name}, which draws tokens: {failure}"
        help = "load the folder with policy='host', or compile it again"
        raise LoadError("session-failed", what, help=help) from failure
