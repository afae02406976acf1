"""How many tokens to draft next, said by the package's own graph (contract adaptive-proposal-budget, standard 4.1).

Its estimates are advisory state: made for one request, in no session and no checkpoint. They follow the clock, so the
widths of two runs differ; no width changes a token.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from genai_runtime import binding
from genai_runtime.problem import ExecutionError
from genai_runtime.sessions import Sessions
from genai_runtime.values import Array, encode, to_array, to_value


@dataclass(frozen=True)
class BudgetSpec:
    """The graph's ports by role: inputs (role, port, dtype, rank), outputs (role, port); extents of the estimates."""

    component: str
    origin: str
    inputs: tuple[tuple[str, str, str, int], ...]
    outputs: tuple[tuple[str, str], ...]
    estimates: tuple[int, ...]


class Budget:
    """The width of one request's blocks, from 1 to `most`. Without a graph it stays at `most`."""

    def __init__(self, sessions: Sessions, spec: BudgetSpec | None, most: int) -> None:
        self.width = self.most = most
        self._spec = spec
        if spec is not None:
            self._run = binding.run_with_values(sessions.session(spec.component))
            self._estimates: Any = np.zeros(spec.estimates, np.float32)

    def learn(self, accepted: int, evaluated: int, committed: int, draft_ms: float, target_ms: float) -> None:
        """Tell it of one block: drafts accepted, of those evaluated; tokens committed; the time of both sides."""
        if self._spec is None or not evaluated:
            return
        told = {
            "current_k": self.width, "accepted": accepted, "evaluated": evaluated, "committed_tokens": committed,
            "filled_proposal_budget": evaluated == self.width, "draft_ms": draft_ms, "target_ms": target_ms,
            "estimates": self._estimates,
        }  # fmt: skip
        try:
            feeds = {
                port: to_value(
                    np.reshape(encode(told[role], dtype), self._spec.estimates if role == "estimates" else (1,) * rank)
                )
                for role, port, dtype, rank in self._spec.inputs
            }
            made = binding.results(self._run(feeds, [port for _, port in self._spec.outputs], None))
        except OverflowError as failure:  # a port whose type is too small for what it is told
            raise self._failed(str(failure)) from failure
        except binding.RUN_FAILURES as failure:
            raise self._failed(str(failure)) from failure
        given = dict(zip((role for role, _ in self._spec.outputs), map(to_array, made), strict=True))
        self._take(given["next_k"], given["next_estimates"])

    def _take(self, width: Array, estimates: Array) -> None:
        """What the graph made of it, whose types and extents it may have left open."""
        assert self._spec is not None
        if width.dtype.kind not in "iu" or width.size != 1:
            raise self._failed(f"next_k is {width.dtype} of {width.size} elements, not one whole number")
        if estimates.dtype.kind != "f" or estimates.shape != self._spec.estimates:
            found = f"{estimates.dtype} {list(estimates.shape)}"
            raise self._failed(
                f"next_estimates is {found}; the estimates that it takes are {list(self._spec.estimates)}"
            )
        self.width = min(max(int(width.reshape(-1)[0]), 1), self.most)
        self._estimates = estimates.copy()

    def _failed(self, what: str) -> ExecutionError:
        assert self._spec is not None
        return ExecutionError("step-failed", what, origin=f"{self._spec.origin} (component '{self._spec.component}')")
