"""Draw a token by a graph of the compiled folder, from the scores where they lie (docs/decisions/0015).

The graph computes the definition in truncate.py; the uniform number comes from the row's own generator, one a token, as
there. So a seed means the same tokens either way, as far as two exponential functions round alike.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from genai_runtime import binding
from genai_runtime.problem import ExecutionError
from genai_runtime.truncate import Sampler, Uniforms, not_finite, padded_width
from genai_runtime.values import Array, view

if TYPE_CHECKING:
    from genai_runtime.sample import SamplingOptions

FloatRow = npt.NDArray[np.float32]
KEEPS_ALL = 2.0
"""Given as top_p where there is none: no sum of weights reaches so much of their total."""
ORIGIN = "token policy"


class GraphSampler:
    """Picks an id of score rows that stay where they are: each float32 [width or more], contiguous.

    width: scores a block, which the graph says.
    """

    def __init__(self, session: Any, options: "SamplingOptions", uniforms: Uniforms) -> None:
        self._session, self._options, self._uniforms = session, options, uniforms
        self._run = binding.run_bound(session, ORIGIN)
        ports = {each.name: each.shape for each in session.get_inputs()}
        self._names, self.width = set(ports), int(ports["blocks"][1])
        self._host: tuple[Sampler, FloatRow] | None = None

    def over(self, row: FloatRow) -> Callable[[], int]:
        """Draws from this buffer: an id, or -1 when every score is -inf.

        Drawing raises ExecutionError `logits-not-finite` on NaN and on +inf, `step-failed`.
        """
        assert row.flags.c_contiguous, "a view of it goes in"
        whole = row.size - row.size % self.width
        inputs, token = self._inputs(row, whole), np.zeros(1, np.int64)
        bound = self._bound(inputs, token)
        best, uniform, rest = inputs["best"], inputs["uniform"], inputs["rest"][0, : row.size - whole]
        tail, largest, drawn, run, uniforms = row[whole:], row.max, token.item, self._run, self._uniforms

        def draw(alive: object = (inputs, token)) -> int:  # an io-binding keeps no array alive
            uniform[0] = uniforms()
            best[0] = top = largest()
            if not math.isfinite(top):
                if top == -math.inf:
                    return -1
                raise not_finite()
            if tail.size:
                rest[:] = tail
            try:
                run(bound, None)
            except binding.RUN_FAILURES as failure:
                raise ExecutionError("step-failed", str(failure), origin=ORIGIN) from failure
            chosen = drawn()
            return chosen if chosen >= 0 else self._by_host(row, uniform.item())

        return draw

    def _inputs(self, row: FloatRow, whole: int) -> dict[str, Array]:
        """The graph's inputs by name; the blocks are the row's own memory."""
        options = self._options
        numbers = {
            "best": 0.0,
            "temperature": options.temperature,
            "top_p": options.top_p if options.top_p < 1 else KEEPS_ALL,
            "min_p": options.min_p,
            "uniform": 0.0,
        }
        return {
            "blocks": row[:whole].reshape(-1, self.width),
            "rest": np.full((1, self.width), -np.inf, np.float32),
            "count": np.array([min(options.top_k, row.size)], np.int64),
            **{name: np.array([number], np.float64) for name, number in numbers.items()},
        }

    def _bound(self, inputs: dict[str, Array], token: Array) -> binding.Bindings:
        """An io-binding over these arrays, which the caller keeps alive."""
        bound = binding.new_bindings(self._session)
        for name in self._names & inputs.keys():
            bound.bind_ortvalue_input(name, view(inputs[name]))
        bound.bind_ortvalue_output("token", view(token))
        return bound

    def _by_host(self, row: FloatRow, uniform: float) -> int:
        """Where the cuts keep more tokens than the graph looks at: the host's way, with the same number."""
        if self._host is None:
            options = self._options
            cuts = (options.temperature, options.top_k, options.top_p, options.min_p)
            padded = np.full(padded_width(row.size), -np.inf, np.float32)
            self._host = Sampler(self._uniforms, row.size, *cuts), padded
        sampler, padded = self._host
        padded[: row.size] = row
        return sampler.drawn(padded, uniform)
