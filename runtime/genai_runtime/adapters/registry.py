"""ABI and version -> the code that implements them: ours by table, others by entry point."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from genai_runtime.adapters.audio import audio_preprocess
from genai_runtime.adapters.diffusion import diffusion
from genai_runtime.adapters.grammar_guidance import grammar_guidance
from genai_runtime.adapters.grid_positions import grid_positions
from genai_runtime.adapters.image.one_by_one import join_pictures, one_picture
from genai_runtime.adapters.image.preprocess import image_preprocess
from genai_runtime.adapters.telemetry import telemetry
from genai_runtime.problem import ExecutionError, GenaiError, LoadError
from genai_runtime.values import NUMPY, Array, Value, to_array, to_bfloat16, to_value

GROUP = "genai_runtime.adapters"
Parameters = Mapping[str, bool | int | float | str]
AdapterCall = Callable[[Mapping[str, Array]], Mapping[str, Array | Value]]
"""Arrays by role in, arrays (or, of a type that numpy lacks, tensors) by role out; an unbound port is its own role."""

Factory = Callable[..., AdapterCall]
"""Made once a step from the component contract's parameters, and from the program where the document has one for it, or
from the package's graphs by component where its parameter `graphs` names some (`package_graphs.PackageGraph`).

May raise ValueError for parameters it does not know.
"""

OURS: Mapping[str, Factory] = {
    "genai-compile.audio-processor@1": audio_preprocess,
    "genai-compile.diffusion@1": diffusion,
    "genai-compile.grid-positions@1": grid_positions,
    "genai-compile.image-processor@1": image_preprocess,
    "genai-compile.join-pictures@1": join_pictures,
    "genai-compile.one-picture@1": one_picture,
    "onnx-genai.audio-preprocess@1": audio_preprocess,
    "onnx-genai.grammar-guidance@1": grammar_guidance,
    "onnx-genai.image-preprocess@1": image_preprocess,
    "onnx-genai.telemetry@1": telemetry,
}

BY_SERVICE = frozenset({"onnx-genai.parameter-overlay@1"})
"""Adapters that an executor takes from a service of the runtime (`Sessions.lora`), not from this table."""


@dataclass(frozen=True)
class Adapter:
    """One invoke of an adapter: (port, role) pairs in the order in which values come and go.

    forms: the element type and rank that each output port declares, None where nothing is held against them.
    """

    call: AdapterCall
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    origin: str
    forms: tuple[tuple[str, int], ...] | None = None

    def __call__(self, *values: Value) -> Sequence[Value]:
        """Values in the order of `inputs` in, in the order of `outputs` out. Raises GenaiError naming the step."""
        arrays = {role: to_array(value) for (_, role), value in zip(self.inputs, values, strict=True)}
        try:
            made = self.call(arrays)
            return [self._value(at, made[role]) for at, (_, role) in enumerate(self.outputs)]
        except GenaiError as failure:
            raise type(failure)(failure.code, failure.what, help=failure.help, origin=self.origin) from failure
        except Exception as failure:  # adapters of others raise what they like
            raise ExecutionError("adapter", f"{type(failure).__name__}: {failure}", origin=self.origin) from failure

    def _value(self, at: int, array: Array | Value) -> Value:
        """An output as a tensor; bfloat16 may come as the float32 that outputs have. What is a tensor stays one."""
        if not isinstance(array, np.ndarray | np.generic):
            return array
        if self.forms is None:
            return to_value(array)
        dtype, rank = self.forms[at]
        bits = to_bfloat16(array) if dtype == "bfloat16" and array.dtype == np.float32 else array
        if bits.dtype != NUMPY[dtype] or bits.ndim != rank:
            port = self.outputs[at][0]
            what = f"port '{port}' is {array.dtype} of rank {array.ndim}, its contract says {dtype} of rank {rank}"
            raise ExecutionError("adapter", what)
        return to_value(bits, dtype)


def open_adapter(
    abi: str,
    parameters: Parameters,
    inputs: tuple[tuple[str, str], ...],
    outputs: tuple[tuple[str, str], ...],
    origin: str,
    program: Any = None,
    forms: tuple[tuple[str, int], ...] | None = None,
) -> Adapter:
    """The adapter of one invoke. abi: `name@version`; program: what it is to run, where the document says so.

    forms: dtype and rank of each output port.

    Raises LoadError `adapter-missing`, `adapter-parameters`.
    """
    factory = OURS.get(abi) or _installed(abi, origin)
    if factory is None:
        help = f"install a package that provides it (entry-point group '{GROUP}')"
        raise LoadError("adapter-missing", f"no adapter '{abi}' is installed", help=help, origin=origin)
    try:
        call = factory(parameters) if program is None else factory(parameters, program)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as fault:
        what = f"adapter '{abi}' refuses its parameters: {fault}"
        raise LoadError("adapter-parameters", what, origin=origin) from fault
    return Adapter(call, inputs, outputs, origin, forms)


def _installed(abi: str, origin: str) -> Factory | None:
    from importlib.metadata import entry_points  # 20 ms, for packages that need another adapter than ours

    found = next(iter(entry_points(group=GROUP, name=abi)), None)
    if found is None:
        return None
    try:
        return cast(Factory, found.load())
    except Exception as fault:  # whatever importing somebody's package raises
        what = f"the adapter '{abi}' is installed as '{found.value}' and can't be loaded: {fault}"
        raise LoadError("adapter-missing", what, help="mend the package that provides it", origin=origin) from fault
