"""Our own bugs, told apart from faults of a package, of the disk and of the installation."""

from collections.abc import Iterator
from contextlib import contextmanager

from genai_compiler.missing import library
from genai_compiler.plan.ir import Plan
from genai_compiler.plan.text import plan_text
from genai_compiler.problem import CompileError, InternalError


@contextmanager
def within(stage: str, plan: Plan | None = None) -> Iterator[None]:
    """What a stage raises unforeseen is a bug of ours: InternalError with its name and the plan that it had in hand.

    CompileError, OSError (of the disk), MemoryError and ModuleNotFoundError (of a library that an extra brings, and
    that is imported when a package needs it) go through.
    """
    try:
        yield
    except (CompileError, InternalError, OSError, MemoryError):
        raise
    except Exception as bug:
        if isinstance(bug, ModuleNotFoundError) and library(bug):
            raise
        text = plan_text(plan) if plan is not None else ""
        raise InternalError(stage, f"{type(bug).__name__}: {bug}", text) from bug
