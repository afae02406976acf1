"""genai_runtime: loads and runs compiled packages.

import genai_runtime
model = genai_runtime.load("model.compiled")
for piece in model.generate("Once upon a time", max_new_tokens=64):
    print(piece, end="", flush=True)
"""

from genai_runtime.abi import ABI_VERSION
from genai_runtime.generation import Generation, Piece, Stats
from genai_runtime.load import load
from genai_runtime.model import Model
from genai_runtime.pictures import save_png
from genai_runtime.problem import ExecutionError, GenaiError, LoadError, RequestError
from genai_runtime.publish import Result
from genai_runtime.request import Event
from genai_runtime.sample import SamplingOptions

__all__ = [
    "ABI_VERSION",
    "Event",
    "ExecutionError",
    "GenaiError",
    "Generation",
    "LoadError",
    "Model",
    "Piece",
    "RequestError",
    "Result",
    "SamplingOptions",
    "Stats",
    "load",
    "save_png",
]
