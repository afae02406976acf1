"""genai_compiler: reads an ONNX generative-AI package and writes the executor for it.

from genai_compiler import compile_package, check_package
compile_package("package/", out="package.compiled")      # raises CompileError(problems)
problems = check_package("package/")                     # all of them
"""

from typing import TYPE_CHECKING, Any

from genai_compiler.problem import CompileError, InternalError, Place, Problem, Severity

if TYPE_CHECKING:
    from genai_compiler.driver import Compiled, Options, check_package, compile_package

__all__ = [
    "CompileError",
    "Compiled",
    "InternalError",
    "Options",
    "Place",
    "Problem",
    "Severity",
    "check_package",
    "compile_package",
]


def __getattr__(name: str) -> Any:
    """What needs the `compile` extra is imported when first asked for: the command can then say that it is missing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from genai_compiler import driver

    return getattr(driver, name)
