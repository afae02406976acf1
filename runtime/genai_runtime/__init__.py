"""genai_runtime: loads and runs compiled packages.

import genai_runtime
model = genai_runtime.load("model.compiled")
for piece in model.generate("Once upon a time", max_new_tokens=64):
    print(piece, end="", flush=True)

Nothing heavy is imported before a name is first asked for, so that a command can say what it does while it starts.
"""

from typing import TYPE_CHECKING

from genai_runtime.on_demand import on_demand

if TYPE_CHECKING:
    from genai_runtime.abi import ABI_VERSION
    from genai_runtime.drawing import Drawing
    from genai_runtime.generation import Generation, Piece, Stats
    from genai_runtime.model import Model
    from genai_runtime.opening import load
    from genai_runtime.pictures import save_png
    from genai_runtime.problem import ExecutionError, GenaiError, LoadError, RequestError
    from genai_runtime.request import Event
    from genai_runtime.result import Result
    from genai_runtime.sample import SamplingOptions

__all__ = [
    "ABI_VERSION",
    "Drawing",
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

_HOMES = {
    "ABI_VERSION": "abi",
    "Drawing": "drawing",
    "Event": "request",
    "ExecutionError": "problem",
    "GenaiError": "problem",
    "Generation": "generation",
    "LoadError": "problem",
    "Model": "model",
    "Piece": "generation",
    "RequestError": "problem",
    "Result": "result",
    "SamplingOptions": "sample",
    "Stats": "generation",
    "load": "opening",
    "save_png": "pictures",
}
"""Public name -> the module that has it."""


__getattr__ = on_demand(__name__, globals(), _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
