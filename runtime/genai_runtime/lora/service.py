"""The LoRA service of one loaded package, and what one request selected from it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from genai_runtime.lora.cache import AdapterCache, Loaded
from genai_runtime.lora.composing import component_inputs
from genai_runtime.lora.fault import AdapterFault
from genai_runtime.lora.selection import Slots, check_overlays, rows_of
from genai_runtime.lora.spec import LoraSpec, Target
from genai_runtime.problem import ExecutionError, LoadError
from genai_runtime.values import Array, Value, to_array, to_value


class LoraService:
    """Selects and loads adapters. One for all requests of a model."""

    def __init__(self, package: Path, spec: LoraSpec) -> None:
        self.spec, self.cache = spec, AdapterCache(package, spec)

    def selector(self, components: Sequence[str], overlays: Sequence[tuple[str, str]]) -> "Selector":
        """What an executor asks at the start of a run. components: those whose graphs take factors; overlays: steps."""
        return Selector(self, tuple(components), tuple(overlays))

    def overlay(self, component: str, parameter: str, origin: str) -> "Overlay":
        """One step of a parameter overlay."""
        targets = tuple(
            each for each in self.spec.targets if (each.component, each.parameter) == (component, parameter)
        )
        if not targets:
            raise LoadError("damaged-folder", f"the manifest has no adapter target '{parameter}' of '{component}'")
        return Overlay(targets, origin)


class Selector:
    """Turns a request's selection inputs into what the steps take."""

    def __init__(
        self, service: LoraService, components: tuple[str, ...], overlays: tuple[tuple[str, str], ...]
    ) -> None:
        self._service, self._overlays = service, overlays
        self._targets = {
            name: [each for each in service.spec.targets if each.component == name and each.seam is not None]
            for name in components
        }

    def __call__(
        self, segments: Value, counts: Value, scales: Value, active: Value | None = None
    ) -> tuple["Chosen", *tuple[Mapping[str, Value], ...]]:
        """The rows' adapters, then the graph inputs of each component that takes factors, in their order.

        Everything that can be wrong with a selection is found here, before a step runs. Raises RequestError:
        adapter-selection, adapter-cache, adapter-fallback, adapter-binding, adapter-batching; ExecutionError with the
        code of an adapter's file that changed since it was compiled.
        """
        spec = self._service.spec
        flags = None if active is None else to_array(active)
        rows = rows_of(spec, to_array(segments), to_array(counts), to_array(scales), flags)
        check_overlays(spec, rows, self._overlays)
        try:
            loaded = self._service.cache.load({index for row in rows for index, _ in row})
        except AdapterFault as fault:
            raise ExecutionError(fault.code, fault.what, help=fault.help, origin="adapters.artifacts") from fault
        inputs = (component_inputs(targets, rows, loaded) for targets in self._targets.values())
        return (Chosen(rows, loaded), *inputs)


class Chosen:
    """The adapters of one request: a row's slots in order, and the factors behind them."""

    def __init__(self, rows: tuple[Slots, ...], loaded: Mapping[int, Loaded]) -> None:
        self.rows, self.loaded = rows, loaded


class Overlay:
    """A parameter overlay (standard, 5.3): output = input + the deltas of its row's adapters, in float32.

    Where the outputs are not as wide as the input, the input is only what the deltas are made from, and a row without
    adapters has no value. Each row is computed by itself, so that it comes out as it would alone.
    """

    def __init__(self, targets: tuple[Target, ...], origin: str) -> None:
        self._targets, self._origin = targets, origin
        self._inputs, self._outputs = targets[0].inputs, targets[0].outputs

    def __call__(self, value: Value, chosen: Chosen) -> tuple[Value]:
        """value: float32 [rows, input features]; gives float32 [rows, output features]. Raises ExecutionError."""
        x = to_array(value)
        if x.ndim != 2 or x.dtype != np.float32 or x.shape[1] != self._inputs:
            what = f"an overlay of {self._inputs} features was given {x.dtype} {list(x.shape)}"
            raise ExecutionError("adapter", what, origin=self._origin)
        if x.shape[0] != len(chosen.rows):
            what = f"there are adapters for {len(chosen.rows)} rows, the overlay was given {x.shape[0]}"
            raise ExecutionError("adapter", what, origin=self._origin)
        made = np.zeros((x.shape[0], self._outputs), dtype=np.float32)
        if self._outputs == self._inputs:
            made[:] = x
        for row, slots in enumerate(chosen.rows):
            if not slots and self._outputs != self._inputs:
                what = f"row {row} uses no adapter, and the overlay's {self._outputs} outputs are nothing but deltas"
                raise ExecutionError("adapter", what, origin=self._origin)
            for index, scale in slots:
                self._add(made[row], x[row], chosen.loaded[index], scale)
        return (to_value(made),)

    def _add(self, out: Array, x: Array, adapter: Loaded, scale: float) -> None:
        for target in self._targets:
            part = adapter.get(target.id)
            if part is not None:
                with np.errstate(over="ignore", invalid="ignore"):  # as the input's own NaN and infinity would be
                    delta = part.b @ (part.a @ x)
                    out[target.offset : target.offset + target.width] += np.float32(scale * part.factor) * delta
