"""Adapters in memory: loaded when first selected, the least recently used goes first (standard, 6.3)."""

from collections import OrderedDict
from collections.abc import Collection, Mapping
from pathlib import Path
from threading import Lock

from genai_runtime.lora.files import Factors, read_adapter
from genai_runtime.lora.spec import LoraSpec

Loaded = Mapping[str, Factors]
"""One adapter: target id -> factors."""


class AdapterCache:
    """At most `spec.cache` adapters. A request holds its own, so that what is evicted stays usable to its end."""

    def __init__(self, package: Path, spec: LoraSpec) -> None:
        self._package, self._spec = package, spec
        self._held: OrderedDict[int, Loaded] = OrderedDict()
        self._lock = Lock()

    def load(self, indices: Collection[int]) -> dict[int, Loaded]:
        """The adapters of one request, none of which is evicted for another of them. Raises AdapterFault."""
        with self._lock:
            for index in sorted(indices):
                if index in self._held:
                    self._held.move_to_end(index)
            for index in sorted(set(indices) - set(self._held)):
                self._held[index] = read_adapter(self._package, self._spec.by_index[index], self._spec.by_id)
            loaded = {index: self._held[index] for index in indices}
            while len(self._held) > self._spec.cache:
                self._held.popitem(last=False)
            return loaded

    @property
    def held(self) -> tuple[int, ...]:
        """Numbers of the adapters in memory, the next to go first."""
        return tuple(self._held)
