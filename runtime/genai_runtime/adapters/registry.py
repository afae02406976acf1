"""ABI and version -> the code that implements them: ours by table, others by entry point."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, cast
from weakref import ReferenceType, ref

import numpy as np

from genai_runtime.problem import ExecutionError, GenaiError, LoadError
from genai_runtime.values import NUMPY, Array, Value, bits_dtype, dtype_of, to_array, to_bfloat16, to_value

GROUP = "genai_runtime.adapters"
Parameters = Mapping[str, bool | int | float | str]
AdapterCall = Callable[[Mapping[str, Array]], Mapping[str, Array | Value]]
"""Arrays by role in, arrays (or, of a type that numpy lacks, tensors) by role out; an unbound port is its own role.

What comes in is read only: steps behind this one read the same memory. A tensor that comes again comes as the same
array. What goes out is copied.
"""

Factory = Callable[..., AdapterCall]
"""Made once a step from the component contract's parameters, and from the program where the document has one for it, or
from the package's graphs by component where its parameter `graphs` names some (`package_graphs.PackageGraph`).

May raise ValueError for parameters it does not know.
"""

OURS: Mapping[str, tuple[str, str]] = {
    "genai-compile.audio-processor@1": ("audio", "audio_preprocess"),
    "genai-compile.diffusion@1": ("diffusion", "diffusion"),
    "genai-compile.end-source@1": ("end_source", "end_source"),
    "genai-compile.entry-count@1": ("entry_count", "entry_count"),
    "genai-compile.grid-positions@1": ("grid_positions", "grid_positions"),
    "genai-compile.image-processor@1": ("image.preprocess", "image_preprocess"),
    "genai-compile.join-pictures@1": ("image.one_by_one", "join_pictures"),
    "genai-compile.one-picture@1": ("image.one_by_one", "one_picture"),
    "genai-compile.one-sound@1": ("audio.one_by_one", "one_sound"),
    "genai-compile.window-rows@1": ("image.window_rows", "window_rows"),
    "onnx-genai.audio-preprocess@1": ("audio", "audio_preprocess"),
    "onnx-genai.grammar-guidance@1": ("grammar_guidance", "grammar_guidance"),
    "onnx-genai.image-preprocess@1": ("image.preprocess", "image_preprocess"),
    "onnx-genai.telemetry@1": ("telemetry", "telemetry"),
}
"""ABI and version -> the module of ours, and the factory in it. Imported for packages that have such a step."""

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
    _given: dict[str, tuple[ReferenceType[Value], Array]] = field(
        default_factory=dict[str, tuple[ReferenceType[Value], Array]], repr=False
    )

    def __call__(self, *values: Value) -> Sequence[Value]:
        """Values in the order of `inputs` in, in the order of `outputs` out. Raises GenaiError naming the step."""
        arrays = {role: self._array(role, value) for (_, role), value in zip(self.inputs, values, strict=True)}
        try:
            made = self.call(arrays)
            return [self._value(at, made, role) for at, (_, role) in enumerate(self.outputs)]
        except GenaiError as failure:
            raise type(failure)(failure.code, failure.what, help=failure.help, origin=self.origin) from failure
        except Exception as failure:  # adapters of others raise what they like
            raise ExecutionError("adapter", f"{type(failure).__name__}: {failure}", origin=self.origin) from failure

    def _array(self, role: str, value: Value) -> Array:
        """The tensor read only; for one that came before, the same array, which goes when the tensor goes."""
        kept = self._given.get(role)
        if kept is not None and kept[0]() is value:
            return kept[1]
        array = to_array(value)
        array.flags.writeable = False
        if not bits_dtype(value):  # those numbers are a copy: they would miss what is written later
            self._given[role] = ref(value, lambda gone: self._forget(role, gone)), array
        return array

    def _forget(self, role: str, gone: ReferenceType[Value]) -> None:
        kept = self._given.get(role)
        if kept is not None and kept[0] is gone:
            del self._given[role]

    def _value(self, at: int, made: Mapping[str, Array | Value], role: str) -> Value:
        """An output as a tensor; bfloat16 may come as the float32 that outputs have. What is a tensor stays one."""
        if role not in made:
            raise ExecutionError("adapter", f"the adapter gives nothing for '{role}'")
        found, (port, _) = made[role], self.outputs[at]
        value = self._tensor(at, found) if isinstance(found, np.ndarray | np.generic) else found
        if not hasattr(value, "data_type"):
            raise ExecutionError("adapter", f"the adapter gives a {type(value).__name__} for '{role}', no array")
        if self.forms is not None:
            (dtype, rank), has = self.forms[at], dtype_of(value)
            if dtype != has or len(value.shape()) != rank:
                what = f"port '{port}' is {has} of rank {len(value.shape())}, its contract says {dtype} of rank {rank}"
                raise ExecutionError("adapter", what)
        return value

    def _tensor(self, at: int, array: Array) -> Value:
        wanted = self.forms[at][0] if self.forms is not None else ""
        if wanted == "bfloat16" and array.dtype == np.float32:
            return to_value(to_bfloat16(array), wanted)
        if array.dtype.name not in NUMPY:
            raise ExecutionError(
                "adapter", f"port '{self.outputs[at][0]}' is {array.dtype}, which no tensor here holds"
            )
        return to_value(array, wanted if NUMPY.get(wanted) == array.dtype else "")


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
    factory = _own(abi) or _installed(abi, origin)
    if factory is None:
        help = f"install a package that provides it (entry-point group '{GROUP}')"
        raise LoadError("adapter-missing", f"no adapter '{abi}' is installed", help=help, origin=origin)
    try:
        call = factory(parameters) if program is None else factory(parameters, program)
    except GenaiError:
        raise
    except Exception as fault:  # whatever making somebody's adapter raises
        kind = "" if isinstance(fault, TypeError | ValueError) else f"{type(fault).__name__}: "
        what = f"adapter '{abi}' refuses its parameters: {kind}{fault}"
        raise LoadError("adapter-parameters", what, origin=origin) from fault
    if not callable(call):
        what = f"what is installed for adapter '{abi}' makes a {type(call).__name__}, which can't be called"
        raise LoadError("adapter-missing", what, help="mend the package that provides it", origin=origin)
    return Adapter(call, inputs, outputs, origin, forms)


def _own(abi: str) -> Factory | None:
    if abi not in OURS:
        return None
    module, name = OURS[abi]
    return cast(Factory, getattr(import_module(f"genai_runtime.adapters.{module}"), name))


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
