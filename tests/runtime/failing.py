"""Session runs that fail on purpose."""

from collections.abc import Callable
from typing import Any

from genai_runtime import binding


def failing_after(runs: int, failure: Callable[[], BaseException]) -> Callable[[Any], Callable[..., None]]:
    """A stand-in of `binding.run_bound`: the first `runs` calls, of all sessions together, work; others fail."""
    real, left = binding.run_bound, [runs]

    def make(session: Any, origin: str = "") -> Callable[..., None]:
        run = real(session)

        def limited(*given: Any) -> None:
            if not left[0]:
                raise failure()
            left[0] -= 1
            run(*given)

        return limited

    return make
