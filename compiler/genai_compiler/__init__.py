"""genai_compiler: reads an ONNX generative-AI package and writes the executor for it.

from genai_compiler import compile_package, check_package
compile_package("package/", out="package.compiled")      # raises CompileError(problems)
problems = check_package("package/")                     # all of them
"""

from genai_compiler.driver import Compiled, Options, check_package, compile_package
from genai_compiler.problem import CompileError, InternalError, Place, Problem, Severity

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
